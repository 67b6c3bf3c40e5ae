package session

// Tests of how the size of a context is learned.

import (
	"context"
	"errors"
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

// own is the pid of the process with the agent's own context.
const own = 1<<22 + 1

// makesContexts has the agent make contexts of a size, or fail to.
func (b *bench) makesContexts(bytes int64, err error) {
	d := b.devices
	d.mu.Lock()
	d.ownContext, d.ownErr = bytes, err
	d.mu.Unlock()
}

func making(o *Options) {
	d := o.Devices.(*fakeDevices)
	o.MakeContext = func(_ context.Context, uuid string) (int, func(), error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.made++
		if d.ownErr != nil {
			return 0, nil, d.ownErr
		}
		d.making++
		if d.processes[uuid] == nil {
			d.processes[uuid] = make(map[int]int64)
		}
		d.processes[uuid][own] = d.ownContext
		return own, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.making--
			delete(d.processes[uuid], own)
		}, nil
	}
}

// wantMade checks how many contexts the agent has made; none may be left.
func (b *bench) wantMade(count int) {
	b.t.Helper()
	b.devices.mu.Lock()
	defer b.devices.mu.Unlock()
	if b.devices.made != count || b.devices.making != 0 {
		b.t.Errorf("the agent has made %d contexts and keeps %d, want %d and none", b.devices.made,
			b.devices.making, count)
	}
}

// TestMeasuredOnce: the agent's own context tells, whatever the asking process has and says; all pages
// of all containers show it, it is kept, and no other context is made.
func TestMeasuredOnce(t *testing.T) {
	b := start(t, counting, making, func(o *Options) { o.Devices.(*fakeDevices).gpus[1].Name = "other" })
	b.makesContexts(300*mib, nil)
	p := b.tenant(b.run(1 << 30))
	root := sessiontest.Start(t)
	root.Must("hello %s", b.runAs(root.PID(), 1<<30).Socket)
	wantContext(t, p, 0, 0, true)
	b.devices.holds(0, p.PID(), 3<<30)
	if got := p.Must("measure 0 512"); got != fmt.Sprint(300*mib) {
		t.Errorf("measured %s", got)
	}
	b.wantEvent("measured", "300MiB", "fake", "tenant", "the agent made one")
	wantContext(t, p, 0, 300*mib, true)
	wantContext(t, root, 0, 300*mib, true)
	wantContext(t, p, 1, 0, true) // of another kind
	if got := p.Must("measure 0 1"); got != fmt.Sprint(300*mib) {
		t.Errorf("asked again: %s", got)
	}
	b.wantMade(1)

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

// TestMeasuredByTenant: where the agent cannot make a context, what a process has tells, less what it
// has declared; but only its own container.
func TestMeasuredByTenant(t *testing.T) {
	b := start(t, counting, making)
	b.makesContexts(0, errors.New("no libcuda"))
	p := b.tenant(b.run(1 << 30))
	root := sessiontest.Start(t)
	root.Must("hello %s", b.runAs(root.PID(), 1<<30).Socket)
	p.Must("alloc 0 %d", 100*mib)
	p.Must("free 0 %d", 60*mib) // unused credit is no memory
	b.devices.holds(0, p.PID(), 40*mib+2*300*mib)
	if got := p.Must("measure 0 2"); got != fmt.Sprint(300*mib) {
		t.Errorf("measured %s", got)
	}
	b.wantEvent("measured", "300MiB", "fake", "tenant", "its container only", "no libcuda")
	wantContext(t, p, 0, 300*mib, true)
	wantContext(t, p, 1, 0, true)
	wantContext(t, root, 0, 0, true)
	b.devices.holds(0, root.PID(), 200*mib)
	if got := root.Must("measure 0 1"); got != fmt.Sprint(200*mib) {
		t.Errorf("the other container measured %s", got)
	}
	wantContext(t, p, 0, 300*mib, true)
	b.wantMade(1) // it is not tried again at once

	b.restart()
	p.Must("again")
	root.Must("again")
	wantContext(t, p, 0, 0, true)

	// As soon as the agent can make one, that counts for all.
	b.makesContexts(250*mib, nil)
	if got := p.Must("measure 0 1"); got != fmt.Sprint(250*mib) {
		t.Errorf("measured %s", got)
	}
	wantContext(t, p, 1, 250*mib, true)
	wantContext(t, root, 0, 250*mib, true)
}

// TestMeasuredByTenantUndeclared: a figure that hides what a process has is its own harm: it is held
// against what the process holds later.
func TestMeasuredByTenantUndeclared(t *testing.T) {
	b := start(t, counting)
	p := b.tenant(b.run(1 << 30))
	b.devices.holds(0, p.PID(), 300*mib)
	if got := p.Must("measure 0 512"); got != fmt.Sprint(300*mib/512) {
		t.Errorf("measured %s", got)
	}
	b.reconcile(t.Context())
	if got := b.undeclared(); len(got) != 1 {
		t.Errorf("%d events of undeclared memory: %+v", len(got), got)
	}
}

// TestOwnContextIncredible: what NVML says of the agent's own context is checked as well.
func TestOwnContextIncredible(t *testing.T) {
	for _, bytes := range []int64{0, -1, 5 << 30} {
		t.Run(fmt.Sprint(bytes), func(t *testing.T) {
			t.Parallel()
			b := start(t, counting, making)
			b.makesContexts(bytes, nil)
			p := b.tenant(b.run(1 << 30))
			b.devices.holds(0, p.PID(), 200*mib)
			if got := p.Must("measure 0 1"); got != fmt.Sprint(200*mib) {
				t.Errorf("measured %s", got)
			}
			b.wantEvent("measured", "its container only", "nothing credible")
			b.wantMade(1)
		})
	}
}

// TestMeasuredForAll: GPUs of one kind have contexts of one size, and all containers are told.
func TestMeasuredForAll(t *testing.T) {
	b := start(t, counting, making)
	b.makesContexts(200*mib, nil)
	root := sessiontest.Start(t)
	here, there := b.run(1<<30), b.runAs(root.PID(), 1<<30)
	p := b.tenant(here)
	root.Must("hello %s", there.Socket)
	p.Must("measure 1 1")
	for gpu := range 2 {
		wantContext(t, p, gpu, 200*mib, true)
		wantContext(t, root, gpu, 200*mib, true)
	}
}

// TestMeasuredByMany at once: one context is made, and all get its size.
func TestMeasuredByMany(t *testing.T) {
	b := start(t, counting, making)
	b.makesContexts(256*mib, nil)
	grant := b.run(1 << 30)
	var all sync.WaitGroup
	for i := range 8 {
		p := b.tenant(grant)
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
	b.wantMade(1)
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
	for _, question := range []string{"2 1", "64 1", "0 0", "0 513"} {
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
