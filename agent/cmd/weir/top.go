// `weir top`: a live view of containers, and the same once, for scripts.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"weir/agent/config"
	"weir/agent/control"
	"weir/agent/top"
)

// How often top asks.
const (
	topIntervalLeast = 100 * time.Millisecond
	topIntervalMost  = time.Minute
)

func topCommand() *cli.Command {
	forms := []string{formTable, formJSON, formYAML}
	return &cli.Command{
		Name:  "top",
		Usage: "watch who uses the GPUs: memory, swap, what moves, GPU time, who waits",
		Description: `One row a container and GPU that it uses, anew each --interval; h shows the keys and columns.
With --once, with -o, or where the output is no terminal it is printed once, with rates over one interval.

Examples:
  weir top
  weir top --sort swapped --interval 5s
  weir top --once
  weir top -o json | jq '.rows[] | [.container, .fault_in_bytes_per_second]'`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "once", Usage: "print it once, as a plain table"},
			&cli.StringFlag{Name: "sort", Value: top.Orders[0], Usage: "sort by `ORDER`: " + strings.Join(top.Orders, ", ")},
			&cli.DurationFlag{Name: "interval", Value: time.Second, Usage: "ask the agent each `DURATION`, from 100ms to 1m"},
			outputFlag(forms...), runDirFlag(),
		},
		Action: func(c *cli.Context) error {
			if err := noPositionals(c); err != nil {
				return err
			}
			form, err := outputForm(c, forms...)
			if err != nil {
				return err
			}
			interval := c.Duration("interval")
			if interval < topIntervalLeast || interval > topIntervalMost {
				return usageError("--interval %v: want a duration from %v to %v", interval, topIntervalLeast, topIntervalMost)
			}
			if !slices.Contains(top.Orders, c.String("sort")) {
				return usageError("--sort %q: want one of %s", c.String("sort"), strings.Join(top.Orders, ", "))
			}
			agent, err := connect(c)
			if err != nil {
				return err
			}
			file, _ := c.App.Writer.(*os.File)
			if c.Bool("once") || c.IsSet("output") || file == nil || !isTerminal(file) || !isTerminal(os.Stdin) {
				return agent.explain(topOnce(c.Context, c.App.Writer, agent, form, c.String("sort"), interval))
			}
			if _, err := agent.Info(c.Context); err != nil { // what is wrong at the beginning is told, not shown
				return agent.explain(err)
			}
			model := top.New(80, 24, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb", c.String("sort"))
			return top.Run(c.Context, model, interval, func(ctx context.Context) (*top.Sample, error) { return sample(ctx, agent) })
		},
	}
}

// sample asks the agent for all that top shows.
func sample(ctx context.Context, agent *connection) (*top.Sample, error) {
	info, err := agent.Info(ctx)
	if err != nil {
		return nil, err
	}
	list, err := agent.Containers(ctx)
	if err != nil {
		return nil, err
	}
	flows, err := agent.Queue(ctx)
	return &top.Sample{At: time.Now(), Info: info, Containers: list, Flows: flows}, err
}

// topDoc is what -o json prints.
type topDoc struct {
	SchemaVersion int           `json:"schema_version"`
	IntervalNS    int64         `json:"interval_ns"` // over which rates are taken
	GPUs          []control.GPU `json:"gpus"`
	Rows          []top.Row     `json:"rows"`
}

// topOnce prints what has become of one interval.
func topOnce(ctx context.Context, out io.Writer, agent *connection, form, order string, interval time.Duration) error {
	before, err := sample(ctx, agent)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return errors.New("interrupted")
	case <-time.After(interval):
	}
	now, err := sample(ctx, agent)
	if err != nil {
		return err
	}
	rows := top.Sorted(now, before, order)
	if form != formTable {
		return printDoc(out, form, topDoc{control.SchemaVersion, now.At.Sub(before.At).Nanoseconds(), now.Info.GPUs, rows})
	}
	table := make([][]string, 0, len(rows))
	for i := range rows {
		table = append(table, topCells(&rows[i]))
	}
	return printTable(out, []string{"CONTAINER", "NAMESPACE", "GPU", "MEMORY", "SWAP", "IN/s", "OUT/s", "FAULT-IN/s", "FAULT-OUT/s",
		"GOT", "ASKED", "WAIT", "STATE", "ENFORCED"}, table)
}

func topCells(r *top.Row) []string {
	rate := func(bytes *float64) string {
		if bytes == nil {
			return "-"
		}
		return config.FormatSize(int64(*bytes))
	}
	memory, swap, wait, enforced := config.FormatSize(r.Resident)+" / "+sizeOr(r.Cap, "-"), "-", "-", "no"
	if !r.Known {
		memory = "-"
	}
	if r.Swap != nil {
		swap = sizeOr(r.Swapped, "?") + " / " + config.FormatSize(*r.Swap)
	}
	if w := r.Waits; w != nil {
		wait = time.Duration(*w).Round(time.Microsecond).String()
	}
	if r.Enforced {
		enforced = "yes"
	}
	if r.EnforcedBy != "" {
		enforced += fmt.Sprintf(" (%s)", printable(r.EnforcedBy))
	}
	if r.Reason != "" {
		enforced += ": " + printable(r.Reason)
	}
	share := func(ratio *float64) string {
		if ratio == nil {
			return "-"
		}
		return strconv.FormatFloat(100**ratio, 'f', 1, 64) + "%"
	}
	return []string{printable(r.Container), orDash(r.Namespace), orDash(r.GPU), memory, swap, rate(r.In), rate(r.Out),
		rate(r.FaultIn), rate(r.FaultOut), share(r.Got), share(r.Asked), wait, orDash(r.State), enforced}
}
