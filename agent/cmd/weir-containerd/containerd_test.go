package main

// Tests of what is asked of containerd, with one in memory behind a true socket, and of the program as the
// agent starts it.

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

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

// daemon is what a containerd has.
type daemon struct {
	containers map[ociapi.Key]*containers.Container
	processes  map[ociapi.Key]*task.Process
	broken     map[ociapi.Key]error // of tasks
	events     chan *types.Envelope
}

// Its services, of which several have methods of the same name.
type (
	containersOf struct {
		containers.UnimplementedContainersServer
		*daemon
	}
	tasksOf struct {
		tasks.UnimplementedTasksServer
		*daemon
	}
	namespacesOf struct {
		namespaces.UnimplementedNamespacesServer
		*daemon
	}
	eventsOf struct {
		events.UnimplementedEventsServer
		*daemon
	}
)

// serve has a daemon listen on a socket until the test ends.
func serve(t *testing.T, d *daemon) (address string) {
	t.Helper()
	address = filepath.Join(t.TempDir(), "c.sock")
	listener, err := net.Listen("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	containers.RegisterContainersServer(server, containersOf{daemon: d})
	tasks.RegisterTasksServer(server, tasksOf{daemon: d})
	namespaces.RegisterNamespacesServer(server, namespacesOf{daemon: d})
	events.RegisterEventsServer(server, eventsOf{daemon: d})
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return address
}

func namespaceOf(ctx context.Context) string {
	return strings.Join(metadata.ValueFromIncomingContext(ctx, "containerd-namespace"), ",")
}

func (d namespacesOf) List(context.Context, *namespaces.ListNamespacesRequest) (
	*namespaces.ListNamespacesResponse, error) {
	return &namespaces.ListNamespacesResponse{
		Namespaces: []*namespaces.Namespace{{Name: "default"}, {Name: "k8s.io"}},
	}, nil
}

func (d containersOf) ListStream(_ *containers.ListContainersRequest,
	to containers.Containers_ListStreamServer) error {
	for key, c := range d.containers {
		if key.Namespace == namespaceOf(to.Context()) {
			if err := to.Send(&containers.ListContainerMessage{Container: c}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d containersOf) Get(ctx context.Context, r *containers.GetContainerRequest) (
	*containers.GetContainerResponse, error) {
	if c := d.containers[ociapi.Key{Namespace: namespaceOf(ctx), ID: r.ID}]; c != nil {
		return &containers.GetContainerResponse{Container: c}, nil
	}
	return nil, status.Error(codes.NotFound, "no such container")
}

func (d tasksOf) List(ctx context.Context, _ *tasks.ListTasksRequest) (*tasks.ListTasksResponse, error) {
	answer := &tasks.ListTasksResponse{}
	for key, process := range d.processes {
		if key.Namespace == namespaceOf(ctx) {
			answer.Tasks = append(answer.Tasks, process)
		}
	}
	return answer, nil
}

func (d tasksOf) Get(ctx context.Context, r *tasks.GetRequest) (*tasks.GetResponse, error) {
	key := ociapi.Key{Namespace: namespaceOf(ctx), ID: r.ContainerID}
	if err := d.broken[key]; err != nil {
		return nil, err
	}
	if process := d.processes[key]; process != nil {
		return &tasks.GetResponse{Process: process}, nil
	}
	return nil, status.Error(codes.NotFound, "no such task")
}

func (d eventsOf) Subscribe(_ *events.SubscribeRequest, to events.Events_SubscribeServer) error {
	for event := range d.events {
		if err := to.Send(event); err != nil {
			return err
		}
	}
	return nil
}

// sample has containers with tasks of all kinds.
func sample() *daemon {
	ctr, pod, idle := ociapi.Key{Namespace: "default", ID: "box"}, ociapi.Key{Namespace: "k8s.io", ID: "f00"},
		ociapi.Key{Namespace: "default", ID: "idle"}
	away := ociapi.Key{Namespace: "k8s.io", ID: "away"}
	return &daemon{
		containers: map[ociapi.Key]*containers.Container{
			ctr: {ID: "box", Image: "i:1", Labels: map[string]string{"a": "b"}, CreatedAt: timestamppb.New(time.Unix(5, 0)),
				Spec:    &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Spec", Value: []byte(`{"x":1}`)},
				Runtime: &containers.Container_Runtime{Options: &anypb.Any{Value: []byte("runc")}}},
			pod:  {ID: "f00"},
			away: {ID: "away"},
			idle: {ID: "idle"},
		},
		processes: map[ociapi.Key]*task.Process{
			ctr: {ID: "box", Pid: 7, Status: task.Status_RUNNING},
			pod: {ID: "f00", Pid: 8, Status: task.Status_CREATED},
			// One in a machine of its own.
			away: {ID: "away", Status: task.Status_RUNNING},
			// Its shim does not answer, which is nothing to break off for.
			idle: {ID: "idle", Pid: 9, Status: task.Status_STOPPED},
		},
		broken: map[ociapi.Key]error{idle: status.Error(codes.Unknown, "ttrpc: closed")},
		events: make(chan *types.Envelope, 100),
	}
}

func TestListAndGet(t *testing.T) {
	d := sample()
	source, end, err := connect(serve(t, d))
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	list, err := source.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[ociapi.Key]*containerd.Task{
		{Namespace: "default", ID: "box"}: {PID: 7, Running: true}, {Namespace: "k8s.io", ID: "f00"}: {PID: 8},
		{Namespace: "default", ID: "idle"}: nil, {Namespace: "k8s.io", ID: "away"}: nil,
	}
	for _, c := range list {
		task, there := want[c.Key]
		got, err := source.Get(t.Context(), c.Key)
		if !there || !reflect.DeepEqual(c.Task, task) || err != nil || !reflect.DeepEqual(*got, c) {
			t.Errorf("%+v, %+v, %v", c, got, err)
		}
		delete(want, c.Key)
		if c.ID == "box" && (c.Image != "i:1" || c.Labels["a"] != "b" || string(c.Spec) != `{"x":1}` ||
			string(c.Runtime) != "runc" || !c.Created.Equal(time.Unix(5, 0))) {
			t.Errorf("%+v", c)
		}
	}
	if len(want) != 0 {
		t.Errorf("not listed: %v", want)
	}
	if got, err := source.Get(t.Context(), ociapi.Key{Namespace: "other", ID: "box"}); got != nil || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestEvents(t *testing.T) {
	d := sample()
	address := serve(t, d)
	source, end, err := connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for i, event := range []proto.Message{
		&eventtypes.ContainerCreate{ID: "1"},
		&eventtypes.ContainerUpdate{ID: "2"},
		&eventtypes.TaskCreate{ContainerID: "3"},
		&eventtypes.TaskStart{ContainerID: "4", Pid: 7},
		&eventtypes.TaskExit{ContainerID: "5", ID: "an-exec"},
		&eventtypes.TaskExit{ContainerID: "5", ID: "5"},
		&eventtypes.TaskDelete{ContainerID: "6", ID: "an-exec"},
		&eventtypes.TaskDelete{ContainerID: "6"},
		&eventtypes.NamespaceCreate{Name: "7"},
		&eventtypes.ContainerDelete{ID: "8"},
	} {
		packed, err := anypb.New(event)
		if err != nil {
			t.Fatal(err)
		}
		packed.TypeUrl = strings.TrimPrefix(packed.TypeUrl, "type.googleapis.com/") // as containerd has it
		d.events <- &types.Envelope{Namespace: string(rune('a' + i)), Event: packed}
	}
	d.events <- &types.Envelope{}
	d.events <- &types.Envelope{Event: &anypb.Any{TypeUrl: "of.another/Version", Value: []byte("\xff")}}
	close(d.events)
	changed := make(chan ociapi.Key, 100)
	if err := source.Subscribe(t.Context(), changed); err != io.EOF {
		t.Errorf("%v", err)
	}
	close(changed)
	var got []string
	for key := range changed {
		got = append(got, key.Namespace+key.ID)
	}
	if want := []string{"a1", "b2", "c3", "d4", "f5", "h6", "j8"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNobodyListens(t *testing.T) {
	source, end, err := connect(filepath.Join(t.TempDir(), "none.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if _, err := source.List(t.Context()); err == nil || !strings.Contains(err.Error(), "none.sock") {
		t.Errorf("%v", err)
	}
	if err := source.Subscribe(t.Context(), nil); err == nil {
		t.Error("it has subscribed")
	}
}

// The program ends when its input does, whatever it is doing.
func TestEndsWithItsInput(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	ended := make(chan int)
	dir := t.TempDir()
	var said strings.Builder
	go func() {
		ended <- run([]string{"--control", dir + "/a.sock", "--containerd", dir + "/c.sock"}, in, io.Discard, &said)
	}()
	out.Close()
	if code := <-ended; code != 0 {
		t.Errorf("code %d: %s", code, said.String())
	}
	for _, args := range [][]string{{}, {"--control", "/x"}, {"--control", "/x", "--containerd", "/y", "z"}, {"--what"}} {
		said.Reset()
		if code := run(args, in, io.Discard, &said); code != 2 || said.Len() == 0 {
			t.Errorf("%q: code %d, %q", args, code, said.String())
		}
	}
}
