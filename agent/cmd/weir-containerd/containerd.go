package main

// containerd's API over its socket, in all its namespaces.

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/containerd/containerd/api/services/events/v1"

	"weir/agent/control/ociapi"
)

// watch follows one connection to containerd until it breaks.
func watch(ctx context.Context, address string, _ ociapi.Client) error {
	conn, err := grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("containerd at %s: %w", address, err)
	}
	defer conn.Close()
	stream, err := events.NewEventsClient(conn).Subscribe(ctx, &events.SubscribeRequest{
		Filters: []string{`topic~="^/containers/"`, `topic~="^/tasks/(create|start|exit|delete)$"`},
	})
	for err == nil {
		_, err = stream.Recv()
	}
	return fmt.Errorf("containerd at %s: %w", address, err)
}
