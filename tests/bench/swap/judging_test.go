package swap

// What is made of samples above a cap.

import (
	"testing"
	"time"
)

// at100 is a card whose link carries a MiB a ms; caps are of 100 MiB.
var at100 = card{link: 1000 * mib}

func judged(limits []limit, reports []report, samples func(i int) sample) excess {
	s := &series{sets: []int64{0}}
	for i := range 1000 {
		s.rows = append(s.rows, row{at: time.Second + time.Duration(i)*ms, of: []sample{samples(i)}})
	}
	return s.excessOf(0, at100, limits, reports, 0)
}

func TestAboveACapWithoutFaults(t *testing.T) {
	e := judged([]limit{{bytes: 100 * mib}}, nil, func(i int) sample {
		if i >= 20 && i < 40 || i == 60 {
			return sample{resident: 90 * mib, plain: 20 * mib}
		}
		return sample{resident: 90 * mib, plain: 10 * mib}
	})
	if e.samples != 1000 || e.above != 21 || e.longest != 19*ms || e.most != 10*mib || e.apart != ms || e.faulting != 0 {
		t.Errorf("%+v", e)
	}
}

// 20 MiB are faulted in from 100 ms on, in kernels that end at 300 ms; they stay until they are gone.
func TestFaultsAboveACap(t *testing.T) {
	play := func(gone int) func(i int) sample {
		return func(i int) sample {
			now := sample{busy: time.Duration(min(i, 300)) * ms, resident: 100 * mib}
			if i < 50 {
				now.resident = 90 * mib
			}
			if i >= 100 {
				now.faulted = 20 * mib
			}
			if i >= 100 && i < gone {
				now.resident += 20 * mib
			}
			return now
		}
	}
	limits, say := []limit{{bytes: 100 * mib}}, []report{{at: time.Second + 120*ms, above: 19 * mib}}
	if e := judged(limits, say, play(400)); e.longest != 0 || e.faults != 299*ms || e.faulted != 20*mib {
		t.Errorf("told: %+v", e)
	}
	if e := judged(limits, say, play(900)); e.longest < 400*ms || e.most != 20*mib {
		t.Errorf("told, and does not go when the program rests: %+v", e)
	}
	if e := judged(limits, []report{{at: time.Second + 120*ms, above: 10 * mib}}, play(400)); e.longest != 299*ms {
		t.Errorf("told of less: %+v", e)
	}
	if e := judged(limits, nil, play(400)); e.longest != 299*ms {
		t.Errorf("not told: %+v", e)
	}
}

// From 200 ms on the cap is 60 MiB where 100 are on the card; so many a ms go. Its command took from 190 on.
func TestLoweredCap(t *testing.T) {
	limits := []limit{{bytes: 100 * mib}, {asked: time.Second + 190*ms, set: time.Second + 200*ms, bytes: 60 * mib}}
	goes := func(perMs float64) func(i int) sample {
		return func(i int) sample {
			gone := min(40, max(0, perMs*float64(i-200)))
			return sample{resident: 100*mib - int64(gone*mib)}
		}
	}
	e := judged(limits, nil, goes(0.9))
	if e.lowered != 1 || e.toGo != 40*mib || e.longest != 0 || e.slowest < 1.1 || e.slowest > 1.15 {
		t.Errorf("at 0.9 of the link: %+v", e)
	}
	if e := judged(limits, nil, goes(0.5)); e.longest < 30*ms || e.longest > 40*ms {
		t.Errorf("at half of the link: %+v", e)
	}
	if e := judged(limits, nil, goes(0)); e.longest < 700*ms || e.most != 40*mib {
		t.Errorf("not at all: %+v", e)
	}
}
