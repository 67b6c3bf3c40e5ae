// Package events is the agent's event log: the last few thousand things an operator should know of.
//
// It is bounded. When it is full, the container with the most events loses its oldest one, so that
// a tenant that makes events without end pushes out its own and nobody else's. Sequence numbers are
// consecutive: a gap in what a reader gets is the number of events that were dropped.
package events

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/agent/control"
)

// Capacity is how many events a log keeps unless told otherwise.
const Capacity = 4096

// Log is an event log. Its methods may be called at the same time.
type Log struct {
	capacity int
	now      func() time.Time

	mu      sync.Mutex
	queues  map[string][]control.Event // by container, oldest first
	kept    int
	last    uint64
	dropped uint64
	more    chan struct{} // closed at the next event
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
		more:     make(chan struct{}),
	}
}

// Add appends e, whose number and time it sets.
func (l *Log) Add(e control.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept == l.capacity {
		l.dropOne()
	}
	l.last++
	e.Seq, e.Time = l.last, l.now()
	key := e.Namespace + "/" + e.Container
	l.queues[key] = append(l.queues[key], e)
	l.kept++
	close(l.more)
	l.more = make(chan struct{})
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
		first, _ := slices.BinarySearchFunc(queue, seq+1, func(e control.Event, seq uint64) int {
			return int(int64(e.Seq) - int64(seq))
		})
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
