// Launches of kernels that are not known well, whatever keeps them from it.

package library

import "testing"

const launches = 200_000

func near(got, want, percent uint64) bool {
	return got*100 >= want*(100-percent) && got*100 <= want*(100+percent)
}

// A kernel that is never measured alone keeps its launches from the quick path for its first thousand only; of the others
// some are looked at, by which it is known how many there were.
func TestGuessesLeaveLaunchesQuick(t *testing.T) {
	for name, kernels := range map[string]uint64{"alone": 1, "in turn with one that is known": 2, "with three": 4} {
		got := guessMany(launches, kernels, 5000, 0)
		if got.looked > launches/16 {
			t.Errorf("%s: %d of %d launches are looked at", name, got.looked, launches)
		}
		if want := launches / kernels; !near(got.guesses, want, 20) {
			t.Errorf("%s: %d launches count as guesses, want about %d", name, got.guesses, want)
		}
	}
}

// A kernel of which no sample ever comes is given up after half a second. Its launches count as unknown ones still.
func TestKernelsOfWhichNothingComesAreGivenUp(t *testing.T) {
	const second = 1_000_000_000
	got := guessMany(launches, 1, 0, second)
	if got.looked > launches/16 {
		t.Errorf("%d of %d launches are looked at", got.looked, launches)
	}
	if !near(got.unknown, launches, 20) {
		t.Errorf("%d launches count as unknown, want about %d", got.unknown, launches)
	}
	if got.expected != 1 || got.work > launches {
		t.Errorf("a launch is expected to take %d ns, all of them took %d", got.expected, got.work)
	}
	if got := guessMany(launches/100, 1, 0, 0); got.unknown != launches/100 || got.expected != 0 {
		t.Errorf("of %d launches of a kernel that is new %d count as unknown, each is expected to take %d ns",
			launches/100, got.unknown, got.expected)
	}
}

// What a thread has left in its own default stream, of which only that thread can tell, does not keep its launches in
// another stream from being measured alone.
func TestOwnDefaultStreamIsKnownToBeDone(t *testing.T) {
	if !isLearnedBesideOwn(2000) {
		t.Error("a kernel is not known well after 2000 launches beside one in the thread's own default stream")
	}
}

// A stream whose thread launches there no more is asked at the second look where another lane waits to be alone, else
// not so soon.
func TestStreamsThatOthersWaitForAreAskedSoon(t *testing.T) {
	if got := askedIn(3, true); got != 1 {
		t.Errorf("in three looks a stream that is waited for is asked %d times, want 1", got)
	}
	if got := askedIn(3, false); got != 0 {
		t.Errorf("in three looks a stream that nobody waits for is asked %d times", got)
	}
}
