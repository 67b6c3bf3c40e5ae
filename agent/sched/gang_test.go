package sched

// Random schedules of several GPUs: gangs, containers that choose, gates that open and close. Here it is
// the order of things that is looked at; what each gets is the matter of the other tests.

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// user is a container as this test sees it.
type user struct {
	id    FlowID
	gpus  []int
	gang  bool
	may   bool   // choose one of its GPUs
	lease uint64 // 0: none
	late  uint64 // the last that has expired
	debt  bool   // since its last lease it was charged, or weighed anew, while it waited
}

type nodeSchedule struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand
	node   *Node
	now    int64
	users  []*user
	open   []bool // each GPU's gates
	next   FlowID
	gvt    []float64
}

func (s *nodeSchedule) fatalf(format string, args ...any) {
	s.t.Helper()
	s.t.Logf("WEIR_TEST_SEED=%d, at %d ns", s.seed, s.now)
	s.t.Fatalf(format, args...)
}

func newNodeSchedule(t *testing.T, seed uint64) *nodeSchedule {
	r := rand.New(rand.NewPCG(seed, 2))
	s := &nodeSchedule{t: t, seed: seed, random: r}
	var configs []Config
	always := r.IntN(2) == 0
	for range 2 + r.IntN(3) {
		c := Default()
		c.AlwaysGate = always
		c.Threshold = []int64{0, r.Int64N(100 * ms), r.Int64N(5 * sec)}[r.IntN(3)]
		c.Grace = r.Int64N(10 * ms)
		c.Slots = 1 + r.IntN(2)
		configs = append(configs, c)
		s.open = append(s.open, !always)
	}
	node, err := New(configs...)
	if err != nil {
		t.Fatal(err)
	}
	s.node, s.gvt = node, make([]float64, len(configs))
	for range 3 + r.IntN(6) {
		s.add()
	}
	return s
}

func (s *nodeSchedule) add() {
	s.next++
	u := &user{id: s.next, gpus: s.random.Perm(len(s.open))[:1+s.random.IntN(len(s.open))]}
	choose := s.random.IntN(3) == 0
	u.may, u.gang = choose, len(u.gpus) > 1 && !choose
	spec := Container{ID: u.id, Weight: 0.5 + 8*s.random.Float64(), GPUs: u.gpus, Choose: choose, Leases: 1}
	if err := s.node.Add(spec); err != nil {
		s.fatalf("%v", err)
	}
	s.users = append(s.users, u)
}

func (s *nodeSchedule) user(id FlowID) *user {
	for _, u := range s.users {
		if u.id == id {
			return u
		}
	}
	s.fatalf("a decision about flow %d, which is gone", id)
	return nil
}

func (s *nodeSchedule) take(decisions []Decision) {
	for _, d := range decisions {
		switch d.Kind {
		case Open:
			if d.Flow == 0 {
				s.open[d.GPU] = true
			}
		case Gate:
			s.open[d.GPU] = false
		case Grant:
			u := s.user(d.Flow)
			if u.lease != d.Lease && s.has(u, u.lease) {
				s.fatalf("flow %d got lease %d beside %d", u.id, d.Lease, u.lease)
			}
			u.lease = d.Lease
			s.granted(u, d.GPU)
		case Revoke, Reopen, Expire:
			u := s.user(d.Flow)
			if u.lease != d.Lease && (u.late != d.Lease || d.Kind == Expire) {
				s.fatalf("decision %v about lease %d of flow %d, which has %d", d.Kind, d.Lease, u.id, u.lease)
			}
			if d.Kind == Expire {
				u.late = d.Lease
			}
		}
	}
	s.check()
}

// granted: nobody gets a slot who is more than T ahead there, but a gang that runs elsewhere when this GPU's
// gate closes.
func (s *nodeSchedule) granted(u *user, gpu int) {
	for _, f := range s.node.containers[u.id].using() {
		ahead := f.virtual - f.on.gvt
		if f.on.gpu == gpu && f.on.config.AlwaysGate && !u.debt && f.leases[0].from == s.now && ahead > float64(f.on.config.Threshold)/max(1, f.weight)+1 {
			s.fatalf("flow %d got a slot of GPU %d while it was %g ahead", u.id, gpu, ahead)
		}
	}
}

// has tells whether u still has this lease; the gates' opening ends leases, too.
func (s *nodeSchedule) has(u *user, lease uint64) bool {
	return slices.ContainsFunc(s.node.containers[u.id].flows, func(f *flow) bool { return f.lease(lease) != nil })
}

// check: gangs have all or nothing, and reserve in order; no slot idles; GVT does not fall.
func (s *nodeSchedule) check() {
	for i, q := range s.node.queues {
		if q.gvt < s.gvt[i] {
			s.fatalf("GVT of GPU %d fell", i)
		}
		s.gvt[i] = q.gvt
		if q.mode.gated == s.open[i] {
			s.fatalf("GPU %d is gated %v, and was said to be open %v", i, q.mode.gated, s.open[i])
		}
		if !q.mode.gated && len(q.leases) > 0 || len(q.leases) > q.config.Slots {
			s.fatalf("GPU %d has %d leases", i, len(q.leases))
		}
	}
	for _, u := range s.users {
		s.checkUser(u)
	}
}

func (s *nodeSchedule) checkUser(u *user) {
	c := s.node.containers[u.id]
	granted, reserved, lacks := 0, 0, false
	for _, f := range c.using() {
		gated := f.on.mode.gated
		switch {
		case len(f.leases) == 0 && gated && f.wants > 0 && len(f.late) == 0 && !f.coRun:
			lacks = true
			if !f.blocked && !f.on.settling() && len(f.on.leases) < f.on.config.Slots && f.tag(nil) <= f.on.gvt {
				s.fatalf("a slot of GPU %d idles, and flow %d may have it", f.on.gpu, f.id)
			}
		case len(f.leases) > 0 && f.leases[0].state == leaseReserved:
			reserved++
			if lacks {
				s.fatalf("gang %d holds a slot of GPU %d, and waits for one of a lower number", f.id, f.on.gpu)
			}
		case len(f.leases) > 0:
			granted++
		}
		if f.in(inActive) && f.virtual < f.on.gvt {
			s.fatalf("flow %d is before GVT", f.id)
		}
	}
	if late := slices.ContainsFunc(c.flows, func(f *flow) bool { return len(f.late) > 0 }); late && reserved > 0 {
		s.fatalf("gang %d holds slots while its expired lease is at work", u.id)
	}
	if reserved > 0 && !lacks {
		s.fatalf("gang %d has all slots and does not run", u.id)
	}
	if granted == 0 && u.lease != 0 {
		u.lease = 0 // by the gates' opening, expiry, or co-running
	}
}

func (s *nodeSchedule) pass(until int64) {
	for at := s.node.Next(); at <= until; at = s.node.Next() {
		s.now = max(s.now, at)
		s.take(s.node.Tick(s.now))
		if s.node.Next() <= s.now {
			s.fatalf("nothing was done about what was due")
		}
	}
	s.now = until
}

func (s *nodeSchedule) step() {
	r := s.random
	s.pass(s.now + r.Int64N(20*ms))
	u := s.users[r.IntN(len(s.users))]
	switch n := r.IntN(100); {
	case n < 35:
		s.take(s.node.Want(s.now, u.id, 1))
	case n < 65 && u.lease != 0:
		s.end(u, r.IntN(3) > 0)
	case n < 80:
		u.debt = u.debt || u.lease == 0
		s.take(s.node.Used(s.now, u.id, u.gpus[r.IntN(len(u.gpus))], Use{Busy: r.Int64N(20 * ms), Work: r.Int64N(20)}))
	case n < 82:
		s.take(s.node.Progress(s.now, u.id))
	case n < 84:
		s.take(s.node.Waiters(s.now, u.id, r.IntN(2) == 0))
	case n < 86 && !u.may:
		s.move(u)
	case n < 90 && u.lease == 0:
		s.take(s.node.Idle(s.now, u.id))
	case n < 93:
		i := slices.Index(s.users, u)
		s.users = slices.Delete(s.users, i, i+1)
		d := s.node.Gone(s.now, u.id)
		s.add()
		s.take(d)
	case n < 96:
		u.debt = true
		d, err := s.node.SetWeight(s.now, u.id, 0.1+r.Float64())
		if err != nil {
			s.fatalf("%v", err)
		}
		s.take(d)
	case n < 98:
		gpu := r.IntN(len(s.open))
		c := s.node.queues[gpu].config
		c.Threshold, c.Quantum = r.Int64N(100*ms), 1+r.Int64N(40*ms)
		for _, u := range s.users {
			u.debt = true // by what was T before
		}
		d, err := s.node.Configure(s.now, gpu, c)
		if err != nil {
			s.fatalf("%v", err)
		}
		s.take(d)
	default:
		s.take(s.node.Resident(s.now, u.id, u.gpus[0], r.IntN(2) == 0, r.Int64N(sec)))
	}
}

// move gives u other GPUs. Its virtual times stay, and so do its leases where it stays; it has a lease as long as
// any of these is there.
func (s *nodeSchedule) move(u *user) {
	gpus := s.random.Perm(len(s.open))[:1+s.random.IntN(len(s.open))]
	before, held := make(map[int]float64), make(map[int]uint64)
	for _, f := range s.node.containers[u.id].flows {
		if before[f.on.gpu] = f.virtual; f.lease(u.lease) != nil {
			held[f.on.gpu] = u.lease
		}
	}
	d, err := s.node.SetGPUs(s.now, u.id, gpus)
	if err != nil {
		s.fatalf("%v", err)
	}
	u.gpus, u.gang, u.debt = gpus, len(gpus) > 1, true
	c := s.node.containers[u.id]
	if len(c.flows) != len(gpus) || c.gang != u.gang {
		s.fatalf("flow %d uses %d GPUs, and was given %v", u.id, len(c.flows), gpus)
	}
	for _, f := range c.flows {
		if was, known := before[f.on.gpu]; known && f.virtual < was {
			s.fatalf("flow %d went back from %g to %g on GPU %d", u.id, was, f.virtual, f.on.gpu)
		}
		if number := held[f.on.gpu]; number != 0 && f.on.mode.gated && f.lease(number) == nil {
			s.fatalf("flow %d lost lease %d on GPU %d, which it goes on to use", u.id, number, f.on.gpu)
		}
	}
	s.take(d)
}

func (s *nodeSchedule) end(u *user, more bool) {
	lease := u.lease
	u.lease, u.debt = 0, false
	s.take(s.node.Close(s.now, u.id, lease, more))
}

// settle closes leases as soon as they are revoked: then no gang may hold a slot for long that it does
// not use.
func (s *nodeSchedule) settle() {
	since, had := make(map[FlowID]int64), make(map[FlowID]uint64)
	for end := s.now + 5*sec; s.now < end; {
		s.pass(s.now + 5*ms)
		for _, u := range s.users {
			reserves := false
			for _, f := range s.node.containers[u.id].flows {
				for _, l := range slices.Clone(f.leases) {
					reserves = reserves || l.state == leaseReserved
					if l.state == leaseDraining || l.state == leaseReopened {
						s.end(u, true)
						break
					}
				}
				for _, l := range slices.Clone(f.late) {
					s.take(s.node.Close(s.now, u.id, l.number, true))
				}
			}
			leases := s.node.View(u.id)[0].Leases
			if _, known := since[u.id]; !reserves || !known || leases != had[u.id] {
				since[u.id], had[u.id] = s.now, leases
			}
			if s.now-since[u.id] > 200*ms {
				s.fatalf("gang %d on GPUs %v holds slots for %d ms that it does not use", u.id, u.gpus, (s.now-since[u.id])/ms)
			}
		}
	}
}

func TestRandomGangs(t *testing.T) {
	seed := testSeed(t)
	for i := range schedules(300) {
		s := newNodeSchedule(t, seed+uint64(i))
		for range 300 {
			s.step()
		}
		s.settle()
	}
}
