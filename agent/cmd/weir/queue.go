// `weir queue`: who gets how much of each GPU's time, and who waits.

package main

import (
	"bytes"
	"cmp"
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
	"golang.org/x/sys/unix"

	"weir/agent/control"
)

// watchPause is how long --watch leaves what it has shown.
const watchPause = time.Second

// uuidPrefixMin is how much of a UUID names a GPU.
const uuidPrefixMin = 4

func queueCommand() *cli.Command {
	forms := []string{formTable, formWide, formJSON, formYAML}
	return &cli.Command{
		Name:      "queue",
		Usage:     "show who gets how much GPU time, and who waits",
		ArgsUsage: "[CONTAINER...]",
		Description: `One row a container and GPU that it uses. ASKED is the share of the GPU's time that its
weight gives it among those that use the GPU now, GOT what it had in the last 1, 10 and 60 seconds.
MODE is open while nobody is owed time and all run together, leased while they take turns.
-o wide has more columns, -o json nanoseconds.

Examples:
  weir queue
  weir queue trainer --gpu 0 -o wide
  weir queue --watch
  weir queue -o json | jq '.flows[] | [.container, .share_got_10s]'`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "gpu",
				Usage: "only `GPU`, by index, CARD:DEVICE of a MIG device, or (the beginning of) its UUID"},
			&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "show it each second until interrupted"},
			outputFlag(forms...), runDirFlag(),
		},
		Action: func(c *cli.Context) error {
			form, err := outputForm(c, forms...)
			if err != nil {
				return err
			}
			if c.IsSet("gpu") && c.String("gpu") == "" {
				return usageError("--gpu is empty: give an index, CARD:DEVICE or a UUID, or leave it out")
			}
			agent, err := connect(c)
			if err != nil {
				return err
			}
			q := queueView{agent: agent, names: c.Args().Slice(), gpu: c.String("gpu"), form: form, talk: c.App.ErrWriter}
			if c.Bool("watch") {
				return agent.explain(q.watch(c.Context, c.App.Writer, watchPause))
			}
			return agent.explain(q.show(c.Context, c.App.Writer))
		},
	}
}

// queueView is what of the queue is to be shown, and how.
type queueView struct {
	agent *connection
	names []string // of containers; none: all
	gpu   string   // as the user names it; empty: all
	form  string
	talk  io.Writer

	silent bool // those without flows have been named
}

// watch shows the queue again and again, over restarts of the agent too, until ctx or the output ends.
func (q *queueView) watch(ctx context.Context, out io.Writer, pause time.Duration) error {
	file, _ := out.(*os.File)
	clears := file != nil && isTerminal(file)
	var page bytes.Buffer
	err := q.show(ctx, &page) // what is wrong at the beginning is told, not waited for
	for lost := false; err == nil || lost; {
		if err == nil {
			if clears {
				fmt.Fprint(out, "\x1b[H\x1b[J")
			}
			if _, err := page.WriteTo(out); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		page.Reset()
		if q.form == formYAML {
			page.WriteString("---\n")
		} else if !clears && q.form != formJSON {
			page.WriteString("\n")
		}
		err = q.show(ctx, &page)
		switch unreachable := errors.Is(err, control.ErrUnreachable); {
		case ctx.Err() != nil:
			return nil
		case unreachable && !lost:
			fmt.Fprintf(q.talk, "weir queue: %v; waiting for it\n", err)
			lost = true
		case !unreachable:
			lost = false
		}
	}
	return err
}

func isTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// show writes the queue once.
func (q *queueView) show(ctx context.Context, out io.Writer) error {
	flows, err := q.flows(ctx)
	if err != nil {
		return err
	}
	if q.form == formJSON || q.form == formYAML {
		return printDoc(out, q.form, control.QueueDoc{SchemaVersion: control.SchemaVersion, Flows: flows})
	}
	info, err := q.agent.Info(ctx)
	if err != nil {
		return err
	}
	simulated, wide := simulatedGPUs(info), q.form == formWide
	rows := make([][]string, 0, len(flows))
	for _, flow := range flows {
		rows = append(rows, queueRow(flow, simulated[flow.UUID], wide))
	}
	return printTable(out, queueHeader(wide), rows)
}

// flows gets those that are asked for, by GPU.
func (q *queueView) flows(ctx context.Context) ([]control.Flow, error) {
	wanted := map[string]bool{}
	var named []control.Container
	for _, ref := range q.names {
		one, err := q.agent.Container(ctx, ref)
		if err != nil {
			return nil, err
		}
		named = append(named, one)
		wanted[one.ID] = true
	}
	uuid := ""
	if q.gpu != "" {
		info, err := q.agent.Info(ctx)
		if err != nil {
			return nil, err
		}
		if uuid, err = uuidOf(info.GPUs, q.gpu); err != nil {
			return nil, err
		}
	}
	flows, err := q.agent.Queue(ctx)
	if err != nil {
		return nil, err
	}
	flows = slices.DeleteFunc(flows, func(flow control.Flow) bool {
		return uuid != "" && flow.UUID != uuid || len(named) > 0 && !wanted[flow.ContainerID]
	})
	slices.SortStableFunc(flows, func(a, b control.Flow) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(migIndex(a.MIG), migIndex(b.MIG)))
	})
	if !q.silent {
		q.sayWhoHasNone(named, flows)
	}
	q.silent = true
	return flows, nil
}

// sayWhoHasNone tells why a container that was named has no row.
func (q *queueView) sayWhoHasNone(named []control.Container, flows []control.Flow) {
	for _, one := range named {
		if !slices.ContainsFunc(flows, func(flow control.Flow) bool { return flow.ContainerID == one.ID }) {
			where := "a GPU"
			if q.gpu != "" {
				where = "GPU " + q.gpu
			}
			fmt.Fprintf(q.talk, "weir queue: %s has not used %s lately\n", printable(one.Name), where)
		}
	}
}

func migIndex(mig *int) int {
	if mig == nil {
		return -1
	}
	return *mig
}

// uuidOf is the UUID of the GPU that people name so.
func uuidOf(gpus []control.GPU, ref string) (string, error) {
	var found, known []string
	for _, gpu := range gpus {
		name := control.GPUName(gpu.Index, gpu.MIG)
		begins := len(ref) >= uuidPrefixMin && len(ref) <= len(gpu.UUID) && strings.EqualFold(ref, gpu.UUID[:len(ref)])
		if ref == name || begins {
			found = append(found, gpu.UUID)
		}
		known = append(known, fmt.Sprintf("%s (%s)", name, gpu.UUID))
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", usageError("--gpu %q can be each of %d GPUs: give all of a UUID", ref, len(found))
	case len(known) == 0:
		return "", fmt.Errorf("--gpu %q: %w; the agent knows no GPU", ref, control.ErrNotFound)
	}
	return "", fmt.Errorf("--gpu %q: %w; there are %s", ref, control.ErrNotFound, strings.Join(known, ", "))
}

func queueHeader(wide bool) []string {
	header := []string{"CONTAINER", "NAMESPACE", "GPU", "MODE", "STATE", "WEIGHT", "ASKED", "GOT-1s", "GOT-10s", "GOT-60s",
		"VIRTUAL", "LAG", "WAIT", "LONGEST", "LEASES"}
	if wide {
		header = append(header, "SERVED", "BUSY", "SUBMITTED", "UNGATED", "REOPENED", "EXPIRED", "ID")
	}
	return header
}

func queueRow(flow control.Flow, simulated, wide bool) []string {
	gpu := control.GPUName(flow.Index, flow.MIG)
	if simulated {
		gpu += " (simulated)"
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	row := []string{
		printable(flow.Container), orDash(flow.Namespace), gpu, orDash(flow.Mode), orDash(flow.State),
		weightOr(&flow.Weight, ""), shareOr(flow.ShareAsked), shareOr(flow.ShareGot1s), shareOr(flow.ShareGot10s),
		shareOr(flow.ShareGot60s), spanOr(flow.VirtualNS), spanOr(flow.LagNS), spanOr(flow.WaitMeanNS),
		spanOr(flow.WaitWorstNS), number(flow.Leases),
	}
	if wide {
		row = append(row, spanOr(&flow.ServedNS), spanOr(&flow.BusyNS), number(flow.Submitted),
			number(flow.Ungated), number(flow.Reopened), number(flow.Expired),
			shorten(printable(flow.ContainerID), idLetters, false))
	}
	return row
}

// shareOr writes a part of one in percent, or that it is not known.
func shareOr(share *float64) string {
	if share == nil {
		return "-"
	}
	return strconv.FormatFloat(100**share, 'f', 1, 64) + "%"
}

// spanOr writes so many nanoseconds with three digits, or to the second where that is more, or that they are not known.
func spanOr(ns *int64) string {
	if ns == nil {
		return "-"
	}
	span := time.Duration(*ns)
	step := time.Duration(1)
	for step < time.Second && span.Abs() >= 1000*step {
		step *= 10
	}
	return span.Round(step).String()
}
