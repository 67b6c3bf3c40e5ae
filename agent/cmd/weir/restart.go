// Restarting a container runtime whose configuration has changed. Invariants: the unit that is restarted is
// the one that reads that configuration; where it does not come up, its user is left with one that does, or
// is told how to get there.

package main

import (
	"fmt"
	"os/exec"

	"github.com/urfave/cli/v2"

	"weir/oci/runtimeconf"
)

// restarts tells whether this call is to restart a plan's unit.
func restarts(c *cli.Context, plan runtimeconf.Plan) bool {
	return c.Bool("restart") && !c.Bool("dry-run") && plan.Restart != "" && len(plan.Edits) > 0
}

// isOwn tells whether a plan is about the file that its unit reads.
func isOwn(plan runtimeconf.Plan) bool {
	return plan.Reads == "" || plan.Reads == usualConfig[plan.Runtime]
}

// checkRestart makes sure, before anything is written, that what --restart asks for can be done.
func checkRestart(c *cli.Context, plan runtimeconf.Plan) error {
	if !restarts(c, plan) {
		return nil
	}
	if !isOwn(plan) {
		return usageError("--restart: the unit %s reads %s; leave it out, and restart the %s that reads %s by yourself; "+
			"nothing is written", plan.Restart, usualConfig[plan.Runtime], plan.Restart, plan.Reads)
	}
	if _, err := exec.LookPath("systemctl"); err != nil {
		return fmt.Errorf("--restart: there is no systemctl here; leave it out, and restart %s by yourself; nothing is "+
			"written", plan.Restart)
	}
	return nil
}

// advise says what has to be restarted.
func advise(c *cli.Context, plan runtimeconf.Plan) {
	switch {
	case len(plan.Edits) == 0:
		if isOwn(plan) {
			notRestarted(c, unitOf(plan.Runtime))
		}
	case plan.Restart == "":
	case !c.Bool("dry-run") && isOwn(plan):
		fmt.Fprintf(c.App.ErrWriter, "note: it takes effect with: systemctl restart %s\n", plan.Restart)
	default:
		once := ""
		if c.Bool("dry-run") {
			once = "once it is written, "
		}
		fmt.Fprintf(c.App.ErrWriter, "note: %sit takes effect when the %s that reads %s is restarted\n", once, plan.Restart,
			either(plan.Reads, usualConfig[plan.Runtime]))
	}
}

// unitOf is the unit of a container runtime; empty: it has none.
func unitOf(runtime string) string {
	if runtime == "podman" {
		return ""
	}
	return runtime
}

// notRestarted says that --restart has restarted nothing: a change of before may wait for that still.
func notRestarted(c *cli.Context, unit string) {
	if c.Bool("restart") && !c.Bool("dry-run") && unit != "" {
		fmt.Fprintf(c.App.ErrWriter, "note: nothing has changed, so %s is not restarted; if it has not been since the last "+
			"change: systemctl restart %s\n", unit, unit)
	}
}

// restart restarts a unit, and makes sure that it runs then.
func restart(c *cli.Context, unit string) error {
	for _, arguments := range [][]string{{"restart", unit}, {"is-active", "--quiet", unit}} {
		command := exec.Command("systemctl", arguments...)
		command.Stderr = c.App.ErrWriter
		if err := command.Run(); err != nil {
			return fmt.Errorf("restarting %s: systemctl %s: %v", unit, arguments[0], err) // its exit code is not this program's
		}
	}
	return nil
}

// restartOrTakeBack restarts a plan's unit. If it does not come up, it gets back what it had, in the mode of before.
func restartOrTakeBack(c *cli.Context, records runtimeconf.Records, plan runtimeconf.Plan, before string) error {
	err := restart(c, plan.Restart)
	if err == nil {
		return nil
	}
	reason := "journalctl -u " + plan.Restart + " has the reason"
	if back := records.TakeBack(plan, before); back != nil {
		return fmt.Errorf("%w; %s; what was written cannot be taken back: %w; put it back with: weir runtime unconfigure "+
			"--runtime %s --force --restart", err, reason, back, plan.Runtime)
	}
	if again := restart(c, plan.Restart); again != nil {
		return fmt.Errorf("%w; %s; what was written is taken back, but it does not come up with what was there before either",
			err, reason)
	}
	return fmt.Errorf("%w; %s; what was written is taken back, and it runs as before", err, reason)
}
