package sched

// Random schedules of one GPU, with the invariants of the package checked after each event. The
// checks keep books of their own: what a flow has had is the time of its leases by the test's clock.

import (
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// testSeed is new, or what WEIR_TEST_SEED says.
func testSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("WEIR_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d (WEIR_TEST_SEED repeats it)", seed)
	return seed
}

// schedules is how many of n a test runs: all, or ten times as many with LONG.
func schedules(n int) int {
	if os.Getenv("LONG") != "" {
		return 10 * n
	}
	return n
}

// held is a lease as the test sees it.
type held struct {
	from    int64
	revoked int64 // 0: not yet
	alone   bool  // nobody else waited for a time
	begun   bool
	entry   int64 // its quantum began so long after the grant
}

// tenant is what the test knows of a flow.
type tenant struct {
	id       FlowID
	weight   float64
	leases   map[uint64]*held
	late     map[uint64]bool
	longest  int64 // most that a lease has cost, ns
	lifts    uint32
	reported int64
	most     int  // leases at once
	debt     bool // it is as far ahead as no lease of its own would have brought it

	executed float64 // the time of its leases by the test's clock, in virtual time
	running  int     // leases since the last check
	jumps    int     // times when it was charged for something else than that
}

// pair is the range of C_i - C_j while both had work all the time, and of the same of what was executed by the
// test's clock, parts of leases included.
type pair struct {
	charged, executed span
	open              bool
	jumps             [2]int // of the two, at the beginning of what was executed
}

// span is a range.
type span struct{ least, most float64 }

func (r *span) add(x float64) { r.least, r.most = min(r.least, x), max(r.most, x) }

type schedule struct {
	t       *testing.T
	seed    uint64
	random  *rand.Rand
	node    *Node
	q       *queue
	config  Config
	now     int64
	checked int64 // the last check's time
	tenants []*tenant
	pairs   map[[2]FlowID]*pair
	nextID  FlowID
	gvt     float64
	ratio   *ratios
}

// ratios are how near their bounds schedules have come.
type ratios struct{ charged, executed, ahead float64 }

func (s *schedule) fatalf(format string, args ...any) {
	s.t.Helper()
	s.t.Logf("WEIR_TEST_SEED=%d, at %d ns", s.seed, s.now)
	s.t.Fatalf(format, args...)
}

func newSchedule(t *testing.T, seed uint64, ratio *ratios) *schedule {
	r := rand.New(rand.NewPCG(seed, 0))
	c := Default()
	c.AlwaysGate = true
	c.Slots = 1 + r.IntN(4)
	c.Quantum = 1 + r.Int64N(40*ms)
	c.Threshold = []int64{0, r.Int64N(100 * ms), r.Int64N(5 * sec)}[r.IntN(3)]
	c.Grace = []int64{0, r.Int64N(20 * ms)}[r.IntN(2)]
	if r.IntN(4) == 0 {
		c.UtilisationMax = 95
	}
	node, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	w := &schedule{t: t, seed: seed, random: r, node: node, q: node.queues[0], config: c,
		pairs: make(map[[2]FlowID]*pair), ratio: ratio, now: r.Int64N(int64(1e15))}
	for range 2 + r.IntN(5) {
		w.add()
	}
	return w
}

func (s *schedule) add() {
	s.nextID++
	weight := []float64{1, float64(1 + s.random.IntN(8)), math.Exp(s.random.Float64()*6 - 3)}[s.random.IntN(3)]
	spec := Container{ID: s.nextID, Weight: weight, GPUs: []int{0}, Leases: 1 + s.random.IntN(s.config.Slots)}
	if err := s.node.Add(spec); err != nil {
		s.fatalf("%v", err)
	}
	s.tenants = append(s.tenants, &tenant{id: spec.ID, weight: weight, leases: make(map[uint64]*held),
		late: make(map[uint64]bool)})
}

func (s *schedule) flow(t *tenant) *flow { return s.node.containers[t.id].flows[0] }

func (s *schedule) tenant(id FlowID) *tenant {
	for _, t := range s.tenants {
		if t.id == id {
			return t
		}
	}
	return nil
}

// take carries out decisions, and checks what holds at each of them.
func (s *schedule) take(decisions []Decision) {
	for _, d := range decisions {
		t := s.tenant(d.Flow)
		switch d.Kind {
		case Grant:
			f := s.flow(t)
			reserved := int64(0) // by leases that it had before
			for _, l := range f.leases {
				if l.number < d.Lease {
					reserved += l.reserved
				}
			}
			ahead := f.virtual + float64(reserved)/t.weight - s.q.gvt
			if ahead > float64(s.config.Threshold)/max(1, t.weight)+1 && f.stats.lifts == t.lifts {
				s.fatalf("flow %d got a lease while it was %g ahead", t.id, ahead)
			}
			if len(t.late) > 0 {
				s.fatalf("flow %d got a lease beside an expired one", t.id)
			}
			t.leases[d.Lease] = &held{from: s.now}
			t.most = max(t.most, len(t.leases))
			if len(t.leases) > int(f.limit) {
				s.fatalf("flow %d got %d leases of %d", t.id, len(t.leases), f.limit)
			}
		case Revoke:
			if l := t.leases[d.Lease]; l == nil && !t.late[d.Lease] {
				s.fatalf("lease %d is revoked, which flow %d does not have", d.Lease, t.id)
			} else if l != nil && l.revoked == 0 {
				l.revoked = s.now
			}
		case Expire:
			if l := t.leases[d.Lease]; s.now-l.revoked < s.config.DrainTimeout {
				s.fatalf("lease %d expired %d ns after it was revoked", d.Lease, s.now-l.revoked)
			}
			s.ended(t, d.Lease)
			t.late[d.Lease] = true
		case CoRun:
			for number := range t.leases {
				s.ended(t, number)
			}
			if len(t.late) > 0 {
				clear(t.late)
				t.debt = true
				t.jumps++
			}
		}
	}
	s.check()
}

// ended notes what a lease has cost.
func (s *schedule) ended(t *tenant, number uint64) {
	t.longest = max(t.longest, s.cost(t.leases[number]))
	delete(t.leases, number)
}

// cost is the most that a lease can have cost since it was last decided about: until its quantum began, a quantum, its
// drain, and a quantum for the time when nobody waited.
func (s *schedule) cost(l *held) int64 {
	cost := min(s.now-l.from, l.entry+s.config.Quantum)
	if l.revoked != 0 {
		cost = l.entry + s.config.Quantum + s.now - l.revoked
	}
	if l.alone {
		cost += s.config.Quantum
	}
	return cost
}

// longest is L of t: the most that any lease of it has cost, in virtual time.
func (s *schedule) longest(t *tenant) float64 {
	most := t.longest
	for _, l := range t.leases {
		most = max(most, s.cost(l))
	}
	return float64(most) / t.weight
}

// execute keeps the books of what leases have had since the last check.
func (s *schedule) execute() {
	for _, t := range s.tenants {
		t.executed += float64(t.running) * float64(s.now-s.checked) / t.weight
		t.running = len(t.leases)
	}
	s.checked = s.now
}

func (s *schedule) check() {
	s.execute()
	if s.q.gvt < s.gvt {
		s.fatalf("GVT fell from %g to %g", s.gvt, s.q.gvt)
	}
	s.gvt = s.q.gvt
	waits, mayRun := 0, false
	least, lowest := math.Inf(1), (*flow)(nil)
	for _, t := range s.tenants {
		f := s.flow(t)
		if f.virtual-s.gvt <= float64(s.config.Threshold)/max(1, t.weight) {
			t.debt = false
		}
		if len(f.leases) != len(t.leases) {
			s.fatalf("flow %d has %d leases, and was told of %d", t.id, len(f.leases), len(t.leases))
		}
		reserved := int64(0)
		for _, l := range f.leases {
			reserved += l.reserved
		}
		if f.reserved != reserved || reserved < 0 {
			s.fatalf("flow %d has %d reserved, its leases %d", t.id, f.reserved, reserved)
		}
		if f.coRun || len(f.late) > 0 && len(f.leases) == 0 {
			continue
		}
		busy := len(f.leases) > 0 || f.wants > 0
		if busy || f.graceUntil > s.now {
			if f.virtual < s.q.gvt {
				s.fatalf("flow %d is at %g, before GVT at %g", t.id, f.virtual, s.q.gvt)
			}
			if f.virtual < least || f.virtual == least && !busy {
				least, lowest = f.virtual, f
			}
		}
		if len(f.late) == 0 && int(f.wants) > len(f.leases) && len(f.leases) < int(f.limit) {
			waits++
			ahead := f.virtual + float64(f.reserved)/f.weight - s.q.gvt
			mayRun = mayRun || ahead <= float64(s.config.Threshold)/max(1, f.weight)
		}
	}
	if lowest != nil && least != s.q.gvt {
		s.fatalf("GVT is %g, the least C %g", s.q.gvt, least)
	}
	s.checkExpected(waits)
	s.checkSlots(waits, mayRun, lowest)
	s.checkPairs(waits)
	s.checkAhead()
}

func (s *schedule) checkSlots(waits int, mayRun bool, lowest *flow) {
	n := len(s.q.leases)
	if n > s.config.Slots {
		s.fatalf("%d leases on %d slots", n, s.config.Slots)
	}
	if n == s.config.Slots || waits == 0 || n > 0 && s.config.UtilisationMax > 0 {
		return
	}
	if mayRun {
		s.fatalf("a slot idles, and a flow that may have it waits")
	}
	if len(lowest.leases) > 0 || lowest.wants > 0 {
		s.fatalf("a slot idles for flow %d, which is not about to return from idle", lowest.id)
	}
}

// checkPairs looks at the lag of all pairs that have work all the time, while somebody waits.
func (s *schedule) checkPairs(waits int) {
	for a, i := range s.tenants {
		for _, j := range s.tenants[a+1:] {
			key := [2]FlowID{i.id, j.id}
			p := s.pairs[key]
			if p == nil {
				p = &pair{}
				s.pairs[key] = p
			}
			fi, fj := s.flow(i), s.flow(j)
			lag := fi.virtual - fj.virtual
			broken := waits == 0 || i.debt || j.debt || !s.backlogged(i, waits) || !s.backlogged(j, waits)
			if broken || fi.stats.lifts != i.lifts || fj.stats.lifts != j.lifts {
				p.open = false
				continue
			}
			executed := i.executed - j.executed
			if !p.open {
				*p = pair{charged: span{lag, lag}, open: true, jumps: [2]int{-1, -1}}
			}
			if jumps := [2]int{i.jumps, j.jumps}; p.jumps != jumps {
				p.executed, p.jumps = span{executed, executed}, jumps
			}
			p.charged.add(lag)
			p.executed.add(executed)
			leases := float64(i.most)*s.longest(i) + float64(j.most)*s.longest(j)
			bound := s.threshold(i) + s.threshold(j) + leases
			s.within("what was charged", p.charged, bound, &s.ratio.charged, i, j)
			s.within("what was executed", p.executed, bound+leases, &s.ratio.executed, i, j)
		}
	}
	for _, t := range s.tenants {
		t.lifts = s.flow(t).stats.lifts
		for _, l := range t.leases {
			l.alone = l.alone || waits == 0 || !s.backlogged(t, waits)
		}
	}
}

func (s *schedule) threshold(t *tenant) float64 {
	return float64(s.config.Threshold) / max(1, t.weight)
}

func (s *schedule) within(what string, r span, bound float64, ratio *float64, i, j *tenant) {
	if lag := r.most - r.least; lag > bound+100 {
		s.fatalf("flows %d and %d: a lag of %g in %s, the bound is %g", i.id, j.id, lag, what, bound)
	} else if bound > 0 {
		*ratio = max(*ratio, lag/bound)
	}
}

// checkAhead: nobody is ever further ahead of GVT than T and its leases; so one that has just woken up, which
// begins at GVT, has priority for no longer.
func (s *schedule) checkAhead() {
	for _, t := range s.tenants {
		f := s.flow(t)
		if !f.in(inActive) || t.debt || len(t.late) > 0 || f.stats.lifts > 0 {
			continue
		}
		bound := s.threshold(t) + float64(t.most)*s.longest(t)
		if ahead := f.virtual - s.gvt; ahead > bound+10 {
			s.fatalf("flow %d is %g ahead, the bound is %g", t.id, ahead, bound)
		} else if bound > 0 {
			s.ratio.ahead = max(s.ratio.ahead, ahead/bound)
		}
	}
}

// backlogged: t waits, or holds while somebody else waits.
func (s *schedule) backlogged(t *tenant, waits int) bool {
	f := s.flow(t)
	if f.coRun || len(f.late) > 0 {
		return false
	}
	if int(f.wants) > len(f.leases) && len(f.leases) < int(f.limit) {
		return waits > 1 || len(f.leases) == 0
	}
	return len(f.leases) > 0
}

// pass lets time pass, with a tick whenever one is due.
func (s *schedule) pass(until int64) {
	for at := s.node.Next(); at <= until; at = s.node.Next() {
		s.now = max(s.now, at)
		s.take(s.node.Tick(s.now))
		if s.node.Next() <= s.now {
			s.fatalf("nothing was done about what was due at %d", s.node.Next())
		}
	}
	s.now = until
}

// use is a report: honest, exaggerated, or of nothing.
func (s *schedule) use(t *tenant) {
	busy := []int64{s.now - t.reported, 0, s.random.Int64N(sec), math.MaxInt64 / 2}[s.random.IntN(4)]
	t.reported = s.now
	if len(t.leases) == 0 {
		t.debt = true // it is charged for what no lease allowed
		t.jumps++
	}
	for _, l := range s.flow(t).leases {
		if l.free > 0 {
			t.jumps++ // and now for the time when nobody waited
		}
	}
	s.take(s.node.Used(s.now, t.id, 0, Use{Busy: busy, Work: s.random.Int64N(1000)}))
}

func (s *schedule) step() {
	r := s.random
	if gap := []int64{0, r.Int64N(ms), r.Int64N(30 * ms), s.node.Next() - s.now}[r.IntN(4)]; gap > 0 && gap < 2*1e9 {
		s.pass(s.now + gap)
	}
	t := s.tenants[r.IntN(len(s.tenants))]
	switch n := r.IntN(100); {
	case n < 5:
		s.begins(t)
	case n < 35:
		s.take(s.node.Want(s.now, t.id, 1+r.IntN(s.config.Slots)))
	case n < 70:
		s.closeOne(t)
	case n < 80:
		s.use(t)
	case n < 86:
		s.take(s.node.Progress(s.now, t.id))
	case n < 88:
		s.execute()
		t.weight = math.Exp(r.Float64()*6 - 3)
		t.debt = true // T and its leases have another measure in virtual time
		for key, p := range s.pairs {
			p.open = p.open && key[0] != t.id && key[1] != t.id
		}
		d, err := s.node.SetWeight(s.now, t.id, t.weight)
		if err != nil {
			s.fatalf("%v", err)
		}
		s.take(d)
	case n < 90:
		d, err := s.node.SetLeases(s.now, t.id, 1+r.IntN(s.config.Slots))
		if err != nil {
			s.fatalf("%v", err)
		}
		s.take(d)
	case n < 92:
		s.crash(t)
	case n < 95:
		s.take(s.node.Resident(s.now, t.id, 0, r.IntN(2) == 0, r.Int64N(sec)))
	case n < 97:
		s.take(s.node.Utilisation(s.now, 0, r.Float64()*100))
	case len(t.leases) == 0:
		s.take(s.node.Idle(s.now, t.id))
	}
}

// begins has the quantum of a lease begin later than at its grant; it cannot have been renewed yet.
func (s *schedule) begins(t *tenant) {
	for number, l := range t.leases {
		if l.begun || l.revoked != 0 || s.now-l.from >= s.config.Quantum {
			continue
		}
		at := s.now + s.random.Int64N(50*ms)
		l.begun, l.entry = true, at-l.from
		s.take(s.node.Begins(s.now, t.id, number, at))
		if due := s.flow(t).lease(number).due; due < at+s.config.Quantum && due > s.now+1 {
			s.fatalf("lease %d is due at %d, and its quantum begins at %d", number, due, at)
		}
		return
	}
}

// checkExpected: all that wait are expected to have a lease, each once, those that may have one first.
func (s *schedule) checkExpected(waits int) {
	list := s.node.Expected(0, nil)
	if len(list) != waits {
		s.fatalf("%d flows wait, and %d are expected to have leases", waits, len(list))
	}
	last, ahead := s.now, false
	for _, e := range list {
		f := s.flow(s.tenant(e.Flow))
		if e.At < last || !f.waits() || ahead && f.tag(nil) <= s.q.gvt {
			s.fatalf("flow %d is expected to have a lease at %d, after one at %d", e.Flow, e.At, last)
		}
		last, ahead = e.At, f.tag(nil) > s.q.gvt
	}
}

func (s *schedule) closeOne(t *tenant) {
	number := uint64(0)
	for n := range t.leases {
		number = max(number, n)
	}
	if number == 0 {
		for n := range t.late {
			number = max(number, n)
		}
	}
	if number == 0 {
		number = s.random.Uint64N(100) // of no lease
		for _, other := range s.tenants {
			if other.leases[number] != nil {
				return
			}
		}
	}
	if s.random.IntN(2) == 0 {
		s.use(t)
	}
	if t.leases[number] != nil {
		s.ended(t, number)
	}
	if t.late[number] {
		delete(t.late, number)
		t.debt = true
		t.jumps++
	}
	s.take(s.node.Close(s.now, t.id, number, s.random.IntN(4) > 0))
}

func (s *schedule) crash(t *tenant) {
	for i := range s.tenants {
		if s.tenants[i] == t {
			s.tenants = append(s.tenants[:i:i], s.tenants[i+1:]...)
			break
		}
	}
	decisions := s.node.Gone(s.now, t.id)
	s.add()
	s.take(decisions)
}

func TestRandomSchedules(t *testing.T) {
	seed, ratio := testSeed(t), ratios{}
	for i := range schedules(10_000) {
		w := newSchedule(t, seed+uint64(i), &ratio)
		for range 120 {
			w.step()
		}
	}
	t.Logf("the greatest lags of two flows were %.3f of their bound as charged, %.3f as executed; the furthest ahead was one by %.3f of its bound",
		ratio.charged, ratio.executed, ratio.ahead)
	if min(ratio.charged, ratio.ahead) < 0.8 || ratio.executed < 0.5 {
		t.Errorf("no schedule came near the bound: they test little")
	}
}
