package session

// Tests of plain memory that waits for room on the card, which the container's movable memory makes.

import (
	"testing"
	"time"

	"weir/agent/control"
	"weir/agent/session/sessiontest"
	"weir/cgo/abi"
)

// wantRoom checks what a container is charged, and what of that waits.
func (b *bench) wantRoom(what, id string, charged, shelved uint64) {
	b.t.Helper()
	if c, s := b.charges(id); c != charged || s != shelved {
		b.t.Errorf("%s: %d charged, %d of it waiting, want %d and %d", what, c, s, charged, shelved)
	}
}

// charges are what a container is charged on GPU 0, unused credit left out, and what of it waits for room.
func (b *bench) charges(id string) (charged, shelved uint64) {
	c := b.containers[id]
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used(0) - c.ledgers[0].Movable(), c.ledgers[0].Shelved()
}

func (b *bench) shelved(id string) uint64 {
	_, shelved := b.charges(id)
	return shelved - shelved%mib // spare credit is not asked for
}

// TestPlainMemoryWaitsForRoom: it is answered when movable memory has made room under the cap, and the card never has more.
func TestPlainMemoryWaitsForRoom(t *testing.T) {
	b := start(t, byTurns(time.Hour), hostOf(1<<40))
	p := b.shifter(480*mib, 480*mib)
	p.fills(480 * mib)
	q := b.tenant(p.grant)
	q.Say("alloc 0 %d", 96*mib)
	b.eventually("it waits, charged", func() bool { return b.shelved(p.grant.ID) == 96*mib })
	for gone := uint64(0); b.shelved(p.grant.ID) > 0; {
		v := b.container("box").GPUs[0]
		if on := v.OnCard(); on > 480*mib {
			t.Fatalf("%d bytes are on the card, the cap is 480 MiB", on)
		}
		_, out := p.answer(abi.MoveDone)
		if gone += out; gone > 96*mib+64*mib {
			t.Fatal("more goes than has to")
		}
	}
	if _, err := q.Answer(); err != nil {
		t.Fatal(err)
	}
	b.wantRoom("in the end", p.grant.ID, 96*mib, 0)
	if on := b.container("box").GPUs[0].OnCard(); on > 480*mib {
		t.Errorf("%d bytes are on the card", on)
	}
}

// TestRoomThatIsNotMade: where the process with the movable memory does not move it, the request is refused in the end, by
// an event that says why, and nothing of it stays charged. So it is where the asking process ends meanwhile.
func TestRoomThatIsNotMade(t *testing.T) {
	b := start(t, byTurns(time.Hour), hostOf(1<<40), func(o *Options) { o.AgentWait = time.Second })
	p := b.shifter(480*mib, 480*mib)
	p.fills(480 * mib)
	q := b.tenant(p.grant)
	_, err := q.Do("alloc 0 %d", 48*mib)
	wantRefused(t, err, sessiontest.ErrOverCap)
	b.wantEvent("denied", "did not make room under its cap", "swap-silent")
	b.wantRoom("after the refusal", p.grant.ID, 0, 0)
	q.Say("alloc 0 %d", 48*mib)
	b.eventually("it waits again", func() bool { return b.shelved(p.grant.ID) == 48*mib })
	q.Kill()
	b.eventually("nothing of it is charged", func() bool { return b.shelved(p.grant.ID) == 0 })
	b.wantRoom("after its end", p.grant.ID, 0, 0)
}

// TestWaitingPlainMemoryIsUnderTheCap: what waits for room is charged, so nobody else gets it.
func TestWaitingPlainMemoryIsUnderTheCap(t *testing.T) {
	b := start(t, byTurns(time.Hour), hostOf(1<<40))
	p := b.shifter(480*mib, 480*mib)
	p.fills(480 * mib)
	q, r := b.tenant(p.grant), b.tenant(p.grant)
	q.Say("alloc 0 %d", 400*mib)
	b.eventually("it waits", func() bool { return b.shelved(p.grant.ID) == 400*mib })
	_, err := r.Do("alloc 0 %d", 96*mib)
	wantRefused(t, err, sessiontest.ErrOverCap)
	p.answers(0, 400*mib)
	if _, err := q.Answer(); err != nil {
		t.Error(err)
	}
}

// TestSwapOffTakesMemoryOnTheHostAlong: swap is off, an agent starts anew, and the process declares memory that lies on the
// host still: that is in the books, and comes back.
func TestSwapOffTakesMemoryOnTheHostAlong(t *testing.T) {
	b := start(t, byTurns(time.Hour), hostOf(1<<40))
	p := b.shifter(480*mib, 480*mib)
	p.fills(240 * mib)
	p.Must("away 1 %d", 192*mib)
	none := int64(0)
	if _, err := b.ChangeCaps(t.Context(), p.name, control.CapsChange{Set: control.Caps{SwapBytes: &none}, Drain: true}); err != nil {
		t.Fatal(err)
	}
	b.restart()
	p.Must("again")
	b.eventually("what lies on the host is known", func() bool {
		u := b.container("box").GPUs[0].Swap
		return u != nil && u.SwappedBytes != nil && *u.SwappedBytes+*u.ResidentBytes == 240*mib
	})
	b.eventually("it comes back", func() bool {
		p.answer(abi.MoveDone)
		return b.hasEvent("swap-drained", "all of its memory is there")
	})
}

// TestSwapOffHoldsAtOnce: what is asked for between the look at what is swapped and the new caps finds swap off already,
// so the two do not come apart: swap is off in all books, or the change is refused.
func TestSwapOffHoldsAtOnce(t *testing.T) {
	var b *bench
	var q *sessiontest.Process
	var between error
	b = start(t, byTurns(time.Hour), hostOf(1<<40), func(o *Options) {
		o.checkpoint = func(step string) {
			if step == "caps saved" {
				_, between = q.Do("movable 0 %d 1", 480*mib)
			}
		}
	})
	p := b.shifter(480*mib, 480*mib)
	p.fills(240 * mib)
	q = b.tenant(p.grant)
	none := int64(0)
	if _, err := b.ChangeCaps(t.Context(), p.name, control.CapsChange{Set: control.Caps{SwapBytes: &none}}); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, between, sessiontest.ErrOverSwap)
	c := b.containers[p.grant.ID]
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, _ := c.view(0); v.Swap != 0 || v.Draining || c.ledgers[0].Swap() != 0 {
		t.Errorf("swap of %d, draining %v, in the books of what lies where; %d in the account", v.Swap, v.Draining, c.ledgers[0].Swap())
	}
}
