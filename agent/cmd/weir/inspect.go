// `weir inspect`: one container in full.

package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"weir/agent/config"
	"weir/agent/control"
)

func inspectCommand() *cli.Command {
	forms := []string{formJSON, formYAML, formTable}
	return &cli.Command{
		Name:      "inspect",
		Usage:     "show all that is known of a container and its processes",
		ArgsUsage: "CONTAINER",
		Description: `CONTAINER is a name, namespace/name, an id or at least four letters of one.

Examples:
  weir inspect trainer
  weir inspect trainer -o table
  weir inspect trainer | jq '.sessions[].pid'`,
		Flags: []cli.Flag{outputFlag(forms...), runDirFlag()},
		Action: func(c *cli.Context) error {
			form, err := outputForm(c, forms...)
			if err != nil {
				return err
			}
			ref, err := oneContainer(c)
			if err != nil {
				return err
			}
			agent, err := connect(c)
			if err != nil {
				return err
			}
			container, err := agent.Container(c.Context, ref)
			if err != nil {
				return agent.explain(err)
			}
			flows, err := agent.Queue(c.Context)
			if err != nil {
				return agent.explain(err)
			}
			flows = slices.DeleteFunc(flows, func(flow control.Flow) bool { return flow.ContainerID != container.ID })
			if form != formTable {
				return printDoc(c.App.Writer, form, inspectDoc{
					control.ContainerDoc{SchemaVersion: control.SchemaVersion, Container: container}, flows,
				})
			}
			info, err := agent.Info(c.Context)
			if err != nil {
				return agent.explain(err)
			}
			return inspectTable(c.App.Writer, container, flows, info.TimeShared, time.Now())
		},
	}
}

// inspectDoc is what `inspect -o json` prints: the container, and what it has of GPUs' time.
type inspectDoc struct {
	control.ContainerDoc
	Flows []control.Flow `json:"flows"`
}

// inspectTable writes a container for people: its settings, then a table of its processes, and one of
// the GPU time that it gets.
func inspectTable(
	out io.Writer, container control.Container, flows []control.Flow, timeShared bool, now time.Time,
) error {
	caps := container.Caps
	fields := [][2]string{
		{"container", printable(container.Name)},
		{"namespace", orDash(container.Namespace)},
		{"id", container.ID},
		{"command", printable(strings.Join(container.Command, " "))},
		{"pid", strconv.Itoa(container.PID)},
		{"state", orDash(container.State)},
		{"age", age(container.Started, now)},
		{"identity", orDash(container.Identity)},
		{"pod", orDash(container.Pod)},
		{"image", orDash(container.Image)},
		{"enforced", enforced(container)},
		{"memory cap", memoryText(caps, container.GPUs, "none")},
		{"swap", sizeOr(caps.SwapBytes, "-")},
		{"report", orDash(container.Report)},
		{"weight", weightText(caps, timeShared)},
		{"refused", strconv.FormatInt(container.Refused, 10)},
	}
	for _, field := range fields {
		if _, err := fmt.Fprintf(out, "%-12s%s\n", field[0], field[1]); err != nil {
			return err
		}
	}
	if len(container.Sessions) > 0 {
		fmt.Fprintln(out)
		if err := printSessions(out, container, now); err != nil {
			return err
		}
	}
	if err := printSwap(out, container); err != nil {
		return err
	}
	if len(flows) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	var rows [][]string
	for _, flow := range flows {
		rows = append(rows, queueRow(flow, false, false)[2:]) // without the container's name
	}
	return printTable(out, queueHeader(false)[2:], rows)
}

// printSwap writes where a container's movable memory is.
func printSwap(out io.Writer, container control.Container) error {
	var rows [][]string
	for _, use := range container.GPUs {
		if s := use.Swap; s != nil {
			rows = append(rows, []string{control.GPUName(use.Index, use.MIG), config.FormatSize(s.LimitBytes),
				config.FormatSize(use.MovableBytes), sizeOr(s.ResidentBytes, "-"), sizeOr(s.SwappedBytes, "-"),
				sizeOr(s.MovedInBytes, "-"), sizeOr(s.MovedOutBytes, "-"), sizeOr(s.FaultedBytes, "-"),
				sizeOr(s.DisplacedBytes, "-"), sizeOr(s.OverCapMostBytes, "-")})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	return printTable(out, []string{"GPU", "SWAP", "MOVABLE", "ON-GPU", "ON-HOST", "IN", "OUT", "FAULTED", "DISPLACED", "OVER-CAP"},
		rows)
}

func printSessions(out io.Writer, container control.Container, now time.Time) error {
	var rows [][]string
	for _, session := range container.Sessions {
		gpus := session.GPUs
		if len(gpus) == 0 {
			gpus = []control.GPUUse{{Index: -1}}
		}
		for _, use := range gpus {
			gpu := "-"
			if use.Index >= 0 {
				gpu = control.GPUName(use.Index, use.MIG)
			}
			rows = append(rows, []string{
				strconv.Itoa(session.PID), printable(session.Program), session.State, gpu,
				config.FormatSize(use.UsedBytes), config.FormatSize(use.ContextBytes),
				config.FormatSize(use.CodeBytes), config.FormatSize(use.SharedBytes), creditOf(use),
				age(session.Since, now),
			})
		}
	}
	return printTable(out, []string{"PID", "PROGRAM", "STATE", "GPU", "USED", "CONTEXTS", "CODE",
		"SHARED", "CREDIT", "AGE"}, rows)
}
