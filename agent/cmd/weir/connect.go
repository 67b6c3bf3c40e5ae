// How commands find the agent, and what they say if they do not.

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"weir/agent/config"
	"weir/agent/control"
)

// runDirEnv names the agent's run directory for all commands.
const runDirEnv = "WEIR_RUN_DIR"

// runDirFlag is how a command is told which agent to ask.
func runDirFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "run-dir",
		Usage: "ask the agent in `DIR`; else $" + runDirEnv +
			", else your own agent, else " + config.SystemRunDir,
	}
}

// connection is a client with what is needed to say where an agent was looked for.
type connection struct {
	*control.Client
	tried []string
	given string // the run directory that was asked for, if one was
}

func connect(c *cli.Context) (*connection, error) {
	user := config.CurrentUser()
	given := c.String("run-dir")
	if given == "" {
		if c.IsSet("run-dir") {
			return nil, usageError("--run-dir is empty: give the agent's run directory")
		}
		given = user.Getenv(runDirEnv)
	}
	if given != "" {
		absolute, err := filepath.Abs(given)
		if err != nil {
			return nil, fmt.Errorf("finding %s: %w", given, err)
		}
		given = absolute
	}
	socket, tried := user.FindSocket(given)
	return &connection{control.NewClient(socket), tried, given}, nil
}

// explain adds to an error that no agent answers where it was looked for and how to start one.
func (c *connection) explain(err error) error {
	var unreachable *control.UnreachableError
	if !errors.As(err, &unreachable) {
		return err
	}
	start := "weir agent"
	if c.given != "" && c.given != config.CurrentUser().RunDir() {
		start += " --run-dir " + c.given
	}
	return &codedError{exitUnreachable, fmt.Sprintf("no agent answers at %s: %v; start one with: %s",
		strings.Join(c.tried, " or "), unreachable.Err, start)}
}
