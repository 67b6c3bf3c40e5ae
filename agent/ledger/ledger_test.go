package ledger

// Tests of the ledger: its invariants over random schedules of tenants, and the edges by hand.

import (
	"testing"

	"pgregory.net/rapid"
)

// world is a model of one container: tenants with their credit words, and the ledger under test.
type world struct {
	t       *rapid.T
	ledger  *Ledger
	tenants map[Holder]*tenant
	next    Holder
	shared  uint64 // what tenants have exported, dead ones too
}

// tenant is one process: what it uses, U, the credit word of its page, and its movable memory.
type tenant struct{ used, credit, movable uint64 }

func (w *world) recall(h Holder, limit uint64) uint64 {
	u := w.tenants[h]
	got := min(u.credit, limit)
	u.credit -= got
	return got
}

func (w *world) used() (sum uint64) {
	for _, u := range w.tenants {
		sum += u.used
	}
	return sum + w.shared
}

func (w *world) pick() (Holder, *tenant) {
	if len(w.tenants) == 0 {
		w.t.Skip("no tenant")
	}
	keys := make([]Holder, 0, len(w.tenants))
	for h := Holder(0); h < w.next; h++ {
		if w.tenants[h] != nil {
			keys = append(keys, h)
		}
	}
	h := rapid.SampledFrom(keys).Draw(w.t, "holder")
	return h, w.tenants[h]
}

func (w *world) start(t *rapid.T) {
	if len(w.tenants) == 12 {
		t.Skip("enough tenants")
	}
	w.tenants[w.next] = &tenant{}
	w.next++
}

// allocate does what the library does: out of the credit word if that suffices, else by a request.
func (w *world) allocate(t *rapid.T) {
	h, u := w.pick()
	n := rapid.Uint64Range(1, 1500).Draw(t, "bytes")
	if u.credit >= n {
		u.credit -= n
		u.used += n
		return
	}
	fits := w.used()+n <= w.ledger.Cap() && w.used()+w.movable()+n <= w.ledger.Cap()+w.ledger.Swap()
	got := w.ledger.Request(h, n, w.recall)
	if got.Granted != fits {
		t.Fatalf("request of %d with %d used under %d: granted %v", n, w.used(), w.ledger.Cap(),
			got.Granted)
	}
	if !got.Granted {
		if want := w.missing(n); n <= w.ledger.Cap() && got.Missing != want {
			t.Fatalf("missing %d, want %d", got.Missing, want)
		}
		return
	}
	w.within(t)
	u.used += n
	u.credit += got.Spare
}

// offer lends a tenant what fits without a recall.
func (w *world) offer(t *rapid.T) {
	h, u := w.pick()
	n := rapid.Uint64Range(1, 1500).Draw(t, "bytes")
	before, missing := w.ledger.Charged(), w.missing(n)
	got := w.ledger.Offer(h, n)
	if fits := missing == 0; fits != (got >= n) || !fits && got != 0 {
		t.Fatalf("offered %d of %d with %d charged under %d", got, n, before, w.ledger.Cap())
	}
	if got > 0 {
		w.within(t)
	}
	u.credit += got
}

func (w *world) free(t *rapid.T) {
	_, u := w.pick()
	n := rapid.Uint64Range(0, u.used).Draw(t, "bytes")
	u.used -= n
	u.credit += n
}

func (w *world) kill(*rapid.T) {
	h, _ := w.pick()
	delete(w.tenants, h)
	w.ledger.Release(h)
}

// export moves some of what a tenant uses to what is shared; more than its grant is refused.
func (w *world) export(t *rapid.T) {
	h, u := w.pick()
	n := rapid.Uint64Range(0, u.used).Draw(t, "bytes")
	before := w.ledger.Charged()
	if w.ledger.Export(h, u.used+u.credit+1) {
		t.Fatal("exported more than was granted")
	}
	if !w.ledger.Export(h, n) || w.ledger.Charged() != before {
		t.Fatalf("exporting %d of %d: %d charged, before %d", n, u.used, w.ledger.Charged(), before)
	}
	u.used -= n
	w.shared += n
}

// drop is the end of something shared: nobody has it any more.
func (w *world) drop(t *rapid.T) {
	n := rapid.Uint64Range(0, w.shared).Draw(t, "bytes")
	w.ledger.Unshare(n)
	w.shared -= n
}

func (w *world) setCap(t *rapid.T) {
	limit := rapid.OneOf(rapid.Uint64Range(0, 20_000), rapid.Just(Unlimited)).Draw(t, "cap")
	w.ledger.SetCap(limit)
	w.shrink(t)
}

func (w *world) shrink(t *rapid.T) {
	over := w.ledger.Shrink(w.recall)
	plain := w.used() - min(w.used(), w.ledger.Cap())
	all, most := w.used()+w.movable(), w.ledger.Cap()+w.ledger.Swap()
	if want := max(plain, all-min(all, most)); over != want {
		t.Fatalf("over the cap by %d after shrinking, want %d", over, want)
	}
}

// restart is a new agent: it knows the recorded grants only; some tenants then declare themselves.
func (w *world) restart(t *rapid.T) {
	fresh := New(w.ledger.Cap())
	fresh.SetSwap(w.ledger.Swap())
	for h, u := range w.tenants {
		fresh.Declare(h, w.ledger.Granted(h))
		fresh.DeclareMovable(h, w.ledger.MovableOf(h))
		if rapid.Bool().Draw(t, "declares") {
			fresh.Declare(h, u.used)
			u.credit = 0
		}
	}
	fresh.Share(w.shared)
	w.ledger = fresh
}

func (w *world) check(t *rapid.T) {
	sum, holders := w.shared, uint64(0)
	if w.ledger.Shared() != w.shared {
		t.Fatalf("%d shared, want %d", w.ledger.Shared(), w.shared)
	}
	for h, u := range w.tenants {
		if m := w.ledger.MovableOf(h); m != u.movable {
			t.Fatalf("holder %d: %d of movable memory, want %d", h, m, u.movable)
		}
		if g := w.ledger.Granted(h); g != u.used+u.credit {
			t.Fatalf("holder %d: grant %d, used %d and credit %d", h, g, u.used, u.credit)
		}
		sum += u.used + u.credit
		if u.used+u.credit > 0 {
			holders++
		}
	}
	if w.ledger.Movable() != w.movable() {
		t.Fatalf("%d of movable memory, want %d", w.ledger.Movable(), w.movable())
	}
	if w.ledger.Charged() != sum || uint64(w.ledger.Holders()) != holders {
		t.Fatalf("charged %d for %d holders, want %d for %d",
			w.ledger.Charged(), w.ledger.Holders(), sum, holders)
	}
}

// TestSchedules runs random schedules; rapid prints the seed of one that fails.
func TestSchedules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.OneOf(rapid.Uint64Range(0, 20_000), rapid.Just(Unlimited)).Draw(t, "cap")
		w := &world{t: t, ledger: New(limit), tenants: map[Holder]*tenant{}}
		t.Repeat(map[string]func(*rapid.T){
			"start":    w.start,
			"allocate": w.allocate,
			"allocat2": w.allocate, // twice as often as the others
			"offer":    w.offer,
			"free":     w.free,
			"kill":     w.kill,
			"export":   w.export,
			"drop":     w.drop,
			"cap":      w.setCap,
			"swap":     w.setSwap,
			"movable":  w.allocateMovable,
			"freeMov":  w.freeMovable,
			"restart":  w.restart,
			"":         w.check,
		})
		for h := range w.tenants {
			w.ledger.Release(h)
		}
		w.ledger.Unshare(w.shared)
		if w.ledger.Charged() != 0 || w.ledger.Holders() != 0 || w.ledger.Movable() != 0 {
			t.Fatalf("%d charged for %d holders at the end, and %d of movable memory", w.ledger.Charged(), w.ledger.Holders(),
				w.ledger.Movable())
		}
	})
}

// TestMovingCredit has one holder free and another take while the recall goes round: what both have
// to spare together always suffices, but whoever is looked at never has it in the first round.
func TestMovingCredit(t *testing.T) {
	l := New(20)
	l.Declare(1, 10)
	l.Declare(2, 10)
	credit := map[Holder]uint64{1: 0, 2: 10}
	visits := 0
	recall := func(h Holder, limit uint64) uint64 {
		visits++
		got := min(credit[h], limit)
		credit[h] -= got
		if visits == 1 { // h has just been found without credit; now it frees and the other takes
			credit[h], credit[3-h] = 10, 0
		}
		return got
	}
	if got := l.Request(3, 10, recall); !got.Granted {
		t.Errorf("refused for want of %d bytes, though 10 were free at every moment", got.Missing)
	}
}

func TestRefusals(t *testing.T) {
	none := func(Holder, uint64) uint64 { return 0 }
	for _, c := range []struct {
		name                 string
		limit, held, request uint64
		want                 Outcome
	}{
		{"over the whole cap", 100, 40, 101, Outcome{Missing: 41}},
		{"cap lowered below what is held", 100, 500, 1, Outcome{Missing: 401}},
		{"cap of nothing", 0, 0, 1, Outcome{Missing: 1}},
		{"to the last byte", 100, 40, 60, Outcome{Granted: true}},
		{"one byte too many", 100, 40, 61, Outcome{Missing: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := New(c.limit)
			l.Declare(1, c.held)
			if got := l.Request(1, c.request, none); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestNoOverflow: without a cap, nothing that may be asked for or declared makes the sum wrap.
func TestNoOverflow(t *testing.T) {
	none := func(Holder, uint64) uint64 { return 0 }
	l := New(Unlimited)
	for h := Holder(0); h < 4096; h++ {
		l.Declare(h, ^uint64(0))
	}
	before := l.Charged()
	if before != 4096*RequestMax {
		t.Fatalf("charged %d, want %d", before, 4096*RequestMax)
	}
	if got := l.Request(1, RequestMax, none); got.Granted {
		t.Errorf("granted beyond what sums can hold")
	}
	if l.Charged() != before {
		t.Errorf("a refusal changed the charges from %d to %d", before, l.Charged())
	}
	for l.Share(RequestMax) {
	}
	if l.Shared() != Unlimited || l.Charged() != before+Unlimited {
		t.Errorf("%d shared of %d charged", l.Shared(), l.Charged())
	}
	l.Unshare(^uint64(0))
	if l.Shared() != 0 || l.Charged() != before {
		t.Errorf("%d shared of %d charged in the end", l.Shared(), l.Charged())
	}
}

// TestSpareIsBounded: many growing holders never take the whole cap with spare credit alone.
func TestSpareIsBounded(t *testing.T) {
	l := New(1 << 30)
	none := func(Holder, uint64) uint64 { return 0 }
	for h := Holder(1); h <= 64; h++ {
		out := l.Request(h, 512, none)
		if !out.Granted {
			t.Fatalf("holder %d refused with %d of %d charged", h, l.Charged(), l.Cap())
		}
		if out.Spare > spareMax || out.Spare%spareUnit != 0 {
			t.Fatalf("spare credit of %d bytes", out.Spare)
		}
	}
}

func BenchmarkRefusal(b *testing.B) {
	l := New(4096)
	for h := Holder(0); h < 4096; h++ {
		l.Declare(h, 1)
	}
	none := func(Holder, uint64) uint64 { return 0 }
	for b.Loop() {
		l.Request(1, 1, none)
	}
}
