package session

// Slots that follow how busy a GPU is: between real processes and an agent whose NVML says what a test has it say.

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"weir/agent/session/turns"
)

// bySlots has so many containers have a turn at once, beyond the first only up to a utilisation.
func bySlots(slots int, most float64, told func(string) (float64, error)) func(*Options) {
	return func(o *Options) {
		s := turns.Default()
		s.AlwaysGate, s.Quantum, s.DrainTimeout = true, int64(time.Hour), int64(time.Hour)
		s.Slots, s.UtilisationMax = slots, most
		o.Time, o.Utilisation = &s, told
	}
}

// TestSlotsFollowWhatNVMLTells: a second container has a turn beside the first once the GPU has room for it.
func TestSlotsFollowWhatNVMLTells(t *testing.T) {
	var percent, asked atomic.Int64
	percent.Store(100)
	b := start(t, bySlots(2, 60, func(gpu string) (float64, error) {
		if gpu == uuid(0) && asked.Add(1) == 1 {
			return 0, errors.New("NVML is not ready")
		}
		return float64(percent.Load()), nil
	}))
	one, two := b.taker(), b.taker()
	b.eventually("the GPU is known to be busy", func() bool { return asked.Load() > 3 })
	one.want()
	two.Must("work 0 1 0")
	two.say("want")
	seen := asked.Load()
	b.eventually("it is asked for again", func() bool { return asked.Load() > seen+1 })
	if two.open() {
		t.Fatal("the second has a turn though the GPU is busy")
	}
	percent.Store(10)
	b.eventually("the second has a turn beside the first", two.open)
	if !one.open() {
		t.Error("the first has none any more")
	}
}

// TestUtilisationIsNotAskedInVain: where one has a turn at a time, or as many as there are slots.
func TestUtilisationIsNotAskedInVain(t *testing.T) {
	tell := func(string) (float64, error) { return 0, nil }
	for _, one := range []struct {
		change func(*Options)
		want   bool
	}{
		{bySlots(2, 60, tell), true},
		{bySlots(1, 60, tell), false},
		{bySlots(2, 0, tell), false},
		{bySlots(2, 60, nil), false},
		{func(*Options) {}, false},
	} {
		var o Options
		if one.change(&o); o.followsUtilisation() != one.want {
			t.Errorf("%+v: %v", o.Time, !one.want)
		}
	}
}
