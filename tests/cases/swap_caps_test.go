package cases

// A cap that is lowered while programs run, sampled from the simulated machine's books.

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"weir/tests/e2e/node"
	"weir/tests/sim"
)

// sampling is what the books said of one program, each few ms.
type sampling struct {
	stop chan struct{}
	done sync.WaitGroup
	rows []sampledAt
}

type sampledAt struct{ ns, bytes int64 }

func startSampling(n *node.Node, pid int) *sampling {
	s := &sampling{stop: make(chan struct{})}
	s.done.Go(func() {
		for {
			card := n.Card(0)
			s.rows = append(s.rows, sampledAt{card.NowNS, heldBytes(card, pid)})
			select {
			case <-s.stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	})
	return s
}

// heldBytes is all that a program has on a card, but for its context, which is not counted here.
func heldBytes(card sim.GPUBooks, pid int) int64 {
	process, _ := card.Process(pid)
	return process.AllocatedBytes + process.Managed.ResidentBytes
}

// above is the longest time from a sample above a cap to the last of those behind it that are, too, from a moment on, and
// the most bytes.
func (s *sampling) above(limit, from int64) (longest time.Duration, most int64) {
	close(s.stop)
	s.done.Wait()
	since := int64(-1)
	for _, r := range s.rows {
		switch {
		case r.ns < from:
		case r.bytes <= limit:
			since = -1
		case since < 0:
			since = r.ns
		}
		if since >= 0 {
			longest, most = max(longest, time.Duration(r.ns-since)), max(most, r.bytes-limit)
		}
	}
	return longest, most
}

// TestSwapCapIsLoweredAtOnce: when a cap is lowered below what is on the card, of a program that holds the GPU or of one
// that is idle, no sample, one each 10 ms and more often, is above it any more once the link has had the time for what is too
// much; it stays so while the program goes on with what fits. Then the cap is raised again.
func TestSwapCapIsLoweredAtOnce(t *testing.T) {
	t.Parallel()
	const (
		count, fits = 8, 2 // allocations of 8 MiB: all, and those that are used under the lowered cap
		wide, low   = 112 * mib, 25 * mib
		link        = 1_000_000_000 // bytes a second
		period      = 10 * time.Millisecond
	)
	n := slowNode(t)
	a, b := large(t, n, "a", count), large(t, n, "b", fits)
	for _, idle := range []bool{false, true, false, true} {
		attempt(t, func() string {
			n.SetCap("a", fmt.Sprint(wide))
			pass(a, count, 2)
			pass(a, fits, 150) // what was used last stays; alone, a program tells that each 100 ms
			before := heldBytes(n.Card(0), a.PID())
			if before <= low+16*mib {
				return fmt.Sprintf("%d bytes lie on the card", before)
			}
			runs := a
			if idle {
				runs = b
			}
			samples := startSampling(n, a.PID())
			runs.Tell("use 0 300")
			n.SetCap("a", fmt.Sprint(low))
			card := n.Card(0)
			left := max(0, heldBytes(card, a.PID())-low)
			from := card.NowNS + left*115/100*time.Second.Nanoseconds()/link
			if code := runs.Answer(); code != 0 {
				t.Fatalf("its kernels have failed with %d", code)
			}
			pass(runs, fits, 20)
			longest, most := samples.above(low, from)
			line := fmt.Sprintf("simulated, idle %t: %d bytes above the cap, %d of them when it was set; above it for %s after the "+
				"link had time for them, by %d, in %d samples", idle, before-low, left, longest, most, len(samples.rows))
			if longest > period || len(samples.rows) < 20 {
				return line
			}
			t.Log(line)
			return ""
		})
	}
	n.SetCap("a", fmt.Sprint(wide))
	whole(t, a, count)
	whole(t, b, fits)
}
