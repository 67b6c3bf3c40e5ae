// `weir runtime configure|unconfigure|status`: container runtimes that start containers through weir.

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"weir/agent/config"
	"weir/oci/runtimeconf"
)

// runtimes are the container runtimes that can be configured.
var runtimes = []string{"containerd", "docker", "crio", "podman"}

func runtimeCommand() *cli.Command {
	return &cli.Command{
		Name:  "runtime",
		Usage: "make containerd, Docker, CRI-O or Podman start containers under weir",
		Description: `Examples:
  weir runtime configure --dry-run
  weir runtime configure --runtime containerd --restart
  weir runtime unconfigure --restart`,
		Subcommands: []*cli.Command{runtimeConfigureCommand(), runtimeUnconfigureCommand(), runtimeStatusCommand()},
	}
}

func runtimeFlag() cli.Flag {
	return &cli.StringFlag{Name: "runtime", Value: runtimes[0],
		Usage: "configure `RUNTIME`: " + strings.Join(runtimes, ", ")}
}

func stateDirFlag() cli.Flag {
	return &cli.StringFlag{Name: "state-dir", Usage: "keep what was there in `DIR`/rollback; else $WEIR_STATE_DIR, " +
		"else " + config.SystemStateDir}
}

func restartFlag() cli.Flag {
	return &cli.BoolFlag{Name: "restart", Usage: "restart the runtime if anything has changed"}
}

func runtimeConfigureCommand() *cli.Command {
	return &cli.Command{
		Name:  "configure",
		Usage: "add weir to a container runtime's configuration",
		Description: `What was there is kept, and unconfigure puts it back. A configuration that is not understood, or that another
tool makes anew, is not written.

Examples:
  weir runtime configure --dry-run
  weir runtime configure --runtime docker --set-as-default --restart
  weir runtime configure --runtime crio --mode hooks`,
		Flags: []cli.Flag{
			runtimeFlag(),
			&cli.StringFlag{Name: "mode", Value: runtimeconf.ModeRuntime, Usage: "`MODE`: runtime (weir-runtime in " +
				"runc's place, for containers that ask for it), cdi, nri or hooks"},
			&cli.StringFlag{Name: "config", Usage: "its main configuration `FILE`, where it is not the usual one"},
			&cli.StringFlag{Name: "drop-in-config", Usage: "write weir's part to `FILE`, where it is not the usual one"},
			&cli.StringFlag{Name: "runtime-config", Value: "/etc/weir/runtime.toml", Usage: "weir-runtime's settings `FILE`"},
			&cli.BoolFlag{Name: "set-as-default", Usage: "make it the runtime of containers that ask for none"},
			dryRunFlag(), restartFlag(), stateDirFlag(), runDirFlag(),
		},
		Action: configureRuntime,
	}
}

func configureRuntime(c *cli.Context) error {
	if err := noPositionals(c); err != nil {
		return err
	}
	runtime, err := runtimeOf(c)
	if err != nil {
		return err
	}
	setup, err := setupFrom(c)
	if err != nil {
		return err
	}
	plan, err := gather(runtime, c, setup)
	if err != nil {
		return err
	}
	out := c.App.Writer
	if c.Bool("dry-run") {
		fmt.Fprint(out, plan.Diff())
	} else if err := recordsOf(c).Apply(plan, setup.Mode); err != nil {
		return err
	} else {
		for _, edit := range plan.Edits {
			fmt.Fprintf(out, "wrote %s\n", edit.Path)
		}
	}
	for _, note := range plan.Notes {
		fmt.Fprintf(c.App.ErrWriter, "note: %s\n", note)
	}
	if len(plan.Edits) == 0 {
		fmt.Fprintln(out, "nothing to change")
	}
	return restart(c, plan)
}

// restart restarts the unit of a plan, or says how.
func restart(c *cli.Context, plan runtimeconf.Plan) error {
	switch {
	case plan.Restart == "" || len(plan.Edits) == 0:
		return nil
	case c.Bool("dry-run") || !c.Bool("restart"):
		fmt.Fprintf(c.App.ErrWriter, "note: it takes effect with: systemctl restart %s\n", plan.Restart)
		return nil
	}
	restart := exec.Command("systemctl", "restart", plan.Restart)
	restart.Stderr = c.App.ErrWriter
	if err := restart.Run(); err != nil {
		return fmt.Errorf("restarting %s: %v", plan.Restart, err) // its exit code is not this program's
	}
	return nil
}

func runtimeOf(c *cli.Context) (string, error) {
	runtime := c.String("runtime")
	if !slices.Contains(runtimes, runtime) {
		return "", usageError("--runtime %q: want one of %s", runtime, strings.Join(runtimes, ", "))
	}
	return runtime, nil
}

// setupFrom finds weir's programs, which are installed beside this one.
func setupFrom(c *cli.Context) (runtimeconf.Setup, error) {
	setup := runtimeconf.Setup{Mode: c.String("mode"), SetAsDefault: c.Bool("set-as-default")}
	modes := []string{runtimeconf.ModeRuntime, runtimeconf.ModeCDI, runtimeconf.ModeNRI, runtimeconf.ModeHooks}
	if !slices.Contains(modes, setup.Mode) {
		return setup, usageError("--mode %q: want one of %s", setup.Mode, strings.Join(modes, ", "))
	}
	program, err := os.Executable()
	if err != nil {
		return setup, err
	}
	for name, path := range map[string]*string{
		"weir-runtime": &setup.Runtime, "weir-runtime-create": new(string), "weir-hook": &setup.Hook,
	} {
		*path = filepath.Join(filepath.Dir(program), name)
		if info, err := os.Stat(*path); err != nil || !info.Mode().IsRegular() {
			return setup, fmt.Errorf("there is no %s beside %s; install all of weir's programs in one directory",
				name, program)
		}
	}
	setup.ControlSocket = filepath.Join(runDirOf(c), config.SocketName)
	wrapper, err := filepath.Abs(c.String("runtime-config"))
	if err != nil {
		return setup, err
	}
	setup.Wrapper, err = runtimeconf.Load(wrapper)
	return setup, err
}

// runDirOf is the run directory of the agent that containers are to ask.
func runDirOf(c *cli.Context) string {
	for _, dir := range []string{c.String("run-dir"), os.Getenv(runDirEnv)} {
		if dir != "" {
			if absolute, err := filepath.Abs(dir); err == nil {
				return absolute
			}
		}
	}
	return config.SystemRunDir
}

func recordsOf(c *cli.Context) runtimeconf.Records {
	dir := c.String("state-dir")
	if dir == "" {
		dir = os.Getenv("WEIR_STATE_DIR")
	}
	if dir == "" {
		dir = config.SystemStateDir
	}
	return runtimeconf.Records(filepath.Join(dir, "rollback"))
}

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
			stateDirFlag(), runDirFlag(),
		},
		Action: unconfigureRuntime,
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
	plan, err := recordsOf(c).Undo(runtime)
	if err != nil && !(c.Bool("force") && errors.Is(err, runtimeconf.ErrChanged)) {
		return err
	}
	if runtime != "podman" {
		plan.Restart = runtime
	}
	if c.Bool("dry-run") {
		fmt.Fprint(c.App.Writer, plan.Diff())
		return nil
	}
	if !c.Bool("force") {
		if err := noneRuns(c); err != nil {
			return err
		}
	}
	if err := recordsOf(c).Revert(plan); err != nil {
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
	return restart(c, plan)
}

// noneRuns makes sure that no container runs that a container runtime has started under weir.
func noneRuns(c *cli.Context) error {
	agent, err := connect(c)
	if err != nil {
		return err
	}
	containers, err := agent.Containers(c.Context)
	if err != nil {
		return fmt.Errorf("%w; without it nobody knows which containers run under weir: give --force if none do",
			agent.explain(err))
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
		Action: func(c *cli.Context) error {
			if err := noPositionals(c); err != nil {
				return err
			}
			for _, runtime := range runtimes {
				mode, err := recordsOf(c).Configured(runtime)
				if err != nil {
					return err
				}
				text := "not configured"
				if mode != "" {
					text = "mode " + mode
					if _, err := recordsOf(c).Undo(runtime); err != nil {
						text += "; " + strings.ReplaceAll(err.Error(), "\n", "; ")
					}
				}
				fmt.Fprintf(c.App.Writer, "%-10s  %s\n", runtime, text)
			}
			return nil
		},
	}
}
