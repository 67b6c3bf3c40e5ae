package e2e

// A process that never uses CUDA has the library loaded and nothing else of weir.

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

func TestProgramWithoutCUDAIsUntouched(t *testing.T) {
	n := node.Start(t, node.Options{})
	const script = `sleep 60 & echo $!; wait`
	pidOf := func(p *node.Program) int {
		var pid int
		for _, digit := range p.Line() {
			pid = 10*pid + int(digit-'0')
		}
		return pid
	}
	bare := n.Bare("/bin/sh", "-c", script)
	under := n.Run(node.RunOptions{Name: "idle", Memory: "64MiB"}, "/bin/sh", "-c", script)
	barePID, underPID := pidOf(bare), pidOf(under)
	n.Eventually(func() string {
		if !n.Footprint(barePID).Maps("/sleep") || !n.Footprint(underPID).Maps("/sleep") {
			return "the shells' children are not asleep"
		}
		return ""
	})
	time.Sleep(300 * time.Millisecond) // time enough for a thread or socket to show up
	want, got := n.Footprint(barePID), n.Footprint(underPID)
	if got.Threads != want.Threads {
		t.Errorf("%d threads, without weir %d", got.Threads, want.Threads)
	}
	// Pipes and sockets of the test itself differ in number only.
	kinds := func(files []string) []string {
		var kinds []string
		for _, file := range files {
			kind, _, _ := strings.Cut(file, ":[")
			kinds = append(kinds, kind)
		}
		return kinds
	}
	if !slices.Equal(kinds(got.Files), kinds(want.Files)) {
		t.Errorf("descriptors %q, without weir %q", got.Files, want.Files)
	}
	if !got.Maps("libweir.so") {
		t.Errorf("libweir.so is not loaded: %q", got.Mapped)
	}
	for _, path := range got.Mapped {
		if !slices.Contains(want.Mapped, path) && !strings.Contains(path, "libweir") {
			t.Errorf("%s is mapped, without weir it is not", path)
		}
	}
	if sessions := n.Container("idle").Sessions; len(sessions) != 0 {
		t.Errorf("it has sessions: %+v", sessions)
	}
	for _, p := range []*node.Program{bare, under} {
		p.Kill()
		if p.Stderr() != "" {
			t.Errorf("printed: %q", p.Stderr())
		}
	}
}

// A program that links the driver and has not called it yet is untouched as well; the first call
// makes the session (R9: nothing is connected before).
func TestNothingBeforeTheFirstCall(t *testing.T) {
	n := node.Start(t, node.Options{})
	p := n.Puppet(node.RunOptions{Name: "late", Memory: "64MiB"})
	before, bare := n.Footprint(p.PID()), n.Footprint(n.BarePuppet().PID())
	if before.Threads != 1 || before.Maps("memfd:") || len(before.Files) != len(bare.Files) {
		t.Errorf("before the first CUDA call: %d threads, descriptors %q; without weir %q", before.Threads, before.Files, bare.Files)
	}
	p.OK("init")
	p.OK("alloc %d", mib)
	if sessions := n.Container("late").Sessions; len(sessions) != 1 || sessions[0].PID != p.PID() {
		t.Errorf("after the first CUDA call the sessions are %+v", sessions)
	}
}
