package session

// Tests of how the size of a context is learned.

import (
	"fmt"
	"sync"
	"testing"

	"weir/agent/session/sessiontest"
)

func counting(o *Options) { o.CountContext, o.Driver = true, "550.0" }

// wantContext checks what the control page says of a context on a GPU.
func wantContext(t *testing.T, p *sessiontest.Process, gpu int, bytes int64, counted bool) {
	t.Helper()
	if got, want := p.Must("context %d", gpu), fmt.Sprint(bytes, counted); got != want {
		t.Errorf("GPU %d: the page says %s of contexts, want %s", gpu, got, want)
	}
}

// TestMeasuredOnce: the first process's context tells, all pages show it, and no other agent asks.
func TestMeasuredOnce(t *testing.T) {
	b := start(t, counting, func(o *Options) { o.Devices.(*fakeDevices).gpus[1].Name = "other" })
	p := b.tenant(b.run(1 << 30))
	wantContext(t, p, 0, 0, true)
	p.Must("alloc 0 %d", 100*mib)
	p.Must("free 0 %d", 60*mib) // unused credit is no memory
	b.devices.holds(0, p.PID(), 40*mib+2*300*mib)
	if got := p.Must("measure 0 2"); got != fmt.Sprint(300*mib) {
		t.Errorf("measured %s", got)
	}
	b.wantEvent("measured", "300MiB", "fake", "tenant")
	wantContext(t, p, 0, 300*mib, true)
	wantContext(t, p, 1, 0, true) // of another kind
	asked := b.devices.count()
	if got := p.Must("measure 0 1"); got != fmt.Sprint(300*mib) || b.devices.count() != asked {
		t.Errorf("asked again: %s, NVML was asked %d times", got, b.devices.count()-asked)
	}

	b.restart()
	p.Must("again")
	wantContext(t, p, 0, 300*mib, true)

	// Another driver's contexts may have another size.
	b.end()
	b.opts.Driver = "560.0"
	b.begin()
	p.Must("again")
	wantContext(t, p, 0, 0, true)
}

func (d *fakeDevices) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

// TestMeasuredForAll: GPUs of one kind have contexts of one size, and all containers are told.
func TestMeasuredForAll(t *testing.T) {
	b := start(t, counting)
	root := sessiontest.Start(t)
	here, there := b.run(1<<30), b.runAs(root.PID(), 1<<30)
	p := b.tenant(here)
	root.Must("hello %s", there.Socket)
	b.devices.holds(1, p.PID(), 200*mib)
	p.Must("measure 1 1")
	for gpu := range 2 {
		wantContext(t, p, gpu, 200*mib, true)
		wantContext(t, root, gpu, 200*mib, true)
	}
}

// TestMeasuredByMany at once: one measures, and all get its answer.
func TestMeasuredByMany(t *testing.T) {
	b := start(t, counting)
	grant := b.run(1 << 30)
	var all sync.WaitGroup
	for i := range 8 {
		p := b.tenant(grant)
		b.devices.holds(0, p.PID(), 256*mib)
		all.Go(func() {
			if got := p.Must("measure 0 1"); got != fmt.Sprint(256*mib) {
				t.Errorf("process %d was told %s", i, got)
			}
		})
	}
	all.Wait()
	events, err := b.Events(t.Context(), 0, false)
	if err != nil {
		t.Fatal(err)
	}
	var measured int
	for _, e := range events {
		if e.Type == "measured" {
			measured++
		}
	}
	if measured != 1 {
		t.Errorf("%d events of a measurement", measured)
	}
}

// TestNotMeasured: what cannot be a context's size is not learned, whatever a process says.
func TestNotMeasured(t *testing.T) {
	for name, c := range map[string]struct {
		listed bool
		holds  int64
		fails  bool
	}{
		"NVML does not list it":     {},
		"no more than was declared": {listed: true, holds: 40 * mib},
		"too much for a context":    {listed: true, holds: 40*mib + 5<<30},
		"NVML does not say":         {listed: true, holds: -1},
		"NVML fails":                {fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, counting)
			p := b.tenant(b.run(1 << 30))
			p.Must("alloc 0 %d", 40*mib)
			if c.listed {
				b.devices.holds(0, p.PID(), c.holds)
			}
			if c.fails {
				b.devices.fail(fmt.Errorf("no NVML"))
			}
			if got := p.Must("measure 0 1"); got != "0" {
				t.Errorf("measured %s", got)
			}
			wantContext(t, p, 0, 0, true)
			if b.hasEvent("measured") {
				t.Error("an event says that it was measured")
			}
		})
	}
}

// TestMeasureIsChecked: such questions end the connection.
func TestMeasureIsChecked(t *testing.T) {
	b := start(t, counting)
	grant := b.run(1 << 30)
	for _, question := range []string{"2 1", "64 1", "0 0"} {
		p := b.tenant(grant)
		if answer, err := p.Do("measure %s", question); err == nil {
			t.Errorf("measure %s was answered: %s", question, answer)
		}
	}
}

// TestShownContexts: what processes say of their contexts is shown apart, and never more than is
// charged where they count.
func TestShownContexts(t *testing.T) {
	for _, counted := range []bool{true, false} {
		t.Run(fmt.Sprintf("counted %v", counted), func(t *testing.T) {
			b := start(t, func(o *Options) { o.CountContext = counted })
			grant := b.run(1 << 30)
			p, forger := b.tenant(grant), b.tenant(grant)
			p.Must("alloc 0 %d", 400*mib)
			p.Must("display 0 %d %d", 300*mib, 20*mib)
			forger.Must("display 0 %d %d", uint64(1)<<63, ^uint64(0))
			use := b.container(grant.ID).GPUs[0]
			context, code := use.ContextBytes, use.CodeBytes
			if use.UsedBytes != 400*mib {
				t.Errorf("%d used", use.UsedBytes)
			}
			// The forger's lies are bounded: by what it is charged for, or by the card.
			if counted && (context != 300*mib || code != 20*mib) {
				t.Errorf("shown %d for contexts, %d for code", context, code)
			}
			if !counted && (context < 300*mib || context > 2*b.devices.gpus[0].MemoryBytes) {
				t.Errorf("shown %d for contexts", context)
			}
		})
	}
}
