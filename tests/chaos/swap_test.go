package chaos

// Data of programs whose memory is swapped, while leases go from one to the next: kills, restarts of the agent, caps
// and swap that change, and with all of these plans that change and moves that are cancelled.

import (
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/keepers"
)

const keeperLimit = 4 * time.Minute

// Whatever happens to others and to the agent, every byte of every program is what it wrote, after a thousand
// hand-overs between programs that together need far more than the card, with hundreds of moves taken back.
func TestSwapKeepsEveryByte(t *testing.T) {
	play := keepers.Start(t, seed(t))
	defer func() {
		if t.Failed() {
			t.Logf("what happened last:\n%s", play.Last())
		}
	}()
	least := keepers.Counts{Handovers: int64(scaled(t, 1000)), Kills: 20, Cancelled: int64(scaled(t, 300)), Undone: int64(scaled(t, 100))}
	got := play.Until(least, keeperLimit)
	t.Logf("simulated: %s", got)
	if !got.Reaches(least) || got.Moves == 0 {
		t.Errorf("in %s there were too few of one; at least %s", keeperLimit, least.Least())
	}
}

// The programs notice what the machine does to their data: a move that is lost, that is torn, and one that is done a
// second time.
func TestKeepersNoticeMistakes(t *testing.T) {
	for _, mistake := range []string{"move_lost", "move_torn", "move_twice"} {
		t.Run(mistake, func(t *testing.T) {
			said := keepers.Start(t, seed(t)).Sabotage(mistake)
			if !strings.HasPrefix(said, "wrong ") {
				t.Errorf("a program says %q", said)
			}
			t.Log(said)
		})
	}
}
