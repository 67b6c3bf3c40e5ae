package main

// The plugin is a process of its own, which the agent does not start: where containerd requires it, it must
// be there while the agent is not, so that only containers that ask are refused then.

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"path/filepath"
	"syscall"

	"weir/agent/cmd/weir-containerd/nri"
)

const pluginVerb = "nri"

func pluginCommand(o *nri.Options) *command {
	c := newCommand("weir-containerd "+pluginVerb, pluginHelp)
	c.flags.StringVar(&o.Control, "control", "/run/weir/control.sock", "")
	c.flags.StringVar(&o.Socket, "socket", "/var/run/nri/nri.sock", "")
	c.flags.StringVar(&o.StateDir, "state", "/run/containerd", "")
	return c
}

// runPlugin is the plugin until a signal ends it. It returns the exit code.
func runPlugin(args []string, stdout, stderr io.Writer) int {
	o := nri.Options{Log: slog.New(slog.NewTextHandler(stderr, nil))}
	command := pluginCommand(&o)
	if code, done := command.parse(args, stdout, stderr); done {
		return code
	}
	for _, given := range []struct{ flag, path string }{
		{"control", o.Control}, {"socket", o.Socket}, {"state", o.StateDir},
	} {
		if !filepath.IsAbs(given.path) {
			return command.mistaken(stderr, fmt.Errorf("--%s %q: want an absolute path", given.flag, given.path))
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	nri.Run(ctx, o)
	return 0
}
