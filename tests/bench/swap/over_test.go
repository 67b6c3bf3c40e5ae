package swap

// A program whose every kernel, or pass, uses more than its cap, alone on a card: what it has above the cap is told, and
// it goes on about as fast as with plain managed memory on the whole card.

import (
	"fmt"
	"time"
)

const (
	overCap  = 0.5  // of the card, and sets are of 0.75
	overMost = 1.10 // times what plain managed memory takes
)

type over struct {
	card
	with, bare *stage
	byPieces   bool
}

func newOver(c card, byPieces bool) *over {
	o := &over{card: c, byPieces: byPieces}
	o.again()
	return o
}

func (o *over) name() string     { return "over" }
func (o *over) stages() []*stage { return []*stage{o.with, o.bare} }

func (o *over) stage(w way) *stage {
	return &stage{card: o.card, way: w, sets: []float64{0.75}, caps: []float64{overCap}, watch: w == swapped, mark: someOfIt,
		play: play{byPieces: o.byPieces, work: 3 * o.quantum(), limit: 9 * o.quantum()}}
}

// again has both anew, since they are compared with one another.
func (o *over) again() []*stage {
	o.with, o.bare = o.stage(swapped), o.stage(unscheduled)
	return o.stages()
}

func (o *over) kind() string {
	if o.byPieces {
		return ", kernels by pieces"
	}
	return ""
}

func (o *over) print() {
	times, _ := o.with.times(o.bare)
	moved, faulted := o.with.moved()
	fmt.Printf("simulated %s%s, one program with a set of 0.75 and a cap of %.2f: %s of work in %s, %.3f times what plain "+
		"managed memory on the whole card takes; moved %s, %s by faults\n", o.card.name, o.kind(), overCap, o.with.work,
		o.with.took.Round(time.Millisecond), times, inCards(o.card, moved), inCards(o.card, faulted))
}

func (o *over) verdicts() []verdict {
	times, stopped := o.with.times(o.bare)
	e := o.with.excesses()[0]
	wrong := o.with.wrong + o.bare.wrong
	name := fmt.Sprintf("a set of 0.75 under a cap of 0.5 on the simulated %s%s", o.card.name, o.kind())
	return []verdict{
		{name + ", above the cap but for faults as told", "at most 10 ms", e.String(), e.longest <= period && e.faulted > 0},
		{name + ", time", "at most 1.10 of plain managed memory on the whole card", fmt.Sprintf("%.3f", times),
			times <= overMost && !stopped},
		{name + ", data", "all as written", fmt.Sprintf("%d bytes wrong", wrong), wrong == 0},
	}
}
