package nri

// The connection to the runtime: made, kept, and made anew.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/stub"
)

const (
	// name is what containerd's list of required plugins names: runtimeconf.RuntimeName.
	name = "weir"
	// index orders plugins. Those before have given devices, and environments, that the agent is to know of.
	index = "90"

	// retryWait is how long it takes to look again for a runtime that is not there.
	retryWait = 250 * time.Millisecond
	// startWait is how long a runtime may take to make a connection a plugin's.
	startWait = 10 * time.Second
)

// Options are where things are.
type Options struct {
	Control  string // the agent's control socket; beside it lie the containers' directories
	Socket   string // the runtime's, for plugins
	StateDir string // containerd's state directory, in which it makes bundles
	Log      *slog.Logger
}

// Run is the plugin, until the context ends. A runtime that is not there, or goes, is waited for.
func Run(ctx context.Context, o Options) {
	last := ""
	for ctx.Err() == nil {
		connected, err := serve(ctx, o)
		if ctx.Err() != nil {
			return
		}
		// What stays as it is, is said once.
		if text := err.Error(); connected || text != last {
			o.Log.Warn("not a plugin now, will be again", "error", err)
			last = text
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryWait):
		}
	}
}

// serve is one connection, and ends with it. connected tells whether it got as far as to be a plugin.
func serve(ctx context.Context, o Options) (connected bool, err error) {
	dialled, err := net.Dial("unix", o.Socket)
	if err != nil {
		return false, fmt.Errorf("the runtime's socket for plugins: %w", err)
	}
	conn := &watched{Conn: dialled, over: make(chan struct{})}
	defer conn.Close()
	plugin := newPlugin(o, conn.over, func() { o.Log.Info("a plugin now", "socket", o.Socket) })
	s, err := stub.New(plugin, stub.WithPluginName(name), stub.WithPluginIdx(index), stub.WithConnection(conn),
		stub.WithLogger(logger{o.Log}))
	if err != nil {
		return false, err
	}
	// Start may hang for good where the runtime goes between its steps. It is then left behind.
	started := make(chan error, 1)
	go func() { started <- s.Start(ctx) }()
	select {
	case err = <-started:
	case <-conn.over:
		err = errors.New("the runtime closed the connection")
	case <-time.After(startWait):
		err = fmt.Errorf("the runtime has not made it a plugin within %v", startWait)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", o.Socket, err)
	}
	plugin.waitFor(s.RequestTimeout())
	select {
	case <-conn.over:
		return true, fmt.Errorf("%s: the runtime closed the connection", o.Socket)
	case <-ctx.Done():
		s.Stop()
		return true, ctx.Err()
	}
}

// watched is a connection that says when it is over, whatever those do who use it.
type watched struct {
	net.Conn
	once sync.Once
	over chan struct{}
}

func (w *watched) Read(into []byte) (int, error) {
	n, err := w.Conn.Read(into)
	if err != nil {
		w.once.Do(func() { close(w.over) })
	}
	return n, err
}

// logger lets through what NRI's own code finds wrong.
type logger struct{ log *slog.Logger }

func (l logger) Debugf(context.Context, string, ...any) {}

func (l logger) Infof(context.Context, string, ...any) {}

func (l logger) Warnf(_ context.Context, format string, args ...any) {
	l.log.Warn(fmt.Sprintf(format, args...))
}

func (l logger) Errorf(_ context.Context, format string, args ...any) {
	l.log.Error(fmt.Sprintf(format, args...))
}
