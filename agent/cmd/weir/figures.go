// The agent's metrics, where they are asked for.

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"syscall"

	"weir/agent/config"
	"weir/agent/metrics"
)

// scrapes is where metrics are served; the zero value serves none.
type scrapes struct{ listener net.Listener }

// listenForScrapes takes the address of metrics. An agent that cannot have it does not start: it would be taken to be away
// by who looks at its metrics.
func listenForScrapes(settings config.Config, log *slog.Logger) (s scrapes, err error) {
	if settings.MetricsListen == "" {
		return s, nil
	}
	if s.listener, err = metrics.Listen(settings.MetricsListen); err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w; give another port, or off", err)
		}
		return s, err
	}
	if at, err := netip.ParseAddrPort(settings.MetricsListen); err == nil && !at.Addr().IsLoopback() {
		log.Warn("metrics are readable for all who reach this address, without a password", "metrics_listen", settings.MetricsListen)
	}
	return s, nil
}

// summary is what the ready line says of them.
func (s scrapes) summary() string {
	if s.listener == nil {
		return ""
	}
	return fmt.Sprintf(", metrics at http://%s%s", s.listener.Addr(), metrics.Path)
}

// serve answers scrapes until ctx ends. That it fails ends nothing else.
func (s scrapes) serve(ctx context.Context, source metrics.Source, log *slog.Logger) {
	if s.listener == nil {
		return
	}
	if err := metrics.Serve(ctx, s.listener, source, log); err != nil {
		log.Error("there are no metrics any more", "error", err)
	}
}
