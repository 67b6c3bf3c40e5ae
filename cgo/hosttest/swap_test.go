// Movable memory: which memory is, how it is answered for, moved, freed and declared anew.

package hosttest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/cgo/abi"
)

func (a *agent) live(n int) func(*movables) bool {
	return func(b *movables) bool { return len(b.sizes) == n }
}

func TestMovable(t *testing.T) {
	for _, b := range []*build{plain, address, threads} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			a, h := startSwap(t, b, 100*mib, "")
			before := h.ok("books 0")
			large := h.ok("alloc %d", 50*mib-7)[0] // beyond the cap
			small := h.ok("alloc %d", 2*mib-1)[0]
			pitched := h.ok("pitch %d %d", 1001, 4096)[0]
			if got := h.ok("book"); got[0] != 2 {
				t.Errorf("%d movable allocations, want 2", got[0])
			}
			if got := h.ok("books 0"); got[0] != before[0]+2*mib || got[2] != before[2]+1 {
				t.Errorf("plain memory is %v after %v and 2 MiB", got, before)
			}
			for _, at := range []uint64{large, large + 50*mib - 8} {
				want := fmt.Sprintf("ok 2 0 0 %d host 1 range %d %d same 1", 50*mib-7, large, 50*mib-7)
				h.want(want, "answers %d", at)
			}
			h.want("err 1", "prefetch %d", large)
			h.want("ok 0", "free %d", large)
			h.want("ok 0", "freeasync %d", h.ok("alloc %d", 4*mib)[0])
			h.want("ok 0", "free %d", small)
			h.want("ok 0", "free %d", pitched)
			a.settle("all is freed", a.live(0))
			h.want("ok 0", "errno")
		})
	}
}

func TestMovableRefused(t *testing.T) {
	t.Parallel()
	a, h := startSwap(t, plain, 100*mib, "")
	for _, verdict := range []uint32{abi.OverSwap, abi.HostFull} {
		a.mu.Lock()
		a.movable.verdict = verdict
		a.mu.Unlock()
		h.want("err 2", "alloc %d", 4*mib)
	}
	a.mu.Lock()
	a.movable.verdict = 0
	a.mu.Unlock()
	h.ok("fail 2") // the driver refuses what was granted
	h.want("err 2", "alloc %d", 4*mib)
	a.settle("what the driver refused is given back", a.live(0))
	if got := h.ok("book"); got[0] != 0 || got[1] != 0 {
		t.Errorf("the book has %v", got)
	}
}

func TestUnconverted(t *testing.T) {
	for how, reason := range map[string]uint32{"card": abi.PlainCard, "peers": abi.PlainPeers, "told": abi.PlainExported} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			a := newAgent(t, 10*mib)
			a.movable.swap = 100 * mib
			if how == "told" {
				a.welcomeFlags = abi.WelcomePlain
			}
			a.start()
			h := startHost(t, plain, a.path)
			h.want("ok 0", "swap %s", how)
			h.ok("retain 0")
			h.ok("alloc %d", 4*mib)
			h.ok("alloc %d", 4*mib)
			h.want("err 2", "alloc %d", 4*mib)
			a.settle("one note", func(*movables) bool { return len(a.notes) > 0 })
			a.mu.Lock()
			defer a.mu.Unlock()
			if len(a.notes) != 1 || a.notes[0].Code != abi.NoteUnconverted || a.notes[0].A != reason {
				t.Errorf("notes %+v, want one with reason %d", a.notes, reason)
			}
		})
	}
}

func TestExported(t *testing.T) {
	for command, what := range map[string]uint32{"tryipc": abi.ExportedIPC, "waitvalue": abi.ExportedValue} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			a, h := startSwap(t, plain, 100*mib, "")
			first := h.ok("alloc %d", 4*mib)[0]
			small := h.ok("alloc 4096")[0]
			h.want("ok 0", "%s %d", command, small) // plain memory can
			h.want("err 1", "%s %d", command, first)
			h.want("err 1", "%s %d", command, first)
			second := h.ok("alloc %d", 4*mib)[0]
			h.want("ok 0", "%s %d", command, second) // is plain by now
			a.settle("one note", func(*movables) bool { return len(a.notes) > 0 })
			a.mu.Lock()
			defer a.mu.Unlock()
			if len(a.notes) != 1 || a.notes[0].Code != abi.NoteExported || a.notes[0].A != what {
				t.Errorf("notes %+v, want one that %d was tried", a.notes, what)
			}
		})
	}
}

func TestMoves(t *testing.T) {
	for _, b := range []*build{plain, address, threads} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			a, h := startSwap(t, b, 100*mib, "")
			pointer := h.ok("alloc %d", 40*mib)[0]
			s := a.session(h, 1)
			id := a.settle("granted", a.live(1)).highest
			var entries []abi.MoveEntry
			for i := range uint64(10) {
				entries = append(entries, abi.MoveEntry{Move: i + 1, Id: id, Offset: i * 4 * mib, Bytes: 4 * mib})
			}
			a.move(s, entries...)
			moved := a.settle("all are moved", func(b *movables) bool { return len(b.moved) == 10 }).moved
			for _, e := range moved {
				if e.Result != abi.MoveDone || e.Ns == 0 {
					t.Errorf("%+v", e)
				}
			}
			// What is cancelled before the driver has it, memory that is freed, and what is not there.
			h.want("ok 0", "hold 1")
			for i := range entries {
				entries[i].Move, entries[i].Flags = uint64(i)+11, abi.MoveOut
			}
			entries = append(entries, abi.MoveEntry{Move: 30, Id: id + 99, Bytes: 2 * mib},
				abi.MoveEntry{Move: 20, Flags: abi.MoveCancel})
			a.move(s, entries...)
			a.settle("two are undone", func(b *movables) bool { return len(b.moved) == 12 })
			if got := h.ok("book"); got[4] > 8*mib {
				t.Errorf("%d bytes are under way, want 2 pieces", got[4])
			}
			h.want("ok 0", "hold 0")
			h.want("ok 0", "free %d", pointer)
			results := map[uint64]uint32{}
			for _, e := range a.settle("all are answered", func(b *movables) bool { return len(b.moved) == 21 }).moved {
				if results[e.Move] != 0 {
					t.Errorf("move %d is answered twice", e.Move)
				}
				results[e.Move] = e.Result
			}
			if results[20] != abi.MoveUndone || results[30] != abi.MoveUndone || results[11] != abi.MoveDone {
				t.Errorf("results %v", results)
			}
			a.settle("freed", a.live(0))
		})
	}
}

func TestMovableDeclaredAnew(t *testing.T) {
	t.Parallel()
	a, h := startSwap(t, plain, 100*mib, "")
	first := h.ok("alloc %d", 8*mib)[0]
	second := h.ok("alloc %d", 4*mib)[0]
	third := h.ok("alloc %d", 6*mib)[0]
	s := a.session(h, 1)
	a.settle("granted", a.live(3))
	a.move(s, abi.MoveEntry{Move: 1, Id: 1, Bytes: 4 * mib}, abi.MoveEntry{Move: 2, Id: 1, Offset: 4 * mib, Bytes: 4 * mib},
		abi.MoveEntry{Move: 3, Id: 3, Bytes: 2 * mib})
	a.settle("moved", func(b *movables) bool { return len(b.moved) == 3 })
	a.move(s, abi.MoveEntry{Move: 4, Id: 1, Offset: 4 * mib, Bytes: 4 * mib, Flags: abi.MoveOut})
	a.settle("moved", func(b *movables) bool { return len(b.moved) == 4 })
	a.stop()
	a.mu.Lock()
	a.movable = movables{swap: 100 * mib, highest: 3}
	a.mu.Unlock()
	h.want("ok 0", "free %d", second)
	a.start()
	h.want("ok 0", "free %d", h.ok("alloc %d", 2*mib)[0])
	b := a.settle("what is had is declared", a.live(2))
	here := map[uint64]uint64{}
	for _, r := range b.declared {
		here[r.Id] = r.Here_bytes
	}
	if len(b.declared) != 2 || here[1] != 4*mib || here[3] != 2*mib {
		t.Errorf("declared %+v", b.declared)
	}
	h.want("ok 0", "free %d", first)
	h.want("ok 0", "free %d", third)
	a.settle("all is freed", a.live(0))
}

func TestMovableEndsWithItsContext(t *testing.T) {
	t.Parallel()
	a, h := startSwap(t, plain, 100*mib, "")
	context := h.ok("context 0")[0]
	h.ok("alloc %d", 8*mib)
	s := a.session(h, 1)
	a.settle("granted", a.live(1))
	h.want("ok 0", "hold 1")
	a.move(s, abi.MoveEntry{Move: 1, Id: 1, Bytes: 4 * mib}, abi.MoveEntry{Move: 2, Id: 1, Offset: 4 * mib, Bytes: 4 * mib})
	h.want("ok 0", "destroy %d", context)
	a.settle("it is gone, and its moves are answered", func(b *movables) bool { return len(b.sizes) == 0 && len(b.moved) == 2 })
	h.want("ok 0", "hold 0")
}

// Contexts, and so cards, do not wait for each other's moves: each has its own streams.
func TestMovesOfTwoContexts(t *testing.T) {
	t.Parallel()
	a, h := startSwap(t, plain, 200*mib, "")
	h.ok("alloc %d", 40*mib)
	other := h.ok("context 0")[0]
	h.ok("alloc %d", 8*mib)
	s := a.session(h, 1)
	a.settle("granted", a.live(2))
	h.want("ok 0", "hold 1")
	var entries []abi.MoveEntry
	for i := range uint64(10) {
		entries = append(entries, abi.MoveEntry{Move: i + 1, Id: 1, Offset: i * 4 * mib, Bytes: 4 * mib})
	}
	a.move(s, append(entries, abi.MoveEntry{Move: 11, Id: 2, Bytes: 4 * mib}, abi.MoveEntry{Move: 12, Id: 2, Offset: 4 * mib, Bytes: 4 * mib})...)
	for deadline := time.Now().Add(10 * time.Second); h.ok("book")[3] != 16*mib; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are under way, want 2 pieces of each context", h.ok("book")[3])
		}
	}
	h.want("ok 0", "destroy %d", other)
	h.want("ok 0", "hold 0")
	b := a.settle("all are answered", func(b *movables) bool { return len(b.moved) == 12 })
	for _, e := range b.moved {
		if e.Move <= 10 && e.Result != abi.MoveDone {
			t.Errorf("%+v of the context that is still there", e)
		}
	}
	a.settle("one is gone with its context", a.live(1))
	if got := h.ok("book"); got[5] != 2 {
		t.Errorf("%d streams are left, want 2", got[5])
	}
}

// What was freed is had again at once, whichever thread tells the agent of it.
func TestMovableFreedIsFree(t *testing.T) {
	t.Parallel()
	a, h := startSwap(t, plain, 100*mib, "")
	a.mu.Lock()
	a.movable.limit = 4 * 2 * mib
	a.mu.Unlock()
	h.want("ok 0", "exchange")
	a.settle("all is freed", a.live(0))
}

// What is to be said of an allocation while the agent does not read is said later, each once, and so are notes.
func TestAgentThatDoesNotRead(t *testing.T) {
	t.Parallel()
	const most = 120 // more messages than the socket has room for
	a, h := startSwap(t, plain, 4*most*mib, "")
	var pointers []uint64
	for range most {
		pointers = append(pointers, h.ok("alloc %d", 2*mib)[0])
	}
	a.settle("all are granted", a.live(most))
	a.mu.Lock()
	for _, p := range pointers[1:] {
		h.want("ok 0", "free %d", p)
	}
	h.want("err 1", "tryipc %d", pointers[0])
	a.mu.Unlock()
	a.settle("all but one are freed, and a note has come", func(b *movables) bool { return len(b.sizes) == 1 && len(a.notes) > 0 })
	if a.notes[0].Code != abi.NoteExported {
		t.Errorf("notes %+v", a.notes)
	}
}

// Streams for moves are given back with each release of the primary context, of which most are not the last, and made
// anew; where they cannot be made, a later move has them.
func TestMovesAfterARelease(t *testing.T) {
	t.Parallel()
	a, h := startSwap(t, plain, 100*mib, "")
	h.ok("alloc %d", 8*mib)
	s := a.session(h, 1)
	a.settle("granted", a.live(1))
	h.want("ok 0", "streamless 1")
	for i := range 5 {
		a.move(s, abi.MoveEntry{Move: uint64(i) + 1, Id: 1, Bytes: 4 * mib})
		want := uint32(abi.MoveDone)
		if i == 0 {
			want = abi.MoveFailed
		}
		b := a.settle("it is answered", func(b *movables) bool { return len(b.moved) == i+1 })
		if got := b.moved[i].Result; got != want {
			t.Errorf("result %d of move %d, want %d", got, i+1, want)
		}
		if got := h.ok("book"); got[5] > 2 {
			t.Errorf("%d streams, want 2", got[5])
		}
		h.ok("retain 0")
		h.want("ok 0", "release 0")
	}
	if got := h.ok("book"); got[5] != 0 {
		t.Errorf("%d streams are left", got[5])
	}
}

func TestUses(t *testing.T) {
	t.Parallel()
	a, h := startSwap(t, plain, 100*mib, "")
	first := h.ok("alloc %d", 8*mib)[0]
	second := h.ok("alloc %d", 8*mib)[0]
	a.settle("granted", a.live(2))
	h.want("ok 0", "useof %d %d", first+5*mib, second)
	b := a.settle("both are told of", func(b *movables) bool { return len(b.used) >= 2 })
	if b.usedAll != 0 {
		t.Errorf("of %d launches it was not known what they use", b.usedAll)
	}
	// A use that follows at once is told of, too, though the program does nothing after it.
	for range 3 {
		a.mu.Lock()
		a.movable.used = nil
		a.mu.Unlock()
		h.want("ok 0", "useof %d %d", first, second)
		a.settle("both are told of again", func(b *movables) bool { return slices.Contains(b.used, 1) && slices.Contains(b.used, 2) })
	}
}

// A launch of a graph names what its nodes use, as they were when it was made executable or changed; where one of them
// cannot be read, all is used.
func TestUsesOfGraphs(t *testing.T) {
	for _, b := range []*build{plain, address} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			a, h := startSwap(t, b, 200*mib, "")
			before := h.ok("graphof 1 2 3 4 0")[0] // made before there is movable memory
			var at [9]uint64
			for i := range at {
				at[i] = h.ok("alloc %d", 8*mib)[0] // its id is i + 1
			}
			a.settle("granted", a.live(len(at)))
			told := false
			uses := func(exec uint64, all int, ids ...uint64) {
				t.Helper()
				a.mu.Lock()
				a.movable.used, a.movable.usedAll = nil, 0
				a.mu.Unlock()
				h.want("ok 0", "graphrun %d", exec)
				a.settle(fmt.Sprintf("%v are used, all: %d", ids, all), func(b *movables) bool {
					for _, id := range ids {
						if !slices.Contains(b.used, id) {
							return false
						}
					}
					return b.usedAll == all
				})
				a.mu.Lock()
				defer a.mu.Unlock()
				for _, id := range a.movable.used {
					if told && !slices.Contains(ids, id) {
						t.Errorf("%d is told of, too, though only %v are used", id, ids)
					}
				}
				told = true // what nothing has named is told of with the first
			}
			graph := h.ok("graphof %d %d %d %d 0", at[0]+5*mib, at[1], at[2], at[3])[0]
			uses(graph, 0, 1, 2, 3, 4)
			h.want("ok 0", "graphset %d %d", graph, at[4])
			uses(graph, 0, 1, 2, 3, 4, 5) // what it no longer uses stays in its list
			h.want("ok 0", "graphupdate %d %d", graph, at[5])
			uses(graph, 0, 6)
			odd := h.ok("graphof %d %d %d %d 1", at[6], at[7], at[7], at[7])[0]
			uses(odd, 1)
			uses(before, 1)
			h.want("ok 0", "graphend %d", odd)
			uses(h.ok("graphof %d %d %d %d 0", at[8], at[8], at[8], at[8])[0], 0, 9)
			h.want("ok 0", "free %d", at[5]) // what is gone is named no more
			uses(graph, 0)
		})
	}
}
