// Package events is the agent's event log: the last few thousand things an operator should know of.
//
// It is bounded. When it is full, the container with the most events loses its oldest one, so that
// a tenant that makes events without end pushes out its own and nobody else's. Sequence numbers are
// consecutive: a gap in what a reader gets is the number of events that were dropped.
//
// What a program can do again and again, such as ask for memory that it is refused, is one event with
// a count: a repetition only raises the count of the last one, but for every power of two, at which a
// new event tells a reader who follows the log how things stand.
package events

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"weir/agent/control"
)

// Capacity is how many events a log keeps unless told otherwise.
const Capacity = 4096

// repeatWithin is how long after its last time something counts as the same again.
const repeatWithin = time.Minute

// repeatable are the types of what a program can do again and again.
var repeatable = []string{"denied", "driver-oom", "refused", "start-refused", "incompatible"}

// same is what two events have in common that are one.
type same struct {
	kind, namespace, container, gpu, message string
	pid                                      int
	asked, limit                             int64
}

// sameOf is what an event has in common with its repetitions. The message of one that tells figures
// changes with what is in use.
func sameOf(e control.Event) same {
	s := same{
		kind: e.Type, namespace: e.Namespace, container: e.Container, gpu: e.GPUUUID, pid: e.PID,
	}
	if e.Asked == nil {
		s.message = e.Message
		return s
	}
	s.asked = *e.Asked
	if e.Cap != nil {
		s.limit = *e.Cap
	}
	return s
}

// repeat is something that has happened, so many times.
type repeat struct {
	count int64
	seq   uint64 // of the latest event that told of it
	last  time.Time
}

// Log is an event log. Its methods may be called at the same time.
type Log struct {
	capacity int
	now      func() time.Time

	mu      sync.Mutex
	queues  map[string][]control.Event // by container, oldest first
	repeats map[same]*repeat
	kept    int
	last    uint64
	dropped uint64
	counts  map[string]uint64 // by type
	more    chan struct{}     // closed at the next event
}

// New makes a log of at most capacity events (Capacity if 0 or less) with the given clock.
func New(capacity int, now func() time.Time) *Log {
	if capacity <= 0 {
		capacity = Capacity
	}
	return &Log{
		capacity: capacity,
		now:      now,
		queues:   make(map[string][]control.Event),
		repeats:  make(map[same]*repeat),
		counts:   make(map[string]uint64),
		more:     make(chan struct{}),
	}
}

// Add appends e, whose number, time and count it sets, or counts it as a repetition.
func (l *Log) Add(e control.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	e.Time, e.Count = now, 1
	l.counts[e.Type]++
	key := e.Namespace + "/" + e.Container
	r := l.repeated(e, now)
	if r != nil {
		e.Count = r.count
		if r.count&(r.count-1) != 0 {
			l.recount(key, r)
			return
		}
	}
	if l.kept == l.capacity {
		l.dropOne()
	}
	l.last++
	e.Seq = l.last
	if r != nil {
		r.seq = e.Seq
	}
	l.queues[key] = append(l.queues[key], e)
	l.kept++
	close(l.more)
	l.more = make(chan struct{})
}

// repeated counts something that may be a repetition; nil for what never is.
func (l *Log) repeated(e control.Event, now time.Time) *repeat {
	if !slices.Contains(repeatable, e.Type) {
		return nil
	}
	key := sameOf(e)
	r := l.repeats[key]
	if r == nil || now.Sub(r.last) > repeatWithin {
		l.forgetOld(now)
		r = &repeat{}
		l.repeats[key] = r
	}
	r.count++
	r.last = now
	return r
}

// forgetOld makes room among what may be repeated.
func (l *Log) forgetOld(now time.Time) {
	if len(l.repeats) < l.capacity {
		return
	}
	for key, r := range l.repeats {
		if now.Sub(r.last) > repeatWithin {
			delete(l.repeats, key)
		}
	}
	if len(l.repeats) >= l.capacity {
		clear(l.repeats)
	}
}

// recount brings the count of an event up to date, if it is still kept.
func (l *Log) recount(key string, r *repeat) {
	queue := l.queues[key]
	if i, kept := find(queue, r.seq); kept {
		queue[i].Count = r.count
	}
}

// find is where an event with a number is in a queue, or would be.
func find(queue []control.Event, seq uint64) (int, bool) {
	return slices.BinarySearchFunc(queue, seq, func(e control.Event, seq uint64) int {
		return int(int64(e.Seq) - int64(seq))
	})
}

// Since returns the events kept whose number is higher than seq, oldest first. A number that the
// log has not reached is one of an earlier agent: all events kept are newer than it.
func (l *Log) Since(seq uint64) []control.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since(seq)
}

// Wait is Since, but blocks until there is an event or ctx ends, which is its only error.
func (l *Log) Wait(ctx context.Context, seq uint64) ([]control.Event, error) {
	for {
		l.mu.Lock()
		got, more := l.since(seq), l.more
		l.mu.Unlock()
		if len(got) > 0 {
			return got, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Counts returns how often each type has happened so far, repetitions included. The types are the agent's own, so there
// are few.
func (l *Log) Counts() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}

// Dropped returns how many events were dropped to make room.
func (l *Log) Dropped() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped
}

func (l *Log) since(seq uint64) []control.Event {
	if seq > l.last {
		seq = 0
	}
	var got []control.Event
	for _, queue := range l.queues {
		first, _ := find(queue, seq+1)
		got = append(got, queue[first:]...)
	}
	slices.SortFunc(got, func(a, b control.Event) int { return int(int64(a.Seq) - int64(b.Seq)) })
	return got
}

// dropOne drops the oldest event of the longest queue; of two equally long, of that with the older.
func (l *Log) dropOne() {
	var longest string
	for key, queue := range l.queues {
		best := l.queues[longest]
		if len(queue) > len(best) || len(queue) == len(best) && queue[0].Seq < best[0].Seq {
			longest = key
		}
	}
	queue := l.queues[longest]
	queue[0] = control.Event{}
	l.queues[longest] = queue[1:]
	if len(queue) == 1 {
		delete(l.queues, longest)
	}
	l.kept--
	l.dropped++
}
