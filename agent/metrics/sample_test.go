// A node for the tests of this package: what it tells is what a test puts there.

package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"weir/agent/control"
)

func ptr[T any](v T) *T { return &v }

const gib = int64(1) << 30

// source tells what it holds. Where slow is not nil, Info waits for it.
type source struct {
	mu     sync.Mutex
	agent  control.AgentInfo
	node   control.Survey
	err    error
	slow   chan struct{}
	asked  int
	survey error
}

func (s *source) Info(context.Context) (control.AgentInfo, error) {
	s.mu.Lock()
	s.asked++
	slow := s.slow
	s.mu.Unlock()
	if slow != nil {
		<-slow
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agent, s.err
}

func (s *source) Survey(context.Context) (control.Survey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node, s.survey
}

func at(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 500_000_000, time.UTC) }

// sample has a container with all there is to tell, one without a cap that nothing schedules, and one that weir has no
// part in.
func sample() *source {
	trainer := control.Container{
		ID: "0123456789abcdef", Name: "trainer", Namespace: "team-a", Pod: "train-0", Identity: "cgroup", State: "running",
		Started: at(5), Enforced: true, EnforcedBy: ptr(control.ByDriver), Refused: 3,
		Sessions: []control.Session{{State: "connected"}, {State: "detached"}},
		GPUs: []control.GPUUse{
			{UUID: "GPU-0", CapBytes: ptr(8 * gib), DriverLimitBytes: ptr(9 * gib), ChargedBytes: 13 * gib, UsedBytes: 12 * gib,
				CreditBytes: gib, ContextBytes: 400 << 20, CodeBytes: 100 << 20, MovableBytes: 10 * gib,
				Swap: &control.SwapUse{LimitBytes: 16 * gib, ResidentBytes: ptr(5 * gib), SwappedBytes: ptr(4 * gib),
					MovedInBytes: ptr(50 * gib), MovedOutBytes: ptr(54 * gib), FaultedBytes: ptr(2 * gib), DisplacedBytes: ptr(gib),
					CancelledMoves: ptr(int64(7)), UndoneMoves: ptr(int64(5))}},
			{UUID: "GPU-1", CapBytes: ptr(8 * gib)}, // it does not use this one
		},
	}
	plain := control.Container{
		ID: "fedcba9876543210", Name: "sh", Identity: "path", State: "ending", Started: at(6), Enforced: false,
		Reason: "process 17 (x): it runs without the library", ReasonKind: control.ReasonNoLibrary,
		Caps:     control.Caps{Weight: ptr(0.5)},
		Sessions: []control.Session{}, GPUs: []control.GPUUse{{UUID: "GPU-1", ChargedBytes: 1 << 50, UsedBytes: gib}},
	}
	foreign := control.Container{
		ID: "beef", Name: "web", Namespace: "default", State: "running", Started: at(7), Reason: "it has a GPU",
		ReasonKind: control.ReasonUnasked,
	}
	return &source{
		agent: control.AgentInfo{
			Version: "1.2.3", ABI: 4, Driver: "555.42", Started: at(0), TimeShared: true, SwapHostLimitBytes: 64 * gib,
			SwapHostBytes: 10 * gib,
			GPUs: []control.GPU{
				{UUID: "GPU-0", Name: "Simulated A30", MemoryBytes: 24 * gib, UsedBytes: ptr(7 * gib), UtilisationRatio: ptr(0.75),
					LinkInBytesPerSecond: ptr(int64(24e9)), LinkOutBytesPerSecond: ptr(int64(20e9)), Simulated: true},
				{Index: 1, MIG: ptr(0), UUID: "GPU-1", Name: "A30 MIG 1g.6gb", MemoryBytes: 6 * gib},
			},
		},
		node: control.Survey{
			Containers: []control.Container{trainer, plain, foreign},
			Flows: []control.Flow{
				{ContainerID: trainer.ID, UUID: "GPU-0", Mode: control.ModeLeased, Weight: 3, ShareAsked: ptr(0.75),
					ShareGot10s: ptr(0.7), Leases: 9000, Handovers: 8000, WaitedNS: 180_000_000_000, WaitWorstNS: ptr(int64(1_500_000_000)),
					WaitingNS: ptr(int64(20_000_000)), GotNS: 95_000_000_000, ServedNS: 90_400_000_000, Reopened: 2, Expired: 1},
				{ContainerID: plain.ID, UUID: "GPU-1", Mode: control.ModeOff, Weight: 0.5},
			},
			Events: map[string]uint64{"denied": 3, "started": 2}, EventsDropped: 1,
		},
	}
}

// collector is one that looks closely at what it makes, of a source.
func registryOf(t *testing.T, s Source) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(NewCollector(s, slog.New(slog.NewTextHandler(failing{t}, &slog.HandlerOptions{Level: slog.LevelError}))))
	return r
}

// failing fails a test for what is logged.
type failing struct{ t *testing.T }

func (f failing) Write(line []byte) (int, error) {
	f.t.Errorf("logged: %s", line)
	return len(line), nil
}

// gather scrapes, and returns the figures by name and labels.
func gather(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	found, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, f := range found {
		for _, m := range f.Metric {
			key := f.GetName()
			for _, l := range m.Label {
				key += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
			}
			values[key] = valueOf(m)
		}
	}
	return values
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	return m.Summary.GetSampleSum()
}
