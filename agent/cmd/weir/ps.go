// `weir ps`: a row a container and GPU.

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"weir/agent/config"
	"weir/agent/control"
)

// How much of an id and a command a table shows without --no-trunc.
const (
	idLetters      = 12
	commandLetters = 40
)

func psCommand() *cli.Command {
	forms := []string{formTable, formWide, formJSON, formYAML}
	return &cli.Command{
		Name:      "ps",
		Usage:     "list containers, what they hold and what they may hold",
		ArgsUsage: "[CONTAINER...]",
		Description: `One row a container and GPU that it holds memory on. MEMORY is what is on the GPU / cap;
REFUSED counts allocations that the caps refused. -o wide has all GPUs and more columns, -o json bytes.

Examples:
  weir ps
  weir ps trainer -o wide
  weir ps -o json | jq '.containers[].gpus[].used_bytes'
  weir ps -q`,
		Flags: []cli.Flag{
			outputFlag(forms...),
			&cli.BoolFlag{Name: "no-trunc", Usage: "print ids and commands in full"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print full ids only"},
			runDirFlag(),
		},
		Action: func(c *cli.Context) error {
			form, err := outputForm(c, forms...)
			if err != nil {
				return err
			}
			agent, err := connect(c)
			if err != nil {
				return err
			}
			return agent.explain(ps(c, agent, form))
		},
	}
}

func ps(c *cli.Context, agent *connection, form string) error {
	list, err := containers(c, agent)
	if err != nil {
		return err
	}
	out := c.App.Writer
	switch {
	case c.Bool("quiet"):
		for _, container := range list {
			fmt.Fprintln(out, container.ID)
		}
		return nil
	case form == formJSON || form == formYAML:
		return printDoc(out, form, control.ContainersDoc{
			SchemaVersion: control.SchemaVersion, Containers: list,
		})
	}
	info, err := agent.Info(c.Context)
	if err != nil {
		return err
	}
	view := tableView{
		wide: form == formWide, whole: c.Bool("no-trunc"), simulated: simulatedGPUs(info),
		timeShared: info.TimeShared, now: time.Now(),
	}
	if view.wide {
		if view.flows, err = agent.Queue(c.Context); err != nil {
			return err
		}
	}
	return printTable(out, view.header(), view.rows(list))
}

// containers gets those named on the command line, or all.
func containers(c *cli.Context, agent *connection) ([]control.Container, error) {
	if !c.Args().Present() {
		return agent.Containers(c.Context)
	}
	list := []control.Container{}
	for _, ref := range c.Args().Slice() {
		one, err := agent.Container(c.Context, ref)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

// simulatedGPUs is the set of UUIDs that no card stands behind.
func simulatedGPUs(info control.AgentInfo) map[string]bool {
	simulated := map[string]bool{}
	for _, gpu := range info.GPUs {
		simulated[gpu.UUID] = gpu.Simulated
	}
	return simulated
}

// tableView is how `weir ps` shows containers to people.
type tableView struct {
	wide, whole bool
	simulated   map[string]bool
	timeShared  bool
	flows       []control.Flow // of all containers, for the wide table
	now         time.Time
}

func (v tableView) header() []string {
	header := []string{"CONTAINER", "NAMESPACE", "GPU", "MEMORY", "REFUSED", "PROCESSES", "IDENTITY",
		"WEIGHT", "ENFORCED"}
	if v.wide {
		header = append(header, "ID", "PID", "CONTEXTS", "CODE", "SHARED", "CREDIT", "SWAP", "IN", "OUT", "FAULTED",
			"MODE", "ASKED", "GOT-10s", "COMMAND", "AGE", "POD", "IMAGE")
	}
	return header
}

func (v tableView) rows(list []control.Container) [][]string {
	var rows [][]string
	for _, container := range list {
		for _, use := range v.uses(container) {
			rows = append(rows, v.row(container, use))
		}
	}
	return rows
}

// uses picks the GPUs to show: with several, those with a charge. A container without any has
// one row all the same.
func (v tableView) uses(container control.Container) []*control.GPUUse {
	var uses []*control.GPUUse
	for i := range container.GPUs {
		use := &container.GPUs[i]
		if v.wide || len(container.GPUs) == 1 || use.ChargedBytes > 0 {
			uses = append(uses, use)
		}
	}
	if len(uses) == 0 {
		return []*control.GPUUse{nil}
	}
	return uses
}

func (v tableView) row(container control.Container, use *control.GPUUse) []string {
	gpu, limit := "-", container.Caps.MemoryBytes
	if use == nil {
		use = &control.GPUUse{}
	} else {
		gpu, limit = control.GPUName(use.Index, use.MIG), use.CapBytes
		if v.simulated[use.UUID] {
			gpu += " (simulated)"
		}
	}
	name := printable(container.Name)
	if state := container.State; state == statePrepared || state == stateEnding {
		name += " (" + state + ")"
	}
	memory := config.FormatSize(use.OnCard()) + " / " + sizeOr(limit, "-")
	if container.Identity == "" { // what it holds is not known
		memory = "-"
	}
	row := []string{
		name, orDash(container.Namespace), gpu, memory,
		strconv.FormatInt(container.Refused, 10), strconv.Itoa(len(container.Sessions)),
		orDash(container.Identity), weightText(container.Caps, v.timeShared), enforced(container),
	}
	if v.wide {
		row = append(row,
			shorten(printable(container.ID), idLetters, v.whole), strconv.Itoa(container.PID),
			config.FormatSize(use.ContextBytes), config.FormatSize(use.CodeBytes),
			config.FormatSize(use.SharedBytes), creditOf(*use))
		row = append(row, swapCells(use.Swap)...)
		flow := v.flow(container.ID, use.UUID)
		row = append(row, orDash(flow.Mode), shareOr(flow.ShareAsked), shareOr(flow.ShareGot10s),
			shorten(printable(strings.Join(container.Command, " ")), commandLetters, v.whole),
			age(container.Started, v.now), orDash(container.Pod), orDash(container.Image))
	}
	return row
}

// flow is what a container has of a GPU's time, without anything where it has not used it.
func (v tableView) flow(id, uuid string) control.Flow {
	for _, flow := range v.flows {
		if flow.ContainerID == id && flow.UUID == uuid {
			return flow
		}
	}
	return control.Flow{}
}

// creditOf writes unused credit. Without a cap it comes in a large round sum, which need not fit the
// card and means nothing.
func creditOf(use control.GPUUse) string {
	if use.CapBytes == nil {
		return "-"
	}
	return config.FormatSize(use.CreditBytes)
}

// The states that are shown: a container that has not begun, and one whose first process, or run, has
// ended and whose other processes have not.
const (
	statePrepared = "prepared"
	stateEnding   = "ending"
)

// unenforced marks a setting that is stored and has no effect.
const unenforced = " (unenforced)"

// swapCells are what lies on the host of what may, and what has come from there and gone there.
func swapCells(swap *control.SwapUse) []string {
	if swap == nil {
		return []string{"-", "-", "-", "-"}
	}
	return []string{sizeOr(swap.SwappedBytes, "?") + " / " + config.FormatSize(swap.LimitBytes), sizeOr(swap.MovedInBytes, "-"),
		sizeOr(swap.MovedOutBytes, "-"), sizeOr(swap.FaultedBytes, "-")}
}

// weightText is a container's weight as it is shown.
func weightText(caps control.Caps, timeShared bool) string {
	text := weightOr(caps.Weight, "-")
	if caps.Weight != nil && !timeShared {
		text += unenforced
	}
	return text
}

// oneContainer is the single positional of commands that are about one container.
func oneContainer(c *cli.Context) (string, error) {
	switch c.NArg() {
	case 0:
		return "", usageError("which container? Give its name or id; `weir ps` lists them")
	case 1:
		return c.Args().First(), nil
	}
	return "", usageError("one container at a time, not %q", c.Args().Slice())
}

// noPositionals refuses what a command would otherwise ignore.
func noPositionals(c *cli.Context) error {
	if c.Args().Present() {
		return usageError("unexpected %q: this command takes flags only", c.Args().First())
	}
	return nil
}
