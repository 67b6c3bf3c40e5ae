package swap

// Every byte of every program after a thousand hand-overs, with kills and cancelled moves, on a machine whose data move
// with their pages. It is played by itself: copying takes processors, and what it takes is nobody's figure.

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"weir/tests/bench/figures"
	"weir/tests/e2e/keepers"
)

const dataName = "data"

// dataLeast is what has to happen before the bytes are compared, dataMost how long that may take.
func dataLeast() (least keepers.Counts, most time.Duration) {
	least = keepers.Counts{Handovers: 1000, Kills: 20, Cancelled: 300, Undone: 100}
	if os.Getenv("LONG") != "" {
		return keepers.Counts{Handovers: 4000, Kills: 100, Cancelled: 1200, Undone: 400}, 3 * time.Minute
	}
	return least, time.Minute
}

// playData plays the programs, then has moves go wrong, which they must notice.
func playData(b *testing.B) {
	seed := uint64(time.Now().UnixNano())
	if given, err := strconv.ParseUint(os.Getenv("WEIR_TEST_SEED"), 10, 64); err == nil {
		seed = given
	}
	least, most := dataLeast()
	scope := &figures.Scope{TB: b}
	defer scope.End()
	play := keepers.Start(scope, seed)
	got := play.Until(least, most)
	fmt.Printf("simulated card of 64 MiB, four programs with 28 each (seed %d); at least %s\n", seed, least.Least())
	figures.Promise(b, "data of four programs on the simulated card", "every byte as written after that", got.String()+", none wrong",
		got.Reaches(least) && got.Moves > 0)
	said := play.Sabotage("move_torn")
	figures.Promise(b, "moves of data that are torn on purpose", "noticed", strconv.Quote(said), said != "")
}
