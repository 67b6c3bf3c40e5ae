package main

// containerd's API over its socket, in all its namespaces. What is the same in its generations from 1.6
// on is used, no more.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	eventtypes "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/services/events/v1"
	"github.com/containerd/containerd/api/services/namespaces/v1"
	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/task"

	"weir/agent/containerd"
	"weir/agent/control/ociapi"
)

const (
	// callWait is how long containerd may take for an answer: it asks the shim of each task.
	callWait = 10 * time.Second
	// answerBytesMax is how long one message of containerd's may be, as its own client has it.
	answerBytesMax = 16 << 20
	// namespacesMax is how many namespaces are looked into.
	namespacesMax = 256
)

// source is the containerd at one end of a connection.
type source struct {
	containers containers.ContainersClient
	events     events.EventsClient
	namespaces namespaces.NamespacesClient
	tasks      tasks.TasksClient
}

// connect makes a connection, which is tried at the first call.
func connect(address string) (containerd.Source, func(), error) {
	conn, err := grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(answerBytesMax)))
	if err != nil {
		return nil, nil, err
	}
	return &source{
		containers: containers.NewContainersClient(conn),
		events:     events.NewEventsClient(conn),
		namespaces: namespaces.NewNamespacesClient(conn),
		tasks:      tasks.NewTasksClient(conn),
	}, func() { conn.Close() }, nil
}

// within is a context for one call in a namespace.
func within(ctx context.Context, namespace string) (context.Context, context.CancelFunc) {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
	return context.WithTimeout(ctx, callWait)
}

// Subscribe is containerd.Source's.
func (s *source) Subscribe(ctx context.Context, changed chan<- ociapi.Key) error {
	stream, err := s.events.Subscribe(ctx, &events.SubscribeRequest{
		Filters: []string{`topic~="^/containers/"`, `topic~="^/tasks/(create|start|exit|delete)$"`},
	})
	if err != nil {
		return err
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		id := concerns(event)
		if id == "" {
			continue
		}
		select {
		case changed <- ociapi.Key{Namespace: event.Namespace, ID: id}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// concerns is the id of the container that an event is about; empty if it is about something else, such
// as the exit of a process that was exec'd.
func concerns(event *types.Envelope) string {
	if event.GetEvent() == nil {
		return ""
	}
	message, err := event.Event.UnmarshalNew()
	if err != nil {
		return ""
	}
	switch e := message.(type) {
	case *eventtypes.ContainerCreate:
		return e.ID
	case *eventtypes.ContainerUpdate:
		return e.ID
	case *eventtypes.ContainerDelete:
		return e.ID
	case *eventtypes.TaskCreate:
		return e.ContainerID
	case *eventtypes.TaskStart:
		return e.ContainerID
	case *eventtypes.TaskExit:
		return ofInit(e.ContainerID, e.ID)
	case *eventtypes.TaskDelete:
		return ofInit(e.ContainerID, e.ID)
	}
	return ""
}

// ofInit is the container where a process of it is its first one.
func ofInit(container, process string) string {
	if process != "" && process != container {
		return ""
	}
	return container
}

// List is containerd.Source's.
func (s *source) List(ctx context.Context) (all []containerd.Container, err error) {
	limited, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	answer, err := s.namespaces.List(limited, &namespaces.ListNamespacesRequest{})
	if err != nil {
		return nil, err
	}
	if len(answer.Namespaces) > namespacesMax {
		return nil, fmt.Errorf("it has %d namespaces, and %d is the most", len(answer.Namespaces), namespacesMax)
	}
	for _, namespace := range answer.Namespaces {
		if all, err = s.listIn(ctx, namespace.Name, all); err != nil {
			return nil, fmt.Errorf("namespace %s: %w", namespace.Name, err)
		}
	}
	return all, nil
}

// listIn appends a namespace's containers.
func (s *source) listIn(ctx context.Context, namespace string, all []containerd.Container) (
	[]containerd.Container, error) {
	ctx, cancel := within(ctx, namespace)
	defer cancel()
	running, err := s.tasks.List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*task.Process)
	for _, process := range running.Tasks {
		byID[process.ID] = process
	}
	// Not List: together the specifications may be more than one message can be.
	stream, err := s.containers.ListStream(ctx, &containers.ListContainersRequest{})
	for err == nil && len(all) <= ociapi.ListedMax {
		var message *containers.ListContainerMessage
		if message, err = stream.Recv(); err == nil && message.Container != nil {
			id := message.Container.ID
			all = append(all, convert(namespace, message.Container, byID[id]))
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

// Get is containerd.Source's.
func (s *source) Get(ctx context.Context, key ociapi.Key) (*containerd.Container, error) {
	ctx, cancel := within(ctx, key.Namespace)
	defer cancel()
	found, err := s.containers.Get(ctx, &containers.GetContainerRequest{ID: key.ID})
	if none(err) || err == nil && found.Container == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	running, err := s.tasks.Get(ctx, &tasks.GetRequest{ContainerID: key.ID})
	if status.Code(err) == codes.Unavailable || ctx.Err() != nil {
		return nil, err
	}
	// Else it has no task, or one whose shim is broken, of which nothing is known.
	container := convert(key.Namespace, found.Container, running.GetProcess())
	return &container, nil
}

func none(err error) bool { return status.Code(err) == codes.NotFound }

// convert is a container as containerd's API has it.
func convert(namespace string, c *containers.Container, process *task.Process) containerd.Container {
	container := containerd.Container{
		Key: ociapi.Key{Namespace: namespace, ID: c.ID}, Image: c.Image, Labels: c.Labels,
		Runtime: c.Runtime.GetOptions().GetValue(), Spec: c.Spec.GetValue(), Created: c.CreatedAt.AsTime(),
	}
	if process.GetPid() > 0 { // some runtimes have no process out here
		switch process.Status {
		case task.Status_RUNNING, task.Status_PAUSED, task.Status_PAUSING:
			container.Task = &containerd.Task{PID: int(process.Pid), Running: true}
		case task.Status_CREATED:
			container.Task = &containerd.Task{PID: int(process.Pid)}
		}
	}
	return container
}
