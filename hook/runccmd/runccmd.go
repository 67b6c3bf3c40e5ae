// Package runccmd reads the command line by which runc, or a runtime like it, is called. It is pure.
// Invariant: a command line that is not understood is one that weir has nothing to do with, so that
// only containers that asked for weir can ever fail because of it.
package runccmd

import (
	"errors"
	"slices"
	"strings"
)

// Command is what a command line asks for, as far as weir has to know it.
type Command struct {
	Name   string // the subcommand; empty: none was found
	Bundle string // of those that start a container; empty: the working directory
	Config string // the specification, where it is not the bundle's; crun has this
	ID     string // of the container, likewise
	// Log is where the caller looks for the error of a failed call, and LogJSON its form.
	Log     string
	LogJSON bool
}

// Starts tells whether the command makes a container out of a bundle.
func (c *Command) Starts() bool { return c.Name == "create" || c.Name == "run" || c.Restores() }

// Restores tells whether the container's processes come out of a checkpoint.
func (c *Command) Restores() bool { return c.Name == "restore" }

// ErrRestores says why what a container gets from weir cannot be given to one out of a checkpoint: what its processes
// hold on a GPU is there before anybody could charge it.
var ErrRestores = errors.New("weir cannot hold a cap for processes that are restored from a checkpoint; start the " +
	"container anew, or restore it without weir's annotations")

// The flags that take a value in the next argument, of runc and crun. All others are taken to have none.
var (
	globalValues = []string{"root", "log", "log-format", "log-level", "criu", "rootless", "cgroup-manager"}
	startValues  = []string{"bundle", "b", "console-socket", "pid-file", "preserve-fds", "config", "f", "pidfd-socket",
		"image-path", "work-path", "manage-cgroups-mode", "empty-ns", "lsm-profile", "lsm-mount-context"}
	logJSONFormat = "json"
)

// Parse reads the arguments after the program's name.
func Parse(args []string) Command {
	var c Command
	rest := flags(args, globalValues, func(name, value string) {
		switch name {
		case "log":
			c.Log = value
		case "log-format":
			c.LogJSON = value == logJSONFormat
		}
	})
	if len(rest) > 0 && rest[0] == "--" {
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return c
	}
	c.Name, rest = rest[0], rest[1:]
	for c.Starts() {
		rest = flags(rest, startValues, func(name, value string) {
			switch {
			case name == "bundle" || name == "b":
				c.Bundle = value
			case (name == "config" || name == "f") && !c.Restores():
				c.Config = value
			}
		})
		last := len(rest) > 0 && rest[0] == "--"
		if last {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			break
		}
		if c.ID == "" {
			c.ID = rest[0]
		}
		if last {
			break
		}
		rest = rest[1:] // runc takes flags behind the id, too
	}
	return c
}

// flags takes the flags off a command line and returns what follows them, a "--" included. One dash or
// two are the same, as they are for runc; what only crun understands, runc refuses.
func flags(args, withValue []string, visit func(name, value string)) []string {
	for len(args) > 0 {
		arg := args[0]
		if arg == "--" || arg == "-" || !strings.HasPrefix(arg, "-") {
			return args
		}
		args = args[1:]
		name, value, has := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		switch {
		case slices.Contains(withValue, name):
		case strings.HasPrefix(arg, "--"):
			name = full(name, withValue)
		default:
			name, value, has = together(arg[1:], withValue)
		}
		if !has && slices.Contains(withValue, name) && len(args) > 0 {
			value, args = args[0], args[1:]
		}
		visit(name, value)
	}
	return nil
}

// full is the one flag whose name begins so; without one, what was written. crun takes that for the flag.
func full(written string, names []string) string {
	found := written
	for _, name := range names {
		if !strings.HasPrefix(name, written) {
			continue
		}
		if found != written {
			return written
		}
		found = name
	}
	return found
}

// together reads short flags in one argument, the last of which may have its value there, too: crun's -db DIR
// and -bDIR.
func together(letters string, withValue []string) (name, value string, has bool) {
	rest := strings.TrimLeft(letters, "d") // --detach, the only one without a value
	if rest == "" || !slices.Contains(withValue, rest[:1]) {
		return letters, "", false
	}
	return rest[:1], rest[1:], len(rest) > 1
}
