package metrics

// Asking a source that may hang, as NVML does where a card has failed: one question at a time is under way, and nobody
// waits longer than he likes.

import (
	"context"
	"errors"
	"sync"
	"time"

	"weir/agent/control"
)

var errNoInfo = errors.New("nothing has been told yet: NVML takes long to answer")

// infoAsker asks for AgentInfo.
type infoAsker struct {
	source Source

	mu    sync.Mutex
	under chan struct{} // closed with the end of the question that is under way; nil: none is
	last  control.AgentInfo
	err   error
}

func newInfoAsker(source Source) *infoAsker { return &infoAsker{source: source, err: errNoInfo} }

// ask returns the answer to a question that was begun now or is under way. Where that takes longer than patience, it is the
// last answer without what changes: what GPUs are used for.
func (a *infoAsker) ask(patience time.Duration) (control.AgentInfo, error) {
	a.mu.Lock()
	if a.under == nil {
		a.under = make(chan struct{})
		go a.question(a.under)
	}
	under := a.under
	a.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	late := false
	select {
	case <-under:
	case <-timer.C:
		late = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	info := a.last
	if late {
		info.GPUs = make([]control.GPU, len(a.last.GPUs))
		for i, g := range a.last.GPUs {
			g.UsedBytes, g.UtilisationRatio = nil, nil
			info.GPUs[i] = g
		}
	}
	return info, a.err
}

func (a *infoAsker) question(under chan struct{}) {
	info, err := a.source.Info(context.Background())
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil || a.err != nil {
		a.last, a.err = info, err
	}
	a.under = nil
	close(under)
}
