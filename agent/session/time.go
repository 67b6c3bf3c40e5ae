package session

// GPU time: the table at which containers take turns, with a lock, a clock and a goroutine.
//
// The keeper's mutex is the last to be taken: after the node's and the container's. Under it no page is
// touched that has been closed, since a session leaves before its usage page is closed, and a container
// before its control page. Nothing under it waits for a tenant.

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weir/agent/sched"
	"weir/agent/session/page"
	"weir/agent/session/swaps"
	"weir/agent/session/turns"
	"weir/agent/session/wire"
	"weir/agent/store"
	"weir/cgo/abi"
)

// timekeeper keeps the table. One that is nil schedules nothing: all gates stay open.
type timekeeper struct {
	clock func() int64
	kick  chan struct{} // has the goroutine look again when the next thing is due
	gpus  []*gpu

	mu    sync.Mutex
	table *turns.Table
	swaps *swaps.Table
	armed int64 // when the goroutine looks by itself
	// others is what of each GPU is used by containers whose memory does not move, as the table of swap was told.
	others []int64
}

// newTimekeeper makes that of a node, nil where its time is not scheduled.
func (n *Node) newTimekeeper() (*timekeeper, error) {
	if n.opts.TimeOff || len(n.gpus) == 0 {
		return nil, nil
	}
	settings := turns.Default()
	if n.opts.Time != nil {
		settings = *n.opts.Time
	}
	k := &timekeeper{
		clock: n.opts.clock, kick: make(chan struct{}, 1), gpus: n.gpus, armed: sched.Never, others: make([]int64, len(n.gpus)),
	}
	if k.clock == nil {
		k.clock = monotonic
	}
	var err error
	if k.table, err = turns.New(turns.Config{GPUs: len(n.gpus), Settings: settings, Tell: n.tellTime}); err != nil {
		return nil, err
	}
	k.swaps, err = n.newSwaps(k.table)
	return k, err
}

// monotonic is CLOCK_MONOTONIC in ns, the clock of the library's busy time.
func monotonic() int64 {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano()
}

// run does what becomes due until ctx ends.
func (k *timekeeper) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-k.kick:
		}
		k.mu.Lock()
		now := k.clock()
		k.table.Tick(now)
		k.swaps.Tick(now)
		k.followMoves(now)
		k.armed = k.next()
		wait := time.Hour
		if k.armed != sched.Never {
			wait = time.Duration(max(0, k.armed-now))
		}
		k.mu.Unlock()
		timer.Reset(wait)
	}
}

// next is when something is due.
func (k *timekeeper) next() int64 { return min(k.table.Next(), k.swaps.Next()) }

// do does something at the tables. The goroutine hears of it if it has to look earlier.
func (k *timekeeper) do(what func(now int64)) {
	k.mu.Lock()
	now := k.clock()
	what(now)
	k.followMoves(now)
	next := k.next()
	early := next < k.armed
	if early {
		k.armed = next
	}
	k.mu.Unlock()
	if early {
		select {
		case k.kick <- struct{}{}:
		default:
		}
	}
}

// seatAt gives a container its place at the table.
func (c *container) seatAt(k *timekeeper) (err error) {
	if k == nil {
		return nil
	}
	k.do(func(now int64) { c.turns, err = k.table.Add(now, c, c.page, weightOf(c.spec.Caps)) })
	return err
}

// closePage takes the container from the table and closes its control page. Called once.
func (c *container) closePage() {
	if c.turns != nil {
		c.node.time.do(func(now int64) {
			c.endMoves(now)
			c.turns.Remove(now)
		})
	}
	c.page.Close()
}

// setWeight has the container's weight change from now on.
func (c *container) setWeight(caps store.Caps) {
	if c.turns == nil {
		return
	}
	c.node.time.do(func(now int64) {
		if err := c.turns.SetWeight(now, weightOf(caps)); err != nil {
			c.node.log.Error("a weight has not been set", "container", c.spec.Name, "error", err)
		}
	})
}

// weightOf is a container's weight for the scheduler. An earlier agent may have kept one that is not accepted
// any more.
func weightOf(caps store.Caps) float64 {
	if caps.Weight == nil || sched.CheckWeight(*caps.Weight) != nil {
		return 1
	}
	return *caps.Weight
}

// player is a session's place at the table. One that is nil has none.
type player struct {
	time   *timekeeper
	member *turns.Member
	moves  *swaps.Member // nil: its memory does not move
}

// told is a process as the table sees it.
type told struct {
	*page.Usage
	out outlet
	pid int
}

// Look has the process look at a GPU, unless there is no room for the message.
func (t told) Look(gpu int, lease uint32) bool {
	return t.out.now(wire.Encode(&abi.Turn{Gpu: uint32(gpu), Lease: lease}))
}

// play gives a connected session a place, that of its process's former session if there is one. Called under
// mu, before others know the session.
func (c *container) play(s, former *session) {
	k := c.node.time
	if c.turns == nil {
		return
	}
	k.do(func(now int64) {
		process := told{s.usage, s.out, s.process.PID}
		s.turns = &player{time: k, member: c.turns.Join(now, process, s.process.PID, s.program)}
		if c.moves != nil {
			s.turns.moves = c.moves.Join(now, process)
		}
		if former != nil && former.turns != nil {
			s.turns.member.Succeed(now, former.turns.member)
			former.turns.leaveMoves(now) // it declares anew what it has
		}
	})
}

// ready: the session has been welcomed.
func (p *player) ready() {
	if p != nil {
		p.time.do(p.member.Ready)
	}
}

// absent: the process lives, and its connection is lost. The session's usage page is not read for it
// afterwards.
func (p *player) absent() {
	if p != nil {
		p.time.do(func(now int64) {
			if p.member.Absent(now); p.moves != nil {
				p.moves.Absent(now)
			}
		})
	}
}

// leave: the process has ended.
func (p *player) leave() {
	if p != nil {
		p.time.do(func(now int64) {
			p.member.Leave(now)
			p.leaveMoves(now)
		})
	}
}

func (p *player) leaveMoves(now int64) {
	if p.moves != nil {
		p.moves.Leave(now)
	}
}

// turn takes what a tenant says of GPU time. One that says too much waits, and nobody else does.
func (v *conversation) turn(say func(*turns.Member, int64, turns.Message), m *abi.Turn) *ending {
	s := v.s
	if int(m.Gpu) >= len(v.c.node.gpus) {
		return &ending{abi.CloseProtocol, fmt.Sprintf("GPU time on GPU %d, of %d", m.Gpu, len(v.c.node.gpus))}
	}
	v.wait()
	if p := s.turns; p != nil {
		p.time.do(func(now int64) {
			say(p.member, now, turns.Message{GPU: int(m.Gpu), Lease: m.Lease, Waiting: m.Waiting})
		})
	}
	return nil
}

// pace is how many messages of GPU time may be sent: each takes the keeper's mutex. An honest session sends some
// hundreds a second for a GPU that changes hands all the time.
type pace struct {
	left float64
	last time.Time
}

// Messages a second of one session, and of one container; so many eighths of a second's may come at once.
const (
	paceRate   = 4000
	paceCrowd  = 20_000
	paceEighth = 8
)

// crowdPace is the pace of a container.
type crowdPace struct {
	mu sync.Mutex
	pace
}

func (p *crowdPace) take(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pace.take(now, paceCrowd)
}

// take counts one message, and returns how long it has to wait.
func (p *pace) take(now time.Time, rate float64) time.Duration {
	most := rate / paceEighth
	if p.last.IsZero() {
		p.left = most
	} else {
		p.left = min(most, p.left+max(0, now.Sub(p.last).Seconds())*rate)
	}
	p.last = now
	if p.left--; p.left >= 0 {
		return 0
	}
	return time.Duration(-p.left / rate * float64(time.Second))
}

// tellTime writes an event of GPU time. Called under the keeper's mutex.
func (n *Node) tellTime(e turns.Event) {
	c := e.Owner.(*container)
	event := c.newEvent(e.Kind, e.PID, "on GPU %s: %s", n.gpus[e.GPU].name, e.Text)
	event.GPUUUID = n.gpus[e.GPU].uuid
	n.events.Add(event)
}

var _ turns.Process = told{}
