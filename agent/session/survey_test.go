package session

// Tests of what is measured of a node.

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/agent/control"
	"weir/agent/control/ociapi"
	"weir/agent/session/sessiontest"
)

// survey is one of the agent's.
func (b *bench) survey() control.Survey {
	b.t.Helper()
	s, err := b.Survey(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// A survey says what the lists of containers and flows say, and what has happened how often.
func TestSurveySaysWhatTheListsSay(t *testing.T) {
	b := start(t, byTurns(time.Hour), func(o *Options) { o.Time.Quantum = int64(time.Hour) })
	grant := b.run(mib)
	p := b.tenant(grant)
	p.Must("alloc 0 %d", mib/2)
	for range 5 {
		p.Do("alloc 0 %d", mib)
	}
	taker := b.taker()
	taker.want()
	other := b.taker()
	other.Must("work 0 1 0")
	other.say("want")
	b.eventually("the other waits", func() bool { return len(b.survey().Flows) == 2 && b.survey().Flows[1].State == "waiting" })

	s := b.survey()
	list, err := b.Containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(list, s.Containers); diff != "" || len(list) != 3 {
		t.Errorf("%d containers: %s", len(list), diff)
	}
	flows, err := b.Queue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waits := 0
	for _, lists := range [][]control.Flow{s.Flows, flows} {
		for i := range lists {
			f := &lists[i]
			if f.WaitingNS != nil {
				waits++
			}
			f.WaitingNS, f.GotNS, f.ServedNS, f.ShareGot1s, f.ShareGot10s, f.ShareGot60s = nil, 0, 0, nil, nil, nil
			f.VirtualNS, f.LagNS, f.BusyNS, f.Leases, f.WaitedNS, f.WaitMeanNS, f.WaitWorstNS = nil, nil, 0, 0, 0, nil, nil
		}
	}
	if diff := cmp.Diff(flows, s.Flows); diff != "" || len(flows) != 2 {
		t.Errorf("%d flows: %s", len(flows), diff)
	}
	if waits == 0 {
		t.Error("nobody waits, by survey and queue")
	}
	if s.Events["denied"] != 5 || s.Events["started"] != 3 {
		t.Errorf("events: %v", s.Events)
	}
}

// Containers that weir has no part in are there, with the kind of reason; those that have ended are not.
func TestSurveyOfUncapped(t *testing.T) {
	b := start(t, hooked)
	process := sessiontest.Start(t)
	b.told(ociapi.Listed{Key: key("one"), PID: process.PID(), Running: true, HasGPU: true})
	s := b.survey()
	if len(s.Containers) != 1 || s.Containers[0].Enforced || s.Containers[0].ReasonKind != control.ReasonUnasked {
		t.Errorf("%+v", s.Containers)
	}
	process.Kill()
	b.eventually("it is gone", func() bool { return len(b.survey().Containers) == 0 })
}

// Surveys, and containers that come, work and go meanwhile.
func TestSurveyAmongChanges(t *testing.T) {
	b := start(t)
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, c := range b.survey().Containers {
					if c.ID == "" || len(c.GPUs) != 2 {
						t.Errorf("%+v", c)
					}
				}
			}
		})
	}
	for range 20 {
		grant := b.run(mib)
		p := b.tenant(grant)
		p.Must("alloc 0 %d", mib/2)
		p.Must("work 0 1 0")
		p.Kill()
		if err := b.EndRun(t.Context(), uint32(os.Geteuid()), grant.ID); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	others.Wait()
	b.eventually("all are gone", func() bool { return len(b.survey().Containers) == 0 })
}
