package residency

// Single cases of the policy, on a card of 100 bytes with pieces of 10.

import (
	"errors"
	"slices"
	"testing"
)

type small struct {
	t    *testing.T
	node *Node
	now  int64
	said []Decision
}

func smallConfig() Config {
	c := Default(100, 10, 10)
	c.Reserve, c.Piece, c.Ahead = 0, 10, 20
	return c
}

func newSmall(t *testing.T, config Config) *small {
	t.Helper()
	node, err := New(1000, config)
	if err != nil {
		t.Fatal(err)
	}
	return &small{t: t, node: node}
}

// take answers all moves at once until there are none, and keeps what was said.
func (s *small) take(decisions []Decision) {
	todo := slices.Clone(decisions)
	for n := 0; len(todo) > 0; n++ {
		d := todo[0]
		todo = todo[1:]
		s.said = append(s.said, d)
		if n > 1000 {
			s.t.Fatal("moves go on for ever")
		}
		if d.Kind == In || d.Kind == Out {
			todo = append(todo, s.node.Moved(s.now, d.Move, Done)...)
		}
	}
}

func (s *small) add(id FlowID, limit, swap int64) {
	s.t.Helper()
	if err := s.node.Add(s.now, id, 0, limit, swap); err != nil {
		s.t.Fatal(err)
	}
}

func (s *small) allocate(id FlowID, alloc AllocID, bytes int64) {
	s.t.Helper()
	decisions, err := s.node.Allocate(s.now, id, 0, alloc, Session(id), bytes)
	if err != nil {
		s.t.Fatal(err)
	}
	s.take(decisions)
}

func (s *small) set(id FlowID, state State) {
	s.now += sec
	s.take(s.node.Set(s.now, id, 0, state, 0))
}

// turn is a lease of id, which uses these allocations.
func (s *small) turn(id FlowID, used ...AllocID) {
	s.set(id, Holder)
	s.take(s.node.Used(s.now, used...))
	s.set(id, Waiting)
}

func (s *small) view(id FlowID) View {
	s.t.Helper()
	v, ok := s.node.View(id, 0)
	if !ok {
		s.t.Fatalf("no flow %d", id)
	}
	return v
}

// clear forgets what was said.
func (s *small) clear() { s.said = nil }

// bytes is how much was said to move, by kind and reason.
func (s *small) bytes(kind Kind, why Why) (bytes int64) {
	for _, d := range s.said {
		if d.Kind == kind && d.Why == why {
			bytes += d.Bytes
		}
	}
	return bytes
}

func (s *small) order(kind Kind) (ids []AllocID) {
	for _, d := range s.said {
		if d.Kind == kind && !slices.Contains(ids, d.Alloc) {
			ids = append(ids, d.Alloc)
		}
	}
	return ids
}

func (s *small) count(kind Kind) (n int) {
	for _, d := range s.said {
		if d.Kind == kind {
			n++
		}
	}
	return n
}

// refused fails unless err is a refusal for this reason that misses so much.
func (s *small) refused(err error, reason Reason, missing int64) {
	s.t.Helper()
	var r *Refusal
	if !errors.As(err, &r) || r.Reason != reason || r.Missing != missing {
		s.t.Errorf("got %v, expected %q and %d missing", err, reason, missing)
	}
}

// TestMostRecentComesFirst: and the recent set only, where there is no room for more.
func TestMostRecentComesFirst(t *testing.T) {
	s := newSmall(t, smallConfig())
	s.add(1, 100, 100)
	s.add(2, 100, 100)
	for id := AllocID(1); id <= 4; id++ {
		s.allocate(1, id, 20)
	}
	s.turn(1, 1, 2, 3, 4)
	s.turn(1, 1, 3)
	s.turn(1, 4, 1)
	s.turn(1, 1, 3)
	s.allocate(2, 11, 100)
	s.turn(2, 11) // all of 1 goes
	if v := s.view(1); v.Swapped != 80 || v.Recent != 60 {
		t.Fatalf("swapped %d, recent %d", v.Swapped, v.Recent)
	}
	s.clear()
	s.set(1, Next)
	if got := s.order(In); !slices.Equal(got, []AllocID{3, 1, 4}) {
		t.Errorf("came in this order: %v", got)
	}
	if in, out := s.bytes(In, ForNext), s.bytes(Out, ForNext); in != 60 || out != 60 {
		t.Errorf("%d came in and %d went out for a set of 60", in, out)
	}
	s.take(s.node.Free(s.now, 11))
	if in := s.bytes(In, ForNext); in != 70 {
		t.Errorf("%d came in, of 1.2 x 60 in pieces of 10", in)
	}
}

// TestOneFifthMoreFillsFreeRoom.
func TestOneFifthMoreFillsFreeRoom(t *testing.T) {
	s := newSmall(t, smallConfig())
	s.add(1, 100, 100)
	s.allocate(1, 1, 50)
	s.allocate(1, 2, 40)
	s.turn(1, 1, 2)
	for range recentLeases {
		s.turn(1, 1)
	}
	s.take(s.node.Displaced(s.now, 1, 0, 90))
	s.clear()
	s.set(1, Next)
	if in := s.bytes(In, ForNext); in != 60 {
		t.Errorf("%d came in of a recent set of 50", in)
	}
}

// TestLeastRecentlyUsedGoes: of who waits, from the least recently used allocation on; nothing of the holder.
func TestLeastRecentlyUsedGoes(t *testing.T) {
	s := newSmall(t, smallConfig())
	for id := FlowID(1); id <= 3; id++ {
		s.add(id, 100, 100)
		s.allocate(id, AllocID(10*id), 20)
		s.allocate(id, AllocID(10*id+1), 20)
	}
	s.turn(1, 11, 10)
	s.set(2, Holder)
	s.take(s.node.Used(s.now, 20, 21))
	s.clear()
	s.set(3, Next)
	if in, out := s.bytes(In, ForNext), s.bytes(Out, ForNext); in != 40 || out != 20 {
		t.Errorf("%d came in, %d went out", in, out)
	}
	if got := s.order(Out); !slices.Equal(got, []AllocID{11}) {
		t.Errorf("%v went out", got)
	}
}

// TestBelowThePressureNothingGoes: an idle flow's memory stays, until the card is under pressure.
func TestBelowThePressureNothingGoes(t *testing.T) {
	s := newSmall(t, smallConfig())
	s.add(1, 100, 100)
	s.add(2, 100, 100)
	s.allocate(1, 1, 50)
	s.turn(1, 1)
	s.set(1, Idle)
	if at := s.node.Next(); at != s.view(1).KeepUntil || at != s.now+60*sec {
		t.Errorf("next at %d", at)
	}
	s.now = s.node.Next()
	s.take(s.node.Tick(s.now))
	if at := s.node.Next(); at != Never {
		t.Errorf("next at %d", at)
	}
	s.allocate(2, 2, 30)
	s.turn(2, 2)
	if s.count(Out) != 0 {
		t.Errorf("%d went out at a pressure of 80", s.bytes(Out, ForIdle))
	}
	s.allocate(2, 3, 20)
	s.turn(2, 2, 3)
	if out := s.bytes(Out, ForIdle); out != 20 {
		t.Errorf("%d went out at a pressure of 100", out)
	}
}

// TestMemoryIsKeptForAReturn: for Alpha times the mean time between returns, then it may go first.
func TestMemoryIsKeptForAReturn(t *testing.T) {
	s := newSmall(t, smallConfig())
	for id := FlowID(1); id <= 2; id++ {
		s.add(id, 100, 100)
		s.allocate(id, AllocID(id), 40)
	}
	for range 5 { // flow 1 returns every 2 s, flow 2 every 20 s
		for range 9 {
			s.set(1, Holder)
			s.set(1, Idle)
		}
		s.set(2, Holder)
		s.set(2, Idle)
	}
	if keep := s.view(1).KeepUntil - s.now; keep < 5*sec || keep > 11*sec {
		t.Errorf("kept for %g s", seconds(keep))
	}
	s.add(3, 100, 100)
	s.allocate(3, 3, 40)
	s.clear()
	s.set(3, Holder)
	if got := s.order(Out); !slices.Equal(got, []AllocID{2}) {
		t.Errorf("%v went, which is expected first", got)
	}
	s.set(3, Idle)
	s.clear()
	s.set(1, Holder)
	if s.count(In) != 0 || s.count(Ready) != 1 {
		t.Errorf("what was kept had to come back: %v", s.said)
	}
}

// TestOneShortGapIsNoHabit: memory is kept by the mean of the times between returns, not by the last of them.
func TestOneShortGapIsNoHabit(t *testing.T) {
	s := newSmall(t, smallConfig())
	s.add(1, 100, 100)
	s.allocate(1, 1, 40)
	for range 20 { // a return each 10 s
		s.set(1, Holder)
		s.now += 8 * sec
		s.set(1, Idle)
	}
	usual := s.view(1).KeepUntil - s.now
	for range 2 { // and one 2 s after that
		s.set(1, Holder)
		s.set(1, Idle)
	}
	if keep := s.view(1).KeepUntil - s.now; usual != 40*sec || keep < usual*8/10 || keep >= usual {
		t.Errorf("kept for %g s, then %g s", seconds(usual), seconds(keep))
	}
}

// TestLongestIdleGoesFirst of those that need not be kept any more.
func TestLongestIdleGoesFirst(t *testing.T) {
	config := smallConfig()
	config.KeepMax, config.Pressure = sec, 1
	s := newSmall(t, config)
	for id := FlowID(1); id <= 3; id++ {
		s.add(id, 100, 100)
		s.allocate(id, AllocID(id), 30)
	}
	for _, id := range []FlowID{2, 3, 1} {
		s.set(id, Holder)
		s.set(id, Idle)
	}
	s.now += 10 * sec
	s.add(4, 100, 100)
	s.allocate(4, 4, 60)
	s.clear()
	s.set(4, Next)
	if got := s.order(Out); !slices.Equal(got, []AllocID{2, 3}) || s.bytes(Out, ForNext) != 50 {
		t.Errorf("%v went, %d bytes", got, s.bytes(Out, ForNext))
	}
}

// TestPlanThatChanges: pieces for one who is not next any more are cancelled, whatever becomes of them.
func TestPlanThatChanges(t *testing.T) {
	s := newSmall(t, smallConfig())
	for id := FlowID(1); id <= 3; id++ {
		s.add(id, 100, 100)
		s.allocate(id, AllocID(id), 60)
	}
	s.turn(1, 1)
	s.turn(2, 2)
	s.turn(1, 1) // 1 has 60, 2 has 40
	first := slices.Clone(s.node.Set(s.now, 2, 0, Next, 0))
	if len(first) != 2 || first[0].Kind != Out || first[1].Kind != Out {
		t.Fatalf("for 2: %v", first)
	}
	second := slices.Clone(s.node.Set(s.now, 3, 0, Next, 0))
	cancelled := 0
	for _, d := range second {
		if d.Kind == Cancel {
			cancelled++
		}
	}
	if cancelled != 2 {
		t.Errorf("for 3: %v", second)
	}
	s.take(s.node.Moved(s.now, first[0].Move, Undone))
	s.take(s.node.Moved(s.now, first[1].Move, Done))
	s.take(s.node.Moved(s.now, first[1].Move, Done)) // twice
	v, w := s.view(1), s.view(2)
	if v.Here+v.Swapped+w.Here+w.Swapped != 120 || s.view(3).Here != 60 || v.Cancelled != 1 {
		t.Errorf("%+v, %+v, %+v", v, w, s.view(3))
	}
}

// TestCapIsLowered while its flow runs: it shrinks, least recently used first, and grows again.
func TestCapIsLowered(t *testing.T) {
	s := newSmall(t, smallConfig())
	s.add(1, 100, 50)
	s.allocate(1, 1, 40)
	s.allocate(1, 2, 40)
	s.set(1, Holder)
	s.take(s.node.Used(s.now, 2, 1))
	s.clear()
	s.take(s.node.SetCap(s.now, 1, 0, 50))
	if v := s.view(1); v.Here != 50 || v.Swapped != 30 || v.Above != 0 {
		t.Errorf("%+v", v)
	}
	if got := s.order(Out); !slices.Equal(got, []AllocID{2}) || s.bytes(Out, ForCap) != 30 {
		t.Errorf("%v went, %d for the cap", got, s.bytes(Out, ForCap))
	}
	_, err := s.node.Allocate(s.now, 1, 0, 3, 1, 30)
	s.refused(err, SwapLimit, 10)
	s.take(s.node.Used(s.now, 2)) // its kernels fault
	if v := s.view(1); s.count(Over) != 1 || v.Faulted != 30 || v.Here != 50 {
		t.Errorf("said %d times, %+v", s.count(Over), v)
	}
	s.take(s.node.SetCap(s.now, 1, 0, 100))
	if v := s.view(1); v.Here != 80 {
		t.Errorf("%+v", v)
	}
}

// TestSwapIsTurnedOff: refused with the amount, or drained first.
func TestSwapIsTurnedOff(t *testing.T) {
	s := newSmall(t, smallConfig())
	s.add(1, 100, 50)
	s.add(2, 100, 50)
	s.allocate(1, 1, 60)
	s.allocate(2, 2, 60)
	s.turn(1, 1)
	s.turn(2, 2)
	_, err := s.node.SetSwap(s.now, 1, 0, 0, false)
	s.refused(err, InUse, 20)
	s.clear()
	decisions, err := s.node.SetSwap(s.now, 1, 0, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	s.take(decisions)
	// All is fetched, also what is believed to be there: which pieces the driver has given up the books do not know.
	if v := s.view(1); s.count(Drained) != 1 || v.Here != 60 || v.Draining || s.bytes(In, ForDrain) != 60 || s.bytes(Out, ForDrain) != 20 {
		t.Errorf("%v: %+v", s.said, v)
	}
	s.clear()
	s.set(2, Holder) // finds no room: what cannot be swapped stays
	if v := s.view(1); v.Here != 60 || s.count(Ready) != 1 {
		t.Errorf("%v: %+v", s.said, v)
	}
	s.allocate(2, 3, 60)
	_, err = s.node.SetSwap(s.now, 2, 0, 10, true) // 120 beside a cap of 100
	s.refused(err, InUse, 10)
	_, err = s.node.SetSwap(s.now, 2, 0, 2000, false)
	s.refused(err, HostLimit, 1000)
}

// TestHolderIsDrained: what it lacks counts once, and nobody goes for it where there is room.
func TestHolderIsDrained(t *testing.T) {
	s := newSmall(t, smallConfig())
	s.add(1, 100, 100)
	s.add(2, 100, 100)
	s.allocate(1, 1, 60)
	s.turn(1, 1)
	s.allocate(2, 2, 40)
	s.turn(2, 2)
	s.take(s.node.Displaced(s.now, 1, 0, 60))
	s.clear()
	decisions, err := s.node.SetSwap(s.now, 1, 0, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	decisions = append(slices.Clone(decisions), s.node.Set(s.now, 1, 0, Holder, 0)...)
	s.take(decisions)
	if v := s.view(1); s.count(Out) != 0 || s.count(Drained) != 1 || s.count(Ready) != 1 || v.Here != 60 {
		t.Errorf("%v: %+v", s.said, v)
	}
}

// TestHostLimit of the node.
func TestHostLimit(t *testing.T) {
	node, err := New(100, smallConfig(), smallConfig())
	if err != nil {
		t.Fatal(err)
	}
	s := &small{t: t, node: node}
	s.add(1, 100, 50)
	s.refused(node.Add(0, 2, 1, 100, 101), HostLimit, 1)
	if err := node.Add(0, 2, 1, 100, 50); err != nil {
		t.Fatal(err)
	}
	s.allocate(1, 1, 60)
	_, err = node.Allocate(0, 2, 1, 2, 2, 50)
	s.refused(err, HostLimit, 10)
	node.SetHost(110)
	if _, err = node.Allocate(0, 2, 1, 2, 2, 50); err != nil {
		t.Error(err)
	}
	node.Ended(0, 1)
	if _, reserved := node.Pressure(0); reserved != 50 {
		t.Errorf("%d set aside after the other process has ended", reserved)
	}
}

// TestPlainMemoryWaitsForRoom: within the cap, which its flow's own memory makes room for.
func TestPlainMemoryWaitsForRoom(t *testing.T) {
	s := newSmall(t, smallConfig())
	s.add(1, 50, 50)
	s.allocate(1, 1, 50)
	s.set(1, Holder)
	decisions, err := s.node.Need(s.now, 1, 0, 7, 20)
	if err != nil || slices.ContainsFunc(decisions, func(d Decision) bool { return d.Kind == Admit }) {
		t.Fatalf("%v, %v", decisions, err)
	}
	s.take(decisions)
	if v := s.view(1); s.count(Admit) != 1 || v.Plain != 20 || v.Here != 30 || v.Above != 0 {
		t.Errorf("%v: %+v", s.said, v)
	}
	_, err = s.node.Need(s.now, 1, 0, 8, 40)
	s.refused(err, CapLimit, 10)
	s.take(s.node.Release(s.now, 1, 0, 20))
	if v := s.view(1); v.Here != 50 {
		t.Errorf("%+v", v)
	}
}

// TestPlainMemoryGoesFirst: the room that is made for it goes to nobody else, and without swap the cap is the limit.
func TestPlainMemoryGoesFirst(t *testing.T) {
	s := newSmall(t, smallConfig())
	s.add(1, 100, 100)
	s.add(2, 100, 100)
	s.add(3, 100, 0)
	s.allocate(1, 1, 60)
	s.allocate(2, 2, 60)
	s.turn(2, 2)
	s.turn(1, 1) // 2 has 40
	decisions, err := s.node.Need(s.now, 3, 0, 7, 50)
	if err != nil {
		t.Fatal(err)
	}
	s.clear()
	s.take(append(slices.Clone(decisions), s.node.Set(s.now, 2, 0, Next, 0)...))
	for _, d := range s.said {
		if d.Kind == Admit {
			break
		}
		if d.Kind == In {
			t.Fatalf("%v", s.said)
		}
	}
	if v := s.view(3); s.count(Admit) != 1 || v.Plain != 50 {
		t.Errorf("%v: %+v", s.said, v)
	}
	_, err = s.node.Need(s.now, 3, 0, 8, 60)
	s.refused(err, CapLimit, 10)
	s.allocate(3, 3, 40) // which does not move either
	_, err = s.node.Need(s.now, 3, 0, 9, 20)
	s.refused(err, CapLimit, 10)
}

// TestPlainMemoryTakesRoomOfWhoIsNext, where there is no other: the driver would.
func TestPlainMemoryTakesRoomOfWhoIsNext(t *testing.T) {
	s := newSmall(t, smallConfig())
	s.add(1, 100, 100)
	s.add(2, 100, 0)
	s.allocate(1, 1, 60)
	s.turn(1, 1)
	s.set(1, Next)
	decisions, err := s.node.Need(s.now, 2, 0, 7, 50)
	if err != nil {
		t.Fatal(err)
	}
	s.take(decisions)
	if out := s.bytes(Out, ForPlain); out != 10 || s.count(Admit) != 1 || s.view(1).Here != 50 {
		t.Errorf("%d went out: %v", out, s.said)
	}
}

// TestSmallChangesAreNotSaid: what fits by little, or not, comes and goes.
func TestSmallChangesAreNotSaid(t *testing.T) {
	s := newSmall(t, smallConfig())
	s.add(1, 100, 100)
	s.add(2, 100, 100)
	s.allocate(1, 1, 60)
	s.allocate(2, 2, 61)
	if s.count(Apart) != 1 { // who has allocated is about to use it
		t.Fatalf("%v", s.said)
	}
	s.set(1, Waiting)
	s.set(2, Waiting)
	if s.said[len(s.said)-1].Kind != Apart {
		t.Fatalf("%v", s.said)
	}
	for _, step := range []struct {
		limit           int64
		apart, together int
	}{
		{60, 0, 0}, // 20 too much in place of 21
		{50, 1, 0}, // 10
		{38, 1, 0}, // it fits, by 2
		{30, 0, 1},
		{40, 0, 0}, // it still does
		{41, 1, 0},
	} {
		s.clear()
		s.take(s.node.SetCap(s.now, 2, 0, step.limit))
		if s.count(Apart) != step.apart || s.count(Together) != step.together {
			t.Errorf("%d: %v", step.limit, s.said)
		}
	}
}

// TestApartAndTogether: whether active sets fit, and for how long leases last if not.
func TestApartAndTogether(t *testing.T) {
	s := newSmall(t, smallConfig())
	for id := FlowID(1); id <= 3; id++ {
		s.add(id, 100, 100)
		s.allocate(id, AllocID(id), 60)
		s.now += sec // after which it counts no more, unless it uses that
	}
	s.take(s.node.Tick(s.now))
	s.clear()
	s.set(1, Waiting)
	if s.count(Apart) != 0 {
		t.Fatal("apart, with one flow that is active")
	}
	s.set(2, Waiting)
	// 20 of 60 cannot be in place beside the holder's 60; with two pieces they take 4 s at 10 a second: 80 s at 5 %.
	if last := s.said[len(s.said)-1]; last.Kind != Apart || last.Quantum != 80*sec {
		t.Errorf("%+v", last)
	}
	s.clear()
	// 40 each: two fit, and what the third lacks, 20, comes while one runs, in 2 s.
	for id := FlowID(1); id <= 3; id++ {
		s.take(s.node.Free(s.now, AllocID(id)))
		s.allocate(id, AllocID(10+id), 40)
		s.now += sec
	}
	s.take(s.node.Tick(s.now))
	s.set(3, Waiting)
	if last := s.said[len(s.said)-1]; last.Kind != Apart || last.Quantum != 2*sec {
		t.Errorf("%+v", last)
	}
	s.clear()
	s.set(2, Idle)
	if s.count(Together) != 0 || s.node.Next() != s.now+sec {
		t.Errorf("%v, next at %d", s.said, s.node.Next())
	}
	s.now = s.node.Next() // two are idle, of which one has not all of its memory there: gates stay closed
	if s.take(s.node.Tick(s.now)); s.count(Together) != 0 || s.said[len(s.said)-1].Quantum != guarded {
		t.Errorf("%v", s.said)
	}
	s.clear()
	if s.take(s.node.Free(s.now, 12)); s.count(Together) != 1 {
		t.Errorf("%v", s.said)
	}
	s.take(s.node.UsedAll(s.now, 1, 0))
	if v := s.view(1); v.Recent != 40 {
		t.Errorf("%+v", v)
	}
	if _, cost := s.node.Moves(1, 0); cost != 4*sec {
		t.Errorf("bringing 40 at 10 a second takes %d ns", cost)
	}
}

// TestMoveThatFails is not tried again at once, and holds up nobody.
func TestMoveThatFails(t *testing.T) {
	s := newSmall(t, smallConfig())
	s.add(1, 100, 100)
	s.allocate(1, 1, 40)
	d := slices.Clone(s.node.Set(s.now, 1, 0, Holder, 0))
	if len(d) != 2 {
		t.Fatalf("%v", d)
	}
	s.take(s.node.Moved(s.now, d[0].Move, Failed))
	s.take(s.node.Moved(s.now, d[1].Move, Failed))
	if s.count(Ready) != 1 || s.count(In) != 0 || s.node.Next() != s.now+s.node.gpus[0].config.Retry {
		t.Errorf("%v, next at %d", s.said, s.node.Next())
	}
	s.now = s.node.Next()
	s.take(s.node.Tick(s.now))
	if v := s.view(1); v.Here != 40 || v.Failed != 2 {
		t.Errorf("%+v", v)
	}
}

// TestLists for people say what would move.
func TestLists(t *testing.T) {
	s := newSmall(t, smallConfig())
	s.add(1, 100, 100)
	s.add(2, 100, 100)
	s.allocate(1, 1, 30)
	s.allocate(1, 2, 40)
	s.allocate(2, 3, 60)
	s.turn(1, 1, 2)
	s.turn(2, 3) // 30 of flow 1 go: the first is the least recently used
	if got := s.node.Prefetch(1, 0); !slices.Equal(got, []Step{{1, 1, 30}}) {
		t.Errorf("prefetch %v", got)
	}
	if got := s.node.SwapOut(0, 50); !slices.Equal(got, []Step{{1, 2, 40}, {2, 3, 10}}) {
		t.Errorf("swap out %v", got) // nothing is known but who has run last
	}
	s.take(s.node.Set(s.now, 1, 0, Waiting, s.now+sec))
	s.take(s.node.Set(s.now, 2, 0, Waiting, s.now+9*sec))
	if got := s.node.SwapOut(0, 80); !slices.Equal(got, []Step{{2, 3, 60}, {1, 2, 20}}) {
		t.Errorf("swap out %v", got) // who has just run is the last to run again
	}
}

// TestPiecesFollowTheLink: 1.5 ms of it, in blocks that the driver moves as one.
func TestPiecesFollowTheLink(t *testing.T) {
	for link, piece := range map[int64]int64{24_000_000_000: 34 * mib, 375_000_000: 2 * mib, 900_000_000_000: gib} {
		if c := Default(24*gib, link, 2*link); c.Piece != piece || c.Ahead != 4*piece || c.check(0) != nil {
			t.Errorf("pieces of %d at %d bytes a second", c.Piece, link)
		}
	}
}

func TestBadConfig(t *testing.T) {
	for _, spoil := range []func(*Config){
		func(c *Config) { c.Card = 0 }, func(c *Config) { c.Reserve = c.Card }, func(c *Config) { c.In = 0 },
		func(c *Config) { c.Piece = 0 }, func(c *Config) { c.Ahead = c.Piece - 1 },
		func(c *Config) { c.Pressure = 1.1 }, func(c *Config) { c.Recent = 0.9 }, func(c *Config) { c.Part = 0 },
		func(c *Config) { c.Alpha = -1 }, func(c *Config) { c.Round = 0 },
	} {
		c := smallConfig()
		spoil(&c)
		if _, err := New(0, c); err == nil {
			t.Errorf("taken: %+v", c)
		}
	}
}
