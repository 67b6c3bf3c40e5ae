package residency

// Flows whose kernels use more than their cap, on the small card of residency_test.go.

import "testing"

// cyclic has a holder with a cap of 40 use 80 bytes again and again, for a time in which moves take as long as the link
// has them take. It returns what was moved out, and for how long it was above its cap.
func cyclic(t *testing.T, s *small, span int64, limit int64) (out, above int64) {
	t.Helper()
	var way [2][]Decision // under way, from and to the card, served in order
	var until [2]int64
	take := func(decisions []Decision) {
		for _, d := range decisions {
			switch d.Kind {
			case In:
				way[0] = append(way[0], d)
			case Out:
				way[1] = append(way[1], d)
			default:
				s.said = append(s.said, d)
			}
		}
	}
	for end, last := s.now+span, s.now; s.now < end; last = s.now {
		s.now += 100 * ms
		for i := range way {
			for len(way[i]) > 0 && until[i] <= s.now {
				d := way[i][0]
				way[i], until[i] = way[i][1:], s.now+d.Bytes*sec/10
				if take(s.node.Moved(s.now, d.Move, Done)); i == 1 {
					out += d.Bytes
				}
			}
		}
		if s.node.Next() <= s.now {
			take(s.node.Tick(s.now))
		}
		take(s.node.Used(s.now, AllocID(1+s.now/(100*ms)%8)))
		if v := s.view(1); v.Here+v.Going+v.Coming > limit {
			above += s.now - last
		}
	}
	return out, above
}

// TestMoreThanItsCap: kernels that use more than the cap have it above that, which is said with the amount; what goes for
// it takes its part of the time, so nothing is moved to and fro for ever.
func TestMoreThanItsCap(t *testing.T) {
	config := smallConfig()
	config.Round = timeMax
	s := newSmall(t, config)
	s.add(1, 40, 100)
	for id := range 8 {
		s.allocate(1, AllocID(id+1), 10)
	}
	s.set(1, Holder)
	s.said = nil
	out, above := cyclic(t, s, 2000*sec, 40)
	most := int64(2000 * 10 * s.node.gpus[0].config.Part * 1.2) // bytes of a link that carries 10 a second
	if out > most || out == 0 {
		t.Errorf("%d bytes have gone for the cap in 2000 s, at most %d may", out, most)
	}
	if !s.saidOver() || above == 0 {
		t.Errorf("above its cap for %d s, and said: %+v", above/sec, s.said)
	}
	if v := s.view(1); v.AboveMost < 10 || v.AboveMost > 40 {
		t.Errorf("at most %d above its cap, by the view", v.AboveMost)
	}
}

func (s *small) saidOver() bool {
	for _, d := range s.said {
		if d.Kind == Over && d.Bytes > 0 {
			return true
		}
	}
	return false
}

// overshot is a node whose flow 1 has just been above its cap of 40 by 40, came back, and is so again.
func overshot(t *testing.T) *small {
	t.Helper()
	s := newSmall(t, smallConfig())
	s.add(1, 40, 100)
	s.allocate(1, 1, 40)
	s.allocate(1, 2, 40)
	s.set(1, Holder)
	s.take(s.node.Used(s.now, 1, 2))
	if v := s.view(1); v.Above > 0 {
		t.Fatalf("the first time it goes at once, and %d are above", v.Above)
	}
	s.take(s.node.Used(s.now, 1, 2))
	if v := s.view(1); v.Above != 40 {
		t.Fatalf("the second time it stays, and %d are above", v.Above)
	}
	return s
}

// TestExcessGoes: who is above its cap by faults again and again is within it when its lease ends, when its cap is
// lowered, when plain memory is asked for, and when its part of the time is over.
func TestExcessGoes(t *testing.T) {
	for name, do := range map[string]func(s *small){
		"lease ends":      func(s *small) { s.set(1, Waiting) },
		"cap is lowered":  func(s *small) { s.take(s.node.SetCap(s.now, 1, 0, 35)) },
		"plain memory":    func(s *small) { d, _ := s.node.Need(s.now, 1, 0, 7, 10); s.take(d) },
		"time has passed": func(s *small) { s.now = s.node.Next(); s.take(s.node.Tick(s.now)) },
	} {
		s := overshot(t)
		if do(s); s.view(1).Above > 0 {
			t.Errorf("%s: %d are above", name, s.view(1).Above)
		}
	}
}

// TestOverusersRunApart: a set that exceeds its cap counts as what it is, so that others are not displaced by it.
func TestOverusersRunApart(t *testing.T) {
	s := overshot(t)
	s.add(2, 50, 50)
	s.allocate(2, 3, 50)
	s.set(2, Waiting)
	if !s.node.gpus[0].hinted.apart {
		t.Error("gates stay open to a flow of 50 and one that uses 80 of the 100, with a cap of 40")
	}
}

// TestCopiesWithoutALease: what copies bring to the card while no lease is held is in the books; what is above the cap is said,
// and goes at once, each time.
func TestCopiesWithoutALease(t *testing.T) {
	for _, state := range []State{Idle, Waiting} {
		s := newSmall(t, smallConfig())
		s.add(1, 40, 100)
		s.allocate(1, 1, 40)
		s.allocate(1, 2, 40)
		s.set(1, state)
		s.take(s.node.Used(s.now, 1))
		if v := s.view(1); v.Here != 40 || s.saidOver() {
			t.Errorf("state %d: within the cap it has %d, and said %+v", state, v.Here, s.said)
		}
		for i := range 4 {
			s.clear()
			s.take(s.node.Used(s.now, AllocID(1+i%2)))
			s.take(s.node.Used(s.now, AllocID(2-i%2)))
			if v := s.view(1); v.Above != 0 || v.AboveMost != 40 || !s.saidOver() || s.bytes(Out, ForCap) < 40 {
				t.Errorf("state %d: %+v, and said %+v", state, v, s.said)
			}
		}
	}
}

// TestCopiesFillTheCard: who holds no lease, and fills the card by copies, has memory of its own go, not that of others.
func TestCopiesFillTheCard(t *testing.T) {
	config := smallConfig()
	config.Reserve = 10
	s := newSmall(t, config)
	s.add(1, 100, 100)
	s.add(2, 100, 100)
	s.allocate(1, 1, 50)
	s.turn(1, 1)
	s.allocate(2, 2, 20)
	s.allocate(2, 3, 30)
	s.take(s.node.Used(s.now, 2))
	s.clear()
	s.take(s.node.Used(s.now, 3))
	if one, two := s.view(1), s.view(2); one.Here != 50 || two.Here != 40 || s.bytes(Out, ForRoom) != 10 {
		t.Errorf("%d and %d are there, and said: %+v", one.Here, two.Here, s.said)
	}
}

// TestDisplacedByArrival: what came first goes where more is used than the card holds, whenever it was used last.
func TestDisplacedByArrival(t *testing.T) {
	s := newSmall(t, smallConfig())
	s.add(1, 100, 100)
	for id := AllocID(1); id <= 3; id++ {
		s.allocate(1, id, 30)
	}
	s.turn(1, 1, 2, 3) // 3 comes first: it was allocated last
	s.set(1, Holder)
	s.add(2, 100, 100)
	s.allocate(2, 4, 30)
	s.node.Used(s.now, 4) // nothing that follows is answered
	if a := s.node.allocs[3]; a.sum.resident != 10 || s.view(1).Displaced != 20 {
		t.Errorf("%d of what came first are there, %d were displaced", a.sum.resident, s.view(1).Displaced)
	}
}
