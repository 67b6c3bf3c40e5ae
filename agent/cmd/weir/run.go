// `weir run`: makes itself a container and runs a program in it. Invariant: a program that no cap
// can hold is not started unless that was asked for, and then it is said.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"weir/agent/control"
)

// The exit codes of env(1) for a command that could not be started.
const (
	exitCannotStart = 126
	exitNoCommand   = 127
)

// How much of its command a run tells the agent, for display.
const (
	toldArgsMax  = 32
	toldBytesMax = 256
)

// endRunMax is how long a run waits for the agent to take note of its end. The agent notices it
// without being told, too.
const endRunMax = time.Second

func runCommand() *cli.Command {
	return &cli.Command{
		Name:      passesThrough,
		Usage:     "run a program as a container, under caps",
		ArgsUsage: "[--] COMMAND [ARGUMENT...]",
		Description: `COMMAND and all it starts become one container: its caps hold for all of them
together. Exits with COMMAND's code, 128+N if signal N ended it, 127 if it was not found, 126 if
it could not be started. What cannot be capped is refused (5: no agent, 6: a program into which
no library can be loaded, being statically linked, setuid or of another architecture).

Examples:
  weir run --memory 8GiB -- python3 train.py
  weir run --name trainer --memory 8GiB --weight 2 -- ./train --epochs 3
  weir run --memory 8GiB --swap 16GiB -- python3 train.py
  weir run --allow-unenforced -- ./static-tool`,
		Flags: append(
			[]cli.Flag{&cli.StringFlag{Name: "name",
				Usage: "call the container `NAME`; else it is named after the command"}},
			append(capFlags(),
				&cli.StringFlag{Name: "report", Usage: "`WHAT` its memory reports show as the total: cap, or virtual for cap " +
					"and swap together; else cap"},
				&cli.BoolFlag{Name: "allow-unenforced", Usage: "run it even where no cap can hold it"},
				runDirFlag())...),
		Action: run,
	}
}

func run(c *cli.Context) error {
	caps, err := capsFrom(c)
	if err != nil {
		return err
	}
	if c.IsSet("name") && c.String("name") == "" {
		return usageError("--name is empty: give a name or leave the flag out")
	}
	if what := c.String("report"); c.IsSet("report") && what != control.ReportCap && what != control.ReportVirtual {
		return usageError("--report %q: want cap or virtual", what)
	}
	command := c.Args().Slice()
	if len(command) == 0 {
		return usageError("which command? As in: weir run --memory 8GiB -- python3 train.py")
	}
	path, err := exec.LookPath(command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return startError(command[0], err)
	}
	agent, err := connect(c)
	if err != nil {
		return err
	}
	grant, err := register(c, agent, path, control.RunRequest{
		Name: c.String("name"), Command: told(command), Caps: caps, Report: c.String("report"),
	})
	if err != nil {
		return err
	}
	if grant != nil {
		warnStored(c, agent, caps)
	}
	code, leftovers, err := supervise(path, command, environment(os.Environ(), grant))
	if grant != nil {
		ctx, cancel := context.WithTimeout(context.Background(), endRunMax)
		defer cancel()
		// A failure is of no consequence: the end of this process ends the container as well.
		_ = agent.EndRun(ctx, grant.ID)
	}
	if err != nil {
		return startError(command[0], err)
	}
	if leftovers && grant != nil {
		fmt.Fprintf(c.App.ErrWriter, "weir run: %s has ended, but processes that it started still run; "+
			"their GPU memory stays under its cap\n", grant.Name)
	}
	if code != 0 {
		return &codedError{code: code}
	}
	return nil
}

// register makes this process a container, or, where caps cannot hold, decides by
// --allow-unenforced. A nil grant means that the program runs plain.
func register(
	c *cli.Context, agent *connection, path string, request control.RunRequest,
) (*control.RunGrant, error) {
	allowed := c.Bool("allow-unenforced")
	reason := whyUnenforceable(path)
	if reason != "" && !allowed {
		return nil, &codedError{exitUnsupported,
			"no cap would hold: " + reason + "; --allow-unenforced runs it all the same"}
	}
	grant, err := agent.StartRun(c.Context, request)
	if err == nil {
		err = checkGrant(grant)
	}
	lost := errors.Is(err, control.ErrUnreachable) || errors.Is(err, control.ErrPermission) ||
		errors.Is(err, control.ErrUnsupported)
	switch {
	case err != nil && lost && allowed:
		warnUnenforced(c.App.ErrWriter, agent.explain(err).Error())
		return nil, nil
	case err != nil && lost:
		err = agent.explain(err)
		return nil, &codedError{exitCode(err),
			err.Error() + "; or run it without caps: --allow-unenforced"}
	case err != nil:
		return nil, err
	case reason != "":
		// What it starts may be enforceable, so it gets the environment all the same.
		warnUnenforced(c.App.ErrWriter, reason)
	}
	return &grant, nil
}

func warnUnenforced(talk io.Writer, reason string) {
	fmt.Fprintf(talk, "weir run: NOT ENFORCED, no cap holds this program: %s\n", reason)
}

// warnStored says which of the caps that were asked for hold nothing, or not as they do elsewhere.
func warnStored(c *cli.Context, agent *connection, caps control.Caps) {
	if caps.Weight == nil && !caps.Swaps() {
		return
	}
	info, err := agent.Info(c.Context)
	if err != nil || info.TimeShared {
		return
	}
	if caps.Swaps() {
		fmt.Fprintf(c.App.ErrWriter, "weir run: swap: %s\n", notMovedHere)
	}
	if caps.Weight != nil {
		fmt.Fprintf(c.App.ErrWriter, "weir run: weight: %s\n", notEnforcedHere)
	}
}

// checkGrant looks at the library before the loader does, which would only grumble and go on
// without it.
func checkGrant(grant control.RunGrant) error {
	if strings.ContainsAny(grant.Library, ": \t\n") {
		return fmt.Errorf("the library's path %q has a blank or colon, which LD_PRELOAD cannot carry: "+
			"start the agent with another --run-dir", grant.Library)
	}
	file, err := os.Open(grant.Library)
	if err != nil {
		return fmt.Errorf("the library that the agent names cannot be loaded: %w", err)
	}
	return file.Close()
}

// environment is the program's: this process's, with the library and the container's socket. The
// library comes last in LD_PRELOAD, so that what others preload stays in front of the driver.
func environment(env []string, grant *control.RunGrant) []string {
	if grant == nil {
		return env
	}
	preload := grant.Library
	var kept []string
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		switch name {
		case "LD_PRELOAD":
			if others := without(value, grant.Library); others != "" {
				preload = others + ":" + grant.Library
			}
		case "WEIR_SOCKET":
		default:
			kept = append(kept, entry)
		}
	}
	return append(kept, "LD_PRELOAD="+preload, "WEIR_SOCKET="+grant.Socket)
}

// without takes the library out of a list, in which blanks and colons separate: a run within a
// run would list it twice.
func without(list, library string) string {
	var others []string
	for _, path := range strings.FieldsFunc(list, func(r rune) bool { return r == ':' || r == ' ' }) {
		if path != library {
			others = append(others, path)
		}
	}
	return strings.Join(others, ":")
}

// told cuts a command down to what is worth showing.
func told(command []string) []string {
	short := make([]string, 0, toldArgsMax)
	for i, arg := range command {
		if i == toldArgsMax {
			return append(short, "…")
		}
		short = append(short, shorten(strings.ToValidUTF8(arg, "?"), toldBytesMax, false))
	}
	return short
}

// startError says, as env(1) does, whether a command is missing or cannot be started.
func startError(command string, err error) error {
	code := exitCannotStart
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		code = exitNoCommand
	}
	var wrapped *exec.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return &codedError{code, fmt.Sprintf("%s: %v", command, err)}
}
