package session

// Tests of the cap: to the byte, over stops and deaths, and while it changes.

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/agent/control"
	"weir/agent/session/sessiontest"
	"weir/cgo/abi"
)

func TestCapHoldsToTheByte(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	one, err := sessiontest.Connect(grant.Socket, "one")
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two := b.tenant(grant)
	if err := one.Alloc(0, 60*mib); err != nil {
		t.Fatal(err)
	}
	two.Must("alloc 0 %d", 40*mib-512)
	if err := one.Alloc(0, 513); !errors.Is(err, sessiontest.ErrOverCap) {
		t.Errorf("one byte more than fits: %v", err)
	}
	if err := one.Alloc(0, 512); err != nil {
		t.Errorf("the last bytes, which fit: %v", err)
	}
	if err := one.Alloc(1, 100*mib); err != nil {
		t.Errorf("on the other GPU, which has a cap of its own: %v", err)
	}
	if _, err := two.Do("alloc 0 1"); err == nil {
		t.Error("a byte over the cap")
	}
	got := b.container(grant.ID)
	if got.GPUs[0].UsedBytes != 100*mib || got.GPUs[0].ChargedBytes != 100*mib ||
		got.Refused != 2 || len(got.Sessions) != 2 || !got.Enforced {
		t.Errorf("reported: %+v", got)
	}
	one.Free(0, 10*mib)
	two.Must("alloc 0 %d", 10*mib)
}

func TestRefusalIsAnEvent(t *testing.T) {
	b := start(t)
	grant := b.run(10 * mib)
	tenant, err := sessiontest.Connect(grant.Socket, "greedy")
	if err != nil {
		t.Fatal(err)
	}
	defer tenant.Close()
	if err := tenant.Alloc(1, 4*mib); err != nil {
		t.Fatal(err)
	}
	if err := tenant.Alloc(1, 7*mib); !errors.Is(err, sessiontest.ErrOverCap) {
		t.Fatal(err)
	}
	all, err := b.Events(t.Context(), 0, false)
	if err != nil {
		t.Fatal(err)
	}
	var denied []control.Event
	for _, e := range all {
		if e.Type == "denied" {
			denied = append(denied, e)
		}
	}
	if len(denied) != 1 {
		t.Fatalf("%d denied events: %+v", len(denied), all)
	}
	e := denied[0]
	if e.Container != "box" || e.PID != os.Getpid() || e.GPUUUID != uuid(1) || *e.Asked != 7*mib ||
		*e.Used != 4*mib || *e.Cap != 10*mib {
		t.Errorf("event %+v", e)
	}
	for _, words := range []string{"greedy", "7MiB", "4MiB", "10MiB", "weir caps set box --memory"} {
		if !strings.Contains(e.Message, words) {
			t.Errorf("%q is not in the message %q", words, e.Message)
		}
	}
}

func TestQueryAndControlPageAgree(t *testing.T) {
	b := start(t)
	grant := b.run(64 * mib)
	one, err := sessiontest.Connect(grant.Socket, "one")
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two := b.tenant(grant)
	two.Must("alloc 0 %d", 16*mib)
	if err := one.Alloc(0, 8*mib); err != nil {
		t.Fatal(err)
	}
	// Whoever has how much credit: what one could still get is the cap less what both use.
	if free, limit, err := one.Query(0); free != 40*mib || limit != 64*mib || err != nil {
		t.Errorf("free %d of %d, %v", free, limit, err)
	}
	limit, charged, holders := one.Shown(0)
	want := b.container(grant.ID).GPUs[0].ChargedBytes
	if limit != 64*mib || int64(charged) != want || holders != 2 {
		t.Errorf("control page: cap %d, charged %d for %d holders, want %d charged", limit, charged,
			holders, want)
	}
	if err := one.Alloc(0, 40*mib); err != nil {
		t.Errorf("what the answer promised was refused: %v", err)
	}
	if free, _, err := one.Query(0); free != 0 || err != nil {
		t.Errorf("free %d at the cap, %v", free, err)
	}
	if free, limit, err := one.Query(1); free != 64*mib || limit != 64*mib || err != nil {
		t.Errorf("on an unused GPU: free %d of %d, %v", free, limit, err)
	}
}

func TestWithoutCap(t *testing.T) {
	b := start(t)
	grant := b.run(0)
	tenant, err := sessiontest.Connect(grant.Socket, "free")
	if err != nil {
		t.Fatal(err)
	}
	defer tenant.Close()
	if err := tenant.Alloc(0, 1<<40); err != nil {
		t.Error(err)
	}
	free, limit, err := tenant.Query(0)
	if free != abi.Unlimited || limit != abi.Unlimited || err != nil {
		t.Errorf("free %d of %d, %v", free, limit, err)
	}
	if limit, _, _ := tenant.Shown(0); limit != abi.Unlimited {
		t.Errorf("control page shows a cap of %d", limit)
	}
	if got := b.container(grant.ID).GPUs[0]; got.CapBytes != nil || got.UsedBytes != 1<<40 {
		t.Errorf("reported %+v", got)
	}
}

// TestStoppedTenantIsRecalled: unused credit comes back from a process that cannot answer.
func TestStoppedTenantIsRecalled(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	stopped := b.tenant(grant)
	stopped.Must("alloc 0 %d", 90*mib)
	stopped.Must("free 0 %d", 80*mib)
	stopped.Signal(unix.SIGSTOP)
	other := b.tenant(grant)
	other.Must("alloc 0 %d", 90*mib)
	if _, err := other.Do("alloc 0 1"); err == nil {
		t.Error("a byte over the cap")
	}
	stopped.Signal(unix.SIGCONT)
	if got := stopped.Must("held 0"); got != "10485760" {
		t.Errorf("the stopped tenant holds %s", got)
	}
	if _, err := stopped.Do("alloc 0 1"); err == nil {
		t.Error("the stopped tenant got a byte over the cap")
	}
}

// TestExactSumOfTheLiving: each end of a process gives back its whole share and nothing else.
func TestExactSumOfTheLiving(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	var tenants []*sessiontest.Process
	for range 4 {
		p := b.tenant(grant)
		p.Must("alloc 0 %d", 20*mib)
		tenants = append(tenants, p)
	}
	tenants[0].Kill()
	b.eventually("the killed one's share is back", func() bool { return b.used(grant.ID) == 60*mib })
	tenants[1].Signal(unix.SIGSTOP)
	tenants[1].Kill()
	b.eventually("the stopped one's share is back", func() bool { return b.used(grant.ID) == 40*mib })
	late := b.tenant(grant)
	late.Must("alloc 0 %d", 60*mib)
	for _, p := range append(tenants[2:], late) {
		p.Kill()
	}
	b.eventually("nothing is charged", func() bool {
		c := b.container(grant.ID)
		return c.GPUs[0].ChargedBytes == 0 && len(c.Sessions) == 0
	})
}

// TestJustDiedIsNoRefusal: what a process held whose death has only just happened counts as free.
func TestJustDiedIsNoRefusal(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	other := b.tenant(grant)
	for range 20 {
		victim := b.tenant(grant)
		victim.Must("alloc 0 %d", 100*mib)
		victim.Kill()
		other.Must("alloc 0 %d", 100*mib)
		other.Must("free 0 %d", 100*mib)
	}
}

// TestChargeIsHeldForTheDriver: the charge of a dead process stays until NVML no longer lists it,
// and a request that needs it waits for that instead of being refused.
func TestChargeIsHeldForTheDriver(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	other := b.tenant(grant)
	victim := b.tenant(grant)
	victim.Must("alloc 0 %d", 60*mib)
	b.devices.list(victim.PID(), true)
	victim.Kill()
	b.eventually("the dead one is exiting", func() bool {
		for _, s := range b.container(grant.ID).Sessions {
			if s.PID == victim.PID() {
				return s.State == "exiting" && s.GPUs[0].ChargedBytes >= 60*mib
			}
		}
		t.Fatal("released while NVML lists it")
		return false
	})
	other.Say("alloc 0 %d", 70*mib)
	b.eventually("the request waits", func() bool {
		c := b.containers[grant.ID]
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.waiting) == 1
	})
	b.devices.list(victim.PID(), false)
	if _, err := other.Answer(); err != nil {
		t.Errorf("refused though it fits: %v", err)
	}
	if got := b.container(grant.ID); got.Refused != 0 || got.GPUs[0].UsedBytes != 70*mib {
		t.Errorf("afterwards %+v", got)
	}
}

// TestWaitingForAnExec: what waits for the memory of a program that was replaced by exec is granted
// as soon as its successor says that it holds nothing.
func TestWaitingForAnExec(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	other := b.tenant(grant)
	p := b.tenant(grant)
	p.Must("alloc 0 %d", 60*mib)
	b.devices.list(p.PID(), true)
	p.Become()
	b.eventually("the former program's session is ending", func() bool {
		return b.state(grant.ID, p.PID()) == "exiting"
	})
	other.Say("alloc 0 %d", 70*mib)
	p.Must("hello %s", grant.Socket)
	if _, err := other.Answer(); err != nil {
		t.Errorf("refused though it fits: %v", err)
	}
	p.Must("alloc 0 %d", 30*mib)
}

// TestExecIsNoRefusal: what a program held that was replaced by exec counts as free, also while a
// process that it has forked holds its connection open, so that nothing tells of its end.
func TestExecIsNoRefusal(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	other, p := b.tenant(grant), b.tenant(grant)
	p.Must("alloc 0 %d", 60*mib)
	holder, err := strconv.Atoi(p.Must("hold"))
	if err != nil || holder <= 1 {
		t.Fatalf("the process that holds the connection: %d, %v", holder, err)
	}
	defer unix.Kill(holder, unix.SIGKILL)
	p.Become()
	other.Must("alloc 0 %d", 70*mib)
}

// TestHoldIsBounded: a driver that lists a dead process for ever, or does not answer, holds nobody
// up.
func TestHoldIsBounded(t *testing.T) {
	for name, prepare := range map[string]func(*fakeDevices, int){
		"listed for ever": func(d *fakeDevices, pid int) { d.list(pid, true) },
		"does not answer": func(d *fakeDevices, _ int) { d.mu.Lock() },
		"fails":           func(d *fakeDevices, _ int) { d.fail(errors.New("driver gone")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			grant := b.run(100 * mib)
			victim := b.tenant(grant)
			victim.Must("alloc 0 %d", 60*mib)
			prepare(b.devices, victim.PID())
			if name == "does not answer" {
				defer b.devices.mu.Unlock()
			}
			victim.Kill()
			other := b.tenant(grant)
			other.Must("alloc 0 %d", 100*mib)
		})
	}
}

// TestLateAnswersAreBounded: a tenant that asks, waits for the dead and never reads cannot have the
// agent keep more and more answers for it.
func TestLateAnswersAreBounded(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	conn := unread(t, grant)
	c := b.Node.containers[grant.ID]
	seq := uint32(0)
	for limit := int64(100 * mib); limit <= 400*mib; limit += 100 * mib {
		change := control.CapsChange{Set: control.Caps{MemoryBytes: &limit}}
		if _, err := b.ChangeCaps(t.Context(), grant.ID, change); err != nil {
			t.Fatal(err)
		}
		victim := b.tenant(grant)
		victim.Must("alloc 0 %d", 90*mib)
		b.devices.list(victim.PID(), true)
		victim.Kill()
		b.eventually("the dead one is exiting", func() bool {
			return b.state(grant.ID, victim.PID()) == "exiting"
		})
		for refused := 0; refused < 100; {
			seq++
			ask := &abi.Request{Kind: abi.KindPlain, Bytes: 100 * mib}
			if conn.Send(sessiontest.Packet(abi.MsgRequest, seq, ask)) != nil { // nobody takes it any more
				refused++
				time.Sleep(time.Millisecond)
			}
			c.mu.Lock()
			waiting := len(c.waiting)
			c.mu.Unlock()
			if waiting >= 800 {
				break
			}
		}
		b.devices.list(victim.PID(), false)
		b.eventually("nothing waits for the dead one", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.waiting) == 0 && len(c.sessions) == 1
		})
	}
	if unsent := c.unsent.Load(); unsent > waitersMax+1 {
		t.Errorf("%d answers are kept for a tenant that does not read", unsent)
	}
}

// TestWaitingRequestIsRefusedInTheEnd, where the memory it waits for is taken by another.
func TestWaitingRequestIsRefusedInTheEnd(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	victim, first, second := b.tenant(grant), b.tenant(grant), b.tenant(grant)
	victim.Must("alloc 0 %d", 60*mib)
	b.devices.list(victim.PID(), true)
	victim.Kill()
	first.Say("alloc 0 %d", 80*mib)
	second.Say("alloc 0 %d", 80*mib)
	_, err1 := first.Answer()
	_, err2 := second.Answer()
	if (err1 == nil) == (err2 == nil) {
		t.Errorf("both or none were granted: %v, %v", err1, err2)
	}
}

func TestCapsChangeLive(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	tenant := b.tenant(grant)
	tenant.Must("alloc 0 %d", 60*mib)
	change := func(limit int64, dry bool) control.CapsResult {
		t.Helper()
		got, err := b.ChangeCaps(t.Context(), "box", control.CapsChange{
			Set: control.Caps{MemoryBytes: &limit}, DryRun: dry,
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := change(50*mib, true)
	if !strings.Contains(got.Message, "60MiB in use") || *got.Before.MemoryBytes != 100*mib {
		t.Errorf("dry run: %+v", got)
	}
	tenant.Must("alloc 0 %d", 10*mib)
	if got := change(50*mib, false); !strings.Contains(got.Message, "70MiB in use") {
		t.Errorf("lowered: %+v", got)
	}
	g := b.container(grant.ID).GPUs[0]
	if g.UsedBytes != 70*mib || g.CreditBytes != 0 || *g.CapBytes != 50*mib {
		t.Errorf("running work goes on without credit: %+v", g)
	}
	if _, err := tenant.Do("alloc 0 1"); err == nil {
		t.Error("allocated over the lowered cap")
	}
	tenant.Must("free 0 %d", 30*mib)
	tenant.Must("alloc 0 %d", 10*mib)
	if got := change(200*mib, false); got.Message != "" {
		t.Errorf("raised: %+v", got)
	}
	tenant.Must("alloc 0 %d", 150*mib)
	b.wantEvent("caps", "memory 100MiB -> 50MiB", "70MiB in use")

	unset, err := b.ChangeCaps(t.Context(), grant.ID[:6], control.CapsChange{Unset: []string{"memory"}})
	if err != nil || unset.After.MemoryBytes != nil {
		t.Errorf("unset: %+v, %v", unset, err)
	}
	tenant.Must("alloc 0 %d", 1<<40)
}

func TestCapsChangeRefuses(t *testing.T) {
	b := start(t)
	b.run(mib)
	zero, one, weight := int64(0), int64(1), -1.0
	for _, c := range []struct {
		ref    string
		change control.CapsChange
		want   error
	}{
		{"box", control.CapsChange{}, control.ErrInvalid},
		{"box", control.CapsChange{Set: control.Caps{MemoryBytes: &zero}}, control.ErrInvalid},
		{"box", control.CapsChange{Set: control.Caps{Weight: &weight}}, control.ErrInvalid},
		{"box", control.CapsChange{Unset: []string{"color"}}, control.ErrInvalid},
		{"box", control.CapsChange{
			Set: control.Caps{MemoryBytes: &one}, Unset: []string{"memory"},
		}, control.ErrInvalid},
		{"nobody", control.CapsChange{Unset: []string{"memory"}}, control.ErrNotFound},
	} {
		if got, err := b.ChangeCaps(t.Context(), c.ref, c.change); !errors.Is(err, c.want) {
			t.Errorf("%s %+v: got %+v, %v", c.ref, c.change, got, err)
		}
	}
}

// TestCapsThatHoldAreNotDenied: nothing is said against weights and swap where they hold.
func TestCapsThatHoldAreNotDenied(t *testing.T) {
	b := start(t)
	b.run(mib)
	weight := 2.0
	got, err := b.ChangeCaps(t.Context(), "box", control.CapsChange{Set: control.Caps{Weight: &weight}})
	if err != nil || got.Message != "" || *got.After.Weight != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
	b.wantEvent("caps", "weight none -> 2")
	if b.hasEvent("caps", "weight", "not enforced") {
		t.Error("a weight is said not to be enforced")
	}
	swap := int64(mib)
	if _, err := b.ChangeCaps(t.Context(), "box", control.CapsChange{Set: control.Caps{SwapBytes: &swap}}); err != nil {
		t.Error(err)
	}
	b.wantEvent("caps", "swap none -> 1MiB")
	if b.hasEvent("caps", "swap", "not enforced") {
		t.Error("swap is said not to be enforced")
	}
	if c := b.container("box"); *c.Caps.Weight != 2 {
		t.Errorf("kept caps %+v", c.Caps)
	}
}

// TestWeightsWithTimeOffAreSaid: so it is with a weight where the agent shares out no time.
func TestWeightsWithTimeOffAreSaid(t *testing.T) {
	b := start(t, func(opts *Options) { opts.TimeOff = true })
	b.run(mib)
	weight := 2.0
	if _, err := b.ChangeCaps(t.Context(), "box", control.CapsChange{Set: control.Caps{Weight: &weight}}); err != nil {
		t.Error(err)
	}
	b.wantEvent("caps", "weight none -> 2", "weight: kept, but not enforced, since the agent was started with time off")
	swap := int64(mib)
	if _, err := b.ChangeCaps(t.Context(), "box", control.CapsChange{Set: control.Caps{SwapBytes: &swap}}); err != nil {
		t.Error(err)
	}
	b.wantEvent("caps", "swap none -> 1MiB", "memory moves by page faults only")
	if info, err := b.Info(t.Context()); err != nil || info.TimeShared {
		t.Errorf("time is shared out by %+v, %v", info, err)
	}
}

// TestChargeHeldWhileNVMLIsBusy: one question under way does not stand for the answer to another. The
// charge of a process that has ended is held until NVML has said that it does not list it.
func TestChargeHeldWhileNVMLIsBusy(t *testing.T) {
	b := start(t)
	grant := b.run(64 * mib)
	p := b.tenant(grant)
	p.Must("alloc 0 %d", 64*mib)
	b.devices.list(p.PID(), true)
	slow := make(chan struct{})
	b.devices.slowly(slow)
	busy := make(chan bool)
	go func() {
		_, ok := b.processes(0)
		busy <- ok
	}()
	b.eventually("NVML is asked", func() bool { return b.devices.count() > 0 })
	p.Kill()
	killed := time.Now()
	b.eventually("its session has ended", func() bool { return b.state(grant.ID, p.PID()) == "exiting" })
	got := b.container(grant.ID).GPUs[0].ChargedBytes
	if got != 64*mib && time.Since(killed) < exitHold {
		t.Errorf("%d charged while NVML has not answered", got)
	}
	close(slow)
	if !<-busy {
		t.Error("the question that was asked first had no answer")
	}
	b.eventually("NVML is asked again", func() bool { return b.devices.count() > 1 })
	got = b.container(grant.ID).GPUs[0].ChargedBytes
	if got != 64*mib && time.Since(killed) < exitHold {
		t.Errorf("%d charged while NVML lists the process", got)
	}
	b.devices.list(p.PID(), false)
	b.eventually("nothing is charged", func() bool {
		return b.container(grant.ID).GPUs[0].ChargedBytes == 0
	})
}

// TestDeadAreNotRefused: a process that is killed while its request waits to be decided has been
// refused nothing, though what it thought to find is gone by then.
func TestDeadAreNotRefused(t *testing.T) {
	b := start(t)
	grant := b.run(64 * mib)
	p := b.tenant(grant)
	c := b.list()[0]
	c.mu.Lock()
	p.Say("alloc 0 %d", 65*mib)
	time.Sleep(20 * time.Millisecond) // for the request to arrive; where it has not, nothing is tested
	p.Kill()
	c.mu.Unlock()
	b.eventually("its session is gone", func() bool { return b.state(grant.ID, p.PID()) == "" })
	if got := b.container(grant.ID).Refused; got != 0 {
		t.Errorf("%d refused", got)
	}
}
