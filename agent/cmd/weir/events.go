// `weir events`: filters, forms, and following the log over restarts of the agent.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"weir/agent/config"
	"weir/agent/control"
)

// How long one question of --follow waits for an event, and how long an absent agent is left
// alone before it is asked again.
const (
	followWait  = 30 * time.Second
	followPause = time.Second
)

// eventTypes are those that the agent writes, in the order of the manual page.
var eventTypes = []string{
	"denied", "driver-oom", "caps", "runtime", "prepared", "started", "unstarted", "start-refused", "misnamed", "ending",
	"ended", "session-ended", "refused", "left", "forked", "forged", "unenforced", "unshared", "undeclared", "incompatible", "measured",
	"driver-limit", "throttled", "drain-stalled", "drain-long", "holder-gone", "co-run", "leased",
	"unconverted", "exported", "over-cap", "swap-slow", "swap-silent", "swap-drained",
}

func eventsCommand() *cli.Command {
	forms := []string{formTable, formJSON, formYAML}
	return &cli.Command{
		Name:      "events",
		Usage:     "show refused allocations, changed caps and what else happened",
		ArgsUsage: "[CONTAINER]",
		Description: `The agent keeps the latest events in memory. -o json prints one object a line.
--follow goes on until it is interrupted, over restarts of the agent too.

Examples:
  weir events
  weir events trainer --since 10m
  weir events --follow --type denied -o json`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "since", Usage: "only those of the last `DURATION`, such as 10m"},
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on with new ones"},
			&cli.StringSliceFlag{Name: "type",
				Usage: "only `TYPE`, such as denied or caps; may be repeated"},
			outputFlag(forms...), runDirFlag(),
		},
		Action: func(c *cli.Context) error {
			form, err := outputForm(c, forms...)
			if err != nil {
				return err
			}
			filter, err := eventFilterFrom(c, time.Now())
			if err != nil {
				return err
			}
			agent, err := connect(c)
			if err != nil {
				return err
			}
			if err := filter.resolve(c.Context, agent, c.Bool("follow"), c.App.ErrWriter); err != nil {
				return agent.explain(err)
			}
			f := follower{agent: agent, filter: filter, form: form, pause: followPause,
				out: c.App.Writer, talk: c.App.ErrWriter}
			return agent.explain(f.run(c.Context, c.Bool("follow")))
		},
	}
}

// eventFilter says which events are shown.
type eventFilter struct {
	container string
	types     []string
	since     time.Time
}

func eventFilterFrom(c *cli.Context, now time.Time) (eventFilter, error) {
	filter := eventFilter{types: c.StringSlice("type")}
	for _, kind := range filter.types {
		if !slices.Contains(eventTypes, kind) {
			return filter, usageError("--type: unknown type %q%s; accepted: %s", kind,
				suggest(kind, eventTypes), strings.Join(eventTypes, ", "))
		}
	}
	if c.IsSet("since") {
		span, err := config.ParseDuration(c.String("since"))
		if err != nil {
			return filter, usageError("--since: %v", err)
		}
		filter.since = now.Add(-span)
	}
	if c.NArg() > 0 {
		container, err := oneContainer(c)
		if err != nil {
			return filter, err
		}
		filter.container = container
	}
	return filter, nil
}

// resolve finds out what the user calls a container by: events have names, not ids. What neither a
// container nor an event is called is an error, or waited for.
func (f *eventFilter) resolve(ctx context.Context, agent *connection, follow bool, talk io.Writer) error {
	if f.container == "" {
		return nil
	}
	there, missing := agent.Container(ctx, f.container)
	if missing == nil && f.container != there.Name {
		f.container = there.Namespace + "/" + there.Name
	}
	if !errors.Is(missing, control.ErrNotFound) {
		if errors.Is(missing, control.ErrUnreachable) {
			return missing
		}
		return nil // it is there, or there are several, and all are meant
	}
	doc, err := agent.Events(ctx, 0, 0)
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(doc.Events, f.isOf):
	case follow:
		fmt.Fprintf(talk, "weir events: %v, and no event is of one; waiting for it\n", missing)
	default:
		return fmt.Errorf("%w, and no event is of one", missing)
	}
	return nil
}

func (f *eventFilter) isOf(event control.Event) bool {
	return f.container == event.Container || f.container == event.Namespace+"/"+event.Container
}

func (f *eventFilter) wants(event control.Event) bool {
	if f.container != "" && !f.isOf(event) {
		return false
	}
	if len(f.types) > 0 && !slices.Contains(f.types, event.Type) {
		return false
	}
	return !event.Time.Before(f.since)
}

// follower prints events in order, each once.
type follower struct {
	agent  *connection
	filter eventFilter
	form   string
	pause  time.Duration // between questions to an absent agent
	out    io.Writer
	talk   io.Writer

	started time.Time // the agent whose numbers count
	after   uint64    // the number of its last event seen; 0: none
}

// run prints what there is and, with follow, what comes. An agent that was there and is gone is
// waited for.
func (f *follower) run(ctx context.Context, follow bool) error {
	err := f.next(ctx, 0)
	lost := false
	for follow && (err == nil || lost) {
		err = f.next(ctx, followWait)
		if !errors.Is(err, control.ErrUnreachable) {
			lost = false
			continue
		}
		if !lost {
			fmt.Fprintf(f.talk, "weir events: %v; waiting for it\n", err)
		}
		lost = true
		time.Sleep(f.pause)
	}
	return err
}

// next asks once. The answer of a new agent to the old one's number says nothing: it is asked
// again, for all that it has.
func (f *follower) next(ctx context.Context, wait time.Duration) error {
	doc, err := f.agent.Events(ctx, f.after, wait)
	if err != nil {
		return err
	}
	if !doc.AgentStarted.Equal(f.started) {
		first := f.started.IsZero()
		f.started, f.after = doc.AgentStarted, 0
		if !first {
			return nil
		}
	}
	for _, event := range doc.Events {
		if f.after > 0 && event.Seq > f.after+1 {
			fmt.Fprintf(f.talk, "weir events: %d events were dropped before they could be shown\n",
				event.Seq-f.after-1)
		}
		f.after = event.Seq
		if !f.filter.wants(event) {
			continue
		}
		if err := f.print(event); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) print(event control.Event) error {
	switch f.form {
	case formJSON:
		return json.NewEncoder(f.out).Encode(eventDoc{control.SchemaVersion, event})
	case formYAML:
		if _, err := fmt.Fprintln(f.out, "---"); err != nil {
			return err
		}
		return printDoc(f.out, formYAML, eventDoc{control.SchemaVersion, event})
	}
	_, err := fmt.Fprintln(f.out, eventLine(event, time.Now()))
	return err
}

// eventDoc is one event as `events -o json` prints it, on one line.
type eventDoc struct {
	SchemaVersion int `json:"schema_version"`
	control.Event
}

// eventLine writes an event for people: local time, with the date if that is not today's.
func eventLine(event control.Event, now time.Time) string {
	at, today := event.Time.Local(), now.Local()
	clock := "15:04:05"
	if at.YearDay() != today.YearDay() || at.Year() != today.Year() {
		clock = "2006-01-02 15:04:05"
	}
	container := "-"
	if event.Container != "" {
		container = printable(event.Container)
	}
	line := fmt.Sprintf("%s  %-13s  %-12s", at.Format(clock), event.Type, container)
	if event.PID > 0 {
		line += fmt.Sprintf("  pid %d", event.PID)
	}
	line += "  " + printable(event.Message)
	if event.Count > 1 {
		line += fmt.Sprintf(" (%d times)", event.Count)
	}
	return line
}
