package metrics

// The HTTP server of the metrics. It is for whoever reaches its address, without a password: the address is the operator's
// choice, and nothing can be changed through it.

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weir/agent/control"
)

// Path is where metrics are served.
const Path = "/metrics"

// Limits of the server: who is slower is cut off, who is too many waits, or is told so.
const (
	connectionsMax = 32
	scrapesMax     = 4
	headerBytesMax = 8 << 10
	scrapeTimeMax  = 10 * time.Second
	idleTimeMax    = 2 * time.Minute
)

// Listen takes an address, as weir.toml's metrics_listen has it.
func Listen(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serving metrics at %s (metrics_listen): %w", address, err)
	}
	return &boundedListener{listener, make(chan struct{}, connectionsMax)}, nil
}

// Serve answers on a listener until ctx ends, and closes it. It returns nil after an orderly end.
func Serve(ctx context.Context, listener net.Listener, source Source, log *slog.Logger) error {
	server := &http.Server{
		Handler: handler(source, log), ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: scrapeTimeMax, ReadTimeout: scrapeTimeMax, WriteTimeout: 2 * scrapeTimeMax,
		IdleTimeout: idleTimeMax, MaxHeaderBytes: headerBytesMax,
	}
	if err := control.ServeUntil(ctx, server, listener); err != nil {
		return fmt.Errorf("serving metrics: %w", err)
	}
	return nil
}

func handler(source Source, log *slog.Logger) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewCollector(source, log), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: scrapesMax, Timeout: scrapeTimeMax,
	}))
	return mux
}

// boundedListener accepts at most connectionsMax connections at a time; others wait in the kernel's queue.
type boundedListener struct {
	net.Listener
	slots chan struct{}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &boundedConn{conn, sync.OnceFunc(func() { <-l.slots })}, nil
}

type boundedConn struct {
	net.Conn
	release func()
}

func (c *boundedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
