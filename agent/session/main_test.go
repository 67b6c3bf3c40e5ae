package session

// What the tests of this package share: an agent with fake GPUs, and waiting for what it does.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/agent/control"
	"weir/agent/session/sessiontest"
	"weir/oci"
)

func TestMain(m *testing.M) {
	sessiontest.Main()
	agentMain()
	goleak.VerifyTestMain(m)
}

const mib = 1 << 20

// fakeDevices are GPUs whose list of processes a test sets.
type fakeDevices struct {
	mu        sync.Mutex
	gpus      []control.GPU
	processes map[string]map[int]int64
	err       error
	asked     int
	slow      chan struct{} // if not nil, an answer takes until something comes here
	// What a context that the agent makes takes, or why it cannot make one; how many it has made, and
	// how many of those there are.
	ownContext   int64
	ownErr       error
	made, making int
}

// uuid is the UUID of the test's GPU number i.
func uuid(i int) string { return fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i+1) }

func newDevices(gpus int) *fakeDevices {
	d := &fakeDevices{processes: make(map[string]map[int]int64)}
	for i := range gpus {
		d.gpus = append(d.gpus, control.GPU{Index: i, UUID: uuid(i), Name: "fake", MemoryBytes: 1 << 34})
	}
	return d
}

func (d *fakeDevices) GPUs() ([]control.GPU, error) { return d.gpus, nil }

func (d *fakeDevices) Processes(uuid string) (map[int]int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	if slow := d.slow; slow != nil {
		d.mu.Unlock()
		<-slow
		d.mu.Lock()
	}
	if d.err != nil {
		return nil, d.err
	}
	listed := make(map[int]int64)
	for pid, bytes := range d.processes[uuid] {
		listed[pid] = bytes
	}
	return listed, nil
}

// Nodes gives every GPU one device node, and one that all have in common.
func (d *fakeDevices) Nodes(uuid string) ([]oci.Device, error) {
	d.mu.Lock()
	slow := d.slow
	d.mu.Unlock()
	if slow != nil {
		<-slow
	}
	return []oci.Device{{Path: "/dev/fake-" + uuid[len(uuid)-1:], Major: 1}, {Path: "/dev/fakectl", Major: 2}}, nil
}

// fail has NVML fail from now on.
func (d *fakeDevices) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// slowly has each of NVML's answers take until something comes on the channel.
func (d *fakeDevices) slowly(slow chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow = slow
}

// list has NVML list a process on GPU 0, or not any more.
func (d *fakeDevices) list(pid int, listed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.processes[uuid(0)] == nil {
		d.processes[uuid(0)] = make(map[int]int64)
	}
	if listed {
		d.processes[uuid(0)][pid] = 1
	} else {
		delete(d.processes[uuid(0)], pid)
	}
}

// holds has NVML say what a process holds on a GPU, in bytes.
func (d *fakeDevices) holds(gpu, pid int, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.processes[uuid(gpu)] == nil {
		d.processes[uuid(gpu)] = make(map[int]int64)
	}
	d.processes[uuid(gpu)][pid] = bytes
}

// bench is an agent under test, in this process.
type bench struct {
	*Node
	t       *testing.T
	devices *fakeDevices
	opts    Options
	stop    func()
}

// start starts an agent with two GPUs in a new directory.
func start(t *testing.T, change ...func(*Options)) *bench {
	t.Helper()
	devices := newDevices(2)
	dir := t.TempDir()
	b := &bench{t: t, devices: devices, opts: Options{
		RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"), Devices: devices,
		Library: []byte("not really a library"), Version: "test",
	}}
	for _, c := range change {
		c(&b.opts)
	}
	b.begin()
	t.Cleanup(func() { b.end() })
	return b
}

func (b *bench) begin() {
	b.t.Helper()
	n, err := New(b.opts)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- n.Serve(ctx) }()
	b.Node = n
	b.stop = func() {
		cancel()
		if err := <-served; err != nil {
			b.t.Errorf("serving: %v", err)
		}
	}
}

func (b *bench) end() {
	if b.stop != nil {
		b.stop()
		b.stop = nil
	}
}

// restart stops the agent in good order and starts another one.
func (b *bench) restart() {
	b.t.Helper()
	b.end()
	b.begin()
}

// run registers this process as a container; limit is its cap in bytes, 0 for none.
func (b *bench) run(limit int64) control.RunGrant { return b.runAs(os.Getpid(), limit) }

func (b *bench) runAs(pid int, limit int64) control.RunGrant {
	b.t.Helper()
	req := control.RunRequest{Name: "box", Command: []string{"box"}}
	if limit != 0 {
		req.Caps.MemoryBytes = &limit
	}
	grant, err := b.StartRun(b.t.Context(), pid, uint32(os.Geteuid()), req)
	if err != nil {
		b.t.Fatal(err)
	}
	return grant
}

// runRequest registers this process as a container.
func (b *bench) runRequest(req control.RunRequest) (control.RunGrant, error) {
	return b.StartRun(b.t.Context(), os.Getpid(), uint32(os.Geteuid()), req)
}

// container is what the agent reports of a container.
func (b *bench) container(id string) control.Container {
	b.t.Helper()
	c, err := b.Container(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// used is what a container uses on GPU 0.
func (b *bench) used(id string) int64 { return b.container(id).GPUs[0].UsedBytes }

// tenant starts a process with a session in a container.
func (b *bench) tenant(grant control.RunGrant) *sessiontest.Process {
	b.t.Helper()
	p := sessiontest.Start(b.t)
	p.Must("hello %s", grant.Socket)
	return p
}

// eventually waits for a condition that some other goroutine or process brings about.
func (b *bench) eventually(what string, holds func() bool) {
	b.t.Helper()
	for until := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) {
			b.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// hasEvent tells whether there is an event of a type whose message has all of these words.
func (b *bench) hasEvent(kind string, words ...string) bool {
	b.t.Helper()
	got, err := b.Events(b.t.Context(), 0, false)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range got {
		found := e.Type == kind
		for _, w := range words {
			found = found && strings.Contains(e.Message, w)
		}
		if found {
			return true
		}
	}
	return false
}

func (b *bench) wantEvent(kind string, words ...string) {
	b.t.Helper()
	if !b.hasEvent(kind, words...) {
		got, _ := b.Events(b.t.Context(), 0, false)
		b.t.Errorf("no event %s with %q among %+v", kind, words, got)
	}
}

// wantClosed checks the reason with which the agent has closed a connection.
func wantClosed(t *testing.T, err error, reason uint32, words string) {
	t.Helper()
	var closed *sessiontest.Closed
	if !errors.As(err, &closed) || closed.Reason != reason || !strings.Contains(closed.Text, words) {
		t.Errorf("want a close for reason %d with %q, got %v", reason, words, err)
	}
}

// count is how often NVML was asked.
func (d *fakeDevices) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}
