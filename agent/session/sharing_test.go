package session

// Tests of shared memory: charged once, to its exporter's container, for as long as anybody has it.

import (
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"weir/agent/control"
	"weir/agent/session/sessiontest"
	"weir/cgo/abi"
)

// runs registers this process as a second container, and so on.
func (b *bench) runs(n int, limit int64) (grants []control.RunGrant) {
	for range n {
		grants = append(grants, b.run(limit))
	}
	return grants
}

// wantCharged checks what containers are charged on GPU 0, credit not included.
func (b *bench) wantCharged(what string, grants []control.RunGrant, want ...int64) {
	b.t.Helper()
	for i, grant := range grants {
		if got := b.used(grant.ID); got != want[i] {
			b.t.Errorf("%s: container %d uses %d, want %d", what, i, got, want[i])
		}
	}
}

func mustConnect(t *testing.T, grant control.RunGrant) *sessiontest.Tenant {
	t.Helper()
	tenant, err := sessiontest.Connect(grant.Socket, "self")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tenant.Close)
	return tenant
}

func TestSharedMemoryIsChargedOnce(t *testing.T) {
	b := start(t)
	boxes := b.runs(2, 64*mib)
	exporter, near, far := b.tenant(boxes[0]), b.tenant(boxes[0]), b.tenant(boxes[1])
	exporter.Must("alloc 0 %d", 40*mib)
	if got := exporter.Must("export 0 %d 7", 30*mib); got != "true" {
		t.Fatalf("exported: %s", got)
	}
	b.wantCharged("exported", boxes, 40*mib, 0)
	for _, importer := range []*sessiontest.Process{near, far, far} {
		if got := importer.Must("import 7"); got != "true" {
			t.Fatalf("imported: %s", got)
		}
	}
	b.wantCharged("imported", boxes, 40*mib, 0)
	if got := b.container(boxes[0].ID).GPUs[0].SharedBytes; got != 30*mib {
		t.Errorf("%d shared", got)
	}
	if _, err := near.Do("alloc 0 %d", 25*mib); err == nil {
		t.Error("allocated over the cap beside shared memory")
	}
	exporter.Must("drop 7")
	exporter.Must("free 0 %d", 10*mib)
	b.wantCharged("dropped by its exporter", boxes, 30*mib, 0)
	near.Must("drop 7")
	b.wantCharged("dropped by one importer", boxes, 30*mib, 0)
	far.Must("drop 7")
	b.wantCharged("dropped by all", boxes, 0, 0)
	if got := near.Must("import 7"); got != "false" {
		t.Errorf("imported what nobody has: %s", got)
	}
}

// TestDropIsFreeAtOnce: whoever is told of a drop can have the memory, in whatever process.
func TestDropIsFreeAtOnce(t *testing.T) {
	b := start(t)
	boxes := b.runs(2, 64*mib)
	a, other, far := b.tenant(boxes[0]), b.tenant(boxes[0]), b.tenant(boxes[1])
	for i := range 200 {
		a.Must("alloc 0 %d", 64*mib)
		a.Must("export 0 %d %d", 64*mib, i)
		far.Must("import %d", i)
		a.Must("drop %d", i)
		far.Must("drop %d", i)
		other.Must("alloc 0 %d", 64*mib)
		other.Must("free 0 %d", 64*mib)
	}
	if got := b.container(boxes[0].ID).Refused; got != 0 {
		t.Errorf("%d refused", got)
	}
}

// TestExporterDies: what others have of it stays charged, until the last of them ends too.
func TestExporterDies(t *testing.T) {
	b := start(t)
	boxes := b.runs(2, 64*mib)
	exporter, near, far := b.tenant(boxes[0]), b.tenant(boxes[0]), b.tenant(boxes[1])
	exporter.Must("alloc 0 %d", 50*mib)
	exporter.Must("export 0 %d 1", 20*mib)
	exporter.Must("export 0 %d 2", 10*mib)
	near.Must("import 1")
	far.Must("import 1")
	b.devices.list(exporter.PID(), true)
	exporter.Kill()
	b.eventually("it is known to be gone", func() bool {
		return slices.ContainsFunc(b.container(boxes[0].ID).Sessions, func(s control.Session) bool {
			return s.State == string(exiting)
		})
	})
	if got := b.used(boxes[0].ID); got < 50*mib {
		t.Errorf("%d used while its memory is not free yet", got)
	}
	b.devices.list(exporter.PID(), false)
	b.eventually("only what others have is charged", func() bool { return b.used(boxes[0].ID) == 20*mib })
	near.Kill()
	b.eventually("the importer is gone", func() bool {
		return len(b.container(boxes[0].ID).Sessions) == 0
	})
	b.wantCharged("the one far away has it still", boxes, 20*mib, 0)
	far.Signal(unix.SIGSTOP)
	far.Kill()
	b.eventually("nothing is charged", func() bool { return b.used(boxes[0].ID) == 0 })
}

// TestDeadExportersMemoryIsWaitedFor: a request that fits once a dead process's exports are free is
// not refused meanwhile.
func TestDeadExportersMemoryIsWaitedFor(t *testing.T) {
	b := start(t)
	grant := b.run(64 * mib)
	exporter, other := b.tenant(grant), b.tenant(grant)
	exporter.Must("alloc 0 %d", 60*mib)
	exporter.Must("export 0 %d 1", 60*mib)
	exporter.Kill()
	other.Must("alloc 0 %d", 64*mib)
}

// TestContainerOutlivesItsRun as long as others have its memory.
func TestContainerOutlivesItsRun(t *testing.T) {
	b := start(t)
	root := sessiontest.Start(t)
	owner := b.runAs(root.PID(), 64*mib)
	far := mustConnect(t, b.run(64*mib))
	root.Must("hello %s", owner.Socket)
	root.Must("alloc 0 %d", 8*mib)
	root.Must("export 0 %d 1", 8*mib)
	if charged, err := far.Import(sessiontest.Key(1)); !charged || err != nil {
		t.Fatal(charged, err)
	}
	root.Kill()
	b.eventually("its run and its process are gone", func() bool {
		c := b.container(owner.ID)
		return c.State == "ending" && len(c.Sessions) == 0
	})
	if got := b.used(owner.ID); got != 8*mib {
		t.Errorf("%d used", got)
	}
	if err := far.Drop(sessiontest.Key(1)); err != nil {
		t.Fatal(err)
	}
	b.eventually("the container has ended", func() bool {
		_, err := b.Container(t.Context(), owner.ID)
		return errors.Is(err, control.ErrNotFound)
	})
}

// TestSharesAreDeclaredAnew: after a reconnect, and after a restart of the agent, what is named stays
// and what is not is over.
func TestSharesAreDeclaredAnew(t *testing.T) {
	b := start(t)
	boxes := b.runs(2, 64*mib)
	exporter, importer := b.tenant(boxes[0]), b.tenant(boxes[1])
	exporter.Must("alloc 0 %d", 30*mib)
	for key := range 3 {
		exporter.Must("export 0 %d %d", 10*mib, key)
		importer.Must("import %d", key)
	}
	check := func(what string, want int64) {
		t.Helper()
		b.eventually(what, func() bool { return b.used(boxes[0].ID) == want })
		b.wantCharged(what, boxes, want, 0)
	}
	exporter.Must("again")
	importer.Must("again")
	check("reconnected", 30*mib)
	exporter.Must("forget 0")
	exporter.Must("again")
	check("the importer has it still", 30*mib)
	importer.Must("forget 0")
	importer.Must("again")
	check("nobody has it", 20*mib)

	exporter.Signal(unix.SIGSTOP)
	b.restart()
	check("the agent is a new one", 20*mib)
	importer.Must("forget 1")
	importer.Must("again")
	check("the stopped exporter has it still", 20*mib)
	exporter.Signal(unix.SIGCONT)
	exporter.Must("forget 1")
	exporter.Must("forget 2")
	exporter.Must("again")
	check("one is left", 10*mib)
	importer.Kill()
	check("none is left", 0)
}

// TestSharesWithoutRecords: an agent that finds no records learns of all shared memory from those who
// have it, in whatever order they come.
func TestSharesWithoutRecords(t *testing.T) {
	for _, first := range []string{"exporter", "importer"} {
		t.Run(first+" first", func(t *testing.T) {
			b := start(t)
			boxes := b.runs(2, 64*mib)
			exporter, importer := b.tenant(boxes[0]), b.tenant(boxes[1])
			exporter.Must("alloc 0 %d", 10*mib)
			exporter.Must("export 0 %d 1", 10*mib)
			importer.Must("import 1")
			b.end()
			if err := os.Remove(b.opts.RunDir + "/shares"); err != nil {
				t.Fatal(err)
			}
			b.begin()
			order := []*sessiontest.Process{exporter, importer}
			if first == "importer" {
				order[0], order[1] = importer, exporter
			}
			order[0].Must("again")
			order[1].Must("again")
			b.eventually("the exporter's container is charged", func() bool {
				return b.used(boxes[0].ID) == 10*mib && b.used(boxes[1].ID) == 0
			})
			exporter.Must("drop 1")
			importer.Must("drop 1")
			b.wantCharged("dropped", boxes, 0, 0)
		})
	}
}

// TestExecEndsShares: a new program of the same process has nothing of the old one's.
func TestExecEndsShares(t *testing.T) {
	b := start(t)
	grant := b.run(64 * mib)
	p := b.tenant(grant)
	p.Must("alloc 0 %d", 10*mib)
	p.Must("export 0 %d 1", 10*mib)
	p.Become()
	p.Must("hello %s", grant.Socket)
	b.wantCharged("after exec", []control.RunGrant{grant}, 0)
}

// TestHostileShares: what a tenant must not get away with.
func TestHostileShares(t *testing.T) {
	key := sessiontest.Key(1)
	export := func(seq, gpu uint32, n uint64, flags uint32) []byte {
		return sessiontest.Share(abi.MsgExport, seq, gpu, n, key, flags)
	}
	for _, c := range []struct {
		name    string
		packets [][]byte
		closed  string // what the connection is closed with, if it is
		verdict uint32 // of the last answer, if not
		own     int64  // what its container is charged in the end, of the 8 MiB that it was granted
	}{
		{"more than granted", [][]byte{export(2, 0, 1<<40, 0)}, "EXPORT of", 0, 8},
		{"on no GPU", [][]byte{export(2, 9, 512, 0)}, "", abi.NoSuchGPU, 8},
		{"again on no GPU", [][]byte{export(2, 9, 512, abi.ShareAgain)}, "GPU 9", 0, 8},
		{"another's key", [][]byte{export(2, 0, 4*mib, 0)}, "", abi.ChargedElsewhere, 8},
		{"another's key, again", [][]byte{export(2, 0, 4*mib, abi.ShareAgain)}, "another has", 0, 8},
		{"the same twice", [][]byte{
			sessiontest.Share(abi.MsgExport, 2, 0, mib, sessiontest.Key(2), 0),
			sessiontest.Share(abi.MsgExport, 3, 0, mib, sessiontest.Key(2), 0),
		}, "", abi.ChargedElsewhere, 8},
		{"another's dropped", [][]byte{sessiontest.Share(abi.MsgDrop, 2, 0, 0, key, 0)}, "", abi.Granted, 8},
		{"all dropped", [][]byte{
			sessiontest.Share(abi.MsgDrop, 2, 0, 0, abi.ShareKey{}, abi.ShareAgain),
			sessiontest.Share(abi.MsgDrop, 2, 0, 0, key, 0),
		}, "", abi.Granted, 8},
		{"dropped twice", [][]byte{
			sessiontest.Share(abi.MsgExport, 2, 0, mib, sessiontest.Key(2), 0),
			sessiontest.Share(abi.MsgDrop, 3, 0, 0, sessiontest.Key(2), 0),
			sessiontest.Share(abi.MsgDrop, 4, 0, 0, sessiontest.Key(2), 0),
		}, "", abi.Granted, 7},
		{"a petabyte declared", [][]byte{
			sessiontest.Share(abi.MsgImport, 2, 0, 1<<50, sessiontest.Key(2), abi.ShareAgain),
			sessiontest.Share(abi.MsgDrop, 3, 0, 0, key, 0),
		}, "", abi.Granted, 8 + 1<<30},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := start(t)
			victims, hostile := b.run(64*mib), b.run(64*mib)
			victim := b.tenant(victims)
			victim.Must("alloc 0 %d", 8*mib)
			victim.Must("export 0 %d 1", 4*mib)
			conn, err := sessiontest.Dial(hostile.Socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			say(t, conn, sessiontest.Hello("hostile"))
			say(t, conn, sessiontest.Request(1, 0, 8*mib))
			var last []byte
			for i, p := range c.packets {
				if err := conn.Send(p); err != nil {
					t.Fatal(err)
				}
				if i == len(c.packets)-1 || !again(p) {
					last = hear(t, conn)
				}
			}
			if c.closed != "" {
				wantClosed(t, sessiontest.AsClosed(last), abi.CloseProtocol, c.closed)
			} else {
				var answer abi.Shared
				if err := sessiontest.Decode(last, &answer); err != nil || answer.Verdict != c.verdict {
					t.Errorf("answer %+v, %v; want verdict %d", answer, err, c.verdict)
				}
			}
			b.wantCharged("in the end", []control.RunGrant{victims}, 8*mib)
			if got := b.container(hostile.ID).GPUs[0]; got.ChargedBytes-got.CreditBytes != c.own*mib &&
				c.closed == "" {
				t.Errorf("hostile is charged %d, want %d MiB", got.UsedBytes, c.own)
			}
			if got := victim.Must("import 1"); got != "true" {
				t.Errorf("the victim's export is gone: %s", got)
			}
		})
	}
}

// again tells whether a packet is a declaration, which has no answer.
func again(packet []byte) bool {
	var m abi.Share
	return sessiontest.Decode(packet, &m) == nil && m.Flags&abi.ShareAgain != 0
}

func say(t *testing.T, conn *sessiontest.Conn, packet []byte) {
	t.Helper()
	if err := conn.Send(packet); err != nil {
		t.Fatal(err)
	}
	hear(t, conn)
}

func hear(t *testing.T, conn *sessiontest.Conn) []byte {
	t.Helper()
	packet, fds, err := conn.Receive()
	for _, fd := range fds {
		unix.Close(fd)
	}
	if err != nil {
		t.Fatal(err)
	}
	return packet
}

// TestShareLimits: beyond them an export stays its exporter's, and an import is charged to its
// importer.
func TestShareLimits(t *testing.T) {
	b := start(t)
	boxes := b.runs(2, 64*mib)
	exporter, importer := b.tenant(boxes[0]), b.tenant(boxes[1])
	exporter.Must("alloc 0 %d", 8*mib)
	exporter.Must("export 0 %d 1", mib)
	b.shares.mu.Lock()
	for _, grant := range boxes {
		b.shares.holds[b.containers[grant.ID]] += holdsMax
	}
	b.shares.mu.Unlock()
	if got := exporter.Must("export 0 %d 2", mib); got != "false" {
		t.Errorf("exported: %s", got)
	}
	if got := importer.Must("import 1"); got != "false" {
		t.Errorf("imported: %s", got)
	}
	b.wantCharged("refused", boxes, 8*mib, 0)
	b.wantEvent("unshared", "which is the most")
	b.shares.mu.Lock()
	for _, grant := range boxes {
		b.shares.holds[b.containers[grant.ID]] -= holdsMax
	}
	b.shares.mu.Unlock()
	if got := importer.Must("import 1"); got != "true" {
		t.Errorf("imported: %s", got)
	}
}

// TestAgentKilledAtShares: at each step, whatever was answered holds, and a process that comes back
// has the exact sum.
func TestAgentKilledAtShares(t *testing.T) {
	for _, step := range []string{"exported:1", "exported:2", "imported:1", "attached:3"} {
		t.Run(step, func(t *testing.T) {
			dir := t.TempDir()
			agent := startAgent(t, dir, step)
			var grant control.RunGrant
			agent.ask(&grant, "run %d %d", os.Getpid(), 64*mib)
			exporter, importer := sessiontest.Start(t), sessiontest.Start(t)
			exporter.Must("hello %s", grant.Socket)
			importer.Must("hello %s", grant.Socket)
			restarted := make(chan *agentProcess)
			go func() {
				agent.cmd.Wait()
				restarted <- startAgent(t, dir, "")
			}()
			exporter.Must("alloc 0 %d", 40*mib)
			for key := range 2 {
				if got := exporter.Must("export 0 %d %d", 10*mib, key); got != "true" {
					t.Errorf("export %d: %s", key, got)
				}
				if got := importer.Must("import %d", key); got != "true" {
					t.Errorf("import %d: %s", key, got)
				}
			}
			if step == "attached:3" {
				exporter.Say("again") // which kills the agent
				if _, err := exporter.Answer(); err != nil {
					t.Logf("again: %v", err)
				}
			}
			agent = <-restarted
			exporter.Must("again")
			importer.Must("again")
			used := func() control.GPUUse {
				var list []control.Container
				agent.ask(&list, "ps")
				return list[0].GPUs[0]
			}
			if g := used(); g.UsedBytes != 40*mib || g.SharedBytes != 20*mib {
				t.Errorf("in the end %+v", g)
			}
			exporter.Must("drop 0")
			importer.Must("drop 0")
			exporter.Must("drop 1")
			if g := used(); g.UsedBytes != 30*mib {
				t.Errorf("after drops %+v", g)
			}
		})
	}
}
