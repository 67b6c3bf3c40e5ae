// Which lanes share the events in a window's length.

package library

import (
	"testing"
	"time"
)

// Lanes in which nobody will launch any more have no part of the window, once what was launched in them is done.
func TestLanesThatAreLeftHaveNoPartOfTheWindow(t *testing.T) {
	const whole, looks = 4 * time.Millisecond / 4, 10
	for _, one := range []struct {
		own, ended, gone, busy uint32
		want                   time.Duration
	}{
		{own: 1, want: whole},
		{own: 8, want: whole / 8},
		{own: 1, ended: 40, want: whole},
		{own: 2, gone: 100, want: whole / 2},
		{own: 2, ended: 20, gone: 20, want: whole / 2},
		{own: 2, ended: 4, busy: 2, want: whole / 4},
		{own: 2, gone: 4, busy: 2, want: whole / 4},
		{ended: 4, want: whole},
	} {
		if got := stepWith(one.own, one.ended, one.gone, one.busy, looks); got != one.want {
			t.Errorf("%+v: an event for %v of work", one, got)
		}
	}
}
