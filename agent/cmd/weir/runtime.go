// `weir runtime configure`: container runtimes that start containers through weir.

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"weir/agent/config"
	"weir/agent/control"
	"weir/oci/runtimeconf"
)

// usualSettings is where weir-runtime looks for its settings by itself.
const usualSettings = "/etc/weir/runtime.toml"

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
		Usage: "`RUNTIME`: " + strings.Join(runtimes, ", ")}
}

func stateDirFlag() cli.Flag {
	return &cli.StringFlag{Name: "state-dir", Usage: "what was there is kept in `DIR`/rollback; else that of " +
		"$WEIR_STATE_DIR, else " + config.SystemStateDir}
}

func restartFlag() cli.Flag {
	return &cli.BoolFlag{Name: "restart", Usage: "restart the runtime's unit if anything has changed"}
}

// askedRunDirFlag is how a command is told which agent containers are to ask.
func askedRunDirFlag() cli.Flag {
	return &cli.StringFlag{Name: "run-dir", Usage: "the agent that containers ask is that in `DIR`; else that of $" +
		runDirEnv + ", else " + config.SystemRunDir}
}

func runtimeConfigureCommand() *cli.Command {
	return &cli.Command{
		Name:  "configure",
		Usage: "add weir to a container runtime's configuration",
		Description: `What was there is kept, and unconfigure puts it back. A configuration that is not understood, or that another
tool makes anew, is not written. Where one file cannot be written, or the runtime does not come up when it is
restarted, what had been written is taken back.

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
			&cli.StringFlag{Name: "runtime-config", Value: usualSettings, Usage: "weir-runtime's settings `FILE`"},
			&cli.BoolFlag{Name: "set-as-default", Usage: "make it the runtime of containers that ask for none"},
			dryRunFlag(), restartFlag(), stateDirFlag(), askedRunDirFlag(),
		},
		Action: func(c *cli.Context) error { return asRoot(configureRuntime(c), os.Geteuid()) },
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
	if err := checkRestart(c, plan); err != nil {
		return err
	}
	records, err := recordsOf(c)
	if err != nil {
		return err
	}
	before, err := records.Configured(runtime)
	if err != nil {
		return err
	}
	out := c.App.Writer
	if c.Bool("dry-run") {
		fmt.Fprint(out, plan.Diff())
	} else if err := records.Apply(plan, setup.Mode); err != nil {
		return err
	} else {
		for _, edit := range plan.Edits {
			fmt.Fprintf(out, "wrote %s\n", edit.Path)
		}
	}
	if len(plan.Edits) == 0 {
		fmt.Fprintln(out, "nothing to change")
	}
	for _, note := range append(plan.Notes, notesOf(c, runtime, setup)...) {
		fmt.Fprintf(c.App.ErrWriter, "note: %s\n", note)
	}
	if before != "" && before != setup.Mode && len(plan.Edits) > 0 {
		fmt.Fprintf(c.App.ErrWriter, "note: %s was configured in mode %s; what that has written and this has not written over "+
			"stays until weir runtime unconfigure\n", runtime, before)
	}
	if !restarts(c, plan) {
		advise(c, plan)
		return nil
	}
	return restartOrTakeBack(c, records, plan, before)
}

// notesOf are what a user has to know of this machine, beyond the configuration.
func notesOf(c *cli.Context, runtime string, setup runtimeconf.Setup) (notes []string) {
	if file := setup.Wrapper.Path; setup.Mode == runtimeconf.ModeRuntime && file != usualSettings {
		assignment := "WEIR_RUNTIME_CONFIG=" + file
		how := "containerd's environment, which it passes on; systemctl edit containerd, and there:\n  [Service]\n  Environment=" +
			assignment
		switch runtime {
		case "crio":
			how = "its environment: monitor_env of the runtime weir in CRI-O's configuration is for that"
		case "podman":
			how = "its environment: conmon_env_vars in containers.conf is for that"
		}
		notes = append(notes, "weir-runtime reads "+file+" only with "+assignment+" in "+how)
	}
	_, err := control.NewClient(setup.ControlSocket).Info(c.Context)
	if errors.Is(err, control.ErrUnreachable) {
		start := "weir agent, or as a service: systemctl enable --now weir-agent"
		if dir := filepath.Dir(setup.ControlSocket); dir != config.SystemRunDir {
			start = "weir agent --run-dir " + dir
		}
		notes = append(notes, "no agent answers at "+setup.ControlSocket+": containers that ask for a cap do not start "+
			"until one runs; start it with: "+start)
	}
	return notes
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
	if setup.SetAsDefault && setup.Mode != runtimeconf.ModeRuntime {
		return setup, usageError("--set-as-default: mode %s adds no runtime", setup.Mode)
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
	if setup.ControlSocket, err = socketOf(c); err != nil {
		return setup, err
	}
	wrapper, err := pathOf(c, "runtime-config")
	if err != nil {
		return setup, err
	}
	setup.Wrapper, err = runtimeconf.Load(wrapper)
	return setup, err
}

// socketOf is the control socket of the agent that containers are to ask.
func socketOf(c *cli.Context) (string, error) {
	dir, err := pathOf(c, "run-dir")
	if err == nil && dir == "" {
		dir, err = filepath.Abs(either(os.Getenv(runDirEnv), config.SystemRunDir))
	}
	if err == nil && strings.ContainsAny(dir, ": \t\n") {
		err = usageError("--run-dir %q: no agent has a run directory with blanks or colons in its path", dir)
	}
	return filepath.Join(dir, config.SocketName), err
}

func recordsOf(c *cli.Context) (runtimeconf.Records, error) {
	dir, err := pathOf(c, "state-dir")
	if err == nil && dir == "" {
		dir, err = filepath.Abs(either(os.Getenv("WEIR_STATE_DIR"), config.SystemStateDir))
	}
	return runtimeconf.Records(filepath.Join(dir, "rollback")), err
}
