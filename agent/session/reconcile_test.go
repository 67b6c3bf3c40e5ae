package session

// Tests of what is made of NVML's view of processes.

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/agent/control"
)

// undeclared lists the events of undeclared memory.
func (b *bench) undeclared() (list []control.Event) {
	b.t.Helper()
	events, err := b.Events(b.t.Context(), 0, false)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range events {
		if e.Type == "undeclared" {
			list = append(list, e)
		}
	}
	return list
}

// knows has the agent know what one context takes.
func (b *bench) knows(bytes int64) *bench {
	for _, g := range b.gpus {
		g.context.Store(bytes)
	}
	return b
}

// TestUndeclared: a process with a session that holds more than it declared is reported, once for
// each change.
func TestUndeclared(t *testing.T) {
	b := start(t, counting).knows(256 * mib)
	grant := b.run(4 << 30)
	p, honest := b.tenant(grant), b.tenant(grant)
	p.Must("alloc 0 %d", 400*mib)
	p.Must("free 0 %d", 100*mib)
	honest.Must("alloc 0 %d", 100*mib)
	look := func(holds int64, events int) {
		t.Helper()
		b.devices.holds(0, p.PID(), holds)
		b.devices.holds(0, honest.PID(), 100*mib)
		b.reconcile(t.Context())
		if got := b.undeclared(); len(got) != events {
			t.Errorf("%d held: %d events %+v, want %d", holds, len(got), got, events)
		}
	}
	look(300*mib, 0)
	look(300*mib+64*mib, 0) // a quarter of a context is tolerated
	look(300*mib+500*mib, 1)
	look(300*mib+510*mib, 1) // no change to speak of
	look(300*mib+700*mib, 2)
	look(300*mib, 2)
	look(300*mib+700*mib, 3)
	if got := b.undeclared()[0]; got.PID != p.PID() || got.Used == nil ||
		*got.Used != 500*mib || got.GPUUUID != uuid(0) || got.Container != "box" ||
		!strings.Contains(got.Message, "500MiB on GPU 0 that it has not declared") {
		t.Errorf("event %+v", got)
	}
	c := b.container(grant.ID)
	if c.Enforced || !strings.Contains(c.Reason, fmt.Sprintf("process %d: ", p.PID())) {
		t.Errorf("shown as %v, %q", c.Enforced, c.Reason)
	}
	look(300*mib, 3)
	if c := b.container(grant.ID); !c.Enforced {
		t.Errorf("still shown: %q", c.Reason)
	}
	if p.Must("held 0") != fmt.Sprint(300*mib) {
		t.Error("it was not only reported")
	}
}

// TestUndeclaredOnce: one look alone is not believed.
func TestUndeclaredOnce(t *testing.T) {
	b := start(t, counting).knows(256 * mib)
	p := b.tenant(b.run(4 << 30))
	b.devices.holds(0, p.PID(), 1<<30)
	if found, ok := b.suspect(0); len(found) != 1 || !ok {
		t.Fatalf("suspected: %+v, %v", found, ok)
	}
	go func() {
		b.eventually("there is a first look", func() bool { return b.devices.count() > 1 })
		b.devices.holds(0, p.PID(), 0)
	}()
	b.reconcile(t.Context())
	if got := b.undeclared(); len(got) != 0 {
		t.Errorf("reported: %+v", got)
	}
}

// TestUndeclaredStays while NVML cannot be asked: what it said before is not forgotten, nor said again.
func TestUndeclaredStays(t *testing.T) {
	b := start(t, counting).knows(256 * mib)
	p := b.tenant(b.run(4 << 30))
	b.devices.holds(0, p.PID(), 1<<30)
	for _, err := range []error{nil, errors.New("no NVML"), nil} {
		b.devices.fail(err)
		b.reconcile(t.Context())
		if got := b.undeclared(); len(got) != 1 {
			t.Errorf("NVML says %v: %d events, want 1", err, len(got))
		}
	}
}

// TestExportedIsDeclared: what was exported NVML counts as its exporter's, and then as the others'.
func TestExportedIsDeclared(t *testing.T) {
	b := start(t, counting).knows(256 * mib)
	grant := b.run(4 << 30)
	p, other := b.tenant(grant), b.tenant(grant)
	p.Must("alloc 0 %d", 1<<30)
	if got := p.Must("export 0 %d 7", 1<<30); got != "true" {
		t.Fatalf("exported: %s", got)
	}
	if got := other.Must("import 7"); got != "true" {
		t.Fatalf("imported: %s", got)
	}
	b.devices.holds(0, p.PID(), 1<<30)
	b.reconcile(t.Context())
	p.Kill()
	b.devices.holds(0, p.PID(), 0)
	b.devices.holds(0, other.PID(), 1<<30)
	b.reconcile(t.Context())
	if got := b.undeclared(); len(got) != 0 {
		t.Errorf("reported: %+v", got)
	}
	b.devices.holds(0, other.PID(), 2<<30)
	b.reconcile(t.Context())
	if got := b.undeclared(); len(got) != 1 {
		t.Errorf("reported: %+v", got)
	}
}

// TestContextsAreNotUndeclared where they do not count, by what processes say, within reason.
func TestContextsAreNotUndeclared(t *testing.T) {
	b := start(t)
	p := b.tenant(b.run(4 << 30))
	p.Must("alloc 0 %d", 100*mib)
	b.devices.holds(0, p.PID(), 1<<30)
	b.reconcile(t.Context())
	if got := b.undeclared(); len(got) != 0 {
		t.Errorf("no context's size is known, and it is reported: %+v", got)
	}
	b.knows(256 * mib)
	p.Must("display 0 %d %d", 800*mib, 124*mib)
	b.reconcile(t.Context())
	if got := b.undeclared(); len(got) != 0 {
		t.Errorf("it said so, and is reported: %+v", got)
	}
	p.Must("display 0 %d %d", ^uint64(0)>>1, ^uint64(0)>>1)
	b.devices.holds(0, p.PID(), 10<<30)
	b.reconcile(t.Context())
	if got := b.undeclared(); len(got) != 1 {
		t.Errorf("a liar is not found: %+v", got)
	}
}

// stranger starts a program below root that does not have the library.
func stranger(t *testing.T) (root *exec.Cmd, pid int) {
	t.Helper()
	return strangerOf(t, "sleep")
}

// strangerOf is stranger for sleep, or a copy of it under another name.
func strangerOf(t *testing.T, program string) (root *exec.Cmd, pid int) {
	t.Helper()
	root = exec.Command("/bin/sh", "-c", program+" 1000 & echo $!; wait")
	root.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := root.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := root.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Kill(-root.Process.Pid, unix.SIGKILL)
		root.Wait()
	})
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	// Until then it is a copy of the shell.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if base := filepath.Base(program); string(name) == base[:min(len(base), 15)]+"\n" {
			return root, pid
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("process %d is still %q (%v)", pid, name, err)
		}
	}
}

// TestStranger: a container's process without a session that holds memory is reported; one of no
// container is nobody's business.
func TestStranger(t *testing.T) {
	b := start(t, counting).knows(256 * mib)
	root, pid := stranger(t)
	_, other := stranger(t)
	grant := b.runAs(root.Process.Pid, 1<<30)
	b.devices.holds(1, pid, 400*mib)
	b.devices.holds(1, other, 400*mib)
	b.devices.holds(1, 1, 400*mib)
	b.devices.holds(1, 1<<22+5, 400*mib)
	b.devices.holds(0, pid, 10*mib) // within what is tolerated
	for range 3 {
		b.reconcile(t.Context())
	}
	got := b.undeclared()
	if len(got) != 1 || got[0].PID != pid || got[0].GPUUUID != uuid(1) ||
		!strings.Contains(got[0].Message, "sleep holds 400MiB on GPU 1 without the library") {
		t.Fatalf("events %+v", got)
	}
	c := b.container(grant.ID)
	if c.Enforced {
		t.Error("the container is shown as enforced")
	}
	flows, err := b.Queue(t.Context())
	if err != nil || len(flows) != 1 || flows[0].Index != 1 || flows[0].Mode != control.ModeOff || flows[0].LagNS != nil {
		t.Errorf("of who is not scheduled it is said: %+v, %v", flows, err)
	}
	if err := unix.Kill(pid, 0); err != nil {
		t.Errorf("it was not only reported: %v", err)
	}
}

// TestUndeclaredIsEnded, if the configuration says so, and nothing else.
func TestUndeclaredIsEnded(t *testing.T) {
	ending := func(o *Options) { o.EndUndeclared = true }
	t.Run("session", func(t *testing.T) {
		b := start(t, counting, ending).knows(256 * mib)
		grant := b.run(4 << 30)
		p, honest := b.tenant(grant), b.tenant(grant)
		honest.Must("alloc 0 %d", 400*mib)
		b.devices.holds(0, p.PID(), 400*mib)
		b.devices.holds(0, honest.PID(), 400*mib)
		b.reconcile(t.Context())
		b.wantEvent("undeclared", "was ended", `undeclared = "end"`)
		b.eventually("its session has ended", func() bool { return b.state(grant.ID, p.PID()) == "" })
		if honest.Must("held 0") != fmt.Sprint(400*mib) {
			t.Error("the other was ended")
		}
	})
	t.Run("stranger", func(t *testing.T) {
		b := start(t, counting, ending).knows(256 * mib)
		root, pid := stranger(t)
		_, other := stranger(t)
		b.runAs(root.Process.Pid, 4<<30)
		b.devices.holds(0, pid, 400*mib)
		b.devices.holds(0, other, 400*mib)
		b.reconcile(t.Context())
		b.wantEvent("undeclared", "sleep was ended")
		if root.Wait() != nil { // it has waited for the stranger
			t.Error("the container's first process was ended")
		}
		if err := unix.Kill(other, 0); err != nil {
			t.Errorf("a process of no container was ended: %v", err)
		}
	})
}

// TestTolerance goes by contexts and cards.
func TestTolerance(t *testing.T) {
	for _, c := range []struct{ context, memory, want int64 }{
		{0, 16 << 30, 16 * mib}, {400 * mib, 16 << 30, 100 * mib}, {40 * mib, 80 << 30, 80 * mib},
	} {
		g := &gpu{known: control.GPU{MemoryBytes: c.memory}}
		if got := g.tolerance(c.context); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
