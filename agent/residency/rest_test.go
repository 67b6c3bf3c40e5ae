package residency

// What rests, and who goes on meanwhile, on the small card of residency_test.go.

import (
	"slices"
	"testing"
)

// of makes an allocation of a session.
func (s *small) of(id FlowID, session Session, alloc AllocID, bytes int64) {
	s.t.Helper()
	decisions, err := s.node.Allocate(s.now, id, 0, alloc, session, bytes)
	if err != nil {
		s.t.Fatal(err)
	}
	s.take(decisions)
}

// two has flow 1 with two processes, 11 and 12, that have 30 each on the card, and flow 2 that lacks 60.
func two(t *testing.T) *small {
	s := newSmall(t, smallConfig())
	s.add(1, 100, 100)
	s.add(2, 100, 100)
	s.of(1, 11, 1, 30)
	s.of(1, 12, 2, 30)
	s.turn(1, 1, 2)
	s.of(2, 21, 3, 60)
	s.clear()
	return s
}

// TestOneStoppedProcess: where a move of one process fails, the memory of others of its container goes.
func TestOneStoppedProcess(t *testing.T) {
	s := two(t)
	todo := slices.Clone(s.node.Set(s.now, 2, 0, Holder, 0))
	failed := 0
	for n := 0; len(todo) > 0 && n < 1000; n++ {
		d := todo[0]
		todo = todo[1:]
		s.said = append(s.said, d)
		switch {
		case d.Kind != In && d.Kind != Out:
		case d.Session == 11:
			failed++
			todo = append(todo, s.node.Moved(s.now, d.Move, Failed)...)
		default:
			todo = append(todo, s.node.Moved(s.now, d.Move, Done)...)
		}
	}
	if v := s.view(2); v.Here != 60 || failed == 0 || failed > 2 || s.count(Ready) != 1 {
		t.Errorf("%d moves failed, the holder has %+v", failed, v)
	}
	if lacks := s.node.Lacks(1, 0); lacks != 20 {
		t.Errorf("the container lacks %d of its awake process", lacks)
	}
}

// TestProcessThatRests: nothing of it moves or is waited for until it is said to answer again.
func TestProcessThatRests(t *testing.T) {
	s := two(t)
	s.take(s.node.Set(s.now, 2, 0, Holder, 0))
	s.take(s.node.Set(s.now, 2, 0, Waiting, 0))
	lacked := s.view(1).Swapped
	s.take(s.node.Rest(s.now, 11, Never))
	s.clear()
	s.set(1, Holder)
	for _, d := range s.said {
		if d.Session == 11 {
			t.Errorf("moved at rest: %+v", d)
		}
	}
	if v := s.view(1); lacked != 20 || v.Swapped != 20 || s.count(Ready) != 1 || s.node.Lacks(1, 0) != 0 {
		t.Errorf("%d of %d are still on the host", v.Swapped, lacked)
	}
	s.take(s.node.Rest(s.now, 11, s.now))
	if v := s.view(1); v.Swapped != 0 {
		t.Errorf("awake it has %+v", v)
	}
}

// TestUndoneMovesRest: a move that was not to be had is not decided again at once, and each time later.
func TestUndoneMovesRest(t *testing.T) {
	s := newSmall(t, smallConfig())
	s.add(1, 100, 100)
	s.allocate(1, 1, 40)
	todo := slices.Clone(s.node.Set(s.now, 1, 0, Holder, 0))
	began, moves := s.now, 0
	for s.now < began+sec {
		for n := 0; len(todo) > 0; n++ {
			d := todo[0]
			if todo = todo[1:]; d.Kind == In {
				moves++
				todo = append(todo, s.node.Moved(s.now, d.Move, Undone)...)
			}
			if n > 100 {
				t.Fatal("decided again at once")
			}
		}
		s.now = s.node.Next()
		todo = slices.Clone(s.node.Tick(s.now))
	}
	if moves < 10 || moves > 40 {
		t.Errorf("%d moves in a second of a free", moves)
	}
	s.take(todo)
	if s.now += sec; s.view(1).Here != 40 {
		s.take(s.node.Tick(s.now))
	}
	if v := s.view(1); v.Here != 40 {
		t.Errorf("once it is to be had: %+v", v)
	}
}

// TestUsedPlansOnce: what one message says to be used is all used before anything goes for it.
func TestUsedPlansOnce(t *testing.T) {
	s := newSmall(t, smallConfig())
	s.add(1, 60, 100)
	s.allocate(1, 1, 20)
	s.allocate(1, 2, 20)
	s.set(1, Holder)
	if _, err := s.node.Allocate(s.now, 1, 0, 3, 1, 40); err != nil { // half of it is under way
		t.Fatal(err)
	}
	for _, d := range s.node.Used(s.now, 3, 1) {
		if d.Kind == Out && d.Alloc != 2 {
			t.Errorf("what is used goes: %+v", d)
		}
		s.said = append(s.said, d)
	}
	if s.bytes(Out, ForCap) != 20 {
		t.Errorf("%d go", s.bytes(Out, ForCap))
	}
}

// TestManyAtRest: a process of which much rests does so as a whole, so that the list of what rests stays short.
func TestManyAtRest(t *testing.T) {
	c := smallConfig()
	c.Piece, c.Ahead = 1, MovesMax
	s := newSmall(t, c)
	s.add(1, 100, 100)
	for id := range AllocID(100) {
		s.allocate(1, id+1, 1)
	}
	todo := slices.Clone(s.node.Set(s.now, 1, 0, Holder, 0))
	for ; len(todo) > 0; todo = todo[1:] {
		if d := todo[0]; d.Kind == In {
			todo = append(todo, slices.Clone(s.node.Moved(s.now, d.Move, Undone))...)
		}
	}
	if n := len(s.node.gpus[0].rests.items); n > 2*restingMost+2 {
		t.Errorf("%d rest", n)
	}
	s.now += sec
	s.take(s.node.Tick(s.now))
	if v := s.view(1); v.Here != 100 || len(s.node.gpus[0].rests.items) > 1 || len(s.node.gpus[0].sleepers) > 0 {
		t.Errorf("%+v", v)
	}
}
