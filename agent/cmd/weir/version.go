// `weir version`: of this program and of the agent.

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"weir/agent/control"
	"weir/cgo/abi"
)

func versionCommand() *cli.Command {
	forms := []string{formTable, formJSON, formYAML}
	return &cli.Command{
		Name:  "version",
		Usage: "print the version of this program and of the agent that it reaches",
		Description: `An agent that is not reachable is no error here.

Examples:
  weir version
  weir version -o json`,
		Flags: []cli.Flag{outputFlag(forms...), runDirFlag()},
		Action: func(c *cli.Context) error {
			form, err := outputForm(c, forms...)
			if err != nil {
				return err
			}
			if err := noPositionals(c); err != nil {
				return err
			}
			agent, err := connect(c)
			if err != nil {
				return err
			}
			return printVersion(c, agent, form)
		},
	}
}

// versionDoc is what `version -o json` prints; Agent is null where none answers.
type versionDoc struct {
	SchemaVersion int                `json:"schema_version"`
	Version       string             `json:"version"`
	ABI           int                `json:"abi"`
	Agent         *control.AgentInfo `json:"agent"`
}

func printVersion(c *cli.Context, agent *connection, form string) error {
	doc := versionDoc{control.SchemaVersion, version, abi.Version, nil}
	info, err := agent.Info(c.Context)
	if err == nil {
		doc.Agent = &info
	}
	if form != formTable {
		return printDoc(c.App.Writer, form, doc)
	}
	fmt.Fprintf(c.App.Writer, "weir   %s, ABI %d\n", doc.Version, doc.ABI)
	switch {
	case err == nil:
		fmt.Fprintf(c.App.Writer, "agent  %s, ABI %d, pid %d, %s\n", info.Version, info.ABI, info.PID,
			agent.Socket())
	case errors.Is(err, control.ErrUnreachable):
		fmt.Fprintf(c.App.Writer, "agent  none answers at %s\n",
			strings.Join(agent.tried, " or "))
	default:
		fmt.Fprintf(c.App.Writer, "agent  %v\n", err)
	}
	return nil
}
