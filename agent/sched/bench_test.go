package sched

// How much a decision costs, with few flows and with many. One operation of the benchmark is a turn:
// a lease is closed, its flow waits again, another flow gets the slot.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
)

// turns is a node on which all of n flows wait.
type turns struct {
	node  *Node
	now   int64
	flow  FlowID
	lease uint64
}

func newTurns(tb testing.TB, n int) *turns {
	c := Default()
	c.AlwaysGate = true
	node, err := New(c)
	if err != nil {
		tb.Fatal(err)
	}
	b := &turns{node: node}
	r := rand.New(rand.NewPCG(1, 2))
	for id := FlowID(1); id <= FlowID(n); id++ {
		if err := node.Add(Container{ID: id, Weight: 1 + r.Float64()*7, GPUs: []int{0}, Leases: 1}); err != nil {
			tb.Fatal(err)
		}
		b.take(node.Want(b.now, id, 1))
	}
	for range 4 * n { // until the order of ids is forgotten
		b.turn(ms + r.Int64N(ms))
	}
	return b
}

func (b *turns) take(decisions []Decision) {
	for _, d := range decisions {
		if d.Kind == Grant {
			b.flow, b.lease = d.Flow, d.Lease
		}
	}
}

func (b *turns) turn(cost int64) {
	b.now += cost
	b.take(b.node.Close(b.now, b.flow, b.lease, true))
}

// processor is the processor time of this process so far, in ns: on a loaded machine the clock tells little.
func processor(tb testing.TB) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("flows=%d", n), func(b *testing.B) {
			w := newTurns(b, n)
			r := rand.New(rand.NewPCG(3, 4))
			b.ReportAllocs()
			b.ResetTimer()
			before := processor(b)
			for range b.N {
				w.turn(ms + int64(r.Uint32()%1000)*1000)
			}
			spent := float64(processor(b)-before) / float64(b.N)
			b.ReportMetric(spent, "cpu-ns/turn")
			b.ReportMetric(1e9/spent, "turns/cpu-s")
		})
	}
}

// BenchmarkPromises prints what is promised of the cost of a decision. The sizes take turns, so that a machine
// that is busy with other work slows down all of them; the best round of each counts, in processor time.
func BenchmarkPromises(b *testing.B) {
	const rounds, length = 100, 5_000 // short enough to fall between what else runs
	sizes := []int{100, 1000, 100_000}
	for range b.N {
		var works []*turns
		for _, n := range sizes {
			works = append(works, newTurns(b, n))
		}
		best := []float64{math.Inf(1), math.Inf(1), math.Inf(1)}
		r := rand.New(rand.NewPCG(5, 6))
		for range rounds {
			for i, w := range works {
				before := processor(b)
				for range length {
					w.turn(ms + int64(r.Uint32()%1000)*1000)
				}
				best[i] = min(best[i], float64(processor(b)-before)/length)
			}
		}
		rate, growth := 1e9/best[1], best[2]/best[0]
		promise(b, "decisions a second with 1,000 flows", "at least 1,000,000", fmt.Sprintf("%.0f", rate), rate >= 1e6)
		promise(b, "a decision with 100,000 flows against one with 100", "at most 3 times the cost",
			fmt.Sprintf("%.2f times (%.0f and %.0f ns)", growth, best[2], best[0]), growth <= 3)
	}
}

func promise(b *testing.B, name, promised, got string, holds bool) {
	word := "yes"
	if !holds {
		word = "no"
		b.Fail()
	}
	fmt.Printf("promise: %s, promised %s, got %s, holds %s\n", name, promised, got, word)
}
