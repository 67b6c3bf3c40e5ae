package swap

// Two programs that fit the card together: what swap costs where nothing has to move.

import (
	"fmt"
	"time"
)

const fitMost = 1.01 // of the time without swap

type fit struct {
	card
	with, without *stage
}

func newFit(c card) *fit {
	f := &fit{card: c}
	f.with, f.without = f.stage(swapped), f.stage(unswapped)
	return f
}

func (f *fit) stage(w way) *stage {
	work := 3 * f.quantum()
	return &stage{card: f.card, way: w, play: play{work: work, limit: 10 * work}, sets: []float64{0.35, 0.35}}
}

func (f *fit) name() string     { return "fit" }
func (f *fit) stages() []*stage { return []*stage{f.with, f.without} }

// again has both anew, since they are compared with one another.
func (f *fit) again() []*stage {
	f.with, f.without = f.stage(swapped), f.stage(unswapped)
	return f.stages()
}

func (f *fit) print() {
	moved, _ := f.with.moved()
	fmt.Printf("simulated %s, two programs with sets of 0.35: %s with swap, %s without; moved %s\n", f.card.name, f.with.took.Round(time.Millisecond),
		f.without.took.Round(time.Millisecond), inCards(f.card, moved))
}

func (f *fit) verdicts() []verdict {
	times, stopped := f.with.times(f.without)
	wrong := f.with.wrong + f.without.wrong
	name := fmt.Sprintf("two of 0.35 of the simulated %s, swap on", f.card.name)
	return []verdict{
		{name, "at most 1.01 of swap off", fmt.Sprintf("%.4f", times), times <= fitMost && !stopped},
		{name + ", data", "all as written", fmt.Sprintf("%d bytes wrong", wrong), wrong == 0},
	}
}
