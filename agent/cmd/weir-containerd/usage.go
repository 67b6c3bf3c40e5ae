package main

// What is said of flags and mistakes in them, in the form in which `weir` says it.

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

const help = `weir-containerd: the agent's helper for containerd, and weir's plugin for containers of pods

Usage: weir-containerd COMMAND [FLAGS]
       weir-containerd --control SOCKET --containerd SOCKET

Commands:
  nri  be weir's plugin for containers of pods, until a signal ends it

Flags without a command, as the agent starts it:
  --control SOCKET     the agent's control socket
  --containerd SOCKET  containerd's socket
  --help, -h           show help

Examples:
  weir-containerd nri
  weir-containerd nri --help
`

const pluginHelp = `weir-containerd nri: be weir's plugin for containers of pods, until a signal ends it

Usage: weir-containerd nri [FLAGS]

Flags:
  --control SOCKET  the agent's control socket (default: "/run/weir/control.sock")
  --socket SOCKET   the runtime's socket for plugins (default: "/var/run/nri/nri.sock")
  --state DIR       containerd's state directory (default: "/run/containerd")
  --help, -h        show help

The runtime asks it about each container that the CRI makes. It waits for a runtime that is not there or has
gone. While it is away, containerd starts containers without caps unless it was told to require it:

  systemctl enable --now weir-nri
  weir runtime configure --mode nri --restart
`

// command is one way of calling the program.
type command struct {
	name  string
	help  string
	flags *flag.FlagSet
}

func newCommand(name, help string) *command {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	return &command{name, help, flags}
}

// parse reads flags. done is true where that was all, with the exit code.
func (c *command) parse(args []string, stdout, stderr io.Writer) (code int, done bool) {
	err := c.flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, c.help)
		return 0, true
	}
	if err == nil && c.flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", c.flags.Arg(0))
	}
	if err != nil {
		return c.mistaken(stderr, c.inOurWords(err)), true
	}
	return 0, false
}

// inOurWords says what package flag has found as `weir` does.
func (c *command) inOurWords(err error) error {
	if name, found := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); found {
		var names []string
		c.flags.VisitAll(func(f *flag.Flag) { names = append(names, "--"+f.Name) })
		return fmt.Errorf("unknown flag %q; accepted: %s", "--"+name, strings.Join(names, ", "))
	}
	if name, found := strings.CutPrefix(err.Error(), "flag needs an argument: -"); found {
		return fmt.Errorf("--%s needs a value", name)
	}
	return err
}

// mistaken says what is wrong with how the program was called. It returns the exit code.
func (c *command) mistaken(stderr io.Writer, err error) int {
	fmt.Fprintf(stderr, "%s: %v; see %s --help\n", c.name, err, c.name)
	return 2
}
