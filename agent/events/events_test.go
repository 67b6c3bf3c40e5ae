package events

// Tests of the event log: order, bounds, and that a loud container pushes out its own events only.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"weir/agent/control"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func clock() time.Time { return time.Unix(1_800_000_000, 0) }

func seqs(events []control.Event) (s []uint64) {
	for _, e := range events {
		s = append(s, e.Seq)
	}
	return s
}

func TestSince(t *testing.T) {
	l := New(10, clock)
	for i := range 3 {
		l.Add(control.Event{Container: fmt.Sprint("c", i%2), Message: fmt.Sprint(i)})
	}
	for seq, want := range map[uint64]string{0: "[1 2 3]", 1: "[2 3]", 3: "[]", 99: "[1 2 3]"} {
		if got := fmt.Sprint(seqs(l.Since(seq))); got != want {
			t.Errorf("since %d: got %s, want %s", seq, got, want)
		}
	}
	if got := l.Since(2)[0]; got.Message != "2" || !got.Time.Equal(clock()) {
		t.Errorf("got %+v", got)
	}
}

// TestLoudContainer: who floods the log loses its own events only.
func TestLoudContainer(t *testing.T) {
	l := New(100, clock)
	for i := range 10 {
		l.Add(control.Event{Container: "quiet", Message: fmt.Sprint(i)})
	}
	for range 10_000 {
		l.Add(control.Event{Container: "loud"})
	}
	quiet := 0
	got := l.Since(0)
	for _, e := range got {
		if e.Container == "quiet" {
			quiet++
		}
	}
	if quiet != 10 || len(got) != 100 || l.Dropped() != 9910 {
		t.Errorf("%d quiet of %d events kept, %d dropped", quiet, len(got), l.Dropped())
	}
}

// TestAgainstModel: whatever is added, the log is bounded, ordered, and counts what it dropped.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 20).Draw(t, "capacity")
		l := New(capacity, clock)
		added := uint64(0)
		for range rapid.IntRange(0, 200).Draw(t, "events") {
			l.Add(control.Event{Container: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "of")})
			added++
		}
		got := l.Since(0)
		if len(got) > capacity || uint64(len(got))+l.Dropped() != added {
			t.Fatalf("%d kept and %d dropped of %d, room for %d", len(got), l.Dropped(), added, capacity)
		}
		for i := 1; i < len(got); i++ {
			if got[i].Seq <= got[i-1].Seq {
				t.Fatalf("out of order: %v", seqs(got))
			}
		}
		if added > 0 && got[len(got)-1].Seq != added {
			t.Fatalf("the newest event is %d, want %d", got[len(got)-1].Seq, added)
		}
	})
}

func TestWait(t *testing.T) {
	l := New(1000, clock)
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for last := uint64(0); last < 100; {
				got, err := l.Wait(t.Context(), last)
				if err != nil {
					t.Error(err)
					return
				}
				if got[0].Seq != last+1 {
					t.Errorf("after %d came %d", last, got[0].Seq)
				}
				last = got[len(got)-1].Seq
			}
		})
	}
	for range 100 {
		l.Add(control.Event{})
	}
	readers.Wait()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Wait(ctx, 100); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// What happens again and again is few events, each of which tells how often; none of another kind, of
// another process or with other figures is lost in it.
func TestRepetitions(t *testing.T) {
	now := clock()
	l := New(100, func() time.Time { return now })
	asked, limit := int64(512), int64(4096)
	denied := control.Event{Type: "denied", Container: "c", PID: 7, Asked: &asked, Cap: &limit}
	for i := range 1000 {
		denied.Message = fmt.Sprint(i, " of 4096 are in use")
		l.Add(denied)
	}
	other, more := denied, int64(1024)
	other.PID = 8
	l.Add(other)
	other.Asked = &more
	l.Add(other)
	for range 3 {
		l.Add(control.Event{Type: "caps", Container: "c", Message: "1 -> 2"})
	}
	var counts []int64
	for _, e := range l.Since(0) {
		counts = append(counts, e.Count)
	}
	if want := "[1 3 7 15 31 63 127 255 511 1000 1 1 1 1 1]"; fmt.Sprint(counts) != want {
		t.Errorf("counts %v, want %s", counts, want)
	}
	if got := l.Since(0)[9].Message; got != "511 of 4096 are in use" {
		t.Errorf("the last event that was told says %q", got)
	}
	// Later it is news again.
	now = now.Add(2 * time.Minute)
	l.Add(denied)
	if all := l.Since(0); all[len(all)-1].Count != 1 || len(all) != 16 {
		t.Errorf("%d events, the last with count %d", len(all), all[len(all)-1].Count)
	}
}

// A container that a runtime starts again and again, and that is refused each time, does not fill the log.
func TestRefusedStartsAreCounted(t *testing.T) {
	l := New(100, clock)
	for range 1000 {
		l.Add(control.Event{Type: "start-refused", Container: "c", Message: "not started: x"})
	}
	if got := l.Since(0); len(got) != 10 || got[9].Count != 1000 {
		t.Errorf("%+v", got)
	}
}

// However much is different, what is remembered of it is bounded.
func TestRepetitionsAreBounded(t *testing.T) {
	l := New(10, clock)
	for i := range 1000 {
		l.Add(control.Event{Type: "refused", Container: "c", Message: fmt.Sprint(i)})
	}
	if n := len(l.repeats); n > 10 {
		t.Errorf("%d repetitions are remembered", n)
	}
}
