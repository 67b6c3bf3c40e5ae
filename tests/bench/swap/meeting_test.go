package swap

// Stages that do something at the same time.

import (
	"sync"
	"time"
)

// meeting lets so many go on together, again and again. Who does not come any more, since a program has failed, is not
// waited for for ever.
type meeting struct {
	mutex sync.Mutex
	count int
	here  int
	gate  chan struct{}
}

func newMeeting(count int) *meeting { return &meeting{count: count, gate: make(chan struct{})} }

func (m *meeting) meet() {
	m.mutex.Lock()
	gate := m.gate
	if m.here++; m.here == m.count {
		m.here, m.gate = 0, make(chan struct{})
		close(gate)
	}
	m.mutex.Unlock()
	select {
	case <-gate:
	case <-time.After(patient):
	}
}
