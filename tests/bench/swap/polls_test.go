package swap

// What the agent says of programs above their caps, asked again and again while they run.

import (
	"context"
	"slices"
	"time"

	"weir/agent/control"
	"weir/tests/bench/figures"
)

const pollEvery = 20 * time.Millisecond

// polls are the questions and answers of one stage.
type polls struct {
	stop, stopped chan struct{}
	reports       [][]report
}

func startPolls(socket string, programs int) *polls {
	p := &polls{stop: make(chan struct{}), stopped: make(chan struct{}), reports: make([][]report, programs)}
	client := control.NewClient(socket)
	go func() {
		defer close(p.stopped)
		for {
			// An agent that does not answer says nothing, which does not excuse anything.
			containers, _ := client.Containers(context.Background())
			p.take(figures.Monotonic(), containers)
			select {
			case <-p.stop:
				return
			case <-time.After(pollEvery):
			}
		}
	}()
	return p
}

func (p *polls) take(at time.Duration, containers []control.Container) {
	for i := range p.reports {
		c := slices.IndexFunc(containers, func(c control.Container) bool { return c.Name == tenantName(i) })
		if c < 0 || len(containers[c].GPUs) == 0 {
			continue
		}
		swap := containers[c].GPUs[0].Swap
		if swap == nil || swap.OverCapBytes == nil || swap.OverCapMostBytes == nil {
			continue
		}
		p.reports[i] = append(p.reports[i], report{at, *swap.OverCapBytes, *swap.OverCapMostBytes})
	}
}

func (p *polls) end() [][]report {
	close(p.stop)
	<-p.stopped
	return p.reports
}
