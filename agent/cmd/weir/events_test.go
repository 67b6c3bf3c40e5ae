// Tests of how events are shown and followed.

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/agent/control"
	"weir/agent/control/controltest"
)

func TestEventLine(t *testing.T) {
	now := time.Date(2026, 3, 4, 23, 0, 0, 0, time.Local)
	event := control.Event{
		Time: time.Date(2026, 3, 4, 12, 4, 11, 0, time.Local), Type: "denied", Container: "trainer",
		PID: 4121, Message: "cuMemAlloc 2GiB: used 6.1GiB, cap 6GiB",
	}
	const want = "12:04:11  denied         trainer       pid 4121  cuMemAlloc 2GiB: used 6.1GiB, cap 6GiB"
	if got := eventLine(event, now); got != want {
		t.Errorf("%q\n%q", got, want)
	}
	event = control.Event{Time: now.AddDate(-1, 0, 0), Type: "agent", Message: "a\nb\x1b"}
	if got := eventLine(event, now); got != "2025-03-04 23:00:00  agent          -             a?b?" {
		t.Errorf("%q", got)
	}
}

// Every type of event that the agent writes can be asked for, and is on the manual page; no other is.
func TestEventTypes(t *testing.T) {
	files, err := filepath.Glob("../../session/*.go")
	ofTime, errTime := filepath.Glob("../../session/turns/*.go")
	ofSwap, errSwap := filepath.Glob("../../session/swaps/*.go")
	if err := errors.Join(err, errTime, errSwap); err != nil {
		t.Fatal(err)
	}
	files = append(append(files, ofTime...), ofSwap...)
	written := map[string]bool{}
	writes := regexp.MustCompile(`(?:\.event\(|\bType: |\.tell\(gpu, |\bEvent[A-Z][a-z]+ = )"([a-z-]+)"`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range writes.FindAllStringSubmatch(string(text), -1) {
			written[match[1]] = true
		}
	}
	text := page(t, "weir-events.1.md")
	for kind := range written {
		if !slices.Contains(eventTypes, kind) {
			t.Errorf("the agent writes %s", kind)
		}
	}
	for _, kind := range eventTypes {
		if !written[kind] {
			t.Errorf("the agent does not write %s", kind)
		}
		if !strings.Contains(text, "*"+kind+"*") {
			t.Errorf("%s is not on the manual page", kind)
		}
	}
}

func TestEventFilter(t *testing.T) {
	now := time.Now()
	event := control.Event{Container: "a", Namespace: "n", Type: "caps", Time: now}
	for _, test := range []struct {
		filter eventFilter
		wants  bool
	}{
		{eventFilter{}, true},
		{eventFilter{container: "a"}, true},
		{eventFilter{container: "n/a"}, true},
		{eventFilter{container: "m/a"}, false},
		{eventFilter{types: []string{"denied", "caps"}}, true},
		{eventFilter{types: []string{"denied"}}, false},
		{eventFilter{since: now}, true},
		{eventFilter{since: now.Add(1)}, false},
	} {
		if got := test.filter.wants(event); got != test.wants {
			t.Errorf("%+v: %v", test.filter, got)
		}
	}
}

// noticed tells that something was written.
type noticed chan string

func (n noticed) Write(text []byte) (int, error) {
	n <- string(text)
	return len(text), nil
}

// A follower shows each event of each agent once, though one goes away and the next counts from 1
// again. With seen, it notices that there was none in between.
func TestFollowOverARestart(t *testing.T) {
	for _, seen := range []bool{true, false} {
		dir, err := os.MkdirTemp("", "weir")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		serve := func(messages ...string) (*controltest.Node, func()) {
			node := &controltest.Node{}
			for _, message := range messages {
				node.Append(control.Event{Type: "caps", Message: message})
			}
			stop, err := serveFake(dir, node)
			if err != nil {
				t.Fatal(err)
			}
			return node, stop
		}
		_, stop := serve("a", "b")
		socket := filepath.Join(dir, "control.sock")
		reader, writer := io.Pipe()
		talk := make(noticed, 1)
		ctx, cancel := context.WithCancel(t.Context())
		f := follower{agent: &connection{Client: control.NewClient(socket)}, form: formTable,
			pause: time.Millisecond, out: writer, talk: talk}
		ended := make(chan error, 1)
		go func() { ended <- f.run(ctx, true) }()
		lines := bufio.NewScanner(reader)
		next := func(want string) {
			t.Helper()
			if !lines.Scan() || !strings.HasSuffix(lines.Text(), "  "+want) {
				t.Fatalf("got %q, want the event %s", lines.Text(), want)
			}
		}
		next("a")
		next("b")
		stop()
		if seen {
			if got := <-talk; !strings.Contains(got, "no agent answers") {
				t.Errorf("said %q", got)
			}
		}
		node, stop := serve("c", "d", "e", "f")
		for _, want := range []string{"c", "d", "e", "f"} {
			next(want)
		}
		node.Append(control.Event{Message: "g"})
		next("g")
		cancel()
		<-ended
		stop()
	}
}

func TestFollowSaysWhatWasDropped(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	node := &controltest.Node{}
	for range 3 {
		node.Append(control.Event{Type: "caps"})
	}
	node.Log[2].Seq = 7
	stop, err := serveFake(dir, node)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var out, talk bytes.Buffer
	client := control.NewClient(filepath.Join(dir, "control.sock"))
	f := follower{agent: &connection{Client: client}, form: formTable, out: &out, talk: &talk}
	if err := f.run(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	shown := strings.Count(out.String(), "\n")
	if !strings.Contains(talk.String(), "4 events were dropped") || shown != 3 {
		t.Errorf("said %q and %q", talk.String(), out.String())
	}
}
