package main

// The plugin is a process of its own, which the agent does not start: where containerd requires it, it must
// be there while the agent is not, so that only containers that ask are refused then.

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"path/filepath"
	"syscall"

	"weir/agent/cmd/weir-containerd/nri"
)

const pluginVerb = "nri"

// runPlugin is the plugin until a signal ends it. It returns the exit code.
func runPlugin(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("weir-containerd nri", flag.ContinueOnError)
	flags.SetOutput(stderr)
	o := nri.Options{Log: slog.New(slog.NewTextHandler(stderr, nil))}
	flags.StringVar(&o.Control, "control", "/run/weir/control.sock", "the agent's control `socket`")
	flags.StringVar(&o.Socket, "socket", "/var/run/nri/nri.sock", "the runtime's `socket` for plugins")
	flags.StringVar(&o.StateDir, "state", "/run/containerd", "containerd's state `directory`")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	for _, path := range []string{o.Control, o.Socket, o.StateDir} {
		if !filepath.IsAbs(path) {
			fmt.Fprintf(stderr, "weir-containerd: %q: want an absolute path\n", path)
			return 2
		}
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "weir-containerd: unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	nri.Run(ctx, o)
	return 0
}
