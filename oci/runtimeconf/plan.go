// Package runtimeconf makes container runtimes start containers through weir, and undoes it exactly.
//
// What is to be written is computed from the texts of a runtime's configuration, without looking at the
// machine; applying a plan and rolling it back are apart. Invariants: a configuration that is not
// understood in full, or that another tool makes anew, is not written, and the error says what to do by
// hand; before anything is written, what was there is kept with its hash; what somebody has changed since
// is never written over.
package runtimeconf

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// The ways in which a runtime can be made to use weir.
const (
	ModeRuntime = "runtime" // weir-runtime in the runtime's place, for those who ask for it
	ModeCDI     = "cdi"     // by the names of CDI devices
	ModeNRI     = "nri"     // by weir's plugin, weir-containerd nri
	ModeHooks   = "hooks"   // hooks that the runtime runs for containers with annotations of weir's
)

// RuntimeName is what users ask for: --runtime weir, or a RuntimeClass with this handler.
const RuntimeName = "weir"

// File is a file of the machine as it is. A nil Text is no file.
type File struct {
	Path string
	Text []byte
}

// Setup is what all runtimes need to be told.
type Setup struct {
	Mode          string
	Runtime       string // the path of weir-runtime
	Hook          string // the path of weir-hook
	ControlSocket string // the agent's
	SetAsDefault  bool   // containers that ask for no runtime get weir's, too
	// Wrapper is weir-runtime's own configuration.
	Wrapper File
}

// Edit is one file of a plan.
type Edit struct {
	Path   string
	Before []byte // nil: there is none
	After  []byte
	Mode   fs.FileMode
	// Import is the entry that this edit adds to a main configuration's imports, and all that it does.
	Import string
	// ImportLine: the main configuration had no imports, so the line is weir's.
	ImportLine bool
	// Shared: it is of weir-runtime's settings, which other container runtimes may rely on.
	Shared bool
}

// Plan is what is to be written, in this order, and what the user has to do then.
type Plan struct {
	Runtime string // the container runtime's name
	Edits   []Edit // only such as change something
	Restart string // the unit to restart, if any
	// Reads is the file by which the daemon to restart is known: the unit's own reads it where it is the usual one.
	Reads string
	Notes []string
}

// add puts an edit into the plan if it changes the file.
func (p *Plan) add(file File, after []byte) *Edit {
	if file.Text != nil && bytes.Equal(file.Text, after) {
		return nil
	}
	p.Edits = append(p.Edits, Edit{Path: file.Path, Before: file.Text, After: after, Mode: 0o644})
	return &p.Edits[len(p.Edits)-1]
}

// Diff shows the plan as a unified diff, empty if nothing is to be changed.
func (p *Plan) Diff() string {
	var out bytes.Buffer
	for _, edit := range p.Edits {
		before := edit.Path
		if edit.Before == nil {
			before = "/dev/null"
		}
		text := diff.Diff(before, edit.Before, edit.Path, edit.After)
		// Its first line repeats the names in a form of its own.
		_, text, _ = bytes.Cut(text, []byte("\n"))
		out.Write(text)
	}
	return out.String()
}

// wrapper plans weir-runtime's own configuration: what it passes containers on to.
func (p *Plan) wrapper(setup Setup, base string) error {
	if base == setup.Runtime {
		return fmt.Errorf("%s would pass containers on to itself; name the runtime below it in %s",
			setup.Runtime, setup.Wrapper.Path)
	}
	now, err := parse(setup.Wrapper)
	if err != nil {
		return err
	}
	for _, key := range []string{"runtime", "control_socket"} {
		if _, ok := now[key].(string); now[key] != nil && !ok {
			return fmt.Errorf("%s: %s has to be a string; nothing is written: correct it, and try again",
				setup.Wrapper.Path, key)
		}
	}
	var lines []byte
	switch there, _ := now["runtime"].(string); {
	case there == base, there == "" && base == defaultBase:
	case there != "":
		return fmt.Errorf("%s passes containers on to %q, for another container runtime or by hand; here it "+
			"would have to be %q; nothing is written", setup.Wrapper.Path, there, base)
	default:
		lines = fmt.Appendf(lines, "# The OCI runtime to which weir-runtime passes containers on.\nruntime = %q\n", base)
	}
	switch there, _ := now["control_socket"].(string); {
	case there == setup.ControlSocket, there == "" && setup.ControlSocket == defaultSocket:
	case there != "":
		return fmt.Errorf("%s asks the agent at %q; here it would have to be %q; nothing is written",
			setup.Wrapper.Path, there, setup.ControlSocket)
	default:
		lines = fmt.Appendf(lines, "# Where weir-runtime asks the agent.\ncontrol_socket = %q\n", setup.ControlSocket)
	}
	if len(lines) > 0 {
		p.add(setup.Wrapper, append(lines, setup.Wrapper.Text...)).Shared = true
	}
	return nil
}

// passedOver notes that weir stands before a runtime which gives no GPUs, where another one, which is not the
// default, does. programs are those of all, by their names.
func (p *Plan) passedOver(base string, programs map[string]string) {
	if gives(base) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		if name != RuntimeName && gives(programs[name]) {
			p.Notes = append(p.Notes, fmt.Sprintf("weir stands before %s, the default, and not before the runtime %s: GPUs that "+
				"are asked for by NVIDIA_VISIBLE_DEVICES only, as by NVIDIA's device plugin without CDI, are not given to "+
				"containers of the runtime %s; for that make %s the default, and configure again", base, name, RuntimeName, name))
			return
		}
	}
}

// gives tells whether a runtime's program gives containers the GPUs that their environment names.
func gives(program string) bool { return strings.Contains(path.Base(program), "nvidia") }

// What weir-runtime passes containers on to, and where it asks the agent, where nothing else is configured.
const (
	defaultBase   = "runc"
	defaultSocket = "/run/weir/control.sock"
)

// unsupported is the error for a mode that a runtime does not have.
func unsupported(runtime, mode, why string) error {
	return fmt.Errorf("%s has no mode %q: %s", runtime, mode, why)
}

// header is the first line of every file that is weir's alone.
const header = "# Made by weir runtime configure; weir runtime unconfigure removes it.\n"

// check refuses a setup with which nothing can be planned.
func (s *Setup) check() error {
	for _, p := range []string{s.Runtime, s.Hook, s.ControlSocket, s.Wrapper.Path} {
		if !path.IsAbs(p) {
			return fmt.Errorf("%q is no absolute path", p)
		}
	}
	if !slices.Contains([]string{ModeRuntime, ModeCDI, ModeNRI, ModeHooks}, s.Mode) {
		return errors.New("mode " + s.Mode + ": want runtime, cdi, nri or hooks")
	}
	return nil
}
