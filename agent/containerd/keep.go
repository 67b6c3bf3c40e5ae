// Package containerd is what the agent's helper weir-containerd knows of a containerd: which containers
// there are and what the agent is to be told when something changes. It does not speak containerd's
// protocol, so nothing that it imports is large. Invariants: what was told is known, so only changes are
// told; after any break all is listed and told anew.
package containerd

import (
	"context"
	"log/slog"
	"time"
)

// The bounds of the time between two tries: it doubles from the one to the other.
const (
	againFirst = 50 * time.Millisecond
	againLast  = 500 * time.Millisecond
	// goodFor is how long a try must have lasted for the next one to follow soon.
	goodFor = 2 * time.Second
)

// Keep runs try until ctx ends, again and again with a back-off. It logs why a try ended, but not the
// same twice in a row.
func Keep(ctx context.Context, log *slog.Logger, try func(context.Context) error) {
	wait, last := againFirst, ""
	for ctx.Err() == nil {
		begun := time.Now()
		err := try(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > goodFor {
			wait, last = againFirst, ""
		}
		if err != nil && err.Error() != last {
			last = err.Error()
			log.Warn("trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, againLast)
	}
}
