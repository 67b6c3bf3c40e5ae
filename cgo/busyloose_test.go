// What launches count for that have no lane.

package library

import "testing"

// A launch that has no lane is asked for by its family as any other: of a grid that was never measured it is known what
// others of its function take.
func TestLooseLaunchIsExpectedByItsFamily(t *testing.T) {
	const base, each, blocks = 2000, 1000, 40
	if got, want := looseAfter(32, base, each, blocks), uint64(base+each*blocks); got < want*98/100 || got > want*102/100 {
		t.Errorf("a launch counts for %d ns, want %d", got, want)
	}
	if got := looseAfter(0, base, each, blocks); got != 0 {
		t.Errorf("a launch of which nothing is known counts for %d ns", got)
	}
}
