// Command weir-containerd tells the agent which containers a containerd has. The agent starts it beside
// itself where there is a containerd; for people it is of no use. Invariants: it ends when its standard
// input does, so it outlives no agent; what is wrong with containerd never ends it.
//
// weir-containerd nri is another process, for people to start: see package nri.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"weir/agent/containerd"
	"weir/agent/control/ociapi"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stderr)) }

// run does the work until in ends, and returns the exit code.
func run(args []string, in io.Reader, stderr io.Writer) int {
	if len(args) > 0 && args[0] == pluginVerb {
		return runPlugin(args[1:], stderr)
	}
	flags := flag.NewFlagSet("weir-containerd", flag.ContinueOnError)
	flags.SetOutput(stderr)
	control := flags.String("control", "", "the agent's control `socket`")
	address := flags.String("containerd", "", "containerd's `socket`")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *control == "" || *address == "" || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "weir-containerd: the agent starts it, with --control SOCKET and --containerd SOCKET")
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	log := slog.New(slog.NewTextHandler(stderr, nil))
	agent := ociapi.Client{Socket: *control}
	var parts sync.WaitGroup
	parts.Go(func() {
		containerd.Follow(ctx, log, agent, "containerd at "+*address, func() (containerd.Source, func(), error) {
			return connect(*address)
		})
	})
	parts.Wait()
	return 0
}
