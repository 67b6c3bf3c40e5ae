package sched

// With one slot and T = 0 the scheduler is start-time fair queueing, which is written down here
// again, from its definition (Goyal, Vin and Cheng, 1996): a request gets the start tag
// max(v, finish tag of its flow's last), and the finish tag start + length / weight; requests are served
// by start tag; v is the start tag of the one in service, and, when all are served, the largest finish
// tag so far.

import (
	"math/rand/v2"
	"testing"
)

type sfqFlow struct {
	weight, start, finish float64
	waits                 bool
	order                 int
}

type sfq struct {
	v, largest float64
	flows      []*sfqFlow
	serves     *sfqFlow
	orders     int
}

func (s *sfq) arrive(f *sfqFlow) {
	s.orders++
	f.start, f.waits, f.order = max(s.v, f.finish), true, s.orders
}

func (s *sfq) serve() *sfqFlow {
	if s.serves != nil {
		return s.serves
	}
	for _, f := range s.flows {
		if f.waits && (s.serves == nil || f.start < s.serves.start || f.start == s.serves.start && f.order < s.serves.order) {
			s.serves = f
		}
	}
	if s.serves != nil {
		s.serves.waits = false
		s.v = s.serves.start
	} else {
		s.v = s.largest
	}
	return s.serves
}

func (s *sfq) done(length int64, again bool) {
	f := s.serves
	f.finish = f.start + float64(length)/f.weight
	s.largest = max(s.largest, f.finish)
	s.serves = nil
	if again {
		s.orders++
		f.start, f.waits, f.order = f.finish, true, s.orders
	}
}

func TestOneSlotWithoutThresholdIsStartTimeFairQueueing(t *testing.T) {
	seed := testSeed(t)
	for i := range schedules(2000) {
		compareWithSFQ(t, seed+uint64(i))
	}
}

func compareWithSFQ(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	c := Default()
	c.AlwaysGate, c.Threshold, c.Grace, c.Quantum = true, 0, 0, TimeMax
	node, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := &sfq{}
	for i := range 2 + r.IntN(6) {
		f := &sfqFlow{weight: float64(1 + r.IntN(8))}
		s.flows = append(s.flows, f)
		if err := node.Add(Container{ID: FlowID(i + 1), Weight: f.weight, GPUs: []int{0}, Leases: 1}); err != nil {
			t.Fatal(err)
		}
	}
	var serves FlowID
	var lease uint64
	granted := func(decisions []Decision) {
		for _, d := range decisions {
			if d.Kind == Grant {
				serves, lease = d.Flow, d.Lease
			}
		}
	}
	now, from := int64(1), int64(0)
	for step := range 300 {
		now += r.Int64N(20 * ms)
		// A flow that comes from idle, or one that is served.
		if f := s.flows[r.IntN(len(s.flows))]; !f.waits && s.serves != f && r.IntN(2) == 0 {
			if s.arrive(f); s.serves == nil {
				from = now
			}
			granted(node.Want(now, FlowID(indexOf(s.flows, f)+1), 1))
		} else if s.serves != nil {
			again := r.IntN(3) > 0
			s.done(now-from, again)
			id, l := serves, lease
			serves = 0
			granted(node.Used(now, id, 0, Use{Busy: now - from}))
			granted(node.Close(now, id, l, again))
			from = now
		}
		want := FlowID(0)
		if f := s.serve(); f != nil {
			want = FlowID(indexOf(s.flows, f) + 1)
		}
		if serves != want {
			t.Fatalf("WEIR_TEST_SEED=%d, step %d: flow %d is served, start-time fair queueing serves %d", seed, step, serves, want)
		}
	}
}

func indexOf(flows []*sfqFlow, f *sfqFlow) int {
	for i := range flows {
		if flows[i] == f {
			return i
		}
	}
	return -1
}
