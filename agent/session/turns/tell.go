package turns

// What operators are told.

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// How often and when something is worth an event, in ns.
const (
	tellEvery     int64 = 60_000_000_000 // of one kind, for a container and GPU
	throttledLong int64 = 1_000_000_000  // a flow is held back for so long
	stallLong     int64 = 100_000_000    // a drain that others wait for takes so long
	stalledAgain  int64 = 10_000_000_000 // a drain stands still so soon after another
)

// tell writes an event, if there was none of the kind for a while.
func (c *Container) tell(gpu int, kind string, pid int, format string, args ...any) {
	s, t := &c.seats[gpu], c.table
	if last, told := s.told[kind]; told && t.now-last < tellEvery || t.config.Tell == nil {
		return
	}
	if s.told == nil {
		s.told = make(map[string]int64)
	}
	s.told[kind] = t.now
	t.config.Tell(Event{Kind: kind, Owner: c.owner, GPU: gpu, PID: pid, Text: fmt.Sprintf(format, args...)})
}

// users names the processes that use a GPU, a few of them.
func (c *Container) users(gpu int) string {
	var names []string
	users, shown := c.seats[gpu].users, 5
	for _, m := range users[:min(len(users), shown)] {
		names = append(names, fmt.Sprintf("%d (%s)", m.pid, m.program))
	}
	if more := len(users) - shown; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	if len(names) == 0 {
		return "no process that is left"
	}
	return strings.Join(names, ", ")
}

// onlyUser is the pid of the process that uses a GPU, 0 where there are several.
func (c *Container) onlyUser(gpu int) (pid int) {
	if users := c.seats[gpu].users; len(users) == 1 {
		return users[0].pid
	}
	return 0
}

func since(from, now int64) time.Duration {
	return time.Duration(now - from).Round(time.Millisecond)
}

// tellStalled tells of drains that stand still again and again: a single one may be a kernel that takes long, or a
// machine that is busy.
func (c *Container) tellStalled(gpu int) {
	s, now := &c.seats[gpu], c.table.now
	again := s.stalledAt > 0 && now-s.stalledAt < stalledAgain
	if s.stalledAt = now; !again {
		return
	}
	c.tell(gpu, "drain-stalled", c.onlyUser(gpu), "its turn is over, and what it has submitted makes no progress: it "+
		"may wait for work that is held back, so its gate is open again until it has gone on (processes: %s)", c.users(gpu))
}

func (c *Container) tellLong(gpu int) {
	s := &c.seats[gpu]
	c.tell(gpu, "drain-long", c.onlyUser(gpu), "its turn was over %v ago, and what it has submitted still runs: others "+
		"go on beside it, and it gets no turn until its work is done; is it stopped, or in a kernel that does not end? "+
		"(processes: %s)", since(s.drainFrom, c.table.now), c.users(gpu))
}

func (c *Container) tellCoRun(gpu int, begins bool) {
	if begins {
		c.tell(gpu, "co-run", 0, "its work waits for work behind the gate again and again, so it runs beside the others "+
			"for a while, without turns, and is charged what it reports")
		return
	}
	c.tell(gpu, "leased", 0, "it takes turns with the others again")
}

// tellGone tells of a holder whose process has ended with work under way while others waited for the GPU, if it was the
// only one of its container that used it. What a program leaves undone when nobody waits is its own affair.
func (c *Container) tellGone(m *Member) {
	for _, gpu := range c.gpus {
		s := &c.seats[gpu]
		if s.holds() && m.places[gpu].active && len(s.users) == 1 && m.flies(gpu) && c.isAwaited(gpu) {
			c.tell(gpu, "holder-gone", m.pid, "%s ended, or was killed, while the GPU was its container's and others waited "+
				"for it: they go on", m.program)
		}
	}
}

// isAwaited tells whether another container waits for a GPU.
func (c *Container) isAwaited(gpu int) bool {
	return slices.ContainsFunc(c.table.using, func(other *Container) bool {
		if other == c || len(other.seats[gpu].users) == 0 {
			return false
		}
		v, _ := c.table.node.ViewOn(other.id, gpu)
		return v.State == "waiting" || v.State == "throttled"
	})
}

func (m *Member) tellLie(gpu int) {
	m.c.tell(gpu, "forged", m.pid, "what %s says that it has done on the GPU cannot be: it is taken for nothing",
		m.program)
}

// tellThrottled tells of seats that are held back for long.
func (c *Container) tellThrottled() {
	t := c.table
	for gpu := range c.seats {
		s := &c.seats[gpu]
		if s.throttledFrom == 0 || len(s.users) == 0 {
			continue
		}
		if v, _ := t.node.ViewOn(c.id, gpu); v.State != "throttled" || t.stalls(gpu) {
			s.throttledFrom = t.now // it waits for a drain of another, of which that one is told
		}
		if t.now-s.throttledFrom > throttledLong+2*t.gpus[gpu].quantum {
			c.tell(gpu, "throttled", 0, "held back for %v: it has had more than its share before, and gets none until the "+
				"others have had theirs", since(s.throttledFrom, t.now))
			s.throttledFrom = t.now
		}
	}
}

// stalls tells whether a drain on the GPU takes long.
func (t *Table) stalls(gpu int) bool {
	return slices.ContainsFunc(t.using, func(c *Container) bool {
		s := &c.seats[gpu]
		return s.holds() && s.state != seatLeased && t.now-s.drainFrom > stallLong
	})
}
