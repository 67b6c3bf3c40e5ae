package swap

// Two programs that fit the card together: what swap costs where nothing has to move. Two machines, one with swap and one
// without, do the same work in the same seconds, round by round, so that what else the processors do meets both alike; the
// median of the rounds' ratios is judged.

import (
	"fmt"
	"slices"
	"time"
)

const (
	fitMost   = 1.01 // of the time without swap
	fitRounds = 7
)

type fit struct {
	card
	with, without *stage
}

func newFit(c card) *fit {
	f := &fit{card: c}
	f.again()
	return f
}

func (f *fit) stage(w way, both *meeting) *stage {
	work := f.quantum() / 2
	return &stage{card: f.card, way: w, sets: []float64{0.35, 0.35},
		play: play{work: work, limit: 10 * work, rounds: fitRounds, with: both}}
}

func (f *fit) name() string     { return "fit" }
func (f *fit) stages() []*stage { return []*stage{f.with, f.without} }

// again has both anew, since they are compared with one another.
func (f *fit) again() []*stage {
	both := newMeeting(2)
	f.with, f.without = f.stage(swapped, both), f.stage(unswapped, both)
	return f.stages()
}

// ratios are what each round with swap took of the one without, in order.
func (f *fit) ratios() (all []float64) {
	for i := range min(len(f.with.tooks), len(f.without.tooks)) {
		all = append(all, float64(f.with.tooks[i])/float64(f.without.tooks[i]))
	}
	slices.Sort(all)
	return all
}

func (f *fit) print() {
	moved, _ := f.with.moved()
	all := f.ratios()
	fmt.Printf("simulated %s, two programs with sets of 0.35, %d rounds of %s of work each: %s with swap, %s without, rounds %.4f to "+
		"%.4f; moved %s\n", f.card.name, len(all), f.with.work, f.with.took.Round(time.Millisecond),
		f.without.took.Round(time.Millisecond), all[0], all[len(all)-1], inCards(f.card, moved))
}

func (f *fit) verdicts() []verdict {
	all := f.ratios()
	_, stopped := f.with.times(f.without)
	wrong := f.with.wrong + f.without.wrong
	name := fmt.Sprintf("two of 0.35 of the simulated %s, swap on", f.card.name)
	got := all[len(all)/2]
	return []verdict{
		{name, "at most 1.01 of swap off", fmt.Sprintf("%.4f, the median of %d", got, len(all)), got <= fitMost && !stopped},
		{name + ", data", "all as written", fmt.Sprintf("%d bytes wrong", wrong), wrong == 0},
	}
}
