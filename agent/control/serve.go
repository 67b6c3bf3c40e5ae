package control

// An HTTP server that ends with a context.

import (
	"context"
	"errors"
	"net"
	"net/http"
)

// ServeUntil has a server answer on a listener until ctx ends, then lets running requests finish for a moment and closes
// the listener. It returns nil after an orderly end. What wakes requests that wait is to be registered with
// RegisterOnShutdown.
func ServeUntil(ctx context.Context, server *http.Server, listener net.Listener) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		limit, release := context.WithTimeout(context.Background(), shutdownTimeMax)
		defer release()
		if server.Shutdown(limit) != nil {
			server.Close()
		}
	})
	err := server.Serve(listener)
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
