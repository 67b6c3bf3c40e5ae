package swap

// Two programs, each with three quarters of a card, that do the same fixed work.

import (
	"fmt"
	"os"
	"time"
)

const (
	serialMost  = 1.10 // of serial
	fasterLeast = 3    // times unscheduled
	faultsMost  = 0.01 // of the bytes moved
	stopAfter   = 1.25 // of serial: who is not done by then is judged by what it has done
	slowAfter   = 0.5  // so too unscheduled: kernels that are in flight then take a minute more
)

// pair is two programs on a card, each with three quarters of it, in all ways.
type pair struct {
	card
	byPieces bool
	ways     map[way]*stage
}

var threeQuarters = []float64{0.75, 0.75}

// each is how long each of them works alone. More than this would take the full form beyond four minutes.
func (c card) each() time.Duration { return min(5*c.quantum(), 70*time.Second) }

// newPair is of programs each of whose kernels uses all of its memory, or a piece of it.
func newPair(c card, byPieces bool) *pair {
	p := &pair{card: c, byPieces: byPieces, ways: make(map[way]*stage)}
	for _, w := range allWays {
		p.ways[w] = p.stage(w)
	}
	return p
}

var allWays = []way{serially, unscheduled, exclusively, swapped}

func (p *pair) name() string { return "pair " + p.card.name + p.kind() }

func (p *pair) kind() string {
	if p.byPieces {
		return " by pieces"
	}
	return ""
}

func (p *pair) stages() (all []*stage) {
	for _, s := range p.ways {
		all = append(all, s)
	}
	return all
}

func (p *pair) again() []*stage {
	p.ways[swapped] = p.stage(swapped)
	return []*stage{p.ways[swapped]}
}

func (p *pair) stage(w way) *stage {
	limit := time.Duration(float64(2*p.each()) * map[bool]float64{true: slowAfter, false: stopAfter}[w == unscheduled])
	return &stage{card: p.card, way: w, sets: threeQuarters, watch: w == swapped,
		play: play{byPieces: p.byPieces, work: p.each(), limit: limit}}
}

// verdicts are what the promises of a pair have come to.
func (p *pair) verdicts() []verdict {
	name := fmt.Sprintf("two of 0.75 of the simulated %s%s", p.card.name, p.kind())
	ours, serial := p.ways[swapped], p.ways[serially]
	times, stopped := ours.times(serial)
	slow, slowStopped := p.ways[unscheduled].times(serial)
	all := []verdict{
		{name + ", weir", "at most 1.10 of serial", fmt.Sprintf("%.3f", times), times <= serialMost && !stopped},
		{name + ", weir beside unscheduled", "at least 3 times as fast",
			fmt.Sprintf("%s%.1f times", map[bool]string{true: "about "}[slowStopped], slow/times), slow/times >= fasterLeast},
	}
	changes := ours.series.changes()
	worst := 0.0
	for _, c := range changes {
		worst = max(worst, float64(c.stood)/float64(max(c.most(p.card), time.Microsecond)))
	}
	all = append(all, verdict{
		name + ", the GPU stands still at a hand-over", "at most 1.15 of what had to move over the link, less what overlapped",
		fmt.Sprintf("%.2f of that in the worst of %d", worst, len(changes)), worst <= 1 && len(changes) > 0})
	moved, faulted := ours.moved()
	part := float64(faulted) / float64(max(moved, 1))
	all = append(all, verdict{name + ", bytes moved by faults", "at most 1 % of all that moved",
		fmt.Sprintf("%.2f %% of %s", 100*part, inCards(p.card, moved)), part <= faultsMost && moved > 0})
	var checked, wrong int64
	for _, s := range p.ways {
		checked += s.checked
		wrong += s.wrong
	}
	return append(all, verdict{name + ", data", "all as written", fmt.Sprintf("%d of %d bytes wrong", wrong, checked), wrong == 0})
}

func inCards(c card, bytes int64) string {
	return fmt.Sprintf("%.2f of the card", float64(bytes)/float64(c.memory))
}

// print says how each way went.
func (p *pair) print() {
	fmt.Printf("simulated %s, %d MiB (scale in its file), link %.2f GB/s each way; two programs with sets of 0.75, %s of work each, "+
		"kernels%s of %s\n", p.card.name, p.memory/mib, float64(p.link)/1e9, p.each(), p.kind(), p.ways[serially].cost())
	fmt.Printf("%-24s %10s %10s %22s %10s\n", "way", "time", "of serial", "moved, of the card", "of it faults")
	for _, w := range allWays {
		s := p.ways[w]
		times, stopped := s.times(p.ways[serially])
		moved, faulted := s.moved()
		about := ""
		if stopped {
			about = "about "
		}
		fmt.Printf("%-24s %10s %10s %22.2f %9.1f %%\n", w, s.took.Round(time.Millisecond),
			about+fmt.Sprintf("%.2f", times), float64(moved)/float64(p.memory), 100*float64(faulted)/float64(max(moved, 1)))
	}
	for i, c := range p.ways[swapped].series.changes() {
		if i < 20 || os.Getenv("LONG") != "" {
			fmt.Printf("  hand-over %2d: stood still for %s; lacked %s, %s of it when the other ended: at most %s\n", i+1,
				c.stood.Round(10*time.Microsecond), inCards(p.card, c.lacked), inCards(p.card, c.lacking),
				c.most(p.card).Round(10*time.Microsecond))
		}
	}
}
