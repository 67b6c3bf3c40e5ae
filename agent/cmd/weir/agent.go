// `weir agent`: the daemon. Settings come from flags, environment and file in this order; the node
// and its control socket live and end together.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/urfave/cli/v2"

	"weir/agent/config"
	"weir/agent/control"
)

func agentCommand() *cli.Command {
	return &cli.Command{
		Name:  "agent",
		Usage: "serve this node: keep caps, share out time, answer the other commands",
		Description: `Runs in the foreground until SIGTERM or SIGINT. When it serves, it prints one line
that begins with "weir agent ready:" and tells systemd. Containers and caps survive a restart of
the agent. Each flag has a key of the configuration file (with _ for -) and an environment
variable; the flag wins over the environment, and that over the file.

Examples:
  weir agent
  weir agent --run-dir /tmp/w/run --state-dir /tmp/w/state
  weir agent --config /etc/weir/weir.toml --log-level debug`,
		Flags: append([]cli.Flag{
			setting("config", "read `FILE`; else /etc/weir/weir.toml, or ~/.config/weir/weir.toml for an "+
				"ordinary user, if it is there"),
			setting("run-dir", "keep sockets, containers and caps in `DIR`, best on a tmpfs; else "+
				"/run/weir, or $XDG_RUNTIME_DIR/weir or /tmp/weir-UID for an ordinary user"),
			setting("state-dir", "keep what outlives the boot in `DIR`, such as the sizes of contexts; else "+
				"/var/lib/weir, or ~/.local/state/weir for an ordinary user"),
			setting("nvml", "load NVML from `FILE`; else the system's libnvidia-ml.so.1"),
			setting("agent-wait", "let an allocation wait for an absent agent for at most `DURATION`; "+
				"else 5s"),
			setting("log-level", "log to stderr from `LEVEL` on: debug, info, warn or error; else info"),
			setting("count-context", "whether contexts, code and limits count against caps, `true|false`; "+
				"else true"),
			setting("undeclared", "what becomes of a process that holds GPU memory which it has not "+
				"declared: `report|end`; else report"),
			setting("incompatible", "what becomes of a process whose library or driver does not go with "+
				"the agent: `refuse|pass` its allocations; else refuse"),
			setting("unasked-gpu", "what becomes of a container that has a GPU and asked for nothing, "+
				"`pass|default|refuse`: it starts untouched, gets what the rules give, or does not start; else pass"),
			setting("containerd", "ask which containers there are, `auto|off|SOCKET`: the containerd at "+
				"/run/containerd/containerd.sock if it is there, none, or the one at SOCKET; else auto"),
			setting("driver-limit", "`auto|off`: back the caps of containers by limits of the driver's own where it can "+
				"hold them, or not; else auto"),
			setting("swap-host-limit", "let swap of all containers take `SIZE` of host memory at most, 0 for no swap at all; else "+
				"half of the machine's"),
			setting("metrics-listen", "serve metrics for Prometheus at `[ADDRESS:]PORT`, of 127.0.0.1 where no address is given, or "+
				"off; else off"),
		}, timeFlags()...),
		Action: func(c *cli.Context) error {
			if err := noPositionals(c); err != nil {
				return err
			}
			settings, err := agentConfig(c, config.CurrentUser())
			if err != nil {
				return err
			}
			level := &slog.HandlerOptions{Level: settings.LogLevel}
			log := slog.New(slog.NewTextHandler(c.App.ErrWriter, level))
			ends := []os.Signal{syscall.SIGTERM}
			if !signal.Ignored(syscall.SIGINT) { // as a shell's background jobs have it
				ends = append(ends, syscall.SIGINT)
			}
			ctx, stop := signal.NotifyContext(c.Context, ends...)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends it at once
			return serveAgent(ctx, settings, log, c.App.Writer)
		},
	}
}

func setting(name, usage string) cli.Flag { return &cli.StringFlag{Name: name, Usage: usage} }

// agentConfig puts together defaults, file, environment and flags, each over the one before.
func agentConfig(c *cli.Context, user config.User) (config.Config, error) {
	settings := config.Default(user)
	file, named := c.String("config"), c.IsSet("config")
	if !named {
		file = user.File()
	}
	err := settings.ReadFile(file)
	switch missing := errors.Is(err, os.ErrNotExist); {
	case missing && named:
		return settings, usageError("--config: there is no %s", file)
	case err != nil && !missing:
		return settings, usageError("%v", err)
	}
	for _, key := range config.Keys {
		value, from := user.Getenv(key.Env), "$"+key.Env
		if c.IsSet(key.Flag) {
			value, from = c.String(key.Flag), "--"+key.Flag
		} else if value == "" {
			continue
		}
		if strings.HasSuffix(key.Name, "_dir") && value != "" {
			if value, err = filepath.Abs(value); err != nil {
				return settings, fmt.Errorf("finding the directory of %s: %w", from, err)
			}
		}
		if err := settings.Set(key.Name, value); err != nil {
			return settings, usageError("%s: %v", from, err)
		}
	}
	return settings, nil
}

// servedNode is a Node with a life: Serve returns when ctx has ended and all is put away.
type servedNode interface {
	control.Node
	Serve(ctx context.Context) error
}

// serveAgent opens the node and serves it, its control socket and its metrics until ctx ends.
func serveAgent(
	ctx context.Context, settings config.Config, log *slog.Logger, out io.Writer,
) error {
	node, err := openNode(settings, log)
	if err != nil {
		return err
	}
	defer node.close()
	socket := filepath.Join(settings.RunDir, config.SocketName)
	listener, err := control.Listen(socket)
	if err != nil {
		return errors.Join(err, stopAtOnce(node))
	}
	figures, err := listenForScrapes(settings, log)
	if err != nil {
		return errors.Join(err, listener.Close(), stopAtOnce(node))
	}
	ready := fmt.Sprintf("weir agent ready: %s, %s%s", socket, node.summary, figures.summary())
	var helpers sync.WaitGroup
	defer helpers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return serveBoth(ctx, node, listener, log, func() {
		helpers.Go(func() { figures.serve(ctx, node, log) })
		fmt.Fprintln(out, ready)
		notify(log, daemon.SdNotifyReady)
		helpers.Go(func() { watchContainerd(ctx, settings, node, log) })
	})
}

// stopAtOnce puts a node away that was opened and never served.
func stopAtOnce(node servedNode) error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return node.Serve(ended)
}

// serveBoth serves tenants and operators; if one fails, the other ends too.
func serveBoth(
	ctx context.Context, node servedNode, listener net.Listener, log *slog.Logger, ready func(),
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := make(chan error, 2)
	go func() { ends <- node.Serve(ctx) }()
	go func() { ends <- control.NewServer(node, log).Serve(ctx, listener) }()
	ready()
	first := <-ends
	notify(log, daemon.SdNotifyStopping)
	cancel()
	return errors.Join(first, <-ends)
}

// notify tells systemd; where nobody listens, that is no matter.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd could not be told", "state", state, "err", err)
	}
}
