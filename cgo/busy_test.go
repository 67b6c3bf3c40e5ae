package library

// The pure parts of measuring busy time: the account of steps, and what samples teach.

import (
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

const unknownWork = ^uint64(0)

func TestBusyTimeIsWorkWithinCoverAndTime(t *testing.T) {
	type step struct{ now, from, to, work, outstanding uint64 }
	for name, one := range map[string]struct {
		steps []step
		want  uint64
	}{
		"gaps":                        {[]step{{now: 1000, work: 300}, {now: 2000, work: 400}}, 400},
		"more work than time":         {[]step{{now: 1000, work: 2500, outstanding: 9000}, {now: 2000, work: 2500, outstanding: 9000}}, 2000},
		"and the rest later":          {[]step{{now: 1000, work: 2500, outstanding: 9000}, {now: 5000, work: 2500}}, 2500},
		"expected too much":           {[]step{{now: 1000, work: 9000}, {now: 3000, work: 9000}}, 1000},
		"expected nothing, covered":   {[]step{{now: 1000, from: 200, to: 900}, {now: 2000, from: 200, to: 1500}}, 1200},
		"expected too little":         {[]step{{now: 1000, from: 0, to: 1000, work: 10}}, 1000},
		"cover of settled steps":      {[]step{{now: 1000, work: 100}, {now: 2000, from: 0, to: 1000, work: 100}}, 100},
		"a launch that failed":        {[]step{{now: 1000, work: 3000, outstanding: 9000}, {now: 2000, work: 2200, outstanding: 9000}, {now: 9000, work: 2200}}, 2200},
		"a clock that stands or runs": {[]step{{now: 1000, work: 500}, {now: 1000, work: 600, outstanding: 9}, {now: 900, work: 600, outstanding: 9}}, 500},
	} {
		var b busyTime
		const begin = 1 << 40
		b.step(begin, 0, 0)
		for _, s := range one.steps {
			if s.to > 0 {
				b.cover(begin+s.from, begin+s.to)
			}
			b.step(begin+s.now, s.work, s.outstanding)
		}
		if b.busy() != one.want {
			t.Errorf("%s: busy for %d ns, want %d", name, b.busy(), one.want)
		}
	}
}

// Whatever comes, busy time never shrinks, busy and idle time are the time that passed, and no more is
// ahead than can be outstanding.
func TestBusyTimeNeverExceedsTime(t *testing.T) {
	seed := uint64(1)
	if text := os.Getenv("WEIR_TEST_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("WEIR_TEST_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 1000 {
		var b busyTime
		begin, work := uint64(1)<<40, uint64(0)
		now := begin
		b.step(now, 0, 0)
		for range 50 {
			for range random.IntN(4) {
				from := now - 2000 + random.Uint64N(4000)
				b.cover(from, from+random.Uint64N(4000))
			}
			if random.IntN(4) == 0 {
				b.late(random.Uint64N(1000))
			}
			before := b.busy()
			now += random.Uint64N(2000)
			work += random.Uint64N(3000)
			outstanding := random.Uint64N(5000)
			b.step(now, work, outstanding)
			if b.busy() < before || b.busy()+b.idle() != now-begin || b.ahead() > outstanding {
				t.Fatalf("busy %d (was %d), idle %d, %d ns passed; %d ahead of at most %d outstanding",
					b.busy(), before, b.idle(), now-begin, b.ahead(), outstanding)
			}
		}
	}
}

func TestBusySamples(t *testing.T) {
	for name, one := range map[string]struct {
		learn func(*learned)
		want  uint64
	}{
		"none":                       {func(*learned) {}, 0},
		"the mean of clean ones":     {func(l *learned) { l.clean(4000); l.clean(6000) }, 5000},
		"which beats others":         {func(l *learned) { l.mixed(100); l.clean(5000); l.rough(90, unknownWork) }, 5000},
		"one odd one":                {func(l *learned) { same(l, 10, 5000); l.clean(9000); l.clean(5000) }, 5000},
		"another length from now on": {func(l *learned) { same(l, 10, 5000); l.clean(9000); l.clean(9000); l.clean(9000) }, 9000},
		"another length after others": {func(l *learned) {
			for i := range 20 {
				l.clean(uint64(900000 + i%3*100000))
			}
			same(l, 4, 50000)
		}, 50000},
		"long ones among short ones": {func(l *learned) {
			for range 10 {
				l.clean(1000)
				l.clean(9000)
			}
			same(l, 2, 9000)
		}, 5363},
		"the least of mixed ones": {func(l *learned) { l.mixed(9000); l.mixed(5000); l.mixed(7000) }, 5000},
		"but not for ever": {func(l *learned) {
			l.mixed(10)
			for range 8 {
				l.mixed(5000)
			}
		}, 5000},
		"a few rough ones":        {func(l *learned) { l.rough(9000, unknownWork) }, 0},
		"the least of many":       {func(l *learned) { roughly(l, 9000, unknownWork); l.rough(8000, unknownWork) }, 8000},
		"with others' work known": {func(l *learned) { roughly(l, 9000, 1000); l.rough(8500, 500) }, 8000},
		"and much of it":          {func(l *learned) { roughly(l, 8000, 6000) }, 5000},
		"rough ones of long ago": {func(l *learned) {
			l.rough(2000, unknownWork)
			roughly(l, 8000, unknownWork)
			roughly(l, 9000, unknownWork)
		}, 8000},
		"another length when others are away":   {func(l *learned) { same(l, 50, 9000); l.renew(); same(l, 2, 5000) }, 5000},
		"the same length when others are away":  {func(l *learned) { same(l, 50, 5000); l.renew(); l.mixed(9000) }, 5000},
		"a single odd one when others are away": {func(l *learned) { same(l, 50, 5000); l.renew(); l.clean(9000) }, 5000},
		"no time at all":                        {func(l *learned) { l.clean(0) }, 1},
	} {
		var l learned
		one.learn(&l)
		if l.ns() != one.want {
			t.Errorf("%s: %d ns, want %d", name, l.ns(), one.want)
		}
	}
}

func same(l *learned, count int, ns uint64) {
	for range count {
		l.clean(ns)
	}
}

func roughly(l *learned, ns, foreign uint64) {
	for range 8 {
		l.rough(ns, foreign)
	}
}

// What is the same each time is sampled more and more rarely; what differs, or has changed, is not.
func TestBusySamplesArePaused(t *testing.T) {
	var steady, varied learned
	if steady.pause() != 1 {
		t.Errorf("the first sample is put off by %d chances", steady.pause())
	}
	same(&steady, 100, 5000)
	if steady.pause() != 16 {
		t.Errorf("after 100 that are the same one in %d chances is taken, want 16", steady.pause())
	}
	steady.clean(9000)
	if steady.pause() != 1 {
		t.Errorf("after an odd one the next is put off by %d chances", steady.pause())
	}
	for i := range 100 {
		varied.clean(uint64(4000 + i%2*4000))
	}
	if varied.pause() != 1 {
		t.Errorf("of samples that differ one in %d chances is taken", varied.pause())
	}
	if ns := varied.ns(); ns < 5800 || ns > 6200 {
		t.Errorf("the mean of 4000 and 8000 is %d", ns)
	}
}

// Lengths that are chance are known by the mean of many samples; none of them makes what was learned forgotten.
func TestBusySamplesByChance(t *testing.T) {
	seed := uint64(1)
	if text := os.Getenv("WEIR_TEST_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("WEIR_TEST_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 20 {
		mean := 2000 + r.Uint64N(100_000)
		var l learned
		for i := range 5000 {
			l.clean(mean/4 + r.Uint64N(mean*3/2))
			if off := 100 * math.Abs(float64(l.ns())/float64(mean)-1); i > 500 && off > 15 {
				t.Fatalf("%d of a mean of %d after %d samples: %.1f %% off", l.ns(), mean, i+1, off)
			}
			if i > 20 && !l.eager() {
				t.Fatalf("after %d samples no more are wanted", i+1)
			}
		}
	}
	var steady learned
	if same(&steady, 20, 5000); steady.eager() {
		t.Error("more samples are wanted of launches that all take as long")
	}
	if steady.clean(9000); !steady.eager() {
		t.Error("no more samples are wanted after one that is far off")
	}
}
