package sched

// What can be set, with its defaults and what is refused.

import (
	"fmt"
	"math"
)

const (
	// Never is later than any time.
	Never int64 = math.MaxInt64

	ms  int64 = 1_000_000
	sec int64 = 1_000 * ms

	// WeightMin and WeightMax bound a weight; 1 is that of a container without one. Virtual times of ten
	// years' service at WeightMin still have a resolution of 100 µs in a float64.
	WeightMin = 0.001
	WeightMax = 1000

	// SlotsMax bounds D.
	SlotsMax = 64
	// TimeMax bounds every duration of a Config, in ns: an hour.
	TimeMax = 3600 * sec
)

// Config is one GPU's. Durations are in ns. New refuses what Check does.
type Config struct {
	// Quantum is how long a lease lasts while others wait (Q).
	Quantum int64
	// Threshold is how far a flow may be ahead of GVT and still get a lease (T): in virtual time, and,
	// for weights above 1, in the flow's own service time, which is the stricter of the two.
	Threshold int64
	// Grace is how long a flow that has become idle still counts for GVT, so that a gap between two
	// bursts does not cost it what it is owed (decision 11: a few ms).
	Grace int64
	// Slots is how many leases there may be at once (D): 1 where leases hold GPU work only.
	Slots int
	// UtilisationMax makes the number of slots depend on the GPU's utilisation, in percent: beyond the
	// first, a lease is granted only while what is expected is not above it. 0: always Slots.
	UtilisationMax float64

	// DrainStall is how long a drain may make no progress before the gate opens again; the quantum if
	// that is longer.
	DrainStall int64
	// DrainTimeout is how long a drain may take before the slot goes to others.
	DrainTimeout int64
	// StallsMax: so many drains in a row that only went on once the gate was open make a flow co-run.
	StallsMax int
	// CoRunFor is for how long.
	CoRunFor int64

	// Alpha: an idle flow's memory is kept on the GPU for Alpha times the mean time between its returns
	// from idle (decision 11), KeepMax at most.
	Alpha   float64
	KeepMax int64

	// AlwaysGate keeps the gate closed to all but the holders of leases, rivals or not.
	AlwaysGate bool
	// OpenFor is how long the gate stays open among rivals before leases are measured anew.
	OpenFor int64
	// GatedFor and GatedMax are how long the gate stays closed among rivals, the first time and after
	// it had to be closed again and again.
	GatedFor, GatedMax int64
}

// Default is for a GPU on which all memory is resident.
func Default() Config {
	return Config{
		Quantum: 20 * ms, Threshold: 50 * ms, Grace: 3 * ms, Slots: 1,
		DrainStall: 20 * ms, DrainTimeout: sec, StallsMax: 3, CoRunFor: 30 * sec,
		Alpha: 4, KeepMax: 60 * sec,
		OpenFor: 3 * sec, GatedFor: sec, GatedMax: 30 * sec,
	}
}

// Switching returns c for a GPU on which a switch of flows costs so many ns (bytes to move ÷ link):
// quantum and threshold so long that switches take at most the given part of the time. A threshold
// of switch ÷ part is what decision 11 derives; the quantum keeps its ratio to it.
func (c Config) Switching(cost int64, part float64) Config {
	if cost <= 0 || !(part > 0) || c.Threshold <= 0 {
		return c
	}
	longer := float64(cost) / part / float64(c.Threshold)
	if longer > 1 {
		c.Quantum = int64(min(float64(c.Quantum)*longer, float64(TimeMax)))
		c.Threshold = int64(min(float64(c.Threshold)*longer, float64(TimeMax)))
	}
	return c
}

// Moving returns c for a GPU whose flows' memory does not fit it together: only leases open gates, with a quantum of
// what package residency asks for, and a threshold that one quantum reaches, if these are longer (decision 15).
func (c Config) Moving(quantum int64) Config {
	c.AlwaysGate = true
	c.Quantum = max(c.Quantum, min(quantum, TimeMax))
	c.Threshold = max(c.Threshold, c.Quantum-1) // so a second one follows only for who was behind
	return c
}

// Check returns what is wrong with c: an error that names the key and what is accepted.
func (c Config) Check() error {
	for _, d := range []struct {
		key         string
		value, from int64
	}{
		{"quantum", c.Quantum, 1}, {"threshold", c.Threshold, 0}, {"grace", c.Grace, 0},
		{"drain_stall", c.DrainStall, 1}, {"drain_timeout", c.DrainTimeout, 1},
		{"co_run_for", c.CoRunFor, 1}, {"keep_max", c.KeepMax, 0}, {"open_for", c.OpenFor, 1},
		{"gated_for", c.GatedFor, 0}, {"gated_max", c.GatedMax, c.GatedFor},
	} {
		if d.value < d.from || d.value > TimeMax {
			return fmt.Errorf("%s: %d ns; give %d ns to one hour", d.key, d.value, d.from)
		}
	}
	if c.Slots < 1 || c.Slots > SlotsMax {
		return fmt.Errorf("slots: %d; give 1 to %d", c.Slots, SlotsMax)
	}
	if c.StallsMax < 1 {
		return fmt.Errorf("stalls_max: %d; give 1 or more", c.StallsMax)
	}
	if !(c.UtilisationMax >= 0 && c.UtilisationMax <= 100) {
		return fmt.Errorf("utilisation_max: %g; give a percentage, or 0 for none", c.UtilisationMax)
	}
	if !(c.Alpha >= 0) || math.IsInf(c.Alpha, 0) {
		return fmt.Errorf("alpha: %g; give 0 or more", c.Alpha)
	}
	return nil
}

// CheckWeight returns what is wrong with a weight.
func CheckWeight(weight float64) error {
	if !(weight >= WeightMin && weight <= WeightMax) {
		return fmt.Errorf("weight: %g; give %g to %d", weight, WeightMin, WeightMax)
	}
	return nil
}
