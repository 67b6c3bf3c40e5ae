package library

// Lines over amounts: what launches of one function take whose grids change.

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Launches whose grids are all different are known by samples of a few of them: their sum within a
// percent or two, and each of those that lie on the line.
func TestBusyFitOfManyGrids(t *testing.T) {
	for name, one := range map[string]struct {
		takes func(r *rand.Rand, amount uint64) uint64
		sum   float64 // percent that the sum may be off
		each  float64 // and a single one; 0: any
	}{
		"as long whatever the grid":      {func(*rand.Rand, uint64) uint64 { return 1_000_000 }, 0.1, 0.1},
		"so long for each block":         {func(_ *rand.Rand, amount uint64) uint64 { return 20 * amount }, 0.1, 0.2},
		"a while, then for each block":   {func(_ *rand.Rand, amount uint64) uint64 { return 3000 + amount/2 }, 0.1, 1},
		"less than a ns for many blocks": {func(_ *rand.Rand, amount uint64) uint64 { return 5000 + amount/1000 }, 0.1, 1},
		"shorter where there are more":   {func(_ *rand.Rand, amount uint64) uint64 { return 100_000 - amount }, 5, 0},
		"a fifth more or less by chance": {func(r *rand.Rand, amount uint64) uint64 {
			return amount * (800 + r.Uint64N(400)) / 10
		}, 3, 30},
	} {
		r := rand.New(rand.NewPCG(7, 5))
		var f fit
		for range 200 {
			amount := 1 + r.Uint64N(60_000)
			f.add(amount, one.takes(r, amount))
		}
		var sum, want float64
		for range 10_000 {
			amount := 100 + r.Uint64N(59_000)
			takes, ns := float64(one.takes(r, amount)), float64(f.ns(amount))
			sum, want = sum+ns, want+takes
			if off := 100 * math.Abs(ns/takes-1); one.each > 0 && off > one.each {
				t.Errorf("%s: %.0f ns of %d, want %.0f", name, ns, amount, takes)
				break
			}
		}
		if off := 100 * (sum/want - 1); math.Abs(off) > one.sum {
			t.Errorf("%s: all of them are %.2f %% off, want %.1f at most", name, off, one.sum)
		}
	}
}

// What is beside the samples is known, what is far from them is not, nor what a line cannot tell.
func TestBusyFitCovers(t *testing.T) {
	var f, chance, few fit
	r := rand.New(rand.NewPCG(3, 4))
	for i := range uint64(8) {
		f.add(100+i, 5000)
		chance.add(100+i, []uint64{1000, 9000}[r.IntN(2)])
	}
	for range 7 {
		few.add(100, 5000)
	}
	for amount, want := range map[uint64]bool{0: false, 1: false, 60: true, 150: true, 210: true, 230: false, math.MaxUint64: false} {
		if f.covers(amount) != want {
			t.Errorf("samples of 100 to 107 say that %d is known: %v", amount, !want)
		}
	}
	if few.covers(100) || chance.covers(100) || new(fit).covers(100) {
		t.Errorf("known by few samples %v, by chance %v, by none %v", few.covers(100), chance.covers(100), new(fit).covers(100))
	}
	if ns := new(fit).ns(100); ns != 0 {
		t.Errorf("%d ns by no sample", ns)
	}
	if ns := f.ns(math.MaxUint64); ns != 5000 {
		t.Errorf("%d ns far beyond all samples, want 5000", ns)
	}
}

// Four far off in a row are another line, of which the old one's form is kept; one is nothing much.
func TestBusyFitChanges(t *testing.T) {
	var f fit
	for i := range uint64(100) {
		f.add(1000+i, 20*(1000+i))
	}
	f.add(1000, 200_000)
	if ns := f.ns(1000); ns > 24_000 {
		t.Errorf("%d ns after one that was ten times as long, want about 20000", ns)
	}
	for range 20 {
		f.add(1000, 1000)
	}
	if ns := f.ns(2000); ns < 1600 || ns > 2400 {
		t.Errorf("%d ns of 2000 after twenty that take 1 ns each, want about 2000", ns)
	}
}

// The first samples of a program may be taken beside another one that nobody knows of yet.
func TestBusyFitForgetsABadBeginning(t *testing.T) {
	var f fit
	for amount := range uint64(4) {
		f.add(1+amount, 2_124_000)
	}
	for amount := range uint64(8) {
		f.add(55+amount, 1_000_000)
	}
	if ns := f.ns(70); ns < 980_000 || ns > 1_020_000 || !f.covers(70) {
		t.Errorf("%d ns, known: %v; want about 1000000", ns, f.covers(70))
	}
}

// What was learned beside others is put right by the first few samples without them.
func TestBusyFitIsRenewed(t *testing.T) {
	var f, few fit
	for i := range uint64(50) {
		f.add(1000+i, 30*(1000+i))
	}
	few.add(1000, 9000)
	for i := range uint64(4) {
		if enough := f.renew(1500, 15_000); enough != (i == 3) {
			t.Errorf("%d samples are enough: %v", i+1, enough)
		}
	}
	if ns := f.ns(2000); ns < 19_000 || ns > 21_000 || !f.covers(2000) {
		t.Errorf("%d ns of 2000, known: %v; want about 20000", ns, f.covers(2000))
	}
	if enough := few.renew(1000, 3000); !enough || few.ns(1000) != 3000 {
		t.Errorf("in place of a single one: enough %v, %d ns, want 3000", enough, few.ns(1000))
	}
}

// Whatever comes, nothing is less than nothing or without end.
func TestBusyFitIsBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for range 300 {
		var f fit
		for range 100 {
			f.add(r.Uint64()>>r.IntN(64), r.Uint64N(1<<40)>>r.IntN(40))
			for range 10 {
				amount := r.Uint64() >> r.IntN(64)
				if ns := f.ns(amount); ns == 0 || ns > 1<<58 {
					t.Fatalf("%d ns of %d", ns, amount)
				}
			}
		}
	}
}

func TestBusyAmounts(t *testing.T) {
	for _, one := range []struct{ grid, block, want uint64 }{
		{0, 0, 1},
		{1, 1, 1},
		{1000, 256, 256_000},
		{7 | 3<<31 | 2<<47, 32 | 4<<11 | 2<<22 | 49152<<32, 42 * 256},
		{1<<31 - 1 | 65535<<31 | 65535<<47, 1024, math.MaxUint64},
	} {
		if got := threadsOf(one.grid, one.block); got != one.want {
			t.Errorf("grid %#x, block %#x: %d, want %d", one.grid, one.block, got, one.want)
		}
	}
}
