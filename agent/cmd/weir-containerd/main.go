// Command weir-containerd tells the agent which containers a containerd has. The agent starts it beside
// itself where there is a containerd; for people it is of no use. Invariants: it ends when its standard
// input does, so it outlives no agent; what is wrong with containerd never ends it.
//
// weir-containerd nri is another process, for people to start: see package nri.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"

	"weir/agent/containerd"
	"weir/agent/control/ociapi"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// helperOptions are where the helper's two sides are.
type helperOptions struct{ control, containerd string }

func helperCommand(o *helperOptions) *command {
	c := newCommand("weir-containerd", help)
	c.flags.StringVar(&o.control, "control", "", "")
	c.flags.StringVar(&o.containerd, "containerd", "", "")
	return c
}

// run does the work until in ends, and returns the exit code.
func run(args []string, in io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == pluginVerb {
		return runPlugin(args[1:], stdout, stderr)
	}
	var o helperOptions
	command := helperCommand(&o)
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return command.mistaken(stderr, fmt.Errorf("unknown command %q; accepted: %s", args[0], pluginVerb))
	}
	if code, done := command.parse(args, stdout, stderr); done {
		return code
	}
	if o.control == "" || o.containerd == "" {
		return command.mistaken(stderr, errors.New("give a command, or --control and --containerd, as the agent does"))
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	log := slog.New(slog.NewTextHandler(stderr, nil))
	agent := ociapi.Client{Socket: o.control}
	var parts sync.WaitGroup
	parts.Go(func() {
		containerd.Follow(ctx, log, agent, "containerd at "+o.containerd, func() (containerd.Source, func(), error) {
			return connect(o.containerd)
		})
	})
	parts.Wait()
	return 0
}
