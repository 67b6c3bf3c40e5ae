package main

// Programs on NVIDIA's own runtime: CUDA C++ by nvcc, PyTorch, numba. Where one does not run without
// weir, nothing can be said of it with weir, and it is skipped.

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"weir/tests/e2e/node"
)

// runtimeNeeded skips what NVIDIA's runtime is needed for where only the simulated driver is.
func (r *run) runtimeNeeded(t *trial, programs ...string) {
	if r.options.simulated {
		t.skip("needs a real driver")
	}
	for _, program := range programs {
		if !have(program) {
			t.skip("%s is not installed", program)
		}
	}
}

// ended is how a program ended, and the last thing that it said.
func ended(p *node.Program, limit time.Duration) (code int, last string) {
	code, lines := p.Wait(limit)
	said := strings.Split(strings.TrimSpace(strings.Join(lines, "\n")), "\n")
	if code != 0 {
		said = strings.Split(strings.TrimSpace(p.Stderr()), "\n")
	}
	return code, said[len(said)-1]
}

// cudaPrograms compiles the repository's CUDA programs with nvcc and runs each alone, under the cap, and
// under one that is too small for it.
func (r *run) cudaPrograms(t *trial) {
	r.runtimeNeeded(t, "nvcc")
	sources, err := filepath.Glob("tests/sim/programs/*.cu")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no CUDA programs: %v", err)
	}
	n := r.node.For(t)
	var ran, neither []string
	for _, source := range sources {
		if text, err := os.ReadFile(source); err != nil || bytes.Contains(text, []byte("Managed")) {
			continue // managed memory is not taken on a real card
		}
		name := strings.TrimSuffix(filepath.Base(source), ".cu")
		program := filepath.Join(n.Dir, name)
		compile := exec.Command("nvcc", "-O2", "-I.", "-o", program, source, "-lpthread")
		if out, err := compile.CombinedOutput(); err != nil {
			neither = append(neither, name)
			t.Logf("nvcc %s: %v\n%s", source, err, out)
			continue
		}
		if code, _ := ended(n.Bare(program), rowLimit); code != 0 {
			neither = append(neither, name)
			continue
		}
		ran = append(ran, name)
		if code, said := ended(n.Run(r.capped(name), program), rowLimit); code != 0 {
			t.Errorf("%s runs alone, and fails under a cap of %s: exit %d, %s", name, size(r.capBytes), code, said)
		}
		if code, _ := ended(n.Run(r.cappedAt(name, mib), program), rowLimit); code == 0 {
			t.Errorf("%s runs as well under a cap of %s", name, size(mib))
		}
	}
	if len(ran) == 0 {
		t.skip("none can be compiled and run without weir either: %s", strings.Join(neither, " "))
	}
	t.figure("right: %s; not alone either: %s", strings.Join(ran, " "), orNone(neither))
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " ")
}

// torchCheck runs one part of torch_client.py.
func torchCheck(part string) func(*run, *trial) {
	return func(r *run, t *trial) {
		var environment []string
		if part == "expandable" {
			environment = []string{"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"}
		}
		r.python(t, "import torch; torch.cuda.init()", "tests/gpu/programs/torch_client.py", part, environment)
	}
}

func (r *run) numba(t *trial) {
	r.python(t, "from numba import cuda; cuda.current_context()", "tests/gpu/programs/numba_client.py", "cap", nil)
}

// torchBeside: how fast a loop that replays a captured graph, and waits for each, is beside a hog, of what it
// is alone.
func (r *run) torchBeside(t *trial) {
	r.works(t, "import torch; torch.cuda.init()")
	hog := r.work(t, "hog", 1, hogKernel, workerFlight)
	loop := r.node.For(t).Run(r.capped("torch_client-loop"), "python3", "tests/gpu/programs/torch_client.py", "loop",
		fmt.Sprint(r.capBytes))
	read := func(what string) (rate float64) {
		line := loop.LineWithin(torchWait)
		if _, err := fmt.Sscanf(line, what+" %f", &rate); err != nil {
			t.Fatalf("the loop says %q: %v\n%s", line, err, loop.Stderr())
		}
		return rate
	}
	alone := read("alone")
	hog.Send("go")
	loop.Send("beside")
	beside := read("beside")
	figure := fmt.Sprintf("%.0f replays a second alone, %.0f beside a hog of the same weight: %.0f %%", alone, beside,
		100*beside/alone)
	if beside < torchLeast*alone {
		t.Errorf("%s", figure)
	}
	if code, said := ended(loop, rowLimit); code != 0 {
		t.Errorf("the loop ends with %d: %s", code, said)
	}
	t.figure("%s", figure)
}

const (
	// torchWait is how long PyTorch may take to start, and to capture.
	torchWait = 40 * time.Second
	// torchLeast of what it does alone the loop does beside a hog: less than its half, since a replay's launch from
	// Python and the wait for it are not the GPU's.
	torchLeast = 0.4
)

// works skips the check where what it is about does not work without weir.
func (r *run) works(t *trial, python string) {
	r.runtimeNeeded(t, "python3")
	if code, said := ended(r.node.For(t).Bare("python3", "-c", python), programLimit); code != 0 {
		t.skip("does not work without weir: %s", said)
	}
}

// python runs a script under the cap, if what it is about works without weir.
func (r *run) python(t *trial, without, script, part string, environment []string) {
	r.works(t, without)
	n := r.node.For(t)
	options := r.capped(strings.TrimSuffix(filepath.Base(script), ".py") + "-" + part)
	options.Env = environment
	code, said := ended(n.Run(options, "python3", script, part, fmt.Sprint(r.capBytes)), programLimit)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, said)
	}
	t.figure("%s", said)
}
