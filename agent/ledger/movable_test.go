package ledger

// What the random schedules of ledger_test.go do with movable memory, and the account of the host.

import (
	"testing"

	"pgregory.net/rapid"
)

func (w *world) movable() (sum uint64) {
	for _, u := range w.tenants {
		sum += u.movable
	}
	return sum
}

// missing is what a request for n bytes lacks as things are, unused credit counted.
func (w *world) missing(n uint64) uint64 {
	plain, all := w.ledger.Charged()+n, w.ledger.Charged()+w.movable()+n
	most := w.ledger.Cap() + w.ledger.Swap()
	return max(plain-min(plain, w.ledger.Cap()), all-min(all, most))
}

// within checks what holds after every grant.
func (w *world) within(t *rapid.T) {
	if w.ledger.Charged() > w.ledger.Cap() || w.ledger.Charged()+w.movable() > w.ledger.Cap()+w.ledger.Swap() {
		t.Fatalf("%d charged under a cap of %d, and %d of movable memory with a swap of %d", w.ledger.Charged(),
			w.ledger.Cap(), w.movable(), w.ledger.Swap())
	}
}

// allocateMovable asks for movable memory: what fits beside what is in use is given.
func (w *world) allocateMovable(t *rapid.T) {
	h, u := w.pick()
	n := rapid.Uint64Range(1, 5000).Draw(t, "bytes")
	all, most := w.used()+w.movable()+n, w.ledger.Cap()+w.ledger.Swap()
	got := w.ledger.RequestMovable(h, n, w.recall)
	if got.Granted != (all <= most) {
		t.Fatalf("%d of movable memory beside %d, under %d: granted %v", n, all-n, most, got.Granted)
	}
	if !got.Granted {
		if want := w.ledger.Charged() + w.movable() + n - most; got.Missing != want {
			t.Fatalf("missing %d, want %d", got.Missing, want)
		}
		return
	}
	u.movable += n
	if all := w.ledger.Charged() + w.movable(); all > most {
		t.Fatalf("%d charged with movable memory, under %d", all, most)
	}
}

func (w *world) freeMovable(t *rapid.T) {
	h, u := w.pick()
	n := rapid.Uint64Range(0, u.movable).Draw(t, "bytes")
	w.ledger.FreeMovable(h, n)
	u.movable -= n
}

func (w *world) setSwap(t *rapid.T) {
	w.ledger.SetSwap(rapid.OneOf(rapid.Uint64Range(0, 20_000), rapid.Just(Unlimited)).Draw(t, "swap"))
	w.shrink(t)
	used := w.used() + w.movable()
	if want := used - min(used, w.ledger.Cap()); w.ledger.Beyond(w.ledger.Charged()-w.used()) != want {
		t.Fatalf("in use beyond the cap: %d, want %d", w.ledger.Beyond(w.ledger.Charged()-w.used()), want)
	}
}

// TestMovableEdges: to the byte, and nothing that may be asked for or declared makes a sum wrap.
func TestMovableEdges(t *testing.T) {
	none := func(Holder, uint64) uint64 { return 0 }
	l := New(100)
	l.SetSwap(50)
	l.Declare(1, 40)
	for _, c := range []struct {
		request uint64
		want    Outcome
	}{
		{111, Outcome{Missing: 1}}, {110, Outcome{Granted: true}}, {1, Outcome{Missing: 1}},
		{^uint64(0), Outcome{Missing: ^uint64(0)}},
	} {
		if got := l.RequestMovable(2, c.request, none); got != c.want {
			t.Errorf("%d: got %+v, want %+v", c.request, got, c.want)
		}
	}
	if got := l.Request(1, 1, none); got.Granted || got.Missing != 1 {
		t.Errorf("plain memory beyond cap and swap: %+v", got)
	}
	l.FreeMovable(2, 100)
	if got := l.Request(1, 61, none); got.Granted || got.Missing != 1 {
		t.Errorf("plain memory beyond the cap: %+v", got)
	}
	if got := l.Request(1, 60, none); !got.Granted {
		t.Errorf("plain memory within the cap: %+v", got)
	}
	l.SetSwap(^uint64(0))
	l.SetCap(Unlimited)
	for h := Holder(0); h < 4096; h++ {
		l.DeclareMovable(h, ^uint64(0))
		l.Declare(h, RequestMax)
	}
	if l.Movable() != 4096*RequestMax {
		t.Fatalf("%d of movable memory", l.Movable())
	}
	if got := l.RequestMovable(1, RequestMax, none); got.Granted {
		t.Error("granted beyond what sums can hold")
	}
}

// TestHost: what is set aside is within the limit, and each byte is given back once.
func TestHost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := NewHost(rapid.Uint64Range(0, 1000).Draw(t, "limit"))
		sum := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				n := rapid.OneOf(rapid.Uint64Range(0, 400), rapid.Just(^uint64(0))).Draw(t, "bytes")
				left := h.Limit() - min(sum, h.Limit())
				missing := h.Reserve(n)
				if n <= left {
					sum += n
				}
				if want := n - min(n, left); missing != want {
					t.Fatalf("%d beside %d of %d: %d missing, want %d", n, sum, h.Limit(), missing, want)
				}
			},
			"release": func(t *rapid.T) {
				n := rapid.Uint64Range(0, sum).Draw(t, "bytes")
				h.Release(n)
				sum -= n
			},
			"declare": func(t *rapid.T) {
				from := rapid.Uint64Range(0, sum).Draw(t, "from")
				to := rapid.Uint64Range(0, 3000).Draw(t, "to")
				h.Change(from, to)
				sum += to - from
			},
			"": func(t *rapid.T) {
				if h.Reserved() != sum {
					t.Fatalf("%d set aside, want %d", h.Reserved(), sum)
				}
			},
		})
	})
}
