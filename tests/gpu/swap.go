package main

// Swap: a program whose memory is more than its container may have on the card, and what moving that costs beside managed
// memory that a program moves by itself.

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"weir/agent/control"
	"weir/tests/e2e/node"
)

const (
	// Of the cap of other checks the container has a half, and swap of as much; its set is one and a half of that.
	// So there is never more managed memory than three quarters of that cap, which is at most half of what is free.
	swapCapPart   = 2
	swapPieces    = 8 // that fit the cap, were there no context
	swapSet       = 12
	swapRounds    = 3
	swapWait      = 20 * time.Second
	swapHostParts = 4 // so many times the set must be available of the host's memory
)

// swap: all data stay whole, some of it was swapped out, no more is on the card than the cap, and nothing beyond cap and
// swap is given. On a card without concurrent managed access it is refused.
func (r *run) swap(t *trial) {
	n, program := r.node.For(t), node.Build(t, "gpu/swapper")
	bytes := r.capBytes / swapCapPart / (2 * mib) * (2 * mib)
	piece := bytes / swapPieces / (2 * mib) * (2 * mib)
	options := r.cappedAt("swap", bytes)
	if r.options.sabotage != "swap" {
		options.Flags = []string{"--swap", fmt.Sprintf("%dMiB", bytes/mib)}
	}
	access := n.Bare(program, "access")
	if line := access.LineWithin(swapWait); line != "1" {
		r.swapRefused(t, options)
		return
	}
	if available := hostAvailable(t); available < swapHostParts*swapSet*piece {
		t.skip("only %s of the host's memory are available", size(available))
	}
	beyond := 2*bytes/piece + 1
	refused := n.Run(options, program, "plain", fmt.Sprint(piece), fmt.Sprint(beyond))
	var number, code int
	line := refused.LineWithin(swapWait)
	if _, err := fmt.Sscanf(line, "refused %d %d", &number, &code); err != nil || code != outOfMemory || number < swapSet {
		t.Errorf("of %d pieces of %s under a cap and swap of %s each: %q", beyond, size(piece), size(bytes), line)
	}
	refused.Wait(swapWait)
	ours := swapper{n.Run(options, program, "plain", fmt.Sprint(piece), fmt.Sprint(swapSet)), t}
	took := ours.rounds()
	use := r.swapUse(t, bytes)
	ours.whole()
	own := swapper{n.Bare(program, "managed", fmt.Sprint(piece), fmt.Sprint(swapSet)), t}
	moves := own.rounds()
	own.whole()
	t.figure("%s under a cap of %s: all set anew in %s (%s moved out by plan, %s in); as plain managed memory, out and in by "+
		"prefetches in %s", size(swapSet*piece), size(bytes), took.Round(time.Millisecond), size(*use.MovedOutBytes),
		size(*use.MovedInBytes), moves.Round(time.Millisecond))
}

// swapRefused fails the check unless `weir run` says in one line that this card cannot have swap.
func (r *run) swapRefused(t *trial, options node.RunOptions) {
	const unsupported = 6
	if gpus := len(r.devices.GPUs()); gpus > 1 {
		t.skip("the first of %d GPUs has no concurrent managed access", gpus)
	}
	out := r.node.For(t).Weir(append(append([]string{"run", "--memory", options.Memory}, options.Flags...), "--", "true")...)
	if out.Code != unsupported || !strings.Contains(out.Stderr, "no concurrent managed access") {
		t.Errorf("without concurrent managed access `weir run --swap` ends with %d and says %q", out.Code, out.Stderr)
	}
	t.figure("refused: no concurrent managed access")
}

// swapUse waits until a container has no more on the card than its cap, some of its memory having been swapped out.
func (r *run) swapUse(t *trial, capBytes int64) (use control.SwapUse) {
	eventually(t, swapWait, "memory is swapped out, and what is on the card is within the cap", func() bool {
		for _, gpu := range r.node.For(t).Container("swap").GPUs {
			if gpu.UUID == r.gpuUUID && gpu.Swap != nil && gpu.Swap.ResidentBytes != nil {
				use = *gpu.Swap
				return *use.MovedOutBytes > 0 && *use.ResidentBytes <= capBytes
			}
		}
		return false
	})
	return use
}

// swapper is a program with more memory than it may have on the card.
type swapper struct {
	*node.Program
	t *trial
}

func (s swapper) number() int64 {
	line := s.LineWithin(swapWait)
	number, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		s.t.Fatalf("the program that swaps says %q: %s", line, s.Stderr())
	}
	return number
}

// rounds has it use all of its memory some times, and is how long the fastest took.
func (s swapper) rounds() (least time.Duration) {
	if line := s.LineWithin(swapWait); line != "ready" {
		s.t.Fatalf("the program that swaps says %q: %s", line, s.Stderr())
	}
	for range swapRounds {
		s.Send("go")
		if took := time.Duration(s.number()); least == 0 || took < least {
			least = took
		}
	}
	return least
}

// whole ends it, and fails the check unless each byte is as it was set last.
func (s swapper) whole() {
	s.Send("end")
	if wrong := s.number(); wrong != 0 {
		s.t.Errorf("%d words are wrong", wrong)
	}
	if code, _ := s.Wait(swapWait); code != 0 {
		s.t.Errorf("the program that swaps ends with %d: %s", code, s.Stderr())
	}
}

// hostAvailable is what the kernel says could be had of the host's memory.
func hostAvailable(t *trial) int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatalf("reading what memory the host has: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	t.skip("the kernel does not say how much memory is available")
	return 0
}
