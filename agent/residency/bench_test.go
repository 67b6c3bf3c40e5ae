package residency

// How much an event costs where there are many allocations. One operation of turns is a hand-over: all pieces that
// have to move do, each with its answer; ns are for each event and decision.

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
)

// processor is the processor time of this process so far, in ns: on a loaded machine the clock tells little.
func processor(tb testing.TB) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// crowd is a card with two flows of 0.75 of it in n allocations of one piece each together.
type crowd struct {
	node      *Node
	now       int64
	todo      []uint64
	decisions int
	each      int
}

func newCrowd(tb testing.TB, n int) *crowd {
	bytes := int64(2 * mib)
	config := Default(int64(n)*bytes*2/3, modelLink, modelLink)
	config.Piece, config.Ahead = bytes, 16*bytes
	node, err := New(Unlimited, config)
	if err != nil {
		tb.Fatal(err)
	}
	c := &crowd{node: node, each: n / 2}
	for id := FlowID(1); id <= 2; id++ {
		if err := node.Add(0, id, 0, Unlimited, Unlimited); err != nil {
			tb.Fatal(err)
		}
		for k := range n / 2 {
			decisions, err := node.Allocate(0, id, 0, c.alloc(id, k), Session(id), bytes)
			if err != nil {
				tb.Fatal(err)
			}
			c.take(decisions)
		}
	}
	for range 4 {
		c.turn(1)
		c.turn(2)
	}
	return c
}

func (c *crowd) alloc(id FlowID, k int) AllocID { return AllocID(int(id)<<32 + k) }

func (c *crowd) take(decisions []Decision) {
	c.decisions += len(decisions)
	for _, d := range decisions {
		if d.Kind == In || d.Kind == Out {
			c.todo = append(c.todo, d.Move)
		}
	}
}

// turn is a lease of id: its memory comes, as much of the other's goes. It returns how many events that took.
func (c *crowd) turn(id FlowID) (events int) {
	c.now += sec
	c.take(c.node.Set(c.now, 3-id, 0, Waiting, 0))
	c.take(c.node.Set(c.now, id, 0, Holder, 0))
	events = 3
	for i := 0; i < len(c.todo); i++ {
		number := c.todo[i]
		events++
		c.take(c.node.Moved(c.now, number, Done))
	}
	c.todo = c.todo[:0]
	c.node.UsedAll(c.now, id, 0)
	return events
}

func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("allocations=%d", n), func(b *testing.B) {
			c := newCrowd(b, n)
			events, decisions := 0, c.decisions
			b.ReportAllocs()
			b.ResetTimer()
			before := processor(b)
			for i := range b.N {
				events += c.turn(FlowID(1 + i%2))
			}
			spent := float64(processor(b) - before)
			b.ReportMetric(spent/float64(events), "cpu-ns/event")
			b.ReportMetric(float64(c.decisions-decisions)/spent*1e9, "decisions/cpu-s")
		})
	}
}

// BenchmarkUsed is the use of an allocation that is in place: one for each launch that names one, at most.
func BenchmarkUsed(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("allocations=%d", n), func(b *testing.B) {
			c := newCrowd(b, n)
			r := rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			b.ResetTimer()
			before := processor(b)
			for range b.N {
				c.node.Used(c.now, c.alloc(2, r.IntN(c.each)))
			}
			b.ReportMetric(float64(processor(b)-before)/float64(b.N), "cpu-ns/use")
		})
	}
}
