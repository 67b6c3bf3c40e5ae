package config

// The keys of GPU time.

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Time is what weir.toml says of GPU time, of all GPUs. The defaults are those of package turns.
type Time struct {
	Off        bool // nobody is scheduled
	AlwaysGate bool // by turns also where nobody is owed time

	Quantum, Threshold, Grace, DrainTimeout, GateWaitMax, Window time.Duration

	Slots          int
	UtilisationMax float64 // in percent; 0: slots do not follow how busy a GPU is
	Alpha          float64
}

// DefaultTime is used where nothing is said of it.
func DefaultTime() Time {
	return Time{
		Quantum: 20 * time.Millisecond, Threshold: 50 * time.Millisecond, Grace: 3 * time.Millisecond,
		DrainTimeout: time.Second, GateWaitMax: 30 * time.Second, Window: 4 * time.Millisecond,
		Slots: 1, Alpha: 4,
	}
}

// slotsMax is the most slots of a GPU.
const slotsMax = 64

type timeKeys struct {
	Time         *string  `toml:"time"`
	Contention   *string  `toml:"contention"`
	Quantum      *string  `toml:"quantum"`
	Threshold    *string  `toml:"threshold"`
	Grace        *string  `toml:"grace"`
	DrainTimeout *string  `toml:"drain_timeout"`
	GateWaitMax  *string  `toml:"gate_wait_max"`
	Window       *string  `toml:"window"`
	Slots        *int64   `toml:"slots"`
	Utilisation  *float64 `toml:"utilisation_max"`
	Alpha        *float64 `toml:"alpha"`
}

func (f *timeKeys) value(key string) *string {
	switch key {
	case "time":
		return f.Time
	case "contention":
		return f.Contention
	case "quantum":
		return f.Quantum
	case "threshold":
		return f.Threshold
	case "grace":
		return f.Grace
	case "drain_timeout":
		return f.DrainTimeout
	case "gate_wait_max":
		return f.GateWaitMax
	case "window":
		return f.Window
	case "slots":
		if f.Slots != nil {
			text := strconv.FormatInt(*f.Slots, 10)
			return &text
		}
	case "utilisation_max":
		if f.Utilisation != nil {
			text := strconv.FormatFloat(*f.Utilisation, 'g', -1, 64)
			return &text
		}
	case "alpha":
		if f.Alpha != nil {
			text := strconv.FormatFloat(*f.Alpha, 'g', -1, 64)
			return &text
		}
	}
	return nil
}

var wantSpan = `a duration in quotes, such as "20ms"`

var timeKeyList = []Key{
	{"time", "time", "WEIR_TIME", `"on" or "off"`},
	{"contention", "contention", "WEIR_CONTENTION", `"on" or "off"`},
	{"quantum", "quantum", "WEIR_QUANTUM", wantSpan},
	{"threshold", "threshold", "WEIR_THRESHOLD", wantSpan},
	{"grace", "grace", "WEIR_GRACE", wantSpan},
	{"drain_timeout", "drain-timeout", "WEIR_DRAIN_TIMEOUT", wantSpan},
	{"gate_wait_max", "gate-wait-max", "WEIR_GATE_WAIT_MAX", wantSpan},
	{"window", "window", "WEIR_WINDOW", wantSpan},
	{"slots", "slots", "WEIR_SLOTS", "a number from 1 to 64, without quotes"},
	{"utilisation_max", "utilisation-max", "WEIR_UTILISATION_MAX", "a percentage, 0 to 100, without quotes"},
	{"alpha", "alpha", "WEIR_ALPHA", "a number, 0 or more, without quotes"},
}

// set gives one key a value; known is false where it is none of these.
func (t *Time) set(key, value string) (known bool, err error) {
	switch key {
	case "time":
		t.Off, err = parseChoice(value, "on", "off")
	case "contention":
		t.AlwaysGate, err = parseChoice(value, "on", "off")
	case "quantum":
		t.Quantum, err = parseSpan(value, time.Millisecond)
	case "threshold":
		t.Threshold, err = parseSpan(value, 0)
	case "grace":
		t.Grace, err = parseSpan(value, 0)
	case "drain_timeout":
		t.DrainTimeout, err = parseSpan(value, time.Millisecond)
	case "gate_wait_max":
		t.GateWaitMax, err = parseSpan(value, time.Millisecond)
	case "window":
		t.Window, err = parseSpan(value, 0)
	case "slots":
		if t.Slots, err = strconv.Atoi(value); err != nil || t.Slots < 1 || t.Slots > slotsMax {
			err = fmt.Errorf("%.70q: want a number from 1 to %d", value, slotsMax)
		}
	case "utilisation_max":
		t.UtilisationMax, err = strconv.ParseFloat(value, 64)
		if err != nil || !(t.UtilisationMax >= 0 && t.UtilisationMax <= 100) {
			err = fmt.Errorf("%.70q: want a percentage, 0 to 100", value)
		}
	case "alpha":
		if t.Alpha, err = strconv.ParseFloat(value, 64); err != nil || !(t.Alpha >= 0) || math.IsInf(t.Alpha, 0) {
			err = fmt.Errorf("%.70q: want a number, 0 or more", value)
		}
	default:
		return false, nil
	}
	return true, err
}

// parseSpan reads a span of at least so long, and of an hour at most.
func parseSpan(text string, least time.Duration) (time.Duration, error) {
	span, err := time.ParseDuration(text)
	if err != nil || span < least || span > time.Hour {
		return 0, fmt.Errorf("%.70q: want a duration from %v to 1h, with its unit, such as 20ms", text, least)
	}
	return span, nil
}
