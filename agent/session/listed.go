package session

// What a helper has told of a container runtime's containers, be they weir's or not.

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"weir/agent/control"
	"weir/agent/control/ociapi"
)

// listed is what the container runtime has. It is complete from the first whole listing on; what is told
// of a newer one takes its place only when that is complete, too.
type listed struct {
	mu         sync.Mutex
	runtime    string // for people; empty: none has been told of
	lost       bool   // it cannot be asked now, so all is as it was
	generation uint64 // of all
	all        map[ociapi.Key]ociapi.Listed
	next       uint64 // the generation of what is not complete yet
	incomplete map[ociapi.Key]ociapi.Listed
	changed    chan struct{} // closed at the next change
}

func newListed() *listed { return &listed{lost: true, changed: make(chan struct{})} }

// turn is what a message says of the container runtime itself.
type turn int

const (
	noTurn     turn = iota
	turnedUp        // it can be asked, and could not before
	turnedAway      // it cannot be asked any more
)

// take takes one message. again is true for one that changes what was not told, or no longer holds; runtime is
// what it is about.
func (l *listed) take(m ociapi.Listing) (what turn, runtime string, again bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.Lost != "" {
		had := !l.lost
		l.lost, l.generation, l.incomplete = true, 0, nil
		if had {
			what = turnedAway
		}
		return what, l.runtime, false, nil
	}
	if m.Begin {
		l.next, l.incomplete = m.Generation, make(map[ociapi.Key]ociapi.Listed)
	}
	into := l.all
	switch {
	case l.incomplete != nil && m.Generation == l.next:
		into = l.incomplete
	case m.Generation == 0 || m.Generation != l.generation:
		return noTurn, "", true, nil
	}
	for _, key := range m.Gone {
		delete(into, key)
	}
	for _, c := range m.Containers {
		into[c.Key] = c
	}
	if len(into) > ociapi.ListedMax {
		l.generation, l.incomplete = 0, nil
		return noTurn, "", false, fmt.Errorf("%w: more than %d containers are listed", control.ErrInvalid, ociapi.ListedMax)
	}
	if l.incomplete != nil && !m.End {
		return noTurn, "", false, nil
	}
	if l.incomplete != nil {
		l.all, l.generation, l.incomplete = l.incomplete, l.next, nil
	}
	if l.lost {
		what = turnedUp
	}
	l.runtime, l.lost = m.Runtime, false
	close(l.changed)
	l.changed = make(chan struct{})
	return what, l.runtime, false, nil
}

// get is a container as it was last told of.
func (l *listed) get(key ociapi.Key) (c ociapi.Listed, there bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, there = l.all[key]
	return c, there
}

// await is a container that is about to start: the runtime has it already, and tells of it soon if it
// tells at all. What was known before the runtime was lost is not of it: another may have had its name.
func (l *listed) await(ctx context.Context, key ociapi.Key, patience time.Duration) (ociapi.Listed, bool) {
	late := time.After(patience)
	for {
		l.mu.Lock()
		c, there := l.all[key]
		there = there && !l.lost
		changed := l.changed
		l.mu.Unlock()
		if there {
			return c, true
		}
		if patience <= 0 {
			return ociapi.Listed{}, false
		}
		select {
		case <-ctx.Done():
			return ociapi.Listed{}, false
		case <-late:
			return ociapi.Listed{}, false
		case <-changed:
		}
	}
}

// copied is all that the runtime has, and whether it still can be asked.
func (l *listed) copied() (all map[ociapi.Key]ociapi.Listed, current bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.all), !l.lost
}

// checkListing refuses what no helper would tell.
func checkListing(m ociapi.Listing) error {
	for _, c := range m.Containers {
		for _, text := range []string{c.Namespace, c.ID, c.Name, c.PodNamespace, c.Pod, c.PodUID, c.Image} {
			if len(text) > ociapi.NameBytesMax {
				return fmt.Errorf("%w: a listed container's %.40q… is longer than %d bytes", control.ErrInvalid, text,
					ociapi.NameBytesMax)
			}
		}
		if c.Namespace == "" || c.ID == "" || c.PID < 0 || c.Running && c.PID == 0 {
			return fmt.Errorf("%w: a listed container without namespace, id or, though it runs, process",
				control.ErrInvalid)
		}
	}
	return nil
}
