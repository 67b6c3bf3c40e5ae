"""PyTorch under a cap. Arguments: a part, and the cap in bytes.

The last line that it prints is the figure; what is not as it should be ends it with an exception.
"""

import subprocess
import sys
import time

import torch

MIB = 1 << 20
PIECE = 16 * MIB


def require(holds, what):
    if not holds:
        raise SystemExit(what)


def until_refused():
    """Pieces of memory until PyTorch says that there is no more."""
    pieces = []
    try:
        while len(pieces) * PIECE <= CAP:
            pieces.append(torch.empty(PIECE, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        return pieces
    raise SystemExit(f"{len(pieces) * PIECE} bytes are given under a cap of {CAP}")


def cap():
    torch.zeros(1, device="cuda")
    free, total = torch.cuda.mem_get_info()
    require(total == CAP, f"mem_get_info says {total} in all, the cap is {CAP}")
    pieces = until_refused()
    got = len(pieces) * PIECE
    require(got >= free * 3 // 4, f"refused at {got} bytes, where {free} were free")
    first = pieces.pop().fill_(7)
    pieces.pop()  # room for the sum
    require(int(first.sum(dtype=torch.int64)) == 7 * PIECE, "what was written is not read")
    del first
    pieces.clear()
    torch.cuda.empty_cache()
    again = until_refused()
    require(len(again) * PIECE >= got * 9 // 10, f"{got} bytes, then {len(again) * PIECE}")
    print(f"{got // MIB}MiB of {free // MIB}MiB that were free, then refused; twice")


def graphs():
    source = torch.arange(1024.0, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # as PyTorch wants it before a capture
        for _ in range(3):
            result = source * 2 + 1
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = source * 2 + 1
    for times in range(1, 11):
        source.fill_(times)
        graph.replay()
        require(bool((result == 2 * times + 1).all()), f"replay {times} computed something else")
    until_refused()
    graph.replay()
    torch.cuda.synchronize()
    print("captured, replayed 10 times, and once more at the cap")


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.full((1024,), float(index))


def loader():
    torch.zeros(1, device="cuda")  # a context, before there are workers
    batches = torch.utils.data.DataLoader(
        Numbers(), batch_size=16, num_workers=2, pin_memory=True, multiprocessing_context="fork")
    total = sum(float(batch.cuda().sum(dtype=torch.float64)) for batch in batches)
    require(total == 1024 * 255 * 256 / 2, f"the sum is {total}")
    until_refused()
    print("256 rows by 2 forked workers, the sum is right")


def hold():
    """One of two: says what is free, is told how much to take, says whether it got it, and waits."""
    torch.zeros(1, device="cuda")
    print(torch.cuda.mem_get_info()[0], flush=True)
    for line in sys.stdin:
        try:
            if int(line) == 0:
                print(torch.cuda.mem_get_info()[0], flush=True)
                continue
            kept = torch.empty(int(line), dtype=torch.uint8, device="cuda")
            print("got", kept.numel(), flush=True)
        except torch.cuda.OutOfMemoryError:
            print("refused", flush=True)


def two():
    command = [sys.executable, __file__, "hold", str(CAP)]
    pair = [subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(2)]

    def tell(one, text):
        one.stdin.write(f"{text}\n")
        one.stdin.flush()

    for one in pair:
        one.stdout.readline()
    tell(pair[0], 0)
    free = int(pair[0].stdout.readline())
    want = free * 6 // 10 // PIECE * PIECE
    for one in pair:
        tell(one, want)
    said = sorted(one.stdout.readline().split()[0] for one in pair)
    for one in pair:
        one.stdin.close()
        one.wait()
    require(said == ["got", "refused"], f"each wants {want} of {free} bytes: {said}")
    print(f"of two that each wanted {want // MIB}MiB of {free // MIB}MiB one got it")


def loop():
    """Trains by a captured graph, waiting for each step: alone, then, once it is told so, beside another."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)).cuda()
    steps = torch.optim.SGD(model.parameters(), lr=0.01)
    source = torch.randn(256, 256, device="cuda")
    target = torch.randn(256, 256, device="cuda")

    def step():
        steps.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(source), target)
        loss.backward()
        steps.step()
        return loss

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # as PyTorch wants it before a capture
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    steps.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()
    first = float(loss)

    def rate(seconds):
        count, start = 0, time.monotonic()
        while time.monotonic() < start + seconds:
            graph.replay()
            torch.cuda.synchronize()
            count += 1
        return count / (time.monotonic() - start)

    rate(0.5)  # wakes the card
    print(f"alone {rate(3):.1f}", flush=True)
    sys.stdin.readline()
    rate(1)
    print(f"beside {rate(5):.1f}", flush=True)
    require(float(loss) < first, f"the loss was {first} and is {float(loss)}")
    print("the loss falls")


CAP = int(sys.argv[2])
PARTS = {"cap": cap, "expandable": cap, "graphs": graphs, "loader": loader, "hold": hold,
         "two": two, "loop": loop}
if __name__ == "__main__":
    PARTS[sys.argv[1]]()
