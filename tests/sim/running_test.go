// Machines that are up, with processes of other programs in them.

package sim

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// small is a30 with a card of 1GiB at scale 1/16, and a context of 16MiB: 64MiB and 1MiB simulated.
func small(t *testing.T) *Machine {
	t.Helper()
	machine, err := LoadMachine("a30")
	if err != nil {
		t.Fatal(err)
	}
	machine.Scale = 16
	machine.GPUs[0].MemoryBytes = 1 << 30
	machine.GPUs[0].ContextBytes = 16 << 20
	machine.GPUs = append(machine.GPUs, machine.GPUs[0])
	return machine
}

const clientProgram = "../../build/sim/nvml/client"

// startClient starts a process that holds bytes on a GPU of the machine in dir, until the returned
// function kills it.
func startClient(t *testing.T, dir string, gpu int, bytes int64) (pid int, kill func()) {
	t.Helper()
	if _, err := os.Stat(clientProgram); err != nil {
		t.Skipf("%s is not built: run make build", clientProgram)
	}
	command := exec.Command(clientProgram, fmt.Sprint(gpu), fmt.Sprint(bytes))
	command.Env = append(os.Environ(), "WEIR_SIM="+dir)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe() // closed with this process, so the client never outlives it
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		t.Fatalf("the client said %q: %v", line, err)
	}
	return command.Process.Pid, func() {
		command.Process.Kill()
		io.Copy(io.Discard, output)
		command.Wait()
		input.Close()
	}
}

func TestUpAndDown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "machine")
	if _, err := Status(dir); !errors.Is(err, ErrNoMachine) {
		t.Errorf("status before: %v", err)
	}
	if err := Down(dir, false); !errors.Is(err, ErrNoMachine) {
		t.Errorf("down before: %v", err)
	}
	if err := Up(dir, small(t)); err != nil {
		t.Fatal(err)
	}
	books, err := Status(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !books.Simulated || books.Scale != 16 || books.Driver != "535.309.01" || books.CUDA != "12.2" {
		t.Errorf("books: %+v", books)
	}
	machine := small(t)
	for i, gpu := range books.GPUs {
		if gpu.MemoryBytes != 64<<20 || gpu.UsedBytes != 0 || gpu.Index != i {
			t.Errorf("GPU %d: %+v", i, gpu)
		}
		if gpu.Name != "Simulated A30 24GB" || gpu.UUID != machine.GPUs[i].UUIDString() ||
			gpu.PCI != "0000:3b:00.0" {
			t.Errorf("GPU %d is %q, %s, at %s", i, gpu.Name, gpu.UUID, gpu.PCI)
		}
	}
	if err := Down(dir, false); err != nil {
		t.Error(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrNoMachine) {
		t.Errorf("open after: %v", err)
	}
}

func TestEveryReadyMadeMachineComesUp(t *testing.T) {
	for _, name := range MachineNames() {
		machine, err := LoadMachine(name)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := Up(dir, machine); err != nil {
			t.Error(err)
			continue
		}
		books, err := Status(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := books.GPUs[0].MemoryBytes; got != machine.GPUs[0].MemoryBytes/64 {
			t.Errorf("%s: %d simulated bytes", name, got)
		}
	}
}

func TestUpRefusesWhatNoMachineCanBe(t *testing.T) {
	for name, spoil := range map[string]func(*Machine){
		"no GPU":          func(m *Machine) { m.GPUs = nil },
		"too many GPUs":   func(m *Machine) { m.GPUs = make([]GPU, GPUsMax+1) },
		"no scale":        func(m *Machine) { m.Scale = 0 },
		"context > card":  func(m *Machine) { m.GPUs[0].ContextBytes = 2 << 30 },
		"no multiprocess": func(m *Machine) { m.GPUs[1].Multiprocessors = 0 },
	} {
		machine := small(t)
		spoil(machine)
		dir := t.TempDir()
		if err := Up(dir, machine); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := Open(dir); !errors.Is(err, ErrNoMachine) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBooksOfProcesses(t *testing.T) {
	dir := t.TempDir()
	if err := Up(dir, small(t)); err != nil {
		t.Fatal(err)
	}
	running, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	first, killFirst := startClient(t, dir, 0, 8<<20)
	second, killSecond := startClient(t, dir, 1, 4<<20)
	defer killSecond()

	check := func(gpu int, used, allocated, context int64, alive ...int) {
		t.Helper()
		books, err := running.Books()
		if err != nil {
			t.Fatal(err)
		}
		got := books.GPUs[gpu]
		if got.UsedBytes != used || got.AllocatedBytes != allocated || got.ContextBytes != context {
			t.Errorf("GPU %d: used %d, allocated %d, contexts %d", gpu, got.UsedBytes,
				got.AllocatedBytes, got.ContextBytes)
		}
		if fmt.Sprint(books.LivePIDs) != fmt.Sprint(alive) {
			t.Errorf("alive: %v, want %v", books.LivePIDs, alive)
		}
	}
	check(0, 9<<20, 8<<20, 1<<20, first, second)
	check(1, 5<<20, 4<<20, 1<<20, first, second)
	books, _ := running.Books()
	process, found := books.GPUs[0].Process(first)
	if !found || !process.Alive || process.Program != "client" || process.Contexts != 1 {
		t.Errorf("process: %+v", process)
	}
	if _, found := books.GPUs[1].Process(first); found {
		t.Error("the first process is in the books of a GPU that it never used")
	}

	killFirst()
	check(0, 0, 0, 0, second)
	check(1, 5<<20, 4<<20, 1<<20, second)
}

func TestMachineInUse(t *testing.T) {
	dir := t.TempDir()
	if err := Up(dir, small(t)); err != nil {
		t.Fatal(err)
	}
	pid, kill := startClient(t, dir, 0, 0)
	for verb, err := range map[string]error{"up": Up(dir, small(t)), "down": Down(dir, false)} {
		inUse := (*InUseError)(nil)
		if !errors.As(err, &inUse) || len(inUse.PIDs) != 1 || inUse.PIDs[0] != pid {
			t.Errorf("%s: %v", verb, err)
		} else if !strings.Contains(err.Error(), fmt.Sprint(pid)) {
			t.Errorf("%s: %v does not name pid %d", verb, err, pid)
		}
	}
	kill()
	if err := Up(dir, small(t)); err != nil {
		t.Errorf("up when it is free again: %v", err)
	}
	_, kill = startClient(t, dir, 0, 0)
	defer kill()
	if err := Down(dir, true); err != nil {
		t.Errorf("down by force: %v", err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrNoMachine) {
		t.Errorf("open after down: %v", err)
	}
}

// What is not a machine is nobody's to replace or remove, whatever its name.
func TestForeignFileIsNoMachine(t *testing.T) {
	for kind, put := range map[string]func(path string) error{
		"text":  func(path string) error { return os.WriteFile(path, []byte("not one"), 0o600) },
		"empty": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"pipe":  func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link":  func(path string) error { return os.Symlink("/dev/zero", path) },
		"dir":   func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "machine")
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		_, statusErr := Status(dir)
		for verb, err := range map[string]error{
			"status": statusErr, "up": Up(dir, small(t)), "down": Down(dir, false),
			"down by force": Down(dir, true),
		} {
			if err == nil || errors.Is(err, ErrNoMachine) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %s: %v", kind, verb, err)
			}
		}
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s: it is gone: %v", kind, err)
		}
	}
}

// A machine of another version of weir cannot be read, but it can be replaced and taken away.
func TestMachineOfAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "machine")
	age := func() {
		t.Helper()
		if err := Up(dir, small(t)); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 4096); err != nil {
			t.Fatal(err)
		}
	}
	age()
	if _, err := Status(dir); err == nil || !strings.Contains(err.Error(), "not a machine of this") {
		t.Errorf("status: %v", err)
	}
	age() // over it
	if err := Down(dir, false); err != nil {
		t.Errorf("down: %v", err)
	}
	if _, err := Status(dir); !errors.Is(err, ErrNoMachine) {
		t.Errorf("status after down: %v", err)
	}
}
