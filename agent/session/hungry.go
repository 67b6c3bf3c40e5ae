package session

// Requests for movable memory that the host has no room for, while processes of other containers have ended whose
// charges are still held: they wait for these, as for those of their own container, and no longer.

import "time"

// mayWaitForHost tells whether a request for which the host lacks so many bytes is to wait. The end of a process may not
// have been heard of yet, so each waits for one look. Called under mu.
func (c *container) mayWaitForHost(w *waiter, missing uint64) bool {
	if !w.until.After(time.Now()) || len(c.waiting)+int(c.unsent.Load()) > waitersMax {
		return false
	}
	enough := c.node.exits.hunger(c, missing, !w.looked)
	w.looked = true
	return enough
}

// hunger has c's requests decided again, soon or when others' memory is free, if what is about to be free is enough or
// always is said.
func (e *exits) hunger(c *container, missing uint64, always bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leaving < missing && !always {
		return false
	}
	if _, waits := e.hungry[c]; !waits {
		e.hungry[c] = time.Now()
		e.wake()
	}
	return true
}

// feed has the requests decided again of those containers that have waited for long enough for ends to be heard of.
func (e *exits) feed() {
	var list []*container
	e.mu.Lock()
	for c, since := range e.hungry {
		if time.Since(since) >= exitPoll {
			list = append(list, c)
			delete(e.hungry, c)
		}
	}
	e.mu.Unlock()
	for _, c := range list {
		c.mu.Lock()
		c.retryWaiting()
		c.mu.Unlock()
	}
}
