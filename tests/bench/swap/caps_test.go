package swap

// Caps that matter: three programs whose sets are above their caps, of which each lease uses a part that fits. The first
// two use other parts in each round, and take and free plain memory beside; the third one's cap is lowered below what it
// has on the card in every other round, in steps, and raised again.

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"weir/tests/bench/figures"
)

const (
	capsRounds     = 6
	capsRoundsLong = 10
	wideCap        = 0.7 // of the card: what holds all that the third program uses
	lowestCap      = 0.25
	plainPart      = 24 * mib // what does not move: it takes the link longer than 10 ms to make room for that
	someOfIt       = 64 << 10 // of each MiB: what of the data is checked
	leastLower     = 2        // times that a lowered cap must have been below what was there
	leastChange    = 8        // hand-overs
)

// capSets and capLimits are parts of the card: what the programs have, and their caps to begin with.
var (
	capSets   = []float64{0.7, 0.7, 0.5}
	capLimits = []float64{0.45, 0.45, wideCap}
)

type caps struct {
	card
	seed uint64
	with *stage
}

func newCaps(c card) *caps {
	k := &caps{card: c, seed: uint64(time.Now().UnixNano())}
	if given, err := strconv.ParseUint(os.Getenv("WEIR_TEST_SEED"), 10, 64); err == nil {
		k.seed = given
	}
	k.again()
	return k
}

func (k *caps) name() string     { return "caps" }
func (k *caps) stages() []*stage { return []*stage{k.with} }

func (k *caps) again() []*stage {
	rounds := capsRounds
	if os.Getenv("LONG") != "" {
		rounds = capsRoundsLong
	}
	work := k.quantum() / 2
	k.with = &stage{card: k.card, way: swapped, sets: capSets, caps: capLimits, watch: true, mark: someOfIt,
		play: play{byPieces: true, work: work, limit: 10 * work, rounds: rounds, plain: plainPart, window: k.window, beside: k.lower}}
	return k.stages()
}

// window is what a program uses in a round: two fifths of its set, each time from another piece on; the third program all
// of its set and a sixth of it by turns, which fits the lowered cap.
func (k *caps) window(round, program int) (first, count int) {
	whole, _ := k.pieces(capSets[program], 24)
	if program < 2 {
		return round * 2 % int(whole), int(whole) * 2 / 5
	}
	if round%2 == 0 {
		return 0, int(whole)
	}
	return round % int(whole), int(whole) / 6
}

// lower lowers the third program's cap before and within a round in which it uses little, and raises it again.
func (k *caps) lower(s *stage, round int, begin time.Duration) {
	if round%2 == 0 {
		return
	}
	r := rand.New(rand.NewPCG(k.seed, uint64(round)))
	for i, part := range []float64{0.4, 0.32, lowestCap, wideCap} {
		at := begin - calm/2 // before anybody works
		if i > 0 {
			at = begin + time.Duration((float64(i-1)+r.Float64()*2/3)*float64(k.with.work))
		}
		time.Sleep(at - figures.Monotonic())
		asked, bytes := figures.Monotonic(), s.part(part)
		s.node.SetCap(tenantName(2), fmt.Sprint(bytes))
		s.limits[2] = append(s.limits[2], limit{asked, figures.Monotonic(), bytes})
	}
}

func (k *caps) print() {
	moved, faulted := k.with.moved()
	fmt.Printf("simulated %s, three programs with sets of %.2f and caps of %.2f of the card, the last of which is lowered to %.2f and "+
		"raised again (seed %d), %d rounds of %s of work each in %s, %d hand-overs; moved %s, %.1f %% by faults\n", k.card.name, capSets,
		capLimits, lowestCap, k.seed, k.with.rounds, k.with.work, k.with.took.Round(time.Millisecond), len(k.with.series.changes()),
		inCards(k.card, moved), 100*float64(faulted)/float64(max(moved, 1)))
	fmt.Printf("  samples are at most %s apart\n", k.with.excesses()[0].apart.Round(100*time.Microsecond))
	for i, e := range k.with.excesses() {
		fmt.Printf("  %s: %d samples above its cap, not excused are %s\n", tenantName(i), e.above, e)
	}
}

func (k *caps) verdicts() []verdict {
	all := k.with.excesses()
	e, changes := all[0].and(all[1]).and(all[2]), len(k.with.series.changes())
	name := fmt.Sprintf("three sets above their caps on the simulated %s", k.card.name)
	return []verdict{
		{name + ", above the cap", "at most 10 ms, or where it was lowered 1.15 of what the link takes, but for faults as told",
			fmt.Sprintf("%s; %d hand-overs", e, changes), e.longest <= period && e.lowered >= leastLower && changes >= leastChange},
		{name + ", data", "all as written", fmt.Sprintf("%d bytes wrong", k.with.wrong), k.with.wrong == 0},
	}
}
