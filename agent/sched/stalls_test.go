package sched

// Drains that stand still, in the model: stopped and crashed holders, kernels that never end, work that
// waits for what the gate holds back. Named after the rows of field failures.

import (
	"slices"
	"testing"
)

// TestT4HolderStops: the others go on within the drain timeout, and are told of it.
func TestT4HolderStops(t *testing.T) {
	for name, stop := range map[string]func(*model, *program){
		"stopped":        func(_ *model, p *program) { p.stopped = true },
		"endless kernel": func(_ *model, p *program) { p.endless = true },
		"killed": func(m *model, p *program) {
			m.take(m.node.Gone(m.now, p.id))
			p.gone, p.next = true, Never
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := Default()
			c.AlwaysGate = true
			m := newModel(t, c)
			holder, other := m.add(hog(ms, 1)), m.add(hog(ms, 1))
			for m.run(sec); holder.leased == 0; {
				m.run(ms)
			}
			stop(m, holder)
			got := other.worth
			m.run(c.Threshold + c.Quantum + c.DrainTimeout + 10*ms)
			if other.worth == got {
				t.Fatalf("the other got nothing; %v", m.counts)
			}
			if expired := m.counts[Expire]; expired != 1 && name != "killed" {
				t.Errorf("%d leases expired, not one", expired)
			}
			got = other.worth
			m.run(sec)
			if other.worth-got < 450*ms {
				t.Errorf("beside it the other gets %d ms in a second", (other.worth-got)/ms)
			}
			if name != "stopped" {
				return
			}
			holder.stopped = false
			holder.next = m.now
			m.run(10 * sec)
			before := make([]int64, 2)
			m.shares(before)
			m.run(10 * sec)
			if share := m.shares(before)[0]; share < 0.45 {
				t.Errorf("continued, it gets %.3f of the whole", share)
			}
		})
	}
}

// beside runs p beside a hog and returns how long its drains took at most.
func beside(t *testing.T, p *program, gpus ...int) (m *model, longest int64) {
	configs := []Config{Default(), Default()}
	for i := range configs {
		configs[i].AlwaysGate = true
	}
	m = newModel(t, configs...)
	m.add(p, gpus...)
	m.add(hog(ms, 1), 0)
	m.run(20 * sec)
	if m.counts[Revoke] == 0 {
		t.Fatalf("nothing was revoked; %v", m.counts)
	}
	longest = slices.Max(append(p.drains, 0))
	t.Logf("%d drains, the longest took %d ms; %v", len(p.drains), longest/ms, m.counts)
	if n := m.counts[Expire]; n > 0 {
		t.Errorf("%d drains went on until the drain timeout", n)
	}
	return m, longest
}

// TestT7KernelsThatWaitForEachOther: on two GPUs, revoked between the two launches.
func TestT7KernelsThatWaitForEachOther(t *testing.T) {
	p := hog(530_000, 1)
	p.pair = 100_000
	m, longest := beside(t, p, 0, 1)
	if longest > 2*Default().Quantum {
		t.Errorf("a hand-over took %d ms, more than two quanta", longest/ms)
	}
	if m.counts[Reopen] == 0 {
		t.Error("no drain stood still: this tests nothing")
	}
	for i, p := range m.programs {
		if part := float64(p.worth) / float64(m.now); part < 0.4 {
			t.Errorf("program %d gets %.3f of its throughput alone", i+1, part)
		}
	}
}

// TestT9WaitsForWhatTheGateHoldsBack: its drains go on, and as that happens each time, it is co-run.
func TestT9WaitsForWhatTheGateHoldsBack(t *testing.T) {
	p := hog(ms, 1)
	p.blocks = true
	m, _ := beside(t, p)
	if m.counts[CoRun] == 0 {
		t.Error("it was not co-run, though each of its drains stands still")
	}
	if v := m.node.View(p.id)[0]; v.Mode != "co-run" || v.State != "open" {
		t.Errorf("co-run and at work it is shown as %s, %s", v.Mode, v.State)
	}
	if part := float64(m.programs[1].worth) / float64(m.now); part < 0.4 {
		t.Errorf("the other gets %.3f of its throughput alone", part)
	}
}

// TestT9OnABusyMachine: where it takes longer than it should until an open gate brings progress, drains go on, too.
func TestT9OnABusyMachine(t *testing.T) {
	for _, wake := range []int64{7 * ms, 15 * ms, 30 * ms} {
		p := hog(ms, 1)
		p.blocks, p.wake = true, wake
		m, longest := beside(t, p)
		if longest > 600*ms {
			t.Errorf("%d ms until its threads run: a hand-over took %d ms", wake/ms, longest/ms)
		}
		for i, p := range m.programs {
			if part := float64(p.worth) / float64(m.now); part < 0.1 {
				t.Errorf("%d ms until its threads run: program %d gets %.3f of its throughput alone", wake/ms, i+1, part)
			}
		}
	}
}

// TestLongKernelsAreNotTakenForStalls: the gate is not opened for them again and again.
func TestLongKernelsAreNotTakenForStalls(t *testing.T) {
	m, _ := beside(t, hog(150*ms, 1))
	if m.counts[CoRun] > 0 || m.counts[Reopen] > 3 {
		t.Errorf("long kernels were taken for stalls: %v", m.counts)
	}
	for i, share := range m.shares(make([]int64, 2)) {
		if share < 0.48 || share > 0.52 {
			t.Errorf("program %d gets %.3f of the whole", i+1, share)
		}
	}
}

// TestD2LoadOfAnotherGPU: what is on one GPU does not touch another.
func TestD2LoadOfAnotherGPU(t *testing.T) {
	m := newModel(t, Default(), Default())
	m.add(hog(ms, 1), 0)
	m.add(hog(ms, 3), 0)
	other := m.add(waiter(100_000, 50_000), 1)
	m.run(5 * sec)
	if part := float64(other.worth) / float64(m.now); part < 0.99 {
		t.Errorf("alone on its GPU it gets %.3f of its throughput", part)
	}
}
