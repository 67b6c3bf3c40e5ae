// Command weir-hook is what container runtimes run as hooks of the OCI runtime specification, which tell
// the state of a container on stdin. A hook that fails keeps its container from starting, and what it
// writes to stderr is what the user sees. Invariants: it is linked statically, since a loader could be
// made to load what the image names; and where it cannot be about a container that asked for weir, it
// ends well.
//
//	register  createRuntime: the container's init is there, in its cgroup
//	merge     createRuntime: as register, and the image has this as its own /etc/ld.so.preload
//	release   poststop: the container has ended
//	start     createRuntime, where no weir-runtime has asked before: ask, and register
//	inject    createContainer, after start: mount in the container what it was granted
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"weir/agent/control/ociapi"
	"weir/hook/bundle"
	"weir/hook/report"
	"weir/hook/rootfs"
	"weir/hook/runccmd"
)

// state is what a hook is told.
type state struct {
	ID     string `json:"id"`
	PID    int    `json:"pid"`
	Bundle string `json:"bundle"`
}

// options are the arguments after the verb.
type options struct {
	socket string // the agent's control socket
	id     string // the container's name with the agent
}

// verbs are what the hook can do.
var verbs = map[string]func(options, state) error{
	"register": register, "merge": merge, "release": release, "start": start, "inject": inject,
}

func main() {
	if err := run(os.Args[1:], os.Stdin); err != nil {
		report.OfHook(err)
		os.Exit(1)
	}
}

func run(args []string, stdin io.Reader) error {
	verb, o, err := parse(args)
	if err != nil {
		return err
	}
	s, err := readState(stdin)
	if err != nil {
		return err
	}
	return verbs[verb](o, s)
}

func parse(args []string) (verb string, o options, err error) {
	const usage = "want weir-hook register|merge|release|start|inject [--socket PATH] [--id ID]"
	if len(args) == 0 || verbs[args[0]] == nil {
		return "", o, errors.New(usage)
	}
	o.socket = "/run/weir/control.sock"
	for rest := args[1:]; len(rest) > 0; rest = rest[2:] {
		switch {
		case len(rest) == 1:
			return "", o, fmt.Errorf("%s needs a value; %s", rest[0], usage)
		case rest[0] == "--socket":
			o.socket = rest[1]
		case rest[0] == "--id":
			o.id = rest[1]
		default:
			return "", o, fmt.Errorf("unknown argument %q; %s", rest[0], usage)
		}
	}
	if !filepath.IsAbs(o.socket) {
		return "", o, fmt.Errorf("--socket %q: want an absolute path", o.socket)
	}
	return args[0], o, nil
}

// stateBytesMax is more than any state has, annotations included.
const stateBytesMax = 4 << 20

func readState(stdin io.Reader) (state, error) {
	var s state
	text, err := io.ReadAll(io.LimitReader(stdin, stateBytesMax))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && (s.Bundle == "" || s.ID == "") {
		err = errors.New("it has no bundle or no id")
	}
	if err != nil {
		return s, fmt.Errorf("reading the container's state from stdin: %w", err)
	}
	return s, nil
}

func register(o options, s state) error { return begun(o, s, nil) }

// merge serves those who prepare a container before its image is there. The container's mounts, that of
// the merged file among them, are made already, in a namespace that this hook is not in.
func merge(o options, s state) error {
	fail := func(err error) error { return fmt.Errorf("container %s: %w", s.ID, err) }
	b, err := bundle.Open(s.Bundle, "", s.ID, false)
	if err != nil {
		return fail(err)
	}
	preload, err := b.ImagePreload()
	if err != nil {
		return fail(err)
	}
	return begun(o, s, &preload)
}

func begun(o options, s state, preload *string) error {
	if s.PID <= 0 {
		return fmt.Errorf("container %s: its state has no pid; register is for createRuntime", s.ID)
	}
	if restored() {
		return fmt.Errorf("container %s: %w", s.ID, runccmd.ErrRestores)
	}
	event := ociapi.Event{GrantID: o.id, Bundle: s.Bundle, PID: s.PID, Preload: preload}
	if err := (ociapi.Client{Socket: o.socket}).Register(event); err != nil {
		return fmt.Errorf("container %s: %w", s.ID, err)
	}
	return nil
}

// restored tells whether the container comes out of a checkpoint: its state does not say so, but the runtime, which
// runs hooks as its children, was called so. It runs the hooks of its start then, and none that would inject.
func restored() bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", os.Getppid()))
	if err != nil {
		return false
	}
	words := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	command := runccmd.Parse(words[1:])
	return command.Restores()
}

// release never fails but for the log: the agent sees the end of the container by itself, too.
func release(o options, s state) error {
	return ociapi.Client{Socket: o.socket}.Release(ociapi.Event{GrantID: o.id, Bundle: s.Bundle})
}

func start(o options, s state) error {
	b, err := bundle.Open(s.Bundle, "", s.ID, false)
	if err != nil {
		return fmt.Errorf("container %s: %w", s.ID, err)
	}
	if !b.Concerns() {
		return nil
	}
	fail := func(err error) error { return fmt.Errorf("container %s: %w", b.Facts.Name, err) }
	request, obstacle := b.Request()
	if restored() {
		obstacle = runccmd.ErrRestores
	}
	if obstacle != nil {
		request.Obstacle = obstacle.Error() // which the agent weighs against the node's policy, and tells of
	}
	request.PID = s.PID
	prepared, err := ociapi.Client{Socket: o.socket}.Prepare(request)
	if b.OnlyShown() {
		return nil
	}
	var refusal *ociapi.Refusal
	switch {
	case obstacle != nil && (b.Asks() || prepared.Grant != nil):
		return fail(obstacle) // if an agent of old has made a grant, it ends with the first process, now
	case errors.As(err, &refusal), err != nil && b.Asks():
		return fail(err)
	}
	return nil
}

// inject mounts what the agent has left word of. It runs in the container's namespaces, before its root
// is its /, and may be no more than a user there: what it needs lies open for it.
func inject(o options, s state) error {
	fail := func(err error) error { return fmt.Errorf("container %s: %w", s.ID, err) }
	text, err := os.ReadFile(ociapi.NotePath(filepath.Dir(o.socket), s.Bundle))
	if errors.Is(err, os.ErrNotExist) {
		return nil // nothing was granted
	}
	var note ociapi.Note
	if err == nil {
		err = json.Unmarshal(text, &note)
	}
	if err != nil {
		return fail(fmt.Errorf("reading what it was granted: %w", err))
	}
	root, err := rootfs.Open(note.Root)
	if err != nil {
		return fail(err)
	}
	defer root.Close()
	// Without /etc/ld.so.preload only the environment is left, which a hook cannot set.
	note.Grant.FixedImage = false
	for _, m := range note.Grant.Mounts() {
		if err := root.Mount(m); err != nil {
			return fail(err)
		}
	}
	return nil
}
