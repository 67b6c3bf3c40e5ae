// Package model explores protocols of weir step by step, in every order in which their steps can come.
//
// This file is the gate's handshake (cgo/gate.h, whose names E1 to E5 and R1 to R5 it uses): two threads that
// launch, the helper thread that revokes, and the agent that grants and takes leases, changes its page, and
// may lose its patience. A thread's stores wait in a buffer, as on x86-64, until any later moment; the
// agent's do, too. What the futex and membarrier do is what the kernel promises. Invariants, in every state:
//
//   - once the helper has said that no launch on a lease is under way (R5), no thread launches on that lease, but
//     for the entry that the helper has given up, or that was past its check when the agent stopped waiting;
//   - whoever launches after the drain of its lease was over is counted as late;
//   - nobody sleeps for ever: a state that no step leaves is one in which all is done.
package model

import "slices"

// Threads that launch.
const launchers = 2

// A Protocol is the handshake, or a form of it from which something was taken away.
type Protocol struct {
	Locked    bool // entries are locked exchanges, and there is no membarrier
	GivesUp   bool // the helper may stop waiting at any time: a thread is stopped
	Impatient bool // the agent may: the process is

	NoBarrier      bool // R2 is left out
	LoadFirst      bool // E2 comes before E1
	WordsFirst     bool // R3 comes before R2
	NoRecheck      bool // who is woken goes straight to the launch
	BlindSleep     bool // the sleep does not compare the lease
	SilentSwap     bool // a new page is not followed by a revocation
	NoLateCheck    bool // E4 is left out
	SameNumber     bool // the end of a drain does not change the lease's number
	WakesTooEarly  bool // the agent wakes before it writes the lease
	NoSecondBuffer bool // the barrier reaches the first thread only
}

// An Act is one thing that the agent does, to its end, before the next.
type Act int

const (
	Revoke Act = iota // closes the lease, waits for R5, ends the drain
	Grant             // opens the next lease, and wakes
	Swap              // is another agent now, whose page has a closed lease
)

// Where a thread is: before the step of that name.
const (
	atE1 = iota
	atE2Page
	atE2
	atLateE1 // E1 after E2
	atWithdraw
	atSleepPage
	atSleep
	asleep
	atBlindEntry
	atE3
	atE4Page
	atE4
	atE5
	threadDone
)

// Where the helper is.
const (
	idle = iota
	atR1
	atR2
	atR2Second
	atR3
	atR4
	atR3Second
	atR4Second
	atR5
)

// Where the agent is in its act.
const (
	actBegin = iota
	actSay
	actWait
	actEnd
)

type thread struct {
	at       uint8
	entry    uint8 // number of the entry
	page     uint8
	lease    uint8 // as seen at E2
	left     uint8 // launches yet to be made
	wasLate  bool  // the launch came after its lease's end
	countsIt bool
	buffer   [3]uint8 // stores to its word, oldest first
	buffered uint8
	word     uint8 // in memory
	excused  uint8 // the entry that the helper has given up; 0: none
	sleepsOn uint8
}

// A state of the whole, comparable.
type state struct {
	threads [launchers]thread
	lease   [2]uint8 // of both pages, in memory
	page    uint8    // in use

	helper      uint8
	asked, took uint8 // numbers of leases that the helper is to revoke, and has last
	swapping    bool
	seen        [launchers]uint8

	act, step uint8
	number    uint8 // of the lease
	agentPage uint8
	stored    bool  // the agent's lease waits in its buffer
	store     uint8 // what it is
	drained   uint8 // R5 was said of leases up to this one
	ended     uint8 // the drain of leases up to this one is over
}

func closed(number uint8) uint8 { return number<<1 | 1 }
func open(number uint8) uint8   { return number << 1 }

// A move is one step from a state; broken says which invariant it broke.
type move struct {
	who, name string
	to        state
	broken    string
}

var threadNames = [launchers]string{"thread 0: ", "thread 1: "}

// Explore goes through all states that can be reached while the agent does these acts and each thread makes
// so many launches. It returns how many there are, and the steps to a state in which an invariant does not
// hold; none where there is no such state.
func Explore(p Protocol, acts []Act, launches int) (states int, trace []string) {
	var first state
	first.number = 1
	first.lease[0] = open(1)
	for i := range first.threads {
		first.threads[i].left = uint8(launches)
	}
	known := map[state]struct{}{first: {}}
	all, from := []state{first}, []int32{-1}
	var moves []move
	for at := 0; at < len(all); at++ {
		s := all[at]
		moves = p.moves(moves[:0], &s, acts)
		if len(moves) == 0 && !s.isDone(acts) {
			return len(all), append(p.steps(all, from, at, acts), "nobody can go on")
		}
		for _, m := range moves {
			if m.broken != "" {
				return len(all), append(p.steps(all, from, at, acts), m.who+m.name+": "+m.broken)
			}
			if _, ok := known[m.to]; !ok {
				known[m.to] = struct{}{}
				all, from = append(all, m.to), append(from, int32(at))
			}
		}
	}
	return len(all), nil
}

// steps names the moves from the first state to one.
func (p Protocol) steps(all []state, from []int32, at int, acts []Act) (steps []string) {
	for ; from[at] >= 0; at = int(from[at]) {
		for _, m := range p.moves(nil, &all[from[at]], acts) {
			if m.to == all[at] {
				steps = append(steps, m.who+m.name)
				break
			}
		}
	}
	slices.Reverse(steps)
	return steps
}

func (s *state) isDone(acts []Act) bool {
	for _, t := range s.threads {
		if t.at != threadDone {
			return false
		}
	}
	return int(s.act) == len(acts)
}

// moves returns every step that can be next.
func (p Protocol) moves(moves []move, s *state, acts []Act) []move {
	for i := range s.threads {
		moves = p.threadMoves(moves, s, i)
	}
	moves = p.helperMoves(moves, s)
	if int(s.act) < len(acts) {
		moves = p.agentMoves(moves, s, acts[s.act])
	}
	if s.stored {
		moves = append(moves, move{who: "agent: ", name: "its store is seen", to: *s})
		moves[len(moves)-1].to.flushAgent()
	}
	return moves
}

func (s *state) flushAgent() {
	if s.stored {
		s.lease[s.agentPage], s.stored = s.store, false
	}
}

// flush empties a thread's store buffer.
func (t *thread) flush() {
	for t.buffered > 0 {
		t.flushOne()
	}
}

func (t *thread) flushOne() {
	t.word = t.buffer[0]
	copy(t.buffer[:], t.buffer[1:])
	t.buffer[len(t.buffer)-1] = 0
	t.buffered--
}

// put stores to the thread's word: into its buffer, or with a locked instruction.
func (t *thread) put(value uint8, locked bool) {
	if locked {
		t.flush()
		t.word = value
		return
	}
	t.buffer[t.buffered] = value
	t.buffered++
}

func (t *thread) inside() uint8  { return t.entry<<1 | 1 }
func (t *thread) outside() uint8 { return t.entry << 1 }

// threadMoves adds a thread's own next steps, and the store that may leave its buffer.
func (p Protocol) threadMoves(moves []move, s *state, i int) []move {
	take := func(name string, change func(*state, *thread) string) {
		moves = append(moves, move{who: threadNames[i], name: name, to: *s})
		m := &moves[len(moves)-1]
		m.broken = change(&m.to, &m.to.threads[i])
	}
	t := &s.threads[i]
	if t.buffered > 0 {
		take("its store is seen", func(_ *state, t *thread) string { t.flushOne(); return "" })
	}
	full := int(t.buffered) == len(t.buffer)
	switch t.at {
	case atE1:
		if !full {
			take("E1", p.enter)
		}
	case atE2Page:
		take("E2, which page", func(s *state, t *thread) string { t.page, t.at = s.page, atE2; return "" })
	case atE2:
		take("E2", p.check)
	case atLateE1:
		if !full {
			take("E1", p.enterLate)
		}
	case atWithdraw:
		if !full {
			take("withdraws", func(_ *state, t *thread) string {
				t.put(t.outside(), false)
				t.at, t.excused = atSleepPage, 0
				return ""
			})
		}
	case atSleepPage:
		take("looks where to sleep", func(s *state, t *thread) string { t.page, t.at = s.page, atSleep; return "" })
	case atSleep:
		take("sleeps", p.sleep)
	case asleep:
		if t.sleepsOn != s.page { // else only a wake-up ends it, or it would be lost
			take("has slept long enough", p.awake)
		}
	case atBlindEntry:
		if !full {
			take("enters unseen", func(_ *state, t *thread) string {
				t.entry++
				t.put(t.inside(), p.Locked)
				t.at = atE3
				return ""
			})
		}
	case atE3:
		take("E3, launches", launch)
	case atE4Page:
		take("E4, which page", func(s *state, t *thread) string { t.page, t.at = s.page, atE4; return "" })
	case atE4:
		take("E4", p.lookBack)
	case atE5:
		if !full {
			take("E5", leave)
		}
	}
	return moves
}

func (p Protocol) enter(_ *state, t *thread) string {
	t.at = atE2Page
	if p.LoadFirst {
		return ""
	}
	t.entry++
	t.put(t.inside(), p.Locked)
	return ""
}

func (p Protocol) check(s *state, t *thread) string {
	t.lease = s.lease[t.page]
	switch {
	case p.LoadFirst:
		t.at = atLateE1
	case t.lease&1 != 0:
		t.at = atWithdraw
	default:
		t.at = atE3
	}
	return ""
}

func (p Protocol) enterLate(_ *state, t *thread) string {
	t.entry++
	t.put(t.inside(), p.Locked)
	t.at = atE3
	if t.lease&1 != 0 {
		t.at = atWithdraw
	}
	return ""
}

// sleep is the system call: the kernel's lock has the stores before it seen.
func (p Protocol) sleep(s *state, t *thread) string {
	t.flush()
	if s.lease[t.page] == t.lease || p.BlindSleep {
		t.at, t.sleepsOn, t.page, t.lease = asleep, t.page, 0, 0
	} else {
		t.at, t.page, t.lease = atE1, 0, 0
	}
	return ""
}

func (p Protocol) awake(s *state, t *thread) string {
	t.at, t.sleepsOn = atE1, 0
	if p.NoRecheck {
		t.at, t.lease = atBlindEntry, s.lease[s.page]
	}
	return ""
}

func launch(s *state, t *thread) string {
	t.at = atE4Page
	number := t.lease >> 1
	t.wasLate = number <= s.ended
	if number > s.drained {
		return ""
	}
	if t.excused != t.entry {
		return "it launches on a lease of which no launch was under way any more"
	}
	return ""
}

func (p Protocol) lookBack(s *state, t *thread) string {
	t.at = atE5
	t.countsIt = !p.NoLateCheck && s.lease[t.page]>>1 != t.lease>>1
	return ""
}

func leave(_ *state, t *thread) string {
	if t.wasLate && !t.countsIt {
		return "its launch was late, and it did not notice"
	}
	t.put(t.outside(), false)
	t.at, t.left = atE1, t.left-1
	if t.left == 0 {
		t.at = threadDone
	}
	t.page, t.lease, t.excused, t.wasLate, t.countsIt = 0, 0, 0, false, false
	return ""
}
