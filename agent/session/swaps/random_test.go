package swaps

// Random schedules: processes that come, go, allocate, free, answer or do not, in any order, on GPUs whose leases go
// round. After each event the table's books are compared with the processes'.

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/agent/residency"
	"weir/agent/session/turns"
	"weir/cgo/abi"
)

type chaos struct {
	*world
	r *rand.Rand
	plains
}

func (c *chaos) libs() (all []*lib) {
	for _, b := range c.boxes {
		all = append(all, b.libs...)
	}
	return all
}

func (c *chaos) limits() (list []Limits) {
	for range c.gpus {
		list = append(list, Limits{unit * c.r.Int64N(60), min(unit*c.r.Int64N(100), c.swaps.config.Host)})
	}
	return list
}

// step does one thing at random.
func (c *chaos) step() {
	all := c.libs()
	switch n := c.r.IntN(40); {
	case len(c.boxes) == 0 || n == 0 && len(c.boxes) < 5:
		c.box(c.limits()...)
	case n == 1:
		c.box() // without swap
	case n == 2:
		i := c.r.IntN(len(c.boxes))
		b := c.boxes[i]
		if c.boxes = slices.Delete(c.boxes, i, i+1); b.swap != nil {
			c.forgetPlain(b)
			b.swap.Remove(c.now)
		}
		b.Remove(c.now)
		for _, l := range b.libs {
			if l.swap != nil {
				l.swap.Leave(c.now)
				l.swap.Used(c.now, 0)
			}
		}
	case n < 6 || len(all) == 0:
		l := c.boxes[c.r.IntN(len(c.boxes))].lib()
		l.hand = true
	case n == 6:
		if b := c.boxes[c.r.IntN(len(c.boxes))]; b.swap != nil {
			gpu := c.r.IntN(c.gpus)
			if b.swap.SetCap(c.now, gpu, unit*c.r.Int64N(60)); c.r.IntN(2) == 0 {
				b.swap.SetSwap(c.now, gpu, unit*c.r.Int64N(3)*c.r.Int64N(50), c.r.IntN(2) == 0)
			}
			c.excuse(b, gpu)
			c.plain[seat{b, gpu}] = unit * c.r.Int64N(10)
			b.swap.Plain(c.now, gpu, c.plain[seat{b, gpu}])
		}
	case n == 10:
		if b := c.boxes[c.r.IntN(len(c.boxes))]; b.swap != nil {
			c.need(b, c.r.IntN(c.gpus))
		}
	case n == 7:
		c.swaps.Others(c.now, c.r.IntN(c.gpus), unit*c.r.Int64N(10))
	default:
		c.process(all[c.r.IntN(len(all))], n)
	}
	if c.r.IntN(2) == 0 {
		c.now += c.r.Int64N([]int64{us, ms, 30 * ms, 500 * ms, 3 * sec}[c.r.IntN(5)])
	}
	c.follow()
	c.check()
}

// process has one process do something.
func (c *chaos) process(l *lib, n int) {
	gpu := c.r.IntN(c.gpus)
	switch {
	case n == 8:
		if l.in.libs = without(l.in.libs, l); l.swap != nil {
			l.swap.Leave(c.now)
		}
		l.Leave(c.now)
	case n == 9:
		c.reconnect(l)
	case n < 22:
		c.turn(l, gpu)
	case l.swap == nil:
	case n < 27:
		var refusal *residency.Refusal
		if _, err := l.allocate(gpu, unit*(1+c.r.Int64N(12))); err != nil && !errors.As(err, &refusal) {
			c.t.Fatal(err)
		}
	case n == 27:
		for id := range l.mem {
			delete(l.mem, id)
			if err := l.swap.Freed(c.now, id); err != nil {
				c.t.Fatal(err)
			}
			break
		}
	case n == 28:
		l.full = !l.full
	case n == 29:
		l.swap.Used(c.now, gpu)
	case n == 30:
		c.touch(l, gpu)
	default:
		c.answer(l)
	}
}

// touch has a process use its memory: what is not there is fetched, also above the cap.
func (c *chaos) touch(l *lib, gpu int) {
	c.excuse(l.in, gpu)
	l.touch(gpu)
}

// turn has a process say something of GPU time.
func (c *chaos) turn(l *lib, gpu int) {
	word := l.in.words[gpu].Lease
	m := turns.Message{GPU: gpu, Lease: word >> 1}
	switch c.r.IntN(4) {
	case 0:
		l.active[gpu] = true
		if l.Want(c.now, m); l.in.words[gpu].Open() && l.swap != nil {
			c.touch(l, gpu)
		}
	case 1:
		if word&abi.LeaseClosed != 0 {
			l.Drained(c.now, m)
		}
	case 2:
		l.active[gpu] = false
		l.Idle(c.now, m)
	case 3:
		if l.active[gpu] = true; l.in.words[gpu].Open() && l.swap != nil {
			c.touch(l, gpu)
		}
	}
}

// answer answers a move, in any order and with any result.
func (c *chaos) answer(l *lib) {
	moves := make([]uint64, 0, len(l.told))
	for move := range l.told {
		moves = append(moves, move)
	}
	slices.Sort(moves)
	for range c.r.IntN(8) {
		if len(moves) == 0 {
			return
		}
		i := c.r.IntN(len(moves))
		e := l.told[moves[i]]
		moves = slices.Delete(moves, i, i+1)
		result := []residency.Result{residency.Done, residency.Done, residency.Done, residency.Undone, residency.Failed}[c.r.IntN(5)]
		l.done(e, result, c.r.Int64N(20*ms))
	}
}

// reconnect has a process come back after a loss of its connection, and declare what it has.
func (c *chaos) reconnect(l *lib) {
	if l.swap == nil {
		return
	}
	l.swap.Absent(c.now)
	l.told = make(map[uint64]Entry)
	former := l.swap
	l.swap = l.in.swap.Join(c.now, l)
	former.Leave(c.now)
	ids := make([]uint64, 0, len(l.mem))
	for id := range l.mem {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		m := l.mem[id]
		slices.SortFunc(m.pieces, func(a, b int) int { return b - a }) // only how much is where can be declared
		for i := range m.pieces {
			m.pieces[i] = max(m.pieces[i], 1)
		}
		c.excuse(l.in, m.gpu)
		if err := l.swap.Declare(c.now, m.gpu, id, int64(len(m.pieces))*unit, m.at(2)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// check compares the table's books with the processes'.
func (c *chaos) check() {
	told, reserved := 0, int64(0)
	for _, b := range c.boxes {
		if b.swap == nil {
			continue
		}
		for gpu := range c.gpus {
			total := int64(0)
			for _, l := range b.libs {
				for _, m := range l.mem {
					if m.gpu == gpu {
						total += int64(len(m.pieces)) * unit
					}
				}
			}
			reserved += total
			c.checkCap(b, gpu)
			if v := b.swap.View(gpu); v.Total != total || v.Coming+v.Going > 2*(c.swaps.config.GPUs[gpu].Ahead+unit) {
				c.t.Fatalf("%s has %d on GPU %d; %+v", b.name, total, gpu, v)
			}
			if f := &b.swap.flows[gpu]; f.entering != 0 && c.now > f.openBy || f.entering != b.Entering(gpu) {
				c.t.Fatalf("%s enters by lease %d until %d, it is %d; its seat waits for lease %d", b.name, f.entering, f.openBy,
					c.now, b.Entering(gpu))
			}
			if stands := b.Standing(gpu); b.swap.flows[gpu].stands != stands {
				c.t.Fatalf("%s stands at %d, and is taken to stand at %d", b.name, stands, b.swap.flows[gpu].stands)
			}
		}
		for _, l := range b.libs {
			for move, e := range l.told {
				f := c.swaps.flights[move]
				if _, late := l.swap.late[move]; late || l.mem[e.ID] == nil {
					if f != nil {
						c.t.Fatalf("%s need not answer move %d, of which the table has %+v", b.name, move, f)
					}
					continue
				}
				if told++; f == nil || f.unsent || f.member != l.swap {
					c.t.Fatalf("%s has been told of move %d, of which the table has %+v", b.name, move, f)
				}
			}
		}
	}
	for move, f := range c.swaps.flights {
		if f.unsent {
			told++
		}
		if !f.unsent && f.member.process == nil {
			c.t.Fatalf("move %d waits for a process that cannot answer", move)
		}
	}
	if told != len(c.swaps.flights) {
		c.t.Fatalf("processes are to answer %d moves, the table waits for %d", told, len(c.swaps.flights))
	}
	if got, _ := c.swaps.Host(); got != reserved {
		c.t.Fatalf("%d are set aside on the host, processes have %d", got, reserved)
	}
}

// settle has all processes answer and rest, and checks that nothing is left to do.
func (c *chaos) settle() {
	for range 4000 { // longer than memory is kept for idle ones
		for _, l := range c.libs() {
			l.full = false
			for _, e := range l.told {
				result := residency.Done
				if l.gone[e.Move] {
					result = residency.Undone
				}
				l.done(e, result, 2*ms)
			}
			for gpu := range c.gpus {
				l.active[gpu] = false
				if m := (turns.Message{GPU: gpu, Lease: l.in.words[gpu].Lease >> 1}); !l.in.words[gpu].Open() {
					l.Drained(c.now, m)
					l.Idle(c.now, m)
				} else {
					l.Idle(c.now, m)
				}
			}
		}
		c.now += 20 * ms
		c.follow()
		c.check()
	}
	if len(c.swaps.flights)+len(c.swaps.outbox) > 0 {
		for move, f := range c.swaps.flights {
			c.t.Logf("move %d: %+v, member gone %v silent %v unsent %v", move, *f, f.member.gone, f.member.silent(), f.member.unsent)
		}
		for _, b := range c.boxes {
			if b.swap != nil {
				for gpu := range c.gpus {
					c.t.Logf("%s GPU %d stands %d: %+v", b.name, gpu, b.Standing(gpu), b.swap.View(gpu))
				}
			}
		}
		c.t.Fatalf("after all have rested %d moves are under way", len(c.swaps.flights))
	}
	for _, b := range c.boxes {
		for gpu := range c.gpus {
			if b.Standing(gpu) != turns.Idle {
				c.t.Fatalf("%s has rested, and stands at %d", b.name, b.Standing(gpu))
			}
		}
		if b.swap != nil {
			c.forgetPlain(b)
			b.swap.Remove(c.now)
		}
		b.Remove(c.now)
	}
	if s := c.swaps; len(s.asks)+len(s.containers)+len(s.members)+len(s.allocs)+len(s.flights)+len(s.seats)+len(s.flows) > 0 {
		c.t.Fatalf("after all have gone something is left: %+v", s)
	}
}

func TestRandomSchedules(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("WEIR_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	schedules := 300
	if os.Getenv("LONG") != "" {
		schedules = 10_000
	}
	last := seed
	t.Cleanup(func() { t.Logf("WEIR_TEST_SEED=%d repeats the last schedule", last) })
	var moved int64
	for i := range uint64(schedules) {
		last = seed + i
		c := &chaos{r: rand.New(rand.NewPCG(last, 0)), plains: newPlains()}
		c.world = newWorld(t, 1+c.r.IntN(3), unit*(1+c.r.Int64N(400)), func(s *turns.Settings) {
			s.AlwaysGate = c.r.IntN(2) == 0
		})
		c.swaps.config.Admit = c.admit
		for range 300 {
			c.step()
		}
		c.settle()
		moved += c.moved[0] + c.moved[1]
	}
	if moved == 0 {
		t.Error("nothing has moved: the schedules show nothing")
	}
}
