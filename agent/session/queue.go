package session

// What operators are told of GPU time.

import (
	"context"

	"weir/agent/control"
)

// Queue lists the flows, by GPU.
func (n *Node) Queue(context.Context) ([]control.Flow, error) { return nil, nil }
