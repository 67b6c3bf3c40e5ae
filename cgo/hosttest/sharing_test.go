// Created memory, and memory between processes: charged once, until nobody has it any more.

package hosttest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/cgo/abi"
)

const kib = uint64(1) << 10

// owned checks what the library says that a process owns, and that the agent agrees.
func (a *agent) owned(h *host, what string, want uint64) {
	a.t.Helper()
	if got := h.ok("books 0")[0]; got != want {
		a.t.Errorf("%s: owns %d, want %d", what, got, want)
	}
	a.balance(h, a.session(h, 1))
}

func (h *host) known(what string, handles, mappings, pieces, ties uint64) {
	h.t.Helper()
	got := h.ok("known")
	want := []uint64{handles, mappings, pieces, ties}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		h.t.Errorf("%s: knows %v handles, mappings, pieces, ties; want %v", what, got, want)
	}
}

func TestCreatedMemory(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 256*kib)
	h := startHost(t, plain, a.path)
	h.ok("use 0") // no context is needed
	first := h.ok("create %d", 64*kib)[0]
	if first != 0 {
		t.Errorf("the first handle is %d; the test wants to see 0, too", first)
	}
	a.owned(h, "created", 64*kib)
	second := h.ok("create %d", 192*kib)[0]
	h.want("err 2", "create %d", 64*kib)
	h.want("err 2", "create %d", uint64(1)<<60)
	h.want("err 1", "create 0")
	h.ok("create %d 1", 256*kib)   // the other GPU has no cap here
	h.ok("create %d 0 2", 256*kib) // on the host
	a.owned(h, "at the cap", 256*kib)

	// The memory lives as long as a reference or a mapping of it.
	h.want("ok 0", "map 0x100000000 %d %d", 64*kib, first)
	h.want("ok 0", "map 0x200000000 %d %d", 64*kib, first)
	h.want("ok 0", "unhandle %d", first)
	a.owned(h, "mapped", 256*kib)
	if again := h.ok("retainhandle 0x100000100")[0]; again != first {
		t.Errorf("retained %d, want %d", again, first)
	}
	h.want("ok 0", "unmap 0x100000000 %d", 64*kib)
	h.want("ok 0", "unmap 0x200000000 %d", 64*kib)
	a.owned(h, "retained", 256*kib)
	h.want("ok 0", "unhandle %d", first)
	a.owned(h, "released", 192*kib)
	h.want("err 1", "unhandle %d", first)
	h.want("err 1", "map 0x100000000 %d 99", 64*kib)
	h.want("ok 0", "unhandle %d", second)
	a.owned(h, "all released", 0)
	h.known("in the end", 1, 0, 0, 0)
	h.want("ok 0", "errno")
}

func TestUnmapRanges(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	h := startHost(t, plain, a.path)
	const pieces = 200
	for _, hole := range []bool{false, true} {
		for i := range uint64(pieces) {
			handle := h.ok("create %d", 64*kib)[0]
			h.want("ok 0", "map %d %d %d", 0x100000000+i*64*kib, 64*kib, handle)
			h.want("ok 0", "unhandle %d", handle)
		}
		a.owned(h, "mapped", pieces*64*kib)
		if hole {
			h.want("ok 0", "unmap %d %d", 0x100000000+5*64*kib, 64*kib)
			a.owned(h, "with a hole", (pieces-1)*64*kib)
		}
		h.want("ok 0", "unmap %d %d", 0x100000000, pieces*64*kib)
		a.owned(h, "unmapped", 0)
		h.known("unmapped", 0, 0, 0, 0)
	}
}

func TestCreatedMemoryDriverFails(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	h := startHost(t, plain, a.path)
	h.ok("fail 2")
	h.want("err 2", "create %d", 64*kib)
	if note := a.noted(abi.NoteDriverOOM); note.B != 64*kib {
		t.Errorf("note: %+v", note)
	}
	h.want("err 1", "create 1000") // not a multiple of the granularity
	a.owned(h, "failed", 0)
	handle := h.ok("create %d", 64*kib)[0]
	for _, command := range []string{"map 0x100000000 65536 %d", "unhandle %d", "fd %d"} {
		h.ok("fail 700")
		if command == "fd %d" {
			h.ok("fail 0")
			continue
		}
		h.want("err 700", command, handle)
		a.owned(h, command+" failed", 64*kib)
	}
	h.want("ok 0", "map 0x100000000 65536 %d", handle)
	h.want("ok 0", "unhandle %d", handle)
	h.ok("fail 700")
	h.want("err 700", "unmap 0x100000000 65536")
	a.owned(h, "unmap failed", 64*kib)
	h.want("ok 0", "unmap 0x100000000 65536")
	a.owned(h, "unmapped", 0)
	h.known("in the end", 0, 0, 0, 0)
}

// TestExportedDescriptor: from the export on the memory is the container's, until the last process
// has let go of it.
func TestExportedDescriptor(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 256*kib)
	one, two := startHost(t, plain, a.path), startHost(t, plain, a.path)
	two.want("ok 0", "init")
	handle := one.ok("create %d", 128*kib)[0]
	fd := one.ok("fd %d", handle)[0]
	a.owned(one, "exported", 0)
	if got := a.sharedBytes(0); got != 128*kib {
		t.Errorf("%d shared", got)
	}
	again := one.ok("fd %d", handle)[0] // the same memory
	theirs := two.ok("importfd %d %d", one.cmd.Process.Pid, fd)[0]
	two.ok("importfd %d %d", one.cmd.Process.Pid, again)
	two.want("ok 0", "map 0x100000000 %d %d", 128*kib, theirs)
	a.owned(two, "imported", 0)
	two.want("err 2", "create %d", 192*kib) // it counts for the container
	mine := two.ok("create %d", 128*kib)[0]
	two.want("ok 0", "unhandle %d", mine)

	one.want("ok 0", "unhandle %d", handle)
	one.known("the exporter has let go", 0, 0, 0, 0)
	if got := a.sharedBytes(0); got != 128*kib {
		t.Errorf("%d shared after the exporter's release", got)
	}
	two.want("ok 0", "unhandle %d", theirs)
	two.want("ok 0", "unhandle %d", theirs)
	if got := a.sharedBytes(0); got != 128*kib {
		t.Errorf("%d shared while it is mapped", got)
	}
	two.want("ok 0", "unmap 0x100000000 %d", 128*kib)
	if got := a.sharedBytes(0); got != 0 {
		t.Errorf("%d shared in the end", got)
	}
	two.known("the importer has let go", 0, 0, 0, 0)
	if a.drops != 2 {
		t.Errorf("%d drops", a.drops)
	}
}

// TestImportOwnExport: in one process memory is charged once, whatever its handles.
func TestImportOwnExport(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 256*kib)
	h := startHost(t, plain, a.path)
	handle := h.ok("create %d", 256*kib)[0]
	fabric := strings.Fields(h.do("fabric %d", handle))[1]
	other := h.ok("importfabric %s", fabric)[0]
	h.known("imported", 2, 0, 1, 0)
	h.want("ok 0", "unhandle %d", handle)
	if got := a.sharedBytes(0); got != 256*kib {
		t.Errorf("%d shared", got)
	}
	h.want("ok 0", "unhandle %d", other)
	if got := a.sharedBytes(0); got != 0 {
		t.Errorf("%d shared in the end", got)
	}
	h.ok("create %d", 256*kib)
}

// TestImportOfUnknownOrigin is charged to the importer: created memory by what of it is mapped.
func TestImportOfUnknownOrigin(t *testing.T) {
	for _, nodes := range []int{0, 1} {
		t.Run(fmt.Sprintf("device nodes %d", nodes), func(t *testing.T) {
			t.Parallel()
			a := startAgent(t, 256*kib)
			stranger := startHost(t, plain, "")
			stranger.ok("nodes %d", nodes)
			handle := stranger.ok("create %d", 64*kib)[0]
			fd := stranger.ok("fd %d", handle)[0]
			h := startHost(t, plain, a.path)
			h.ok("create %d", 128*kib)
			one := h.ok("importfd %d %d", stranger.cmd.Process.Pid, fd)[0]
			a.owned(h, "imported", 128*kib)
			h.want("ok 0", "map 0x100000000 %d %d", 64*kib, one)
			a.owned(h, "mapped", 192*kib)
			h.want("ok 0", "map 0x200000000 %d %d", 64*kib, one) // the same memory
			a.owned(h, "mapped twice", 192*kib)
			h.ok("create %d", 64*kib)
			two := h.ok("importfd %d %d", stranger.cmd.Process.Pid, fd)[0]
			if nodes == 1 { // nobody can know that it is the same
				h.want("err 2", "map 0x300000000 %d %d", 64*kib, two)
			}
			a.owned(h, "at the cap", 256*kib)
			h.want("ok 0", "unhandle %d", two)
			h.want("ok 0", "unhandle %d", one)
			h.want("ok 0", "unmap 0x100000000 %d", 64*kib)
			a.owned(h, "mapped still", 256*kib)
			h.want("ok 0", "unmap 0x200000000 %d", 64*kib)
			a.owned(h, "unmapped", 192*kib)
			h.known("in the end", 2, 0, 0, 0)
		})
	}
}

func TestIPC(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 256*kib)
	one, two := startHost(t, plain, a.path), startHost(t, plain, a.path)
	pointer := one.ok("alloc %d", 128*kib)[0]
	handle := strings.Fields(one.do("ipc %d", pointer))[1]
	if again := strings.Fields(one.do("ipc %d", pointer))[1]; again != handle {
		t.Fatal("the test's driver gives two handles")
	}
	a.owned(one, "exported", 0)
	theirs := two.ok("open %s", handle)[0]
	two.ok("open %s", handle)
	a.owned(two, "opened", 0)
	two.want("err 2", "alloc %d", 129*kib)
	one.want("ok 0", "free %d", pointer)
	one.known("freed", 0, 0, 0, 0)
	two.want("ok 0", "close %d", theirs)
	if got := a.sharedBytes(0); got != 128*kib {
		t.Errorf("%d shared while it is open", got)
	}
	two.want("ok 0", "close %d", theirs)
	two.want("err 1", "close %d", theirs)
	two.known("closed", 0, 0, 0, 0)
	if got := a.sharedBytes(0); got != 0 {
		t.Errorf("%d shared in the end", got)
	}
	one.ok("alloc %d", 256*kib)
	a.owned(one, "all of it", 256*kib)
}

// TestIPCOfUnknownOrigin is charged to the importer, on the GPU where it lies.
func TestIPCOfUnknownOrigin(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 256*kib, 128*kib)
	stranger, h := startHost(t, plain, ""), startHost(t, plain, a.path)
	stranger.ok("use 2")
	handle := strings.Fields(stranger.do("ipc %d", stranger.ok("alloc %d", 100*kib)[0]))[1]
	other := strings.Fields(stranger.do("ipc %d", stranger.ok("alloc %d", 100*kib)[0]))[1]
	pointer := h.ok("open %s", handle)[0]
	if got := h.ok("books 1"); got[0] != 100*kib {
		t.Errorf("opened: owns %v", got)
	}
	h.want("err 2", "open %s", other)
	h.known("refused", 0, 0, 1, 1)
	h.want("ok 0", "close %d", pointer)
	h.ok("open %s", other)
	h.ok("fail 700")
	h.want("err 700", "open %s", handle)
	a.owned(h, "in the end", 0)
	h.known("in the end", 0, 0, 1, 1)
}

// TestExportsEndWithTheirContext, and what was opened in it.
func TestExportsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	one, two := startHost(t, plain, a.path), startHost(t, plain, a.path)
	one.ok("alloc 512")
	context := one.ok("context 0")[0]
	handle := strings.Fields(one.do("ipc %d", one.ok("alloc %d", 64*kib)[0]))[1]
	theirs := two.ok("context 0")[0]
	two.ok("open %s", handle)
	one.want("ok 0", "destroy %d", context)
	a.owned(one, "its context has ended", 512)
	one.known("its context has ended", 0, 0, 0, 0)
	if got := a.sharedBytes(0); got != 64*kib {
		t.Errorf("%d shared", got)
	}
	two.want("ok 0", "destroy %d", theirs)
	two.known("its context has ended too", 0, 0, 0, 0)
	if got := a.sharedBytes(0); got != 0 {
		t.Errorf("%d shared in the end", got)
	}
}

func TestExternalMemory(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 256*kib)
	one, h := startHost(t, plain, a.path), startHost(t, plain, a.path)
	fd := one.ok("fd %d", one.ok("create %d", 128*kib)[0])[0]
	stranger := startHost(t, plain, "")
	theirs := stranger.ok("fd %d", stranger.ok("create %d", 64*kib)[0])[0]
	known := h.ok("external %d %d %d", one.cmd.Process.Pid, fd, 128*kib)[0]
	a.owned(h, "of known origin", 0)
	unknown := h.ok("external %d %d %d", stranger.cmd.Process.Pid, theirs, 100*kib-1)[0]
	a.owned(h, "of unknown origin", 100*kib)
	h.want("err 2", "external %d %d %d", stranger.cmd.Process.Pid, theirs, 200*kib)
	h.ok("fail 700")
	h.want("err 700", "external %d %d %d", stranger.cmd.Process.Pid, theirs, 16*kib)
	a.owned(h, "refused", 100*kib)
	h.want("ok 0", "unexternal %d", known)
	h.want("ok 0", "unexternal %d", unknown)
	a.owned(h, "in the end", 0)
	h.known("in the end", 0, 0, 0, 0)
}

// TestExportWithoutAgent: the export goes on untold, is told when the agent is back, and whoever
// imports meanwhile is charged.
func TestExportWithoutAgent(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 512*kib)
	a.waitMS = 200
	one, two := startHost(t, plain, a.path), startHost(t, plain, a.path)
	handle := one.ok("create %d", 64*kib)[0]
	two.ok("create %d", 64*kib)
	two.ok("create %d", 64*kib)
	two.want("ok 0", "unhandle 0")
	a.session(one, 1)
	a.session(two, 1)
	a.stop()
	fd := one.ok("fd %d", handle)[0]
	theirs := two.ok("importfd %d %d", one.cmd.Process.Pid, fd)[0]
	two.want("ok 0", "map 0x100000000 %d %d", 64*kib, theirs)
	if got := two.ok("books 0"); got[0] != 128*kib {
		t.Errorf("imported: owns %v", got)
	}
	if got := one.ok("books 0"); got[0] != 64*kib {
		t.Errorf("exported: owns %v", got)
	}
	a.start()
	a.eventually("the export is told", func() bool { return len(a.shares) == 1 })
	// The library has still to read that it was.
	for end := time.Now().Add(10 * time.Second); one.ok("books 0")[0] != 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	a.balance(one, a.session(one, 2))
	a.balance(two, a.session(two, 2))
	one.want("ok 0", "unhandle %d", handle)
	two.want("ok 0", "unmap 0x100000000 %d; unhandle %d", 64*kib, theirs)
	if got := a.sharedBytes(0); got != 0 {
		t.Errorf("%d shared in the end", got)
	}
	a.balance(one, a.session(one, 2))
	a.balance(two, a.session(two, 2))
}

// TestSharesAreDeclaredAnew after a restart, what was let go of meanwhile left out.
func TestSharesAreDeclaredAnew(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	one, two := startHost(t, plain, a.path), startHost(t, plain, a.path)
	var handles, theirs []uint64
	for range 300 { // more than a socket takes at once
		handle := one.ok("create %d", 64*kib)[0]
		fd := one.ok("fd %d", handle)[0]
		handles = append(handles, handle)
		theirs = append(theirs, two.ok("importfd %d %d", one.cmd.Process.Pid, fd)[0])
	}
	a.stop()
	a.shares = map[abi.ShareKey]*share{}
	for i := range 100 {
		one.want("ok 0", "unhandle %d", handles[i])
		if i < 50 {
			two.want("ok 0", "unhandle %d", theirs[i])
		}
	}
	a.start()
	a.balance(one, a.session(one, 2))
	a.balance(two, a.session(two, 2))
	a.eventually("all is declared", func() bool {
		had := 0
		for _, one := range a.shares {
			had += len(one.named)
		}
		return len(a.shares) == 250 && had == 450
	})
	for i := 50; i < 300; i++ {
		two.want("ok 0", "unhandle %d", theirs[i])
		if i >= 100 {
			one.want("ok 0", "unhandle %d", handles[i])
		}
	}
	if got := a.sharedBytes(0); got != 0 {
		t.Errorf("%d shared in the end", got)
	}
}

// TestLateSharedAnswers: what a thread no longer waits for is settled all the same.
func TestLateSharedAnswers(t *testing.T) {
	for _, released := range []bool{false, true} {
		t.Run(fmt.Sprintf("released %v", released), func(t *testing.T) {
			t.Parallel()
			a := newAgent(t)
			a.waitMS = 50
			var late atomic.Bool
			release := make(chan struct{})
			a.meddle = func(s *session, message any, fds []int) (any, []int, bool) {
				if _, ok := message.(abi.Shared); ok && late.Load() {
					conn := s.conn
					go func() {
						<-release
						a.write(conn, message, nil)
					}()
					return nil, nil, false
				}
				return message, fds, true
			}
			a.start()
			one, two := startHost(t, plain, a.path), startHost(t, plain, a.path)
			handle := one.ok("create %d", 64*kib)[0]
			late.Store(true)
			fd := one.ok("fd %d", handle)[0]
			theirs := two.ok("importfd %d %d", one.cmd.Process.Pid, fd)[0]
			two.want("ok 0", "map 0x100000000 %d %d", 64*kib, theirs)
			if got := two.ok("books 0"); got[0] != 64*kib {
				t.Errorf("without an answer: owns %v", got)
			}
			if released {
				one.want("ok 0", "unhandle %d", handle)
				two.want("ok 0", "unmap 0x100000000 %d; unhandle %d", 64*kib, theirs)
			}
			late.Store(false)
			close(release)
			settled := func(h *host, pieces uint64) func() bool {
				return func() bool { return h.ok("known")[2] == pieces && h.ok("books 0")[0] == 0 }
			}
			pieces := uint64(1)
			if released {
				pieces = 0
			}
			for _, h := range []*host{one, two} {
				deadline := time.Now().Add(20 * time.Second)
				for !settled(h, pieces)() {
					if time.Now().After(deadline) {
						t.Fatalf("known %v, books %v", h.ok("known"), h.ok("books 0"))
					}
					time.Sleep(time.Millisecond)
				}
			}
			a.eventually("the agent knows", func() bool { return len(a.shares) == int(pieces) })
			a.balance(one, a.session(one, 1))
			a.balance(two, a.session(two, 1))
		})
	}
}

// TestForkedChildHasNoShares: what the parent exported is not the child's to drop.
func TestForkedChildHasNoShares(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	h := startHost(t, plain, a.path)
	handle := h.ok("create %d", 64*kib)[0]
	h.ok("fd %d", handle)
	h.ok("fork unhandle %d", handle)
	h.ok("fork create %d", 64*kib)
	if got := a.sharedBytes(0); got != 64*kib || a.drops != 0 {
		t.Errorf("%d shared, %d drops", got, a.drops)
	}
	a.balance(h, a.session(h, 1))
}

// TestSharingAtRandom: three processes create, export, import, map and let go at random, while
// connections are lost; the agent's and the library's books agree, and in the end nothing is left.
func TestSharingAtRandom(t *testing.T) {
	for _, b := range []*build{plain, address} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(newSeed(t), 0))
			a := startAgent(t)
			var hosts []*randomHost
			for range 3 {
				hosts = append(hosts, &randomHost{host: startHost(t, b, a.path), random: random})
			}
			for range 400 {
				h := hosts[random.IntN(len(hosts))]
				h.step(hosts[random.IntN(len(hosts))])
				if random.IntN(40) == 0 {
					a.drop()
				}
			}
			for _, h := range hosts {
				h.letGo()
				h.known("in the end", 0, 0, 0, 0)
				a.balance(h.host, a.session(h.host, 1))
			}
			a.eventually("nothing is shared", func() bool { return len(a.shares) == 0 })
		})
	}
}

// randomHost is a process with what it has.
type randomHost struct {
	*host
	random  *rand.Rand
	handles []uint64
	mapped  []uint64
	fds     []uint64
	opened  []uint64
	plain   []uint64
	ipc     []string
	next    uint64
}

func take[T any](random *rand.Rand, from *[]T) (one T, there bool) {
	if len(*from) == 0 {
		return one, false
	}
	i := random.IntN(len(*from))
	one = (*from)[i]
	*from = append((*from)[:i], (*from)[i+1:]...)
	return one, true
}

func (h *randomHost) step(other *randomHost) {
	switch h.random.IntN(10) {
	case 0:
		h.handles = append(h.handles, h.ok("create %d", 64*kib*(1+h.random.Uint64N(4)))[0])
	case 1:
		if handle, there := take(h.random, &h.handles); there {
			h.want("ok 0", "unhandle %d", handle)
		}
	case 2:
		if len(h.handles) > 0 {
			h.fds = append(h.fds, h.ok("fd %d", h.handles[h.random.IntN(len(h.handles))])[0])
		}
	case 3:
		if len(other.fds) > 0 {
			fd := other.fds[h.random.IntN(len(other.fds))]
			h.handles = append(h.handles, h.ok("importfd %d %d", other.cmd.Process.Pid, fd)[0])
		}
	case 4:
		if len(h.handles) > 0 {
			h.next++
			address := 0x100000000 + h.next*256*kib
			h.want("ok 0", "map %d %d %d", address, 64*kib, h.handles[h.random.IntN(len(h.handles))])
			h.mapped = append(h.mapped, address)
		}
	case 5:
		if address, there := take(h.random, &h.mapped); there {
			h.want("ok 0", "unmap %d %d", address, 64*kib)
		}
	case 6:
		pointer := h.ok("alloc %d", 512*(1+h.random.Uint64N(99)))[0]
		h.plain = append(h.plain, pointer)
		h.ipc = append(h.ipc, strings.Fields(h.do("ipc %d", pointer))[1])
	case 7:
		if pointer, there := take(h.random, &h.plain); there {
			h.want("ok 0", "free %d", pointer)
		}
	case 8:
		if len(other.ipc) > 0 {
			h.opened = append(h.opened, h.ok("open %s", other.ipc[h.random.IntN(len(other.ipc))])[0])
		}
	default:
		if pointer, there := take(h.random, &h.opened); there {
			h.want("ok 0", "close %d", pointer)
		}
	}
}

func (h *randomHost) letGo() {
	for _, handle := range h.handles {
		h.want("ok 0", "unhandle %d", handle)
	}
	for _, address := range h.mapped {
		h.want("ok 0", "unmap %d %d", address, 64*kib)
	}
	for _, pointer := range h.plain {
		h.want("ok 0", "free %d", pointer)
	}
	for _, pointer := range h.opened {
		h.want("ok 0", "close %d", pointer)
	}
}
