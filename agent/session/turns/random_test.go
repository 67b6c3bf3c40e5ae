package turns

// Random schedules: processes that come, go and say anything at any time.

import (
	"math/rand/v2"
	"testing"

	"weir/agent/session/page"
	"weir/cgo/abi"
)

// liar is a process whose words are as the schedule sets them.
type liar struct {
	*Member
	in     *box
	active map[int]bool
	words  page.Worked
	full   bool
}

func (l *liar) Active(gpu int) bool    { return l.active[gpu] }
func (l *liar) Worked(int) page.Worked { return l.words }
func (l *liar) Look(int, uint32) bool  { return !l.full }

// chaos is a world in which everything happens at random.
type chaos struct {
	*world
	r     *rand.Rand
	boxes []*box
	liars []*liar
	mover
}

func (c *chaos) join(in *box) *liar {
	l := &liar{in: in, active: make(map[int]bool)}
	l.Member = in.Join(c.now, l, 1+c.r.IntN(1000), "liar")
	if c.r.IntN(4) > 0 {
		l.Ready(c.now)
	}
	c.liars = append(c.liars, l)
	return l
}

// drop forgets a process of the schedule.
func (c *chaos) drop(i int) {
	c.liars[i] = c.liars[len(c.liars)-1]
	c.liars = c.liars[:len(c.liars)-1]
}

// message is one of a process's own, with the right number half of the time.
func (c *chaos) message(l *liar) {
	gpu := c.r.IntN(c.gpus)
	m := Message{GPU: gpu, Lease: c.r.Uint32N(64), Waiting: c.r.Uint32N(2)}
	if c.r.IntN(2) == 0 {
		m.Lease = l.in.words[gpu].Lease >> 1
	}
	switch c.r.IntN(5) {
	case 0:
		l.Want(c.now, m)
	case 1:
		l.Drained(c.now, m)
	case 2:
		l.Progress(c.now, m)
	case 3:
		l.active[gpu] = c.r.IntN(3) == 0
		l.Idle(c.now, m)
	case 4:
		l.active[gpu] = true
	}
}

func (c *chaos) step() {
	switch kind := c.r.IntN(30); {
	case len(c.boxes) == 0 || kind == 0 && len(c.boxes) < 6:
		b := c.box("box", 0.5+4*c.r.Float64())
		if c.r.IntN(2) == 0 {
			b.SetMovable(c.now)
		}
		c.boxes = append(c.boxes, b)
	case kind == 1:
		i := c.r.IntN(len(c.boxes))
		b := c.boxes[i]
		b.Remove(c.now)
		c.boxes = append(c.boxes[:i], c.boxes[i+1:]...)
		for j := len(c.liars) - 1; j >= 0; j-- {
			if l := c.liars[j]; l.in == b {
				l.Want(c.now, Message{})
				l.Leave(c.now)
				l.Absent(c.now)
				c.drop(j)
			}
		}
	case len(c.liars) == 0 || kind < 5 && len(c.liars) < 12:
		c.join(c.boxes[c.r.IntN(len(c.boxes))])
	case kind == 5:
		c.boxes[c.r.IntN(len(c.boxes))].SetWeight(c.now, 0.001+100*c.r.Float64())
	default:
		i := c.r.IntN(len(c.liars))
		l := c.liars[i]
		switch kind {
		case 6:
			l.Leave(c.now)
			c.drop(i)
		case 7:
			l.Absent(c.now)
		case 8:
			if l.absent {
				c.join(l.in).Succeed(c.now, l.Member)
				c.drop(i)
			}
		case 9:
			l.words = page.Worked{
				Submitted: c.r.Uint64(), Completed: c.r.Uint64(), WorkNS: c.r.Uint64(), BusyNS: c.r.Uint64(),
			}
		case 10, 11:
			l.words.Submitted += 10
			l.words.Completed += 10
			l.words.WorkNS += uint64(c.r.Int64N(20 * ms))
			l.words.BusyNS += uint64(c.r.Int64N(12 * ms))
		case 12:
			l.full = !l.full
		default:
			c.message(l)
		}
	}
	if c.r.IntN(2) == 0 {
		c.now += c.r.Int64N([]int64{us, ms, 30 * ms, 400 * ms}[c.r.IntN(4)])
	}
	c.ticks()
	c.move(c.world, c.r)
	c.check()
}

// ticks does what is due, as the keeper does.
func (c *chaos) ticks() {
	for range 100 {
		if c.table.Next() > c.now {
			return
		}
		c.table.Tick(c.now)
	}
	c.t.Fatalf("what is due at %d is still due at %d after a hundred ticks", c.table.Next(), c.now)
}

// settle has all processes say honestly that they are idle, and time pass.
func (c *chaos) settle() {
	for i := len(c.liars) - 1; i >= 0; i-- {
		l := c.liars[i]
		l.full, l.active = false, make(map[int]bool)
		if l.absent {
			l.Leave(c.now)
			c.drop(i)
		}
	}
	for range 300 {
		for _, l := range c.liars {
			for gpu := range c.gpus {
				word := l.in.words[gpu].Lease
				if word&abi.LeaseClosed != 0 {
					l.Drained(c.now, Message{GPU: gpu, Lease: word >> 1})
				}
				l.Idle(c.now, Message{GPU: gpu, Lease: word >> 1})
			}
		}
		c.now += 10 * ms
		c.ticks()
		c.move(c.world, nil)
	}
	for _, b := range c.boxes {
		if b.active > 0 || !b.idle {
			c.t.Fatalf("after all have rested: %d places in use, idle %v", b.active, b.idle)
		}
		for gpu := range c.gpus {
			if s := &b.seats[gpu]; s.holds() || s.state == seatLate || b.Standing(gpu) != Idle {
				c.t.Fatalf("after all have rested: state %d on GPU %d", s.state, gpu)
			}
			if v, uses := c.table.node.ViewOn(b.id, gpu); uses && v.State != "idle" {
				c.t.Fatalf("after all have rested the scheduler says %s", v.State)
			}
		}
	}
}

// TestRandomSchedules: nothing that processes say or do leaves a lease that nobody has, a word that is not the
// seat's, or work for the agent while all rest; and two honest programs share the GPU afterwards.
func TestRandomSchedules(t *testing.T) {
	schedules := 2000
	if testing.Short() {
		schedules = 200
	}
	seed := uint64(0)
	t.Cleanup(func() { t.Logf("the last seed was %d", seed) })
	for ; seed < uint64(schedules); seed++ {
		c := &chaos{r: rand.New(rand.NewPCG(seed, 12))}
		c.world = newWorld(t, 1+c.r.IntN(3), func(s *Settings) {
			s.AlwaysGate = c.r.IntN(2) == 0
			s.DrainTimeout = 1 + c.r.Int64N(sec)
			s.Slots = 1 + c.r.IntN(2)
		})
		for range 400 {
			c.step()
		}
		c.settle()
		if seed%8 == 0 && c.table.config.Slots == 1 {
			a, b := c.program(c.box("a", 1), ms, 8, 0), c.program(c.box("b", 1), ms, 8, 0)
			c.run(2 * sec)
			before := gots(a, b)
			c.run(3 * sec)
			near(t, "afterwards", parts(before, a, b)[0], 0.5, 0.05)
		}
		if t.Failed() {
			return
		}
	}
}
