package session

// Tests of sessions: their ends, their identity, and tenants that break every rule.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/agent/control"
	"weir/agent/session/sessiontest"
	"weir/cgo/abi"
)

// state is that of a process's session, "" if it has none.
func (b *bench) state(id string, pid int) string {
	for _, s := range b.container(id).Sessions {
		if s.PID == pid {
			return s.State
		}
	}
	return ""
}

// TestForkedChildHoldsTheSocket: a charge ends with its process, not with the last copy of its
// socket.
func TestForkedChildHoldsTheSocket(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	p := b.tenant(grant)
	p.Must("alloc 0 %d", 60*mib)
	child, err := strconv.Atoi(p.Must("hold"))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Kill(child, unix.SIGKILL)
	p.Kill()
	b.eventually("the charge has ended", func() bool { return b.used(grant.ID) == 0 })
	if err := unix.Kill(child, 0); err != nil {
		t.Errorf("the child that holds the socket is gone too: %v", err)
	}
}

// TestClosedDescriptors: a program that closes all descriptors still holds its memory.
func TestClosedDescriptors(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	p := b.tenant(grant)
	p.Must("alloc 0 %d", 60*mib)
	p.Must("closefrom")
	b.eventually("the session is detached", func() bool {
		return b.state(grant.ID, p.PID()) == "detached"
	})
	if got := b.used(grant.ID); got != 60*mib {
		t.Errorf("%d used", got)
	}
	p.Must("free 0 %d", 20*mib) // into the page, which it still has
	other := b.tenant(grant)
	other.Must("alloc 0 %d", 60*mib)
	p.Kill()
	b.eventually("the charge has ended", func() bool { return b.used(grant.ID) == 60*mib })
}

func TestReconnectDeclares(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	p := b.tenant(grant)
	p.Must("alloc 0 %d", 60*mib)
	p.Must("alloc 1 %d", 10*mib)
	p.Must("free 0 %d", 20*mib)
	p.Must("again")
	c := b.container(grant.ID)
	if len(c.Sessions) != 1 || c.Sessions[0].State != "connected" {
		t.Fatalf("sessions %+v", c.Sessions)
	}
	for gpu, want := range []int64{40 * mib, 10 * mib} {
		if g := c.GPUs[gpu]; g.ChargedBytes != want || g.CreditBytes != 0 {
			t.Errorf("GPU %d after the reconnect: %+v", gpu, g)
		}
	}
	p.Must("alloc 0 %d", 60*mib)
	p.Kill()
	b.eventually("the process's end is noticed after a reconnect too", func() bool {
		return len(b.container(grant.ID).Sessions) == 0
	})
}

// TestExecEndsTheCharge, with the connection closed by it and with a child that holds it open.
func TestExecEndsTheCharge(t *testing.T) {
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held %v", held), func(t *testing.T) {
			b := start(t)
			grant := b.run(100 * mib)
			p := b.tenant(grant)
			p.Must("alloc 0 %d", 60*mib)
			if held {
				child, err := strconv.Atoi(p.Must("hold"))
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Kill(child, unix.SIGKILL)
			}
			p.Say("exec")
			b.eventually("the charge has ended", func() bool {
				if held {
					b.round() // at its own pace it comes every 10 s
				}
				return b.used(grant.ID) == 0
			})
			p.Say("still there") // it is cat now
			if _, err := p.Answer(); err == nil || strings.Contains(err.Error(), "ended") {
				t.Errorf("the process has not lived on: %v", err)
			}
		})
	}
}

func TestForgedPage(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	other := b.tenant(grant)
	other.Must("alloc 0 %d", 10*mib)
	for _, value := range []string{"0x10000000000", "0xffffffffffffffff", "0x8000000000000000"} {
		p := b.tenant(grant)
		p.Must("alloc 0 %d", 60*mib)
		p.Must("forge 0 %s", value)
		other.Must("query 0") // has the agent read the word
		_, err := p.Do("query 0")
		if err == nil || !strings.Contains(err.Error(), "usage page claims more than") {
			t.Errorf("forged %s: %v", value, err)
		}
		if _, err := p.Do("again"); err == nil || !strings.Contains(err.Error(), "forged") {
			t.Errorf("admitted again after forging: %v", err)
		}
		if got := b.state(grant.ID, p.PID()); got != "detached" {
			t.Errorf("the forger's session is %s", got)
		}
		if got := b.used(grant.ID); got < 70*mib {
			t.Errorf("only %d used: forging has freed the charge", got)
		}
		b.wantEvent("forged", "stays charged until the process ends")
		p.Kill()
		b.eventually("the forger's charge has ended", func() bool { return b.used(grant.ID) == 10*mib })
	}
	other.Must("alloc 0 %d", 90*mib)
}

// TestForgerAsks: a forgery is found in the very request that another's credit would satisfy.
func TestForgerAsks(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	other, p := b.tenant(grant), b.tenant(grant)
	other.Must("alloc 0 %d", 60*mib)
	other.Must("free 0 %d", 50*mib)
	p.Must("alloc 0 %d", 30*mib)
	p.Must("forge 0 %d", 40*mib) // above its grant, below what it asks for
	if _, err := p.Do("alloc 0 %d", 55*mib); err == nil {
		t.Error("a forger was granted more")
	}
	b.eventually("the forgery is found", func() bool { return b.hasEvent("forged") })
	other.Must("alloc 0 %d", 40*mib)
}

// TestSilentForger: a page is found to be forged though its tenant never asks for anything again.
func TestSilentForger(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	p := b.tenant(grant)
	p.Must("forge 1 512") // on a GPU where it has no grant at all
	b.eventually("the forgery is found", func() bool { return b.hasEvent("forged") })
	if got := b.state(grant.ID, p.PID()); got != "detached" {
		t.Errorf("the forger's session is %s", got)
	}
}

// TestTenantCannotHurtThePages tries on its own descriptors what the pages' seals must refuse.
func TestTenantCannotHurtThePages(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	tenant, err := sessiontest.Connect(grant.Socket, "hostile")
	if err != nil {
		t.Fatal(err)
	}
	defer tenant.Close()
	_, controlFD, usageFD := tenant.FDs()
	for name, fd := range map[string]int{"control": controlFD, "usage": usageFD} {
		for _, size := range []int64{0, abi.PageBytes - 1, 1 << 20} {
			if err := unix.Ftruncate(fd, size); err == nil {
				t.Errorf("%s page truncated to %d", name, size)
			}
		}
		path := fmt.Sprint("/proc/self/fd/", fd)
		if again, err := unix.Open(path, unix.O_RDWR|unix.O_TRUNC, 0); err == nil {
			unix.Close(again)
			t.Errorf("%s page opened with O_TRUNC", name)
		}
	}
	if _, err := unix.Pwrite(controlFD, []byte{0}, 0); err == nil {
		t.Error("control page written")
	}
	if m, err := unix.Mmap(controlFD, 0, abi.PageBytes, unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		unix.Munmap(m)
		t.Error("control page mapped for writing")
	}
	const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(controlFD, punch, 0, abi.PageBytes); err == nil {
		t.Error("hole punched into the control page")
	}
	if err := tenant.Alloc(0, 40*mib); err != nil {
		t.Fatal(err)
	}
	// This one is possible, and costs the tenant its session.
	if err := unix.Fallocate(usageFD, punch, 0, abi.PageBytes); err != nil {
		t.Fatal(err)
	}
	b.eventually("that is found", func() bool { return b.hasEvent("forged", "written over") })
	wantClosed(t, tenant.Alloc(0, 60*mib), abi.ClosePage, "")
	if got := b.container(grant.ID); got.GPUs[0].ChargedBytes > 100*mib {
		t.Errorf("over the cap: %+v", got.GPUs[0])
	}
}

// TestProtocolErrors: each of these ends its own session with a reason, and no other.
func TestProtocolErrors(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	other := b.tenant(grant)
	hello, request := sessiontest.Hello("odd"), sessiontest.Request(5, 0, 1)
	unknown := sessiontest.Packet(77, 1, &abi.Query{})
	query := sessiontest.Packet(abi.MsgQuery, 1, &abi.Query{Gpu: 64})
	verdict := sessiontest.Packet(abi.MsgVerdict, 1, &abi.Verdict{})
	later := sessiontest.Packet(abi.MsgHello, 1, &abi.Hello{
		Magic: abi.HelloMagic, Abi_oldest: 7, Abi_newest: 9,
	})
	for _, c := range []struct {
		name    string
		packets [][]byte
		reason  uint32
		words   string
	}{
		{"empty", [][]byte{{}}, abi.CloseProtocol, "0 bytes"},
		{"empty after HELLO", [][]byte{hello, {}}, abi.CloseProtocol, "0 bytes"},
		{"short", [][]byte{{1, 2, 3}}, abi.CloseProtocol, "shorter than a header"},
		{"cut", [][]byte{hello[:100]}, abi.CloseProtocol, "says it has"},
		{"long", [][]byte{make([]byte, 5000)}, abi.CloseProtocol, "longer than"},
		{"unknown", [][]byte{unknown}, abi.CloseProtocol, "unknown type 77"},
		{"before HELLO", [][]byte{sessiontest.Request(1, 0, 1)}, abi.CloseProtocol, "before HELLO"},
		{"HELLO twice", [][]byte{hello, hello}, abi.CloseProtocol, "second HELLO"},
		{"replay", [][]byte{hello, request, request}, abi.CloseProtocol, "asked before"},
		{"of the agent", [][]byte{hello, verdict}, abi.CloseProtocol, "unknown type"},
		{"of another version", [][]byte{later}, abi.CloseVersion, "speaks 7 to 9"},
		{"no such GPU", [][]byte{hello, query}, abi.CloseProtocol, "GPU 64"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := sessiontest.Dial(grant.Socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for _, p := range c.packets {
				if err := conn.Send(p); err != nil && !errors.Is(err, unix.EPIPE) {
					t.Fatal(err)
				}
			}
			wantClosed(t, lastWords(conn), c.reason, c.words)
			if _, _, err := conn.ReceiveWithin(5 * time.Second); !errors.Is(err, io.EOF) {
				t.Errorf("after the CLOSE: %v", err)
			}
			other.Must("alloc 0 512")
		})
	}
	if got := b.state(grant.ID, other.PID()); got != "connected" {
		t.Errorf("the honest session is %s", got)
	}
}

// lastWords reads a connection up to its CLOSE.
func lastWords(conn *sessiontest.Conn) error {
	for {
		packet, fds, err := conn.ReceiveWithin(10 * time.Second)
		for _, fd := range fds {
			unix.Close(fd)
		}
		if err != nil {
			return err
		}
		if sessiontest.Type(packet) == abi.MsgClose {
			return sessiontest.AsClosed(packet)
		}
	}
}

// TestNoSuchGPU: a REQUEST for a GPU that is not there has an answer of its own.
func TestNoSuchGPU(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	tenant, err := sessiontest.Connect(grant.Socket, "lost")
	if err != nil {
		t.Fatal(err)
	}
	defer tenant.Close()
	want := fmt.Sprintf("verdict %d", abi.NoSuchGPU)
	if err := tenant.Alloc(2, 1); err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if err := tenant.Alloc(1, 1); err != nil {
		t.Error(err)
	}
}

func TestSilentConnectionIsClosed(t *testing.T) {
	t.Parallel()
	b := start(t)
	grant := b.run(100 * mib)
	conn, err := sessiontest.Dial(grant.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	wantClosed(t, lastWords(conn), abi.CloseProtocol, "no HELLO within")
}

// TestDescriptorsAreNotAccepted: what a tenant sends along is thrown away, not collected.
func TestDescriptorsAreNotAccepted(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	conn, err := sessiontest.Dial(grant.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := conn.Send(sessiontest.Hello("giver"), int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	_, fds, err := conn.ReceiveWithin(5 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	w.Close()
	r.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the agent holds a descriptor of the tenant: %v", err)
	}
}

func TestTooManySilentConnections(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	var conns []*sessiontest.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range helloMax {
		c, err := sessiontest.Dial(grant.Socket)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	c := b.containers[grant.ID]
	b.eventually("all are accepted", func() bool { return len(c.silent) == helloMax })
	late := make(chan error)
	go func() {
		tenant, err := sessiontest.Connect(grant.Socket, "late")
		if err == nil {
			tenant.Close()
		}
		late <- err
	}()
	conns[0].Close()
	conns = conns[1:]
	if err := <-late; err != nil {
		t.Errorf("an honest one that came late: %v", err)
	}
}

// TestOutsidersKeepNoPlaces: more silent connections than are served, from a process that is none of
// the container's, do not hold up one that is.
func TestOutsidersKeepNoPlaces(t *testing.T) {
	b := start(t)
	inside := sessiontest.StartBelow(t)
	grant := b.runAs(inside.Parent(), 100*mib)
	begin := time.Now()
	for range helloMax + 100 {
		conn, err := sessiontest.Dial(grant.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	inside.Must("hello %s", grant.Socket)
	if waited := time.Since(begin); waited >= helloWait {
		t.Errorf("held up for %v", waited)
	}
}

// TestIdentity: the socket alone admits nobody.
func TestIdentity(t *testing.T) {
	b := start(t)
	inside := sessiontest.StartBelow(t)
	grant := b.runAs(inside.Parent(), 100*mib)
	inside.Must("hello %s", grant.Socket)
	inside.Must("alloc 0 %d", 60*mib)

	outside := sessiontest.Start(t)
	_, err := outside.Do("hello %s", grant.Socket)
	if err == nil || !strings.Contains(err.Error(), "does not descend") {
		t.Errorf("a process from outside: %v", err)
	}
	b.wantEvent("refused", "none of the container's", fmt.Sprint(outside.PID()))
	b.round()
	if b.hasEvent("left") {
		t.Error("a process that is inside is said to have left")
	}

	// Its parent ends: it is handed to another, but keeps what it has, also over a reconnect.
	if err := unix.Kill(inside.Parent(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.eventually("the container is ending", func() bool { return b.hasEvent("ending", "1 of its processes") })
	if got := b.container(grant.ID).State; got != "ending" {
		t.Errorf("the container is %s", got)
	}
	inside.Must("again")
	inside.Must("alloc 0 %d", 40*mib)
	if got := b.used(grant.ID); got != 100*mib {
		t.Errorf("%d used", got)
	}
	_, err = outside.Do("hello %s", grant.Socket)
	if err == nil || !strings.Contains(err.Error(), "weir run has ended") {
		t.Errorf("a new process after the end of weir run: %v", err)
	}
	inside.Signal(unix.SIGKILL)
	b.eventually("the container has ended", func() bool {
		_, err := b.Container(t.Context(), grant.ID)
		return errors.Is(err, control.ErrNotFound)
	})
	if _, err := os.Stat(filepath.Dir(grant.Socket)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is still there: %v", err)
	}
	b.wantEvent("ended")
}

// TestLeaving: a process that is no longer below its weir run, which lives on, is flagged.
func TestLeaving(t *testing.T) {
	b := start(t)
	inside := sessiontest.StartBelow(t) // below a shell below this process
	grant := b.runAs(inside.Parent(), 100*mib)
	inside.Must("hello %s", grant.Socket)
	inside.Must("alloc 0 %d", 60*mib)
	// As if the process had been handed to another: the container is another process's.
	root := sessiontest.Start(t)
	c := b.containers[grant.ID]
	c.mu.Lock()
	c.spec.PID, c.spec.Start = root.PID(), 0
	c.identity = identityOf(c.spec)
	c.mu.Unlock()
	b.round()
	b.round()
	b.wantEvent("left", "keeps what it has")
	inside.Must("again")
	if got := b.used(grant.ID); got != 60*mib {
		t.Errorf("%d used", got)
	}
}

func TestNotes(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	tenant, err := sessiontest.Connect(grant.Socket, "noter")
	if err != nil {
		t.Fatal(err)
	}
	defer tenant.Close()
	for code, kind := range map[uint32]string{
		abi.NoteRefused: "denied", abi.NoteDriverOOM: "driver-oom", abi.NoteUnknownGPU: "denied",
		abi.NoteForked: "forked", abi.NoteBound: "denied",
	} {
		if err := tenant.Note(code, 1, 7*mib); err != nil {
			t.Fatal(err)
		}
		b.eventually("the note is an event", func() bool { return b.hasEvent(kind, "noter") })
	}
}

// unread connects a tenant that greets and need not read; what it sends does not wait.
func unread(t *testing.T, grant control.RunGrant) *sessiontest.Conn {
	t.Helper()
	conn, err := sessiontest.Dial(grant.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.Send(sessiontest.Hello("deaf")); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(conn.FD, true); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestUnreadAnswers: a tenant that asks and never reads holds up itself only.
func TestUnreadAnswers(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	conn := unread(t, grant)
	sent := uint32(0)
	b.eventually("nothing more can be sent", func() bool {
		for {
			query := sessiontest.Packet(abi.MsgQuery, sent+1, &abi.Query{})
			if err := conn.Send(query); err != nil {
				return errors.Is(err, unix.EAGAIN) && sent > 100
			}
			sent++
		}
	})
	other := b.tenant(grant)
	other.Must("alloc 0 %d", 90*mib)
	other.Kill()
	b.eventually("the other's end is noticed", func() bool { return b.used(grant.ID) == 0 })
}

func TestUnenforcedProcessesAreShown(t *testing.T) {
	b := start(t)
	p := sessiontest.StartBelow(t)
	grant := b.runAs(p.Parent(), 100*mib)
	if c := b.container(grant.ID); !c.Enforced {
		t.Errorf("a process that has only just begun is a stray: %s", c.Reason)
	}
	time.Sleep(loadTime + 50*time.Millisecond)
	c := b.container(grant.ID)
	if c.Enforced || !strings.Contains(c.Reason, fmt.Sprintf("process %d", p.PID())) {
		t.Errorf("a process without the library: %v %q", c.Enforced, c.Reason)
	}
	b.round()
	b.wantEvent("unenforced", "no cap holds for it")
	p.Must("hello %s", grant.Socket) // who has a session has the library
	if c := b.container(grant.ID); !c.Enforced {
		t.Errorf("a process with a session is a stray: %s", c.Reason)
	}
}
