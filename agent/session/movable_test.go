package session

// Tests of movable memory: what is granted and refused, freed, declared again, and left by processes that end.

import (
	"errors"
	"fmt"
	"testing"

	"weir/agent/control"
	"weir/agent/session/sessiontest"
	"weir/cgo/abi"
)

// hostOf sets what swap may take of the host.
func hostOf(bytes int64) func(*Options) { return func(o *Options) { o.SwapHostLimit = &bytes } }

// swapping registers this process as a container with a cap and swap.
func (b *bench) swapping(limit, swap int64, change ...func(*control.RunRequest)) control.RunGrant {
	b.t.Helper()
	req := control.RunRequest{Name: "box", Command: []string{"box"}}
	req.Caps.MemoryBytes, req.Caps.SwapBytes = &limit, &swap
	for _, c := range change {
		c(&req)
	}
	grant, err := b.runRequest(req)
	if err != nil {
		b.t.Fatal(err)
	}
	return grant
}

func wantRefused(t *testing.T, err, want error) {
	t.Helper()
	if err == nil || err.Error() != want.Error() {
		t.Errorf("got %v, want %v", err, want)
	}
}

// wantMovable checks what is charged of movable memory: in the container's account, and in the host's.
func (b *bench) wantMovable(what, id string, bytes, host int64) {
	b.t.Helper()
	c := b.container(id)
	got, info := c.GPUs[0].MovableBytes, b.info()
	if got != bytes || info.SwapHostBytes != host {
		b.t.Errorf("%s: %d of movable memory and %d of the host, want %d and %d", what, got, info.SwapHostBytes, bytes, host)
	}
}

func (b *bench) info() control.AgentInfo {
	info, err := b.Info(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return info
}

// TestMovableMemory: plain and movable memory together are held to cap and swap, plain memory to the cap, and what is
// freed may be had again.
func TestMovableMemory(t *testing.T) {
	b := start(t, hostOf(1<<40))
	grant := b.swapping(8*mib, 16*mib)
	p := b.tenant(grant)
	if got := p.Must("swap 0"); got != "16777216 0 false" {
		t.Errorf("the control page says %s", got)
	}
	p.Must("alloc 0 %d", mib)
	p.Must("movable 0 %d 1", 20*mib)
	b.wantMovable("after one", grant.ID, 20*mib, 20*mib)
	if got := p.Must("query 0"); got != fmt.Sprint(3*mib, 8*mib, 21*mib) { // plain memory has as much as swap has left
		t.Errorf("a query tells %s", got)
	}
	_, err := p.Do("movable 0 %d 2", 4*mib)
	wantRefused(t, err, sessiontest.ErrOverSwap)
	b.wantEvent("denied", "for 4MiB more of memory that can be swapped out", "21MiB of 8MiB, and 16MiB of swap, are in use", "--swap SIZE")
	p.Must("movable 0 %d 3", 2*mib) // of which unused credit is recalled
	_, err = p.Do("alloc 0 %d", 2*mib)
	wantRefused(t, err, sessiontest.ErrOverCap)
	p.Must("freed 0 1")
	p.Must("alloc 0 %d", 7*mib)
	b.wantMovable("in the end", grant.ID, 2*mib, 2*mib)
	use := b.container(grant.ID).GPUs[0]
	if use.UsedBytes != 10*mib || use.Swap == nil || use.Swap.LimitBytes != 16*mib || use.OnCard() != 8*mib { // what was never touched is nowhere yet
		t.Errorf("use %+v", use)
	}
	_, err = p.Do("alloc 0 1")
	wantRefused(t, err, sessiontest.ErrOverCap)
	p.Kill()
	b.eventually("all is free", func() bool {
		c := b.container(grant.ID)
		return c.GPUs[0].UsedBytes == 0 && b.info().SwapHostBytes == 0
	})
}

// TestMovableWithoutSwap: a container without swap has none, whatever it asks.
func TestMovableWithoutSwap(t *testing.T) {
	b := start(t, hostOf(1<<40))
	grant := b.run(8 * mib)
	p := b.tenant(grant)
	if got := p.Must("swap 0"); got != "0 0 false" {
		t.Errorf("the control page says %s", got)
	}
	p.Must("alloc 0 %d", 7*mib)
	_, err := p.Do("movable 0 %d 1", 2*mib)
	wantRefused(t, err, sessiontest.ErrOverSwap)
	b.wantEvent("denied", "it has no swap there", "--swap SIZE")
	if c := b.container(grant.ID); c.GPUs[0].Swap != nil || c.Refused != 1 {
		t.Errorf("%+v", c)
	}
}

// TestHostFull: all movable memory of the node is held to one limit, which its containers are told of.
func TestHostFull(t *testing.T) {
	b := start(t, hostOf(10*mib))
	grant := b.swapping(8*mib, 10*mib)
	p := b.tenant(grant)
	p.Must("movable 0 %d 1", 8*mib)
	_, err := p.Do("movable 1 %d 2", 4*mib)
	wantRefused(t, err, sessiontest.ErrHostFull)
	b.wantEvent("denied", "for 4MiB more", "swap has 8MiB of the 10MiB of host memory", "swap_host_limit")
	b.wantMovable("after the refusal", grant.ID, 8*mib, 8*mib)
	p.Must("movable 1 %d 3", 2*mib)
	p.Must("freed 0 1")
	p.Must("movable 1 %d 4", 8*mib)
	if info := b.info(); info.SwapHostLimitBytes != 10*mib || info.SwapHostBytes != 10*mib {
		t.Errorf("%+v", info)
	}
}

// TestMovableAgain: over a new connection, and over a restart of the agent, what a process had stays charged until it
// has said what of it there still is. It is believed no more than it was granted.
func TestMovableAgain(t *testing.T) {
	for name, lose := range map[string]func(b *bench){
		"connection lost": func(*bench) {},
		"agent restarted": func(b *bench) { b.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, hostOf(1<<40))
			grant := b.swapping(8*mib, 16*mib)
			p := b.tenant(grant)
			p.Must("movable 0 %d 1", 20*mib)
			p.Must("movable 0 %d 2", 2*mib)
			p.Must("movable 1 %d 3", 2*mib)
			p.Must("lose 2")
			lose(b)
			b.wantMovable("before it is back", grant.ID, 22*mib, 24*mib)
			p.Must("again")
			b.eventually("what was not named is free", func() bool { return b.info().SwapHostBytes == 22*mib })
			b.wantMovable("when it is back", grant.ID, 20*mib, 22*mib)
			p.Must("freed 0 1")
			p.Must("movable 0 %d 4", 24*mib)
			b.wantMovable("in the end", grant.ID, 24*mib, 26*mib)
			p.Must("grow 4 %d", 2*mib)
			if _, err := p.Do("again"); err == nil {
				_, err = p.Do("movable 0 %d 5", 2*mib)
				if err == nil {
					t.Error("more is declared than was granted, and nothing happens")
				}
			}
			b.wantEvent("session-ended", "bytes of movable memory are declared, and")
			b.wantMovable("after that", grant.ID, 24*mib, 26*mib)
			p.Kill()
			b.eventually("all is free", func() bool { return b.info().SwapHostBytes == 0 })
		})
	}
}

// TestMovableExec: a program that another takes the place of has nothing any more.
func TestMovableExec(t *testing.T) {
	b := start(t, hostOf(1<<40))
	grant := b.swapping(8*mib, 16*mib)
	p := b.tenant(grant)
	p.Must("movable 0 %d 1", 20*mib)
	p.Become()
	p.Must("hello %s", grant.Socket)
	b.wantMovable("after exec", grant.ID, 0, 0)
	p.Must("movable 0 %d 1", 24*mib)
}

// TestMovableWaits: what a dying process has is waited for, like any memory, also where it is the host that is full.
func TestMovableWaits(t *testing.T) {
	t.Run("cap and swap", func(t *testing.T) { movableWaits(t, 16*mib) })
	t.Run("host", func(t *testing.T) { movableWaits(t, 30*mib) })
}

func movableWaits(t *testing.T, swap int64) {
	b := start(t, hostOf(30*mib))
	grant := b.swapping(8*mib, swap)
	p, q := b.tenant(grant), b.tenant(grant)
	p.Must("movable 0 %d 1", 24*mib)
	b.devices.list(p.PID(), true)
	p.Kill()
	q.Say("movable 0 %d 1", 24*mib)
	b.eventually("it waits", func() bool { return b.state(grant.ID, p.PID()) == "exiting" })
	b.devices.list(p.PID(), false)
	if _, err := q.Answer(); err != nil {
		t.Error(err)
	}
	b.wantMovable("in the end", grant.ID, 24*mib, 24*mib)
}

// TestMovableWaitsForOthers: where the host is full, what a dying process of another container has is waited for, and no
// longer than that is known to come.
func TestMovableWaitsForOthers(t *testing.T) {
	b := start(t, hostOf(30*mib))
	grant := b.swapping(8*mib, 30*mib)
	other := b.swapping(8*mib, 30*mib, func(r *control.RunRequest) { r.Name = "other" })
	p, q := b.tenant(grant), b.tenant(other)
	p.Must("movable 0 %d 1", 24*mib)
	b.devices.list(p.PID(), true)
	p.Kill()
	q.Say("movable 0 %d 1", 24*mib)
	b.eventually("it waits", func() bool { return b.state(grant.ID, p.PID()) == "exiting" })
	b.devices.list(p.PID(), false)
	if _, err := q.Answer(); err != nil {
		t.Error(err)
	}
	b.wantMovable("in the end", other.ID, 24*mib, 24*mib)
	p = b.tenant(grant)
	_, err := p.Do("movable 0 %d 1", 24*mib)
	wantRefused(t, err, sessiontest.ErrHostFull)
	b.Node.exits.mu.Lock()
	defer b.Node.exits.mu.Unlock()
	if e := b.Node.exits; e.leaving != 0 || len(e.hungry) > 0 {
		t.Errorf("%d bytes are leaving, %d containers wait", e.leaving, len(e.hungry))
	}
}

// TestMovableBreaches: what a library would never say ends the session, and changes no account.
func TestMovableBreaches(t *testing.T) {
	for name, say := range map[string]func(p *sessiontest.Process, c *sessiontest.Conn){
		"freed twice":        func(_ *sessiontest.Process, c *sessiontest.Conn) { c.Send(sessiontest.Freed(0, 1, 1)) },
		"freed of no number": func(_ *sessiontest.Process, c *sessiontest.Conn) { c.Send(sessiontest.Freed(0, 7)) },
		"freed elsewhere":    func(_ *sessiontest.Process, c *sessiontest.Conn) { c.Send(sessiontest.Freed(1, 1)) },
		"freed on no GPU":    func(_ *sessiontest.Process, c *sessiontest.Conn) { c.Send(sessiontest.Freed(63, 1)) },
		"number used": func(_ *sessiontest.Process, c *sessiontest.Conn) {
			c.Send(sessiontest.RequestMovable(9, 0, 2*mib, 1, false))
		},
		"declared anew": func(_ *sessiontest.Process, c *sessiontest.Conn) {
			c.Send(sessiontest.RequestMovable(9, 0, 2*mib, 2, true))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, hostOf(1<<40))
			grant := b.swapping(8*mib, 16*mib)
			conn, err := sessiontest.Dial(grant.Socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.Send(sessiontest.Hello("rude"))
			conn.Receive()
			conn.Send(sessiontest.RequestMovable(2, 0, 2*mib, 1, false))
			conn.Receive()
			say(nil, conn)
			packet, _, err := conn.Receive()
			if err != nil || sessiontest.Type(packet) != abi.MsgClose {
				t.Fatalf("packet of type %d, %v", sessiontest.Type(packet), err)
			}
			wantClosed(t, sessiontest.AsClosed(packet), abi.CloseProtocol, "")
			want := int64(2 * mib)
			if name == "freed twice" {
				want = 0
			}
			b.wantMovable("after it", grant.ID, want, want)
		})
	}
}

// TestMovableOfNoSession: who says that it had a session which nobody knows of is believed within the container's limits
// and the host's.
func TestMovableOfNoSession(t *testing.T) {
	for name, test := range map[string]struct {
		bytes uint64
		want  int64
	}{
		"within all":          {8 * mib, 8 * mib},
		"beyond cap and swap": {26 * mib, 0},
		"beyond the host":     {22 * mib, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, hostOf(20*mib))
			grant := b.swapping(8*mib, 16*mib)
			conn, err := sessiontest.Dial(grant.Socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.Send(sessiontest.HelloAgain(7, "liar"))
			conn.Receive()
			conn.Send(sessiontest.RequestMovable(1, 0, test.bytes, 1, true))
			conn.Send(sessiontest.Packet(abi.MsgQuery, 2, &abi.Query{}))
			packet, _, err := conn.Receive()
			closed := err == nil && sessiontest.Type(packet) == abi.MsgClose
			if err != nil || closed != (test.want == 0) {
				t.Errorf("packet of type %d, %v", sessiontest.Type(packet), err)
			}
			b.wantMovable("after it", grant.ID, test.want, test.want)
		})
	}
}

// TestReports: totals that a container's programs are shown are its cap, or cap and swap.
func TestReports(t *testing.T) {
	b := start(t, hostOf(1<<40))
	grant := b.swapping(8*mib, 16*mib, func(r *control.RunRequest) { r.Report = control.ReportVirtual })
	p := b.tenant(grant)
	p.Must("movable 0 %d 1", 20*mib)
	if got := p.Must("swap 0"); got != fmt.Sprint(16*mib, 20*mib, true) {
		t.Errorf("the control page says %s", got)
	}
	if got := p.Must("query 0"); got != fmt.Sprint(4*mib, 8*mib, 20*mib) {
		t.Errorf("a query tells %s", got)
	}
	if c := b.container(grant.ID); c.Report != control.ReportVirtual {
		t.Errorf("report %q", c.Report)
	}
	b.restart()
	p.Must("again")
	if got := p.Must("swap 0"); got != fmt.Sprint(16*mib, 20*mib, true) {
		t.Errorf("after a restart the control page says %s", got)
	}
	if _, err := b.runRequest(control.RunRequest{Report: "real"}); !errors.Is(err, control.ErrInvalid) {
		t.Errorf("report real: %v", err)
	}
}

// TestExporters: an executable that has tried to export movable memory gets plain memory at its next start, over a
// restart of the agent too; a process whose memory stays plain is told of.
func TestExporters(t *testing.T) {
	b := start(t, hostOf(1<<40))
	grant := b.swapping(8*mib, 16*mib)
	flags := func() uint32 {
		conn, err := sessiontest.Dial(grant.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.Send(sessiontest.Hello("next"))
		packet, _, err := conn.Receive()
		var m abi.Welcome
		if err == nil {
			err = sessiontest.Decode(packet, &m)
		}
		if err != nil {
			t.Fatal(err)
		}
		return m.Flags
	}
	if flags()&abi.WelcomePlain != 0 {
		t.Error("plain before it has tried anything")
	}
	p := b.tenant(grant) // the same executable as this process's
	p.Must("note %d %d 0", abi.NoteUnconverted, abi.PlainCard)
	p.Must("note %d %d %d", abi.NoteUnconverted, abi.PlainLibrary, abi.ExporterUCX)
	p.Must("note %d %d 0", abi.NoteExported, abi.ExportedIPC)
	p.Must("query 0")
	b.wantEvent("unconverted", "tenant has no swap", "no concurrent managed access", "plain, and stays within the cap")
	b.wantEvent("unconverted", "(UCX)")
	b.wantEvent("exported", "cuIpcGetMemHandle", "weir/swap=off")
	if flags()&abi.WelcomePlain == 0 {
		t.Error("not plain after it has tried to export")
	}
	b.restart()
	if flags()&abi.WelcomePlain == 0 {
		t.Error("forgotten over a restart")
	}
	if _, err := b.ChangeCaps(t.Context(), grant.ID, control.CapsChange{Unset: []string{"swap"}}); err != nil {
		t.Fatal(err)
	}
	if flags()&abi.WelcomePlain != 0 {
		t.Error("told so where there is no swap")
	}
}
