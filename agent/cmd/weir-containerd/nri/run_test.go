package nri

// Tests of the connection, with NRI's own runtime side.

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	validator "github.com/containerd/nri/plugins/default-validator"

	"weir/agent/control/ociapi"
	"weir/agent/control/ociapi/ociapitest"
)

// Once, since NRI's own goroutines outlive their runtimes and read it.
func TestMain(m *testing.M) {
	nrilog.Set(logger{slog.New(slog.DiscardHandler)})
	os.Exit(m.Run())
}

// startRuntime starts one that requires weir's plugin.
func startRuntime(t *testing.T, socket string) *adaptation.Adaptation {
	t.Helper()
	synchronize := func(ctx context.Context, tell adaptation.SyncCB) error {
		_, err := tell(ctx, nil, nil)
		return err
	}
	update := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil }
	dir := t.TempDir()
	r, err := adaptation.New("containerd", "2.4.2", synchronize, update, adaptation.WithSocketPath(socket),
		adaptation.WithPluginPath(dir), adaptation.WithPluginConfigPath(dir),
		adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{Enable: true, RequiredPlugins: []string{name}}))
	if err == nil {
		err = r.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func create(t *testing.T, r *adaptation.Adaptation, c *api.Container) (*api.ContainerAdjustment, error) {
	answer, err := r.CreateContainer(t.Context(), &api.CreateContainerRequest{
		Pod: pod("weir/memory.serve", "1GiB"), Container: c})
	return answer.GetAdjust(), err
}

// relay stands between plugins and a runtime, so that a test can cut their connections.
type relay struct {
	listener net.Listener
	mu       sync.Mutex
	conns    []net.Conn
}

func startRelay(t *testing.T, socket, runtime string) *relay {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener}
	go func() {
		for {
			plugin, err := listener.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("unix", runtime)
			if err != nil {
				plugin.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, plugin, behind)
			r.mu.Unlock()
			go io.Copy(plugin, behind)
			go io.Copy(behind, plugin)
		}
	}()
	return r
}

func (r *relay) cut() {
	r.listener.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.conns {
		conn.Close()
	}
}

func TestRun(t *testing.T) {
	agent := granting(t)
	dir := filepath.Dir(agent.Socket)
	o := optionsFor(agent.Socket)
	o.Socket = filepath.Join(dir, "nri.sock")
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		Run(ctx, o)
	}()
	// Twice: a runtime that was restarted is found again.
	for _, name := range []string{"one", "two"} {
		socket := filepath.Join(dir, name)
		runtime := startRuntime(t, socket)
		relay := startRelay(t, o.Socket, socket)
		checkAnswers(t, agent, runtime)
		relay.cut()
		runtime.Stop()
	}
	stop()
	<-over
}

// checkAnswers asserts that a runtime hears what the agent says.
func checkAnswers(t *testing.T, agent *ociapitest.Agent, runtime *adaptation.Adaptation) {
	t.Helper()
	eventually(t, "the runtime has the plugin that it requires", func() bool {
		_, err := create(t, runtime, container("side"))
		if err != nil && !strings.Contains(err.Error(), `required plugin "weir" not present`) {
			t.Fatal(err)
		}
		return err == nil
	})
	c := container("serve")
	c.Env = []string{"LD_PRELOAD=/image.so"}
	adjust, err := create(t, runtime, c)
	if err != nil || adjust.GetAnnotations()["weir/injected"] != grantID || len(adjust.GetMounts()) != len(ours) {
		t.Errorf("%v, %v", adjust, err)
	}
	grant := grantOf(filepath.Dir(agent.Socket))
	agent.Refuse("no")
	if _, err := create(t, runtime, container("serve")); err == nil || !strings.Contains(err.Error(), "weir: container serve: no") {
		t.Errorf("refused with %v", err)
	}
	late := &api.StartContainerRequest{Pod: pod("weir/memory", "1GiB"), Container: container("late")}
	if err := runtime.StartContainer(t.Context(), late); err == nil || !strings.Contains(err.Error(), "weir: container late: no") {
		t.Errorf("a container that was not asked about starts: %v", err)
	}
	agent.Answer(ociapi.Prepared{Grant: &grant})
}
