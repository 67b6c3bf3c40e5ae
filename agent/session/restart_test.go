package session

// Restarts: in good order, after a kill at each step, and with things changed meanwhile.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"weir/agent/control"
	"weir/agent/session/sessiontest"
	"weir/agent/store"
)

func TestOrderlyRestart(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	limit := int64(80 * mib)
	change := control.CapsChange{Set: control.Caps{MemoryBytes: &limit}}
	if _, err := b.ChangeCaps(t.Context(), "box", change); err != nil {
		t.Fatal(err)
	}
	mine, err := sessiontest.Connect(grant.Socket, "mine")
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	if err := mine.Alloc(0, 10*mib); err != nil {
		t.Fatal(err)
	}
	p := b.tenant(grant)
	p.Must("alloc 0 %d", 40*mib)
	p.Must("alloc 1 %d", 5*mib)
	p.Must("free 0 %d", 30*mib)
	b.end()
	if !mine.Ended() {
		t.Error("the control page does not say that it is out of date")
	}
	b.begin()

	c := b.container(grant.ID)
	if c.Name != "box" || *c.Caps.MemoryBytes != limit || len(c.Sessions) != 2 {
		t.Fatalf("after the restart: %+v", c)
	}
	for _, s := range c.Sessions {
		if s.State != "recovered" || s.Program == "" {
			t.Errorf("session %+v", s)
		}
	}
	if c.GPUs[0].UsedBytes != 20*mib || c.GPUs[1].UsedBytes != 5*mib {
		t.Errorf("used %+v", c.GPUs)
	}
	p.Must("alloc 0 %d", 50*mib)
	if _, err := p.Do("alloc 0 %d", 20*mib); err == nil {
		t.Error("over the cap after the restart")
	}
	if err := mine.Alloc(0, 10*mib); err != nil {
		t.Errorf("what fits after the restart: %v", err)
	}
	if got := b.used(grant.ID); got != 80*mib {
		t.Errorf("%d used", got)
	}
	p.Kill()
	b.eventually("the share of the killed is back", func() bool { return b.used(grant.ID) == 20*mib })
}

// TestRecoveredCreditIsRecalled from a process that is stopped, before it comes back.
func TestRecoveredCreditIsRecalled(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	stopped := b.tenant(grant)
	stopped.Must("alloc 0 %d", 90*mib)
	stopped.Must("free 0 %d", 80*mib)
	stopped.Signal(unix.SIGSTOP)
	b.restart()
	if got := b.container(grant.ID).GPUs[0]; got.UsedBytes != 10*mib || got.ChargedBytes < 90*mib {
		t.Errorf("after the restart: %+v", got)
	}
	other := b.tenant(grant)
	other.Must("alloc 0 %d", 90*mib)
	stopped.Signal(unix.SIGCONT)
	if _, err := stopped.Do("alloc 0 1"); err == nil {
		t.Error("over the cap")
	}
	if got := b.used(grant.ID); got != 100*mib {
		t.Errorf("%d used", got)
	}
}

// TestDeathsWhileAway: what has ended while no agent was there is not charged.
func TestDeathsWhileAway(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	dead, listed := b.tenant(grant), b.tenant(grant)
	dead.Must("alloc 0 %d", 50*mib)
	listed.Must("alloc 0 %d", 30*mib)
	gone := sessiontest.Start(t)
	goneGrant, err := b.StartRun(t.Context(), gone.PID(), uint32(os.Geteuid()),
		control.RunRequest{Name: "gone"})
	if err != nil {
		t.Fatal(err)
	}
	b.end()
	dead.Kill()
	listed.Kill()
	gone.Kill()
	b.devices.list(listed.PID(), true)
	b.begin()
	b.eventually("only what NVML still lists is charged", func() bool {
		return b.used(grant.ID) >= 30*mib &&
			b.used(grant.ID) < 50*mib
	})
	b.devices.list(listed.PID(), false)
	b.eventually("nothing is charged", func() bool { return b.used(grant.ID) == 0 })
	if _, err := b.Container(t.Context(), goneGrant.ID); !errors.Is(err, control.ErrNotFound) {
		t.Errorf("the container whose weir run has ended: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(goneGrant.Socket)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
}

// TestExecWhileAway: nor is what an exec has freed meanwhile.
func TestExecWhileAway(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	p := b.tenant(grant)
	p.Must("alloc 0 %d", 50*mib)
	b.end()
	p.Say("exec")
	b.eventually("it is another program", func() bool {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID()))
		return err == nil && string(name) == "cat\n"
	})
	b.begin()
	b.eventually("nothing is charged", func() bool {
		return b.container(grant.ID).GPUs[0].ChargedBytes == 0
	})
}

// TestUnknownLeftovers: directories and records that belong to no container are cleared away.
func TestUnknownLeftovers(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	p := b.tenant(grant)
	p.Must("alloc 0 %d", 50*mib)
	b.end()
	stray := filepath.Join(b.opts.RunDir, "c", "0123456789ab")
	if err := os.MkdirAll(stray, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(b.opts.RunDir, "containers-"+b.boot+".json")); err != nil {
		t.Fatal(err)
	}
	b.begin()
	dir := filepath.Join(b.opts.RunDir, "c")
	if entries, err := os.ReadDir(dir); len(entries) != 0 || err != nil {
		t.Errorf("%s: %v, %v", dir, entries, err)
	}
	records, damaged := store.LoadCredits(filepath.Join(b.opts.RunDir, "grants"), b.boot)
	if len(records) > 0 || len(damaged) > 0 {
		t.Errorf("records %v, damaged %v", records, damaged)
	}
}

// TestDamagedRecordsDoNotStopTheAgent: what they told is declared by the processes when they come back.
func TestDamagedRecordsDoNotStopTheAgent(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	p := b.tenant(grant)
	p.Must("alloc 0 %d", 50*mib)
	b.end()
	for _, name := range []string{"grants", "shares"} {
		if err := os.WriteFile(filepath.Join(b.opts.RunDir, name), []byte("junk"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.begin()
	p.Must("again")
	if got := b.used(grant.ID); got != 50*mib {
		t.Errorf("%d used", got)
	}
}

// TestGPUsMayChangeOverARestart: grants follow the UUID, not the place in the list.
func TestGPUsMayChangeOverARestart(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	p := b.tenant(grant)
	p.Must("alloc 0 %d", 50*mib)
	p.Must("alloc 1 %d", 20*mib)
	p.Signal(unix.SIGSTOP)
	b.end()
	devices := newDevices(3)
	devices.gpus = []control.GPU{devices.gpus[2], devices.gpus[0]}
	b.opts.Devices = devices
	b.begin()
	c := b.container(grant.ID)
	if c.GPUs[0].ChargedBytes != 0 || c.GPUs[1].ChargedBytes < 50*mib {
		t.Errorf("charges %+v", c.GPUs)
	}
	b.wantEvent("unenforced", "no longer finds")
}

// TestCapsSurviveAKill that comes before anybody was told of the change.
func TestCapsSurviveAKill(t *testing.T) {
	dir := t.TempDir()
	agent := startAgent(t, dir, "caps saved:1")
	var grant control.RunGrant
	agent.ask(&grant, "run %d %d", os.Getpid(), 64*mib)
	agent.say("caps box 1048576")
	agent.cmd.Wait()
	agent = startAgent(t, dir, "")
	var list []control.Container
	agent.ask(&list, "ps")
	if len(list) != 1 || *list[0].Caps.MemoryBytes != 1048576 || *list[0].GPUs[0].CapBytes != 1048576 {
		t.Errorf("after the restart: %+v", list)
	}
}

// steps are all moments at which a kill of the agent could leave less recorded than is the case.
var steps = []string{
	"record created", "attached", "welcomed", "granted", "spare given", "decided",
	"recall announced", "recalled",
}

// TestCrashAtEachStep kills the agent at each step of the write-ahead order, the first times that
// it comes by, while tenants allocate and recall from one another; nobody may notice.
func TestCrashAtEachStep(t *testing.T) {
	for _, step := range steps {
		for count := range 3 {
			t.Run(fmt.Sprint(step, " ", count+1), func(t *testing.T) {
				crashAt(t, fmt.Sprintf("%s:%d", step, count+1))
			})
		}
	}
}

func crashAt(t *testing.T, crash string) {
	dir := t.TempDir()
	agent := startAgent(t, dir, "")
	var grant control.RunGrant
	const limit = 64 * mib
	agent.ask(&grant, "run %d %d", os.Getpid(), limit)
	one := sessiontest.Start(t)
	one.Must("hello %s", grant.Socket)
	one.Must("alloc 0 %d", 8*mib)
	stopped := sessiontest.Start(t)
	stopped.Must("hello %s", grant.Socket)
	stopped.Must("alloc 0 %d", 40*mib)
	stopped.Must("free 0 %d", 36*mib)
	stopped.Signal(unix.SIGSTOP)
	agent.kill()
	// This one dies at its step; its successor must find things in order.
	agent = startAgent(t, dir, crash)
	one.Say("alloc 0 %d", 50*mib) // more than is free without a recall from the stopped
	two := sessiontest.Start(t)
	two.Say("hello %s", grant.Socket)
	var oneErr, twoErr error
	answered, ended := make(chan struct{}), make(chan struct{})
	go func() {
		_, twoErr = two.Answer()
		_, oneErr = one.Answer()
		close(answered)
	}()
	go func() {
		agent.cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-answered: // the step does not come by that often
		agent.cmd.Process.Kill()
		<-ended
	}
	agent = startAgent(t, dir, "")
	<-answered
	if oneErr != nil {
		t.Errorf("an allocation that fits failed: %v", oneErr)
	}
	if twoErr != nil { // a first HELLO is not tried again by itself
		two.Must("hello %s", grant.Socket)
	}
	if _, err := two.Do("alloc 0 %d", 2*mib+1); err == nil {
		t.Error("allocated over the cap")
	}
	two.Must("alloc 0 %d", 2*mib)
	stopped.Signal(unix.SIGCONT)
	if _, err := stopped.Do("alloc 0 1"); err == nil {
		t.Error("the stopped tenant allocated over the cap")
	}
	var list []control.Container
	agent.ask(&list, "ps")
	if len(list) != 1 || list[0].GPUs[0].UsedBytes != limit || list[0].GPUs[0].ChargedBytes != limit {
		t.Errorf("in the end: %+v", list[0].GPUs)
	}
}
