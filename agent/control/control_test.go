// Tests of both ends over a real Unix socket, with a Node in memory.

package control_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"weir/agent/control"
	"weir/agent/control/controltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ptr[T any](v T) *T { return &v }

// serve runs a server for node and returns its socket.
func serve(t *testing.T, node control.Node) string {
	t.Helper()
	return serveIn(t, t.TempDir(), node)
}

func serveIn(t *testing.T, dir string, node control.Node) string {
	t.Helper()
	socket := filepath.Join(dir, "control.sock")
	listener, err := control.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, listener, control.NewServer(node, slog.New(slog.DiscardHandler)))
	return socket
}

// serveOn runs a server until the test ends.
func serveOn(t *testing.T, listener net.Listener, server *control.Server) {
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

func sample() *controltest.Node {
	return &controltest.Node{
		Agent: control.AgentInfo{Version: "9", ABI: 1, PID: 7, GPUs: []control.GPU{{Name: "A30"}}},
		List: []control.Container{
			{ID: "c0ffee", Name: "trainer", Namespace: "default",
				Caps: control.Caps{MemoryBytes: ptr(int64(64))}},
			{ID: "beef", Name: "odd name/x", Namespace: "k8s.io"},
		},
		Flows: []control.Flow{
			{
				ContainerID: "c0ffee", Container: "trainer", Namespace: "default", MIG: ptr(1), UUID: "MIG-1",
				State: "waiting", Mode: control.ModeLeased, Weight: 0.5, VirtualNS: ptr(int64(1) << 60),
				LagNS: ptr(int64(-5)), ShareAsked: ptr(0.25), ShareGot1s: ptr(0.0), Leases: 3, WaitMeanNS: ptr(int64(7)),
				WaitWorstNS: ptr(int64(9)), ServedNS: 1, BusyNS: 2, Submitted: 3, Ungated: 4, Reopened: 5, Expired: 6,
			},
			{ContainerID: "beef", Container: "odd name/x", Mode: control.ModeOff, Weight: 1},
		},
		Grant: control.RunGrant{ID: "r1", Socket: "/s", Library: "/l"},
	}
}

func TestRoundTrips(t *testing.T) {
	node := sample()
	client := control.NewClient(serve(t, node))
	ctx := t.Context()

	info, err := client.Info(ctx)
	if diff := cmp.Diff(node.Agent, info); diff != "" || err != nil {
		t.Errorf("Info: %v %s", err, diff)
	}
	list, err := client.Containers(ctx)
	if diff := cmp.Diff(node.List, list); diff != "" || err != nil {
		t.Errorf("Containers: %v %s", err, diff)
	}
	flows, err := client.Queue(ctx)
	if diff := cmp.Diff(node.Flows, flows); diff != "" || err != nil {
		t.Errorf("Queue: %v %s", err, diff)
	}
	for _, ref := range []string{"c0ffee", "trainer", "default/trainer"} {
		one, err := client.Container(ctx, ref)
		if err != nil || one.ID != "c0ffee" {
			t.Errorf("Container(%q) = %q, %v", ref, one.ID, err)
		}
	}
	if one, err := client.Container(ctx, "k8s.io/odd name/x"); err != nil || one.ID != "beef" {
		t.Errorf("a name with blank and slash: %q, %v", one.ID, err)
	}

	request := control.RunRequest{Name: "n", Command: []string{"a", "b"}}
	grant, err := client.StartRun(ctx, request)
	if err != nil || grant != (control.RunGrant{ID: "r1", Name: "n", Socket: "/s", Library: "/l"}) {
		t.Errorf("StartRun: %+v, %v", grant, err)
	}
	want := []controltest.Run{{PID: os.Getpid(), UID: uint32(os.Geteuid()), Request: request}}
	if diff := cmp.Diff(want, node.Runs); diff != "" {
		t.Errorf("StartRun's caller: %s", diff)
	}
	if err := client.EndRun(ctx, "r1"); err != nil || node.Ended[0] != "r1" {
		t.Errorf("EndRun: %v, %v", node.Ended, err)
	}

	change := control.CapsChange{Set: control.Caps{Weight: ptr(2.5)}, Unset: []string{"memory"}}
	result, err := client.ChangeCaps(ctx, "trainer", change)
	wantResult := control.CapsResult{
		Name: "trainer", Before: control.Caps{MemoryBytes: ptr(int64(64))},
		After: control.Caps{Weight: ptr(2.5)},
	}
	if diff := cmp.Diff(wantResult, result); diff != "" || err != nil {
		t.Errorf("ChangeCaps: %v %s", err, diff)
	}
}

func TestErrorsKeepTheirKind(t *testing.T) {
	node := sample()
	client := control.NewClient(serve(t, node))
	sentinels := []error{
		control.ErrNotFound, control.ErrInvalid, control.ErrPermission, control.ErrConflict,
		control.ErrUnsupported,
	}
	for _, sentinel := range sentinels {
		node.Fail = fmt.Errorf("name %q: %w: too long", "x", sentinel)
		_, err := client.StartRun(t.Context(), control.RunRequest{})
		for _, other := range sentinels {
			if errors.Is(err, other) != (other == sentinel) {
				t.Errorf("%v came as %v", sentinel, err)
			}
		}
		if err == nil || err.Error() != node.Fail.Error() {
			t.Errorf("message %q, want %q", err, node.Fail)
		}
	}
	node.Fail = fmt.Errorf("%w: a bad name", control.ErrInvalid)
	if _, err := client.Info(t.Context()); err == nil || err.Error() != "a bad name" {
		t.Errorf("a message that began with its kind: %v", err)
	}
	node.Fail = errors.New("disk full")
	_, err := client.Containers(t.Context())
	if err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("internal failure: %v", err)
	}
	for _, ref := range []string{"", ".", ".."} {
		if _, err := client.Container(t.Context(), ref); !errors.Is(err, control.ErrNotFound) {
			t.Errorf("Container(%q): %v", ref, err)
		}
	}
}

func TestLimitsThatAreNone(t *testing.T) {
	node := sample()
	client := control.NewClient(serve(t, node))
	for name, change := range map[string]control.CapsChange{
		"no memory":       {Set: control.Caps{MemoryBytes: ptr(int64(0))}},
		"negative memory": {Set: control.Caps{MemoryBytes: ptr(int64(-1))}},
		"no memory on 1":  {Set: control.Caps{MemoryByGPU: map[string]int64{"1": 0}}},
		"memory nowhere":  {Set: control.Caps{MemoryByGPU: map[string]int64{"": 1}}},
		"negative swap":   {Set: control.Caps{SwapBytes: ptr(int64(-1))}},
		"no weight":       {Set: control.Caps{Weight: ptr(0.0)}},
		"little weight":   {Set: control.Caps{Weight: ptr(0.0001)}},
		"much weight":     {Set: control.Caps{Weight: ptr(1e30)}},
		"negative weight": {Set: control.Caps{Weight: ptr(-1.0)}},
		"unknown":         {Unset: []string{"colour"}},
		"both":            {Set: control.Caps{Weight: ptr(1.0)}, Unset: []string{"weight"}},
		"both of memory": {
			Set: control.Caps{MemoryByGPU: map[string]int64{"1": 1}}, Unset: []string{"memory"},
		},
	} {
		_, err := client.ChangeCaps(t.Context(), "trainer", change)
		if !errors.Is(err, control.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
		if change.Unset != nil {
			continue
		}
		run := control.RunRequest{Caps: change.Set}
		if _, err := client.StartRun(t.Context(), run); !errors.Is(err, control.ErrInvalid) {
			t.Errorf("run, %s: %v, want ErrInvalid", name, err)
		}
	}
	if len(node.Changes)+len(node.Runs) != 0 {
		t.Errorf("they reached the node: %v %v", node.Changes, node.Runs)
	}
}

// raw sends bytes as they are and returns the answer's first line and body.
func raw(t *testing.T, socket, method, path, body string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", socket)
		},
	}}
	request, err := http.NewRequest(method, "http://weir"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

func TestBadRequests(t *testing.T) {
	socket := serve(t, sample())
	for _, test := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/v1/runs", "", 400, "invalid"},
		{"POST", "/v1/runs", "{", 400, "invalid"},
		{"POST", "/v1/runs", "[]", 400, "invalid"},
		{"POST", "/v1/runs", `{"name":5}`, 400, "invalid"},
		{"POST", "/v1/runs", `{"name":"a","caps":{"memori":5}}`, 400, "memori"},
		{"POST", "/v1/runs", `{} {}`, 400, "more than one document"},
		{"POST", "/v1/runs", `{"name":"` + strings.Repeat("x", 70<<10) + `"}`, 400, "too large"},
		{"PATCH", "/v1/containers/trainer/caps", `{"set":{"memory_bytes":1e30}}`, 400, "invalid"},
		{"GET", "/v1/events?after=-1", "", 400, "after"},
		{"GET", "/v1/events?wait=soon", "", 400, "wait"},
		{"GET", "/v1/events?wait=-1s", "", 400, "wait"},
		{"GET", "/v2/info", "", 404, "not found"},
		{"DELETE", "/v1/info", "", 405, "Not Allowed"},
	} {
		status, body := raw(t, socket, test.method, test.path, test.body)
		if status != test.status || !strings.Contains(body, test.says) {
			t.Errorf("%s %s %.40q: %d %s; want %d with %q", test.method, test.path, test.body,
				status, body, test.status, test.says)
		}
	}
}

func TestDocumentsCarryTheSchemaVersion(t *testing.T) {
	node := sample()
	node.Append(control.Event{Type: "agent"})
	socket := serve(t, node)
	want := `"schema_version":` + strconv.Itoa(control.SchemaVersion)
	for _, path := range []string{
		"/v1/info", "/v1/containers", "/v1/containers/trainer", "/v1/events", "/v1/queue",
		"/v1/containers/none",
	} {
		if _, body := raw(t, socket, "GET", path, ""); !strings.HasPrefix(body, "{"+want) {
			t.Errorf("%s: %.60s", path, body)
		}
	}
}

func TestEvents(t *testing.T) {
	node := sample()
	client := control.NewClient(serve(t, node))
	for range 3 {
		node.Append(control.Event{Type: "denied", Asked: ptr(int64(5))})
	}
	doc, err := client.Events(t.Context(), 1, 0)
	if err != nil || len(doc.Events) != 2 || doc.Events[0].Seq != 2 {
		t.Errorf("after 1: %+v, %v", doc, err)
	}
	again, err := client.Events(t.Context(), 3, time.Millisecond)
	if err != nil || len(again.Events) != 0 || !again.AgentStarted.Equal(doc.AgentStarted) {
		t.Errorf("a wait in vain: %+v, %v", again, err)
	}
	got := make(chan []control.Event)
	go func() {
		doc, _ := client.Events(context.Background(), 3, time.Minute)
		got <- doc.Events
	}()
	node.Append(control.Event{Type: "caps"})
	if list := <-got; len(list) != 1 || list[0].Type != "caps" {
		t.Errorf("a wait: %+v", list)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := client.Events(ctx, 4, time.Minute)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a wait given up: %v", err)
		}
		got <- nil
	}()
	cancel()
	<-got
}

// An agent that stops does not leave those who wait for events without an answer.
func TestStopEndsWaits(t *testing.T) {
	node := sample()
	socket := filepath.Join(t.TempDir(), "control.sock")
	listener, err := control.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served, answered := make(chan error, 1), make(chan error, 1)
	quiet := slog.New(slog.DiscardHandler)
	go func() { served <- control.NewServer(node, quiet).Serve(ctx, listener) }()
	client := control.NewClient(socket)
	if _, err := client.Info(ctx); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := client.Events(context.Background(), 0, time.Minute)
		answered <- err
	}()
	stop()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	<-answered
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if _, err := client.Info(t.Context()); !errors.Is(err, control.ErrUnreachable) {
		t.Errorf("after the end: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	dead := filepath.Join(t.TempDir(), "dead.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	for socket, because := range map[string]string{
		"/nonexistent/control.sock":    "no such file",
		dead:                           "connection refused",
		"/" + strings.Repeat("x", 200): "", // no such address
	} {
		_, err := control.NewClient(socket).Info(t.Context())
		var unreachable *control.UnreachableError
		if !errors.As(err, &unreachable) || !errors.Is(err, control.ErrUnreachable) {
			t.Errorf("%s: %v", socket, err)
		} else if unreachable.Socket != socket || !strings.Contains(err.Error(), because) {
			t.Errorf("%s: %v", socket, err)
		}
	}
}

// Whoever listens there, an answer of another kind is not taken for the agent's.
func TestStrangers(t *testing.T) {
	for answer, says := range map[string]string{
		"HTTP/1.1 200 OK\r\n\r\nhello":                          "none of this version's",
		"HTTP/1.1 200 OK\r\n\r\n{}":                             "none of this version's",
		"HTTP/1.1 200 OK\r\n\r\n{\"schema_version\":99}":        "speaks schema 99",
		"HTTP/1.1 404 Not Found\r\n\r\n404 page not found":      "status 404",
		"HTTP/1.1 301 Moved\r\nLocation: http://x/\r\n\r\nmove": "status 301",
		"": "closed the connection",
	} {
		socket := filepath.Join(t.TempDir(), "s")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			buffer := make([]byte, 4096)
			conn.Read(buffer)
			io.WriteString(conn, answer)
			conn.Close()
		}()
		_, err = control.NewClient(socket).Info(t.Context())
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", answer, err, says)
		}
		listener.Close()
		<-done
	}
}

func TestListenReplacesALeftoverAndSetsTheMode(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control.sock")
	if err := os.WriteFile(socket, []byte("left"), 0o666); err != nil {
		t.Fatal(err)
	}
	listener, err := control.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	want := os.FileMode(0o600)
	if os.Geteuid() == 0 {
		want = 0o660
	}
	info, err := os.Lstat(socket)
	if err != nil || info.Mode() != want|os.ModeSocket {
		t.Errorf("mode %v, %v; want %v", info.Mode(), err, want|os.ModeSocket)
	}
}
