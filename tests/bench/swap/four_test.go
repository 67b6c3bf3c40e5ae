package swap

// Four programs with sets of 0.4 of a card, which come now and then: how long a burst of 100 ms takes each of them.

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
)

const (
	burst = 100 * time.Millisecond
	zipf  = 4 // programs: their parts are as 1, 1/2, 1/3, 1/4
)

type four struct {
	card
	seed     uint64
	count    int
	arrivals [][]time.Duration
	with     *stage
	without  *stage
}

func newFour(c card) *four {
	f := &four{card: c, seed: uint64(time.Now().UnixNano()), count: 30}
	if given, err := strconv.ParseUint(os.Getenv("WEIR_TEST_SEED"), 10, 64); err == nil {
		f.seed = given
	}
	// As often as the GPU and its link are as busy in both forms: a burst for each 0.43 of what moves the card.
	every := time.Duration(2.3 * float64(c.takes(c.memory)))
	every = max(every, 4*burst)
	f.arrivals = draw(f.seed, every, f.count)
	f.with, f.without = f.stage(swapped), f.stage(unscheduled)
	return f
}

// draw gives each program its bursts out of a Poisson process.
func draw(seed uint64, every time.Duration, count int) [][]time.Duration {
	r := rand.New(rand.NewPCG(seed, 0))
	all := make([][]time.Duration, zipf)
	var whole float64
	for i := range all {
		whole += 1 / float64(i+1)
	}
	var at time.Duration
	for range count {
		at += time.Duration(r.ExpFloat64() * float64(every))
		x, i := r.Float64()*whole, 0
		for ; i < zipf-1 && x >= 1/float64(i+1); i++ {
			x -= 1 / float64(i+1)
		}
		all[i] = append(all[i], at)
	}
	return all
}

func (f *four) stage(w way) *stage {
	var last time.Duration
	for _, own := range f.arrivals {
		if len(own) > 0 {
			last = max(last, own[len(own)-1])
		}
	}
	return &stage{card: f.card, way: w, sets: []float64{0.4, 0.4, 0.4, 0.4},
		play: play{work: burst, limit: last * 3 / 2, arrivals: f.arrivals}}
}

func (f *four) name() string     { return "four" }
func (f *four) stages() []*stage { return []*stage{f.with, f.without} }

func (f *four) again() []*stage {
	f.with = f.stage(swapped)
	return []*stage{f.with}
}

// mean is of one program's bursts, or of all.
func mean(delays ...[]time.Duration) time.Duration {
	var sum time.Duration
	count := 0
	for _, own := range delays {
		for _, d := range own {
			sum += d
			count++
		}
	}
	return sum / time.Duration(max(count, 1))
}

func milli(d time.Duration) string {
	return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
}

func (f *four) print() {
	fmt.Printf("simulated %s, four programs with sets of 0.4, %d bursts of 100 ms (seed %d) within %s: mean time of a burst, "+
		"of those that were not done at %s as if they had been\n", f.card.name, f.count, f.seed,
		f.with.limit.Round(time.Second), f.with.limit.Round(time.Second))
	fmt.Printf("%-10s %8s %12s %12s\n", "program", "bursts", swapped, unscheduled)
	for i := range zipf {
		fmt.Printf("%-10s %8d %12s %12s\n", tenantName(i), len(f.arrivals[i]), milli(mean(f.with.delays[i])),
			milli(mean(f.without.delays[i])))
	}
	ours, oursFaulted := f.with.moved()
	theirs, _ := f.without.moved()
	fmt.Printf("%-10s %8d %12s %12s; moved %s (%.1f %% by faults) and %s\n", "all", f.count, milli(mean(f.with.delays...)),
		milli(mean(f.without.delays...)), inCards(f.card, ours), 100*float64(oursFaulted)/float64(max(ours, 1)),
		inCards(f.card, theirs))
}

func (f *four) verdicts() []verdict {
	ours, theirs := mean(f.with.delays...), mean(f.without.delays...)
	wrong := f.with.wrong + f.without.wrong
	name := fmt.Sprintf("four of 0.4 of the simulated %s", f.card.name)
	return []verdict{
		{name + ", mean time of a burst", "less than unscheduled", fmt.Sprintf("%s beside %s", milli(ours), milli(theirs)),
			ours < theirs},
		{name + ", data", "all as written", fmt.Sprintf("%d bytes wrong", wrong), wrong == 0},
	}
}
