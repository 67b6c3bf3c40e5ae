// `weir runtime unconfigure|status`: what configure has written is put back, and looked at.

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"weir/agent/control"
	"weir/oci/runtimeconf"
)

func runtimeUnconfigureCommand() *cli.Command {
	return &cli.Command{
		Name:  "unconfigure",
		Usage: "put back what was there before weir runtime configure",
		Description: `While containers run that weir has a part in, it is refused: without weir-runtime they could be neither entered
nor stopped. What somebody has changed since is not written over.

Examples:
  weir runtime unconfigure --dry-run
  weir runtime unconfigure --runtime docker --restart`,
		Flags: []cli.Flag{
			runtimeFlag(), dryRunFlag(), restartFlag(),
			&cli.BoolFlag{Name: "force", Usage: "do it while containers run, and leave what others have changed"},
			stateDirFlag(), askedRunDirFlag(),
		},
		Action: func(c *cli.Context) error { return asRoot(unconfigureRuntime(c), os.Geteuid()) },
	}
}

func unconfigureRuntime(c *cli.Context) error {
	if err := noPositionals(c); err != nil {
		return err
	}
	runtime, err := runtimeOf(c)
	if err != nil {
		return err
	}
	records, err := recordsOf(c)
	if err != nil {
		return err
	}
	mode, err := records.Configured(runtime)
	if err != nil {
		return err
	}
	if mode == "" {
		fmt.Fprintf(c.App.Writer, "nothing to change: %s is not configured\n", runtime)
		notRestarted(c, unitOf(runtime))
		return nil
	}
	plan, err := records.Undo(runtime)
	plan.Restart = unitOf(runtime)
	err = refusal(c, plan, err)
	if c.Bool("dry-run") {
		fmt.Fprint(c.App.Writer, plan.Diff())
	}
	if err != nil || c.Bool("dry-run") {
		return err
	}
	if err := records.Revert(plan); err != nil {
		return err
	}
	for _, edit := range plan.Edits {
		verb := "put back"
		if edit.After == nil {
			verb = "removed"
		}
		fmt.Fprintf(c.App.Writer, "%s %s\n", verb, edit.Path)
	}
	if len(plan.Edits) == 0 {
		fmt.Fprintln(c.App.Writer, "nothing to change")
	}
	if !restarts(c, plan) {
		advise(c, plan)
		return nil
	}
	if err := restart(c, plan.Restart); err != nil {
		return fmt.Errorf("%w; what was there before weir is put back, so journalctl -u %s has the reason", err, plan.Restart)
	}
	return nil
}

// refusal is why the plan of Undo, which ended with err, is not to be done; nil: it may be.
func refusal(c *cli.Context, plan runtimeconf.Plan, err error) error {
	if err != nil && !(c.Bool("force") && errors.Is(err, runtimeconf.ErrChanged)) {
		return err
	}
	if err := checkRestart(c, plan); err != nil || c.Bool("force") {
		return err
	}
	return noneRuns(c)
}

// noneRuns makes sure that no container runs that a container runtime has started under weir.
func noneRuns(c *cli.Context) error {
	socket, err := socketOf(c)
	if err != nil {
		return err
	}
	agent := connection{control.NewClient(socket), []string{socket}, filepath.Dir(socket)}
	containers, err := agent.Containers(c.Context)
	if err != nil {
		err = agent.explain(err)
		return &codedError{exitCode(err), err.Error() + "; without it nobody knows which containers run under weir: give " +
			"--force if none do"}
	}
	for _, container := range containers {
		if container.Identity == "cgroup" {
			return fmt.Errorf("container %s runs under weir; stop it first, or give --force", printable(container.Name))
		}
	}
	return nil
}

func runtimeStatusCommand() *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "show which container runtimes are configured",
		Description: "Examples:\n  weir runtime status",
		Flags:       []cli.Flag{stateDirFlag()},
		Action:      func(c *cli.Context) error { return asRoot(runtimeStatus(c), os.Geteuid()) },
	}
}

func runtimeStatus(c *cli.Context) error {
	if err := noPositionals(c); err != nil {
		return err
	}
	records, err := recordsOf(c)
	if err != nil {
		return err
	}
	var errs []error
	for _, runtime := range runtimes {
		text := "not configured"
		mode, err := records.Configured(runtime)
		if errors.Is(err, fs.ErrPermission) {
			return err // the same holds for all
		}
		if err == nil && mode != "" {
			var drift []string
			drift, err = records.Drift(runtime)
			text = strings.Join(append([]string{"mode " + mode}, drift...), "; ")
		}
		if err != nil {
			errs, text = append(errs, err), "not known"
		}
		fmt.Fprintf(c.App.Writer, "%-10s  %s\n", runtime, text)
	}
	return errors.Join(errs...)
}
