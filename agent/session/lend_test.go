package session

// Tests of what a new session is lent before it asks.

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"weir/agent/session/sessiontest"
	"weir/cgo/abi"
)

// newcomer says HELLO from the test's own process, and names a GPU of which it holds nothing. The
// descriptor of its usage page comes back.
func newcomer(t *testing.T, socket string, gpu int) (usage int) {
	t.Helper()
	conn, err := sessiontest.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	id, err := parseUUID(uuid(gpu))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Send(sessiontest.Hello("newcomer", abi.Held{Uuid: id})); err != nil {
		t.Fatal(err)
	}
	packet, fds, err := conn.Receive()
	if err != nil || sessiontest.Type(packet) != abi.MsgWelcome || len(fds) != 2 {
		t.Fatalf("HELLO was answered with %d, %d descriptors, %v", sessiontest.Type(packet), len(fds), err)
	}
	unix.Close(fds[0])
	t.Cleanup(func() { unix.Close(fds[1]) })
	return fds[1]
}

// credit reads the credit word of a usage page.
func credit(t *testing.T, usage, gpu int) int64 {
	t.Helper()
	var word [8]byte
	at := unsafe.Offsetof(abi.UsagePage{}.Gpus) + uintptr(gpu)*unsafe.Sizeof(abi.GPUUsage{})
	if _, err := unix.Pread(usage, word[:], int64(at)); err != nil {
		t.Fatal(err)
	}
	return int64(binary.LittleEndian.Uint64(word[:]))
}

// learnContext has the agent learn that a context takes so much.
func (b *bench) learnContext(p *sessiontest.Process, bytes int64) {
	b.t.Helper()
	b.devices.holds(0, p.PID(), bytes)
	p.Must("measure 0 1")
}

// TestFirstContextIsLent: who is about to make a context has the credit for it with WELCOME, on the GPU
// that it names; it is unused memory, which others are given when they ask for it.
func TestFirstContextIsLent(t *testing.T) {
	const limit, size = 1 << 30, 300 * mib
	b := start(t, counting)
	grant := b.run(limit)
	other := b.tenant(grant)
	b.learnContext(other, size)
	usage := newcomer(t, grant.Socket, 0)
	if got := credit(t, usage, 0); got < size || got > limit {
		t.Errorf("lent %d, want a context of %d and some more", got, size)
	}
	if got := credit(t, usage, 1); got != 0 {
		t.Errorf("lent %d on a GPU that was not named", got)
	}
	if got := b.container(grant.ID).GPUs[0]; got.UsedBytes != 0 || got.ChargedBytes < size {
		t.Errorf("%d in use, %d charged", got.UsedBytes, got.ChargedBytes)
	}
	other.Must("alloc 0 %d", limit)
	if got := credit(t, usage, 0); got != 0 {
		t.Errorf("%d of what was lent were not recalled", got)
	}
	b.restart()
	other.Must("again")
	other.Must("free 0 %d", limit)
	if got := b.used(grant.ID); got != 0 {
		t.Errorf("%d in use at the end", got)
	}
}

// TestNothingIsLent where contexts do not count, and where one does not fit.
func TestNothingIsLent(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit int64
		count bool
	}{{"not counted", 1 << 30, false}, {"does not fit", 200 * mib, true}} {
		t.Run(c.name, func(t *testing.T) {
			b := start(t, counting, func(o *Options) { o.CountContext = c.count })
			grant := b.run(c.limit)
			b.learnContext(b.tenant(grant), 300*mib)
			if got := credit(t, newcomer(t, grant.Socket, 0), 0); got != 0 {
				t.Errorf("lent %d", got)
			}
			if got := b.container(grant.ID).GPUs[0].ChargedBytes; got != 0 {
				t.Errorf("%d charged", got)
			}
		})
	}
}
