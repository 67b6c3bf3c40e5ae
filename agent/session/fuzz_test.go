package session

// Random conversations.

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"weir/agent/control"
	"weir/agent/session/proc"
	"weir/agent/session/sessiontest"
	"weir/agent/session/wire"
	"weir/cgo/abi"
)

// discard is an outlet into nowhere.
type discard struct{ _ byte } // with a size, so that no two are the same

func (*discard) send([]byte, ...int) error { return nil }
func (*discard) now([]byte) bool           { return true }
func (*discard) close()                    {}

// fuzzBench is an agent with two containers: fuzzed conversations are held in one, and in the other
// is a witness to whom nothing may happen.
type fuzzBench struct {
	node    *Node
	target  *container
	witness *conversation
}

func newFuzzBench(f testing.TB) *fuzzBench { return newFuzzBenchWith(f, func(*Options) {}) }

func newFuzzBenchWith(f testing.TB, change func(*Options)) *fuzzBench {
	dir := f.TempDir()
	opts := Options{
		RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"),
		Devices: newDevices(2), Library: []byte("not really a library"),
	}
	change(&opts)
	n, err := New(opts)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		n.Serve(ctx)
	})
	limit, swap := int64(64*mib), int64(64*mib)
	var containers []*container
	for range 2 {
		grant, err := n.StartRun(f.Context(), os.Getpid(), uint32(os.Geteuid()), control.RunRequest{
			Caps: control.Caps{MemoryBytes: &limit, SwapBytes: &swap},
		})
		if err != nil {
			f.Fatal(err)
		}
		containers = append(containers, n.containers[grant.ID])
	}
	b := &fuzzBench{node: n, target: containers[0]}
	b.witness = b.converse(f, containers[1])
	for _, p := range [][]byte{
		sessiontest.Hello("witness"), sessiontest.Request(1, 0, 48*mib),
		sessiontest.Share(abi.MsgExport, 2, 0, 16*mib, sessiontest.Key(1), 0),
		sessiontest.RequestMovable(3, 0, 32*mib, 1, false),
	} {
		if end := b.witness.packet(p); end != nil {
			f.Fatal(end.text)
		}
	}
	return b
}

func (b *fuzzBench) converse(t testing.TB, c *container) *conversation {
	peer, err := proc.OpenPID(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return &conversation{c: c, out: &discard{}, peer: peer, uid: uint32(os.Geteuid())}
}

// packets cuts the fuzzer's bytes into packets. Half of them get a header that fits, since one that
// does not is refused at once.
func packets(data []byte) (list [][]byte) {
	for len(data) > 2 {
		length := binary.LittleEndian.Uint16(data)
		mend := length&0x8000 != 0
		length &= 0xfff
		data = data[2:]
		p := append([]byte(nil), data[:min(int(length), len(data))]...)
		data = data[len(p):]
		if mend && len(p) >= 8 {
			binary.LittleEndian.PutUint16(p[2:], uint16(len(p)))
		}
		list = append(list, p)
	}
	return list
}

// pack is the opposite of packets.
func pack(list ...[]byte) (data []byte) {
	for _, p := range list {
		data = binary.LittleEndian.AppendUint16(data, uint16(len(p))|0x8000)
		data = append(data, p...)
	}
	return data
}

// FuzzSession holds a conversation of random packets. It may end in any way, but the accounts stay
// whole, and another container's session notices nothing.
func FuzzSession(f *testing.F) {
	hello := sessiontest.Hello("fuzz")
	held := sessiontest.Hello("fuzz", abi.Held{Uuid: [16]uint8{15: 1}, Bytes: 1 << 20}, abi.Held{})
	request := sessiontest.Request(7, 0, 1<<20)
	query := sessiontest.Packet(abi.MsgQuery, 8, &abi.Query{Gpu: 1})
	share := func(kind uint16, seq uint32, n, key uint64, flags uint32) []byte {
		return sessiontest.Share(kind, seq, 0, n, sessiontest.Key(key), flags)
	}
	turn := func(kind uint16, lease uint32) []byte {
		return sessiontest.Packet(kind, 0, &abi.Turn{Gpu: lease & 3, Lease: lease})
	}
	movable := sessiontest.RequestMovable(7, 0, 2*mib, 1, false)
	used := sessiontest.Packet(abi.MsgUsed, 0, &abi.Named{Count: 1, Ids: [abi.NamedMax]uint64{1}})
	moved := sessiontest.Packet(abi.MsgMoved, 0, &abi.Moved{Count: 1, Entries: [abi.MovedMax]abi.MovedEntry{{Move: 1, Result: 1}}})
	strange := append([]byte(nil), hello...)
	binary.LittleEndian.PutUint32(strange[12:], 0x00630063) // of versions that nobody speaks
	all := sessiontest.Share(abi.MsgDrop, 9, 0, 0, abi.ShareKey{}, abi.ShareAgain)
	note := sessiontest.Packet(abi.MsgNote, 0, &abi.Note{Code: abi.NoteForked})
	for _, seed := range [][]byte{
		{}, pack(hello), pack(held, request, query, note), pack(hello, hello), pack(request),
		pack(strange), pack(hello, strange),
		pack(hello, request, request), pack(hello, sessiontest.Request(1, 9, 1)),
		pack(hello, sessiontest.Request(1, 0, 1<<50), sessiontest.Request(2, 1, 1<<26)),
		pack(hello[:40]), pack(append(hello, 0)), pack(wire.Encode(&abi.Welcome{})), pack(nil, nil),
		pack(hello, request, share(abi.MsgExport, 8, 1<<20, 2, 0), share(abi.MsgDrop, 9, 0, 2, 0)),
		pack(hello, request, share(abi.MsgExport, 8, 1<<19, 1, 0), share(abi.MsgImport, 9, 0, 1, 0)),
		pack(hello, share(abi.MsgImport, 8, 0, 1, 0), share(abi.MsgDrop, 9, 0, 1, 0)),
		pack(held, share(abi.MsgExport, 8, 1<<20, 2, 1), share(abi.MsgImport, 8, 1<<50, 3, 1), all),
		pack(hello, share(abi.MsgExport, 8, 1<<24, 1, 1)), pack(hello, all, all),
		pack(hello, turn(abi.MsgWant, 0), turn(abi.MsgDrained, 1), turn(abi.MsgIdle, 1), turn(abi.MsgProgress, 2)),
		pack(hello, turn(abi.MsgIdle, 0), turn(abi.MsgWant, 1<<30), turn(abi.MsgWant, 0), turn(abi.MsgLook, 0)),
		pack(turn(abi.MsgWant, 0)),
		pack(hello, movable, used, moved, sessiontest.Freed(0, 1), used, sessiontest.Freed(0, 1)),
		pack(hello, movable, movable), pack(hello, sessiontest.RequestMovable(7, 1, 1<<40, 2, false), sessiontest.Freed(1, 2)),
		pack(sessiontest.HelloAgain(7, "again"), sessiontest.RequestMovable(1, 0, 4*mib, 3, true), all, sessiontest.Freed(0, 3)),
		pack(sessiontest.HelloAgain(7, "again"), sessiontest.RequestMovable(1, 0, 1<<40, 3, true), all),
		pack(hello, sessiontest.Packet(abi.MsgMeasure, 8, &abi.Measure{Contexts: 1, Bytes: 9})),
	} {
		f.Add(seed)
	}
	b := newFuzzBench(f)
	witnessed := b.witness.s
	f.Fuzz(func(t *testing.T, data []byte) {
		v := b.converse(t, b.target)
		var end *ending
		for _, p := range packets(data) {
			if end = v.packet(p); end != nil {
				if end.reason == 0 || end.text == "" && end.reason != abi.CloseVersion { // told already
					t.Errorf("ended without a reason: %+v", end)
				}
				break
			}
		}
		v.over(end)
		b.checkAccounts(t)
		c := b.witness.c
		c.mu.Lock()
		defer c.mu.Unlock()
		l := c.ledgers[0]
		if !c.connected(witnessed) || l.Granted(witnessed.holder()) < 32*mib || l.Shared() != 16*mib ||
			c.exported(witnessed, 0) != 16*mib || l.Movable() != 32*mib || len(witnessed.movables.pieces) != 1 {
			t.Errorf("another session was hurt: %d granted, %d shared, %d movable", l.Granted(witnessed.holder()),
				l.Shared(), l.Movable())
		}
	})
}

// shared is what the registry says is charged to the target. Called under its mu.
func (b *fuzzBench) shared(gpu int) (sum uint64) {
	r := b.node.shares
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sh := range r.byKey {
		if sh.home == b.target && sh.gpu == gpu {
			sum += sh.bytes
		}
	}
	return sum
}

// checkAccounts checks that what is charged is what the sessions were granted.
func (b *fuzzBench) checkAccounts(t *testing.T) {
	c := b.target
	c.mu.Lock()
	defer c.mu.Unlock()
	host := uint64(0)
	for gpu, l := range c.ledgers {
		sum, movable := uint64(0), uint64(0)
		for _, s := range c.sessions {
			sum += l.Granted(s.holder())
			movable += l.MovableOf(s.holder())
			host += l.MovableOf(s.holder())
			for _, p := range s.movables.pieces {
				if p.gpu == gpu {
					movable -= p.bytes
				}
			}
			if s.movables.redeclared == nil && s.state == connected && movable != 0 {
				t.Errorf("GPU %d: %d of movable memory more than its allocations", gpu, int64(movable))
			}
		}
		if sum+l.Shared() != l.Charged() || l.Shared() != b.shared(gpu) || len(c.sessions) > 1 {
			t.Errorf("GPU %d: %d charged, %d granted to %d sessions, %d shared, of which %d are known",
				gpu, l.Charged(), sum, len(c.sessions), l.Shared(), b.shared(gpu))
		}
	}
	if witness := uint64(32 * mib); b.node.host.Reserved() != host+witness {
		t.Errorf("%d of the host's memory set aside, want %d", b.node.host.Reserved(), host+witness)
	}
}
