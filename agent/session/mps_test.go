package session

// Tests of MPS servers in containers, by programs that have a server's name.

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// mpsServer is a stranger whose program has a server's name.
func mpsServer(t *testing.T) (pid int) {
	t.Helper()
	sleep, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Skip(err)
	}
	program := filepath.Join(t.TempDir(), "nvidia-cuda-mps-server")
	if err := os.WriteFile(program, sleep, 0o755); err != nil {
		t.Fatal(err)
	}
	_, pid = strangerOf(t, program)
	return pid
}

// TestMPSServerIsDeclared by what its clients have, where only it is listed with memory, and by one context.
func TestMPSServerIsDeclared(t *testing.T) {
	b := start(t, counting).knows(256 * mib)
	client := b.tenant(b.run(4 << 30)) // the server is below the same process
	server := mpsServer(t)
	look := func(bytes int64, events int) {
		t.Helper()
		b.devices.holds(0, server, bytes)
		b.reconcile(t.Context())
		if got := b.undeclared(); len(got) != events {
			t.Fatalf("%d held: %d events %+v, want %d", bytes, len(got), got, events)
		}
	}
	look(256*mib, 0)
	look(1<<30+256*mib, 1)
	client.Must("alloc 0 %d", 1<<30)
	const unknown = -1
	b.devices.holds(0, client.PID(), unknown)
	look(1<<30+256*mib, 1)
	look(2<<30+256*mib, 2)
	look(1<<30+256*mib, 2)
	// What a client is listed with it holds itself: who only has the name has no more for it.
	b.devices.holds(0, client.PID(), 1<<30)
	look(1<<30+256*mib, 3)
	if got := b.undeclared()[2]; got.PID != server || got.Used == nil || *got.Used != 1<<30 {
		t.Errorf("event %+v", got)
	}
}

// TestMPSServerOfNobody: one outside of all containers, which holds everybody's memory, is left alone.
func TestMPSServerOfNobody(t *testing.T) {
	b := start(t, counting, func(o *Options) { o.EndUndeclared = true }).knows(256 * mib)
	root, _ := stranger(t)
	b.runAs(root.Process.Pid, 1<<30)
	server := mpsServer(t)
	b.devices.holds(0, server, 8<<30)
	b.reconcile(t.Context())
	if got := b.undeclared(); len(got) != 0 {
		t.Errorf("reported: %+v", got)
	}
	if err := unix.Kill(server, 0); err != nil {
		t.Errorf("it was ended: %v", err)
	}
}
