package turns

// What operators set of GPU time.

import (
	"fmt"
	"math"
	"time"

	"weir/agent/sched"
)

// Settings are those of all GPUs of a node.
type Settings struct {
	sched.Config
	Window  time.Duration // what a process may have in flight where there are rivals; 0: no bound
	WaitMax time.Duration // the longest that a launch waits at the gate
}

// Default are the settings of an agent that was told nothing of them.
func Default() Settings {
	return Settings{Config: sched.Default(), Window: 4 * time.Millisecond, WaitMax: 30 * time.Second}
}

// Check returns what is wrong with s: an error that names the key and what is accepted.
func (s Settings) Check() error {
	if s.Window < 0 || s.Window > time.Hour {
		return fmt.Errorf("window: %v; give 0s to 1h", s.Window)
	}
	if s.WaitMax < time.Millisecond || s.WaitMax > time.Hour {
		return fmt.Errorf("gate_wait_max: %v; give 1ms to 1h", s.WaitMax)
	}
	return s.Config.Check()
}

func milliseconds(d time.Duration) uint32 { return uint32(min(d.Milliseconds(), math.MaxInt32)) }
func microseconds(d time.Duration) uint32 { return uint32(min(d.Microseconds(), math.MaxInt32)) }
