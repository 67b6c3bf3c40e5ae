package main

// containerd's API through its own client, in all its namespaces. What is the same in its generations from 1.6
// on is used, no more.

import (
	"cmp"
	"context"
	"fmt"
	"time"

	eventtypes "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"

	"weir/agent/containerd"
	"weir/agent/control/ociapi"
	"weir/oci/engine"
)

const (
	// callWait is how long containerd may take for an answer: it asks the shim of each task.
	callWait = 10 * time.Second
	// connectWait is how long one try of connecting may take; the client waits in it for a socket that is
	// not there yet.
	connectWait = 2 * time.Second
	// namespacesMax is how many namespaces are looked into.
	namespacesMax = 256
)

// source is the containerd at one end of a connection.
type source struct{ *client.Client }

// connect makes a connection, which is tried at the first call.
func connect(address string) (containerd.Source, func(), error) {
	c, err := client.New(address, client.WithTimeout(connectWait))
	if err != nil {
		return nil, nil, err
	}
	return source{c}, func() { c.Close() }, nil
}

// within is a context for one call in a namespace.
func within(ctx context.Context, namespace string) (context.Context, context.CancelFunc) {
	return context.WithTimeout(namespaces.WithNamespace(ctx, namespace), callWait)
}

// Subscribe is containerd.Source's.
func (s source) Subscribe(ctx context.Context, changed chan<- ociapi.Key) error {
	events, broken := s.EventService().Subscribe(ctx,
		`topic~="^/containers/"`, `topic~="^/tasks/(create|start|exit|delete)$"`)
	for {
		select {
		case err := <-broken:
			return err
		case event := <-events:
			id := concerns(event.Event)
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
}

// concerns is the id of the container that an event is about; empty if it is about something else, such
// as the exit of a process that was exec'd.
func concerns(event typeurl.Any) string {
	if event == nil {
		return ""
	}
	message, err := typeurl.UnmarshalAny(event)
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
func (s source) List(ctx context.Context) (all []containerd.Container, err error) {
	limited, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	names, err := s.NamespaceService().List(limited)
	if err != nil {
		return nil, err
	}
	if len(names) > namespacesMax {
		return nil, fmt.Errorf("it has %d namespaces, and %d is the most", len(names), namespacesMax)
	}
	for _, namespace := range names {
		if all, err = s.listIn(ctx, namespace, all); err != nil {
			return nil, fmt.Errorf("namespace %s: %w", namespace, err)
		}
	}
	return all, nil
}

// listIn appends a namespace's containers.
func (s source) listIn(ctx context.Context, namespace string, all []containerd.Container) (
	[]containerd.Container, error) {
	ctx, cancel := within(ctx, namespace)
	defer cancel()
	running, err := s.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*task.Process)
	for _, process := range running.Tasks {
		byID[process.ID] = process
	}
	list, err := s.ContainerService().List(ctx)
	for _, c := range list {
		all = append(all, convert(namespace, c, byID[c.ID]))
	}
	return all, err
}

// Get is containerd.Source's.
func (s source) Get(ctx context.Context, key ociapi.Key) (*containerd.Container, error) {
	ctx, cancel := within(ctx, key.Namespace)
	defer cancel()
	found, err := s.ContainerService().Get(ctx, key.ID)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	running, err := s.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: key.ID})
	if errdefs.IsUnavailable(errgrpc.ToNative(err)) || ctx.Err() != nil {
		return nil, err
	}
	// Else it has no task, or one whose shim is broken, of which nothing is known.
	container := convert(key.Namespace, found, running.GetProcess())
	return &container, nil
}

// convert is a container as containerd's client has it.
func convert(namespace string, c containers.Container, process *task.Process) containerd.Container {
	container := containerd.Container{
		Key: ociapi.Key{Namespace: namespace, ID: c.ID}, Image: c.Image, Labels: c.Labels,
		Runtime: content(c.Runtime.Options), Spec: content(c.Spec), Created: c.CreatedAt,
	}
	told := engine.Look("", c.ID, container.Spec)
	container.Name, container.Image = told.Name, cmp.Or(container.Image, told.Image)
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

// content is what is packed in an envelope; of none, nothing.
func content(packed typeurl.Any) []byte {
	if packed == nil {
		return nil
	}
	return packed.GetValue()
}
