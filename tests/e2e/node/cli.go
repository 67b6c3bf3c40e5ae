package node

// The command line, and the documents that it prints.

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"

	"weir/agent/control"
)

// Output is what a command said and how it ended.
type Output struct {
	Stdout, Stderr string
	Code           int // exit code; -1 if a signal ended it
}

// Weir runs one command of the CLI.
func (n *Node) Weir(arguments ...string) Output {
	n.t.Helper()
	return n.Command(Build(n.t, "weir"), arguments...)
}

// Command runs any program in this node's environment.
func (n *Node) Command(program string, arguments ...string) Output {
	n.t.Helper()
	var stdout, stderr bytes.Buffer
	command := exec.Command(program, arguments...)
	command.Env, command.Stdout, command.Stderr = n.Env(), &stdout, &stderr
	command.SysProcAttr = n.attributes()
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		n.t.Fatalf("%s: %v", program, err)
	}
	return Output{stdout.String(), stderr.String(), command.ProcessState.ExitCode()}
}

// MustWeir is Weir for a command that has to succeed; it returns what was printed.
func (n *Node) MustWeir(arguments ...string) string {
	n.t.Helper()
	out := n.Weir(arguments...)
	if out.Code != 0 {
		n.t.Fatalf("weir %s: exit %d\n%s%s", strings.Join(arguments, " "), out.Code, out.Stdout, out.Stderr)
	}
	return out.Stdout
}

func (n *Node) decode(text string, document any) {
	n.t.Helper()
	if err := json.Unmarshal([]byte(text), document); err != nil {
		n.t.Fatalf("reading what weir printed: %v\n%s", err, text)
	}
}

// Containers is `weir ps -o json`.
func (n *Node) Containers() []control.Container {
	n.t.Helper()
	var document struct {
		SchemaVersion int                 `json:"schema_version"`
		Containers    []control.Container `json:"containers"`
	}
	n.decode(n.MustWeir("ps", "-o", "json"), &document)
	if document.SchemaVersion != control.SchemaVersion {
		n.t.Fatalf("weir ps -o json has schema version %d", document.SchemaVersion)
	}
	return document.Containers
}

// Container is `weir inspect NAME`.
func (n *Node) Container(name string) control.Container {
	n.t.Helper()
	var container control.Container
	n.decode(n.MustWeir("inspect", name, "-o", "json"), &container)
	return container
}

// Use sums what a container has on all GPUs.
func (n *Node) Use(name string) (used, charged int64) {
	n.t.Helper()
	for _, gpu := range n.Container(name).GPUs {
		used += gpu.UsedBytes
		charged += gpu.ChargedBytes
	}
	return used, charged
}

// Events is `weir events -o json`: all that the agent has kept.
func (n *Node) Events() []control.Event {
	n.t.Helper()
	var events []control.Event
	decoder := json.NewDecoder(strings.NewReader(n.MustWeir("events", "-o", "json")))
	for decoder.More() {
		var event control.Event
		if err := decoder.Decode(&event); err != nil {
			n.t.Fatalf("reading events: %v", err)
		}
		events = append(events, event)
	}
	return events
}

// EventsOf are those of one type and container, oldest first.
func (n *Node) EventsOf(kind, container string) []control.Event {
	n.t.Helper()
	var found []control.Event
	for _, event := range n.Events() {
		if event.Type == kind && event.Container == container {
			found = append(found, event)
		}
	}
	return found
}

// SetCap is `weir caps set NAME --memory SIZE`; it returns what was printed.
func (n *Node) SetCap(name, size string) string {
	n.t.Helper()
	return n.MustWeir("caps", "set", name, "--memory", size)
}
