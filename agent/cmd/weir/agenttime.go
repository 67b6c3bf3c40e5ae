package main

// What `weir agent` can be told of GPU time.

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"weir/agent/config"
	"weir/agent/control"
	"weir/agent/device"
	"weir/agent/session/turns"
)

func timeFlags() []cli.Flag {
	return []cli.Flag{
		setting("time", "`on|off`: share out GPU time by weights, or let all programs run as the GPU lets them; else on"),
		setting("contention", "`on|off`: take turns only while somebody gets less than a share, or always where several "+
			"use a GPU; else on"),
		setting("quantum", "let a turn last for `DURATION` while others wait; else 20ms"),
		setting("threshold", "let nobody get ahead of others by more than `DURATION` of GPU time and still get a turn; "+
			"else 50ms"),
		setting("grace", "keep what a container is owed while it is idle for less than `DURATION`; else 3ms"),
		setting("drain-timeout", "go on with others when work still runs `DURATION` after its turn; else 1s"),
		setting("gate-wait-max", "let a launch through that has waited for its turn for `DURATION`; else 30s"),
		setting("window", "let a process have so much work in flight, a `DURATION`, where others use the GPU; 0s: "+
			"as much as it likes; else 4ms"),
		setting("slots", "let `NUMBER` containers have a turn at once; above 1 only where MPS serves the GPU; else 1"),
		setting("utilisation-max", "of these, let more than one have a turn only while the GPU is at work for no more than "+
			"`PERCENT` of the time; 0: always; else 0"),
		setting("alpha", "keep an idle container's memory on the GPU for `NUMBER` times the mean time between its returns; "+
			"else 4"),
	}
}

// timeSettings are what the configuration says of GPU time, for the node.
func timeSettings(t config.Time) *turns.Settings {
	s := turns.Default()
	s.Window, s.WaitMax = t.Window, t.GateWaitMax
	s.Quantum, s.Threshold, s.Grace = t.Quantum.Nanoseconds(), t.Threshold.Nanoseconds(), t.Grace.Nanoseconds()
	s.DrainTimeout, s.Slots, s.Alpha, s.AlwaysGate = t.DrainTimeout.Nanoseconds(), t.Slots, t.Alpha, t.AlwaysGate
	s.UtilisationMax = t.UtilisationMax
	return &s
}

// checkSlots refuses more than one turn at a time where a GPU cannot have that, or where it cannot have it as configured.
func checkSlots(devices *device.Devices, t config.Time) error {
	for _, g := range devices.GPUs() {
		err := devices.CheckSlots(g.UUID, t.Slots)
		if err == nil {
			err = devices.CheckUtilisation(g.UUID, t.Slots, t.UtilisationMax)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", control.ErrUnsupported, err)
		}
	}
	return nil
}
