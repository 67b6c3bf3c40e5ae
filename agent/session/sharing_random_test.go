package session

// Random schedules of exports, imports, drops, kills and restarts, against a model.

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"weir/agent/control"
	"weir/agent/session/sessiontest"
)

// sharingWorld is an agent with two containers and some tenants, and a model of what each has.
type sharingWorld struct {
	*bench
	random  *rand.Rand
	limit   int64
	boxes   []control.RunGrant
	tenants []*sharingTenant
	pieces  map[uint64]*sharingPiece
	nextKey uint64
}

type sharingTenant struct {
	*sessiontest.Process
	box  int
	used int64 // its own
}

// sharingPiece is what some tenants have of shared memory.
type sharingPiece struct {
	home  int
	bytes int64
	had   map[*sharingTenant]bool
}

// testSeed is new, or what WEIR_TEST_SEED says.
func testSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("WEIR_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d (WEIR_TEST_SEED repeats it)", seed)
	return seed
}

func newSharingWorld(t *testing.T, tenants int) *sharingWorld {
	b := start(t)
	w := &sharingWorld{
		bench: b, random: rand.New(rand.NewPCG(testSeed(t), 0)), limit: 64 * mib,
		pieces: make(map[uint64]*sharingPiece),
	}
	w.boxes = b.runs(2, w.limit)
	for i := range tenants {
		w.tenants = append(w.tenants, w.begin(i%2))
	}
	return w
}

func (w *sharingWorld) begin(box int) *sharingTenant {
	return &sharingTenant{Process: w.tenant(w.boxes[box]), box: box}
}

// charged is what the model says of a container.
func (w *sharingWorld) charged(box int) (sum int64) {
	for _, t := range w.tenants {
		if t.box == box {
			sum += t.used
		}
	}
	for _, p := range w.pieces {
		if p.home == box {
			sum += p.bytes
		}
	}
	return sum
}

// pick is a random tenant, and a key: mostly one that somebody has.
func (w *sharingWorld) pick() (*sharingTenant, uint64) {
	t := w.tenants[w.random.IntN(len(w.tenants))]
	key := w.nextKey
	if w.nextKey > 0 && w.random.IntN(10) > 0 {
		key = w.nextKey - 1 - w.random.Uint64N(min(w.nextKey, 12))
	}
	return t, key
}

// lose ends a tenant's having of a piece in the model.
func (w *sharingWorld) lose(t *sharingTenant, key uint64) {
	p := w.pieces[key]
	if p == nil {
		return
	}
	if delete(p.had, t); len(p.had) == 0 {
		delete(w.pieces, key)
	}
}

func (w *sharingWorld) alloc() {
	t, _ := w.pick()
	n := 512 * (1 + w.random.Int64N(w.limit/4/512))
	fits := w.charged(t.box)+n <= w.limit
	if _, err := t.Do("alloc 0 %d", n); (err == nil) != fits {
		w.t.Fatalf("%d bytes with %d of %d charged: %v", n, w.charged(t.box), w.limit, err)
	} else if fits {
		t.used += n
	}
}

func (w *sharingWorld) free() {
	t, _ := w.pick()
	n := w.random.Int64N(t.used/512+1) * 512
	t.Must("free 0 %d", n)
	t.used -= n
}

func (w *sharingWorld) export() {
	t, _ := w.pick()
	n := w.random.Int64N(t.used/512+1) * 512
	if got := t.Must("export 0 %d %d", n, w.nextKey); got != "true" {
		w.t.Fatalf("export of %d: %s", n, got)
	}
	t.used -= n
	w.pieces[w.nextKey] = &sharingPiece{t.box, n, map[*sharingTenant]bool{t: true}}
	w.nextKey++
}

func (w *sharingWorld) importing() {
	t, key := w.pick()
	p := w.pieces[key]
	if got := t.Must("import %d", key); got != strconv.FormatBool(p != nil) {
		w.t.Fatalf("import of %d: %s, had by %v", key, got, p)
	}
	if p != nil {
		p.had[t] = true
	}
}

// drop says so, or has the next connection say so.
func (w *sharingWorld) drop() {
	t, key := w.pick()
	if w.random.IntN(4) > 0 {
		t.Must("drop %d", key)
	} else {
		t.Must("forget %d", key)
		t.Must("again")
	}
	w.lose(t, key)
}

func (w *sharingWorld) again() {
	t, _ := w.pick()
	t.Must("again")
}

func (w *sharingWorld) kill() {
	i := w.random.IntN(len(w.tenants))
	t := w.tenants[i]
	t.Kill()
	for key := range w.pieces {
		w.lose(t, key)
	}
	w.tenants[i] = w.begin(t.box)
}

// check compares all charges with the model. What nobody waited for may take a while.
func (w *sharingWorld) check() {
	w.t.Helper()
	for box, grant := range w.boxes {
		w.eventually("the container's charge is what its tenants have", func() bool {
			g := w.container(grant.ID).GPUs[0]
			if g.ChargedBytes > w.limit {
				w.t.Fatalf("%d charged under a cap of %d", g.ChargedBytes, w.limit)
			}
			return g.UsedBytes == w.charged(box)
		})
	}
}

// TestSharingSchedules: never a byte over, what fits is given, every piece is charged once, to its
// exporter's container, and in the end nothing is.
func TestSharingSchedules(t *testing.T) {
	turns := 500
	if long() {
		turns = 10_000
	}
	w := newSharingWorld(t, 8)
	steps := []struct {
		weight int
		do     func()
	}{
		{20, w.alloc}, {10, w.free}, {20, w.export}, {30, w.importing}, {30, w.drop}, {4, w.again},
		{4, w.kill}, {1, w.restart},
	}
	var sum int
	for _, s := range steps {
		sum += s.weight
	}
	for range turns {
		n := w.random.IntN(sum)
		for _, s := range steps {
			if n -= s.weight; n < 0 {
				s.do()
				break
			}
		}
		w.check()
	}
	for _, tenant := range w.tenants {
		tenant.Kill()
	}
	w.tenants, w.pieces = nil, nil
	w.check()
	w.shares.mu.Lock()
	defer w.shares.mu.Unlock()
	if len(w.shares.byKey)+len(w.shares.bySharer)+len(w.shares.holds)+len(w.shares.exiting) > 0 {
		t.Errorf("the registry is not empty: %+v", w.shares)
	}
}
