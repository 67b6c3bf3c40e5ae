package nri

// Tests of the plugin's answers: the agent is one for tests, the runtime is the test.

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"weir/agent/control/ociapi"
	"weir/agent/control/ociapi/ociapitest"
)

func optionsFor(control string) Options {
	return Options{Control: control, StateDir: "/run/containerd", Log: slog.New(slog.DiscardHandler)}
}

func pluginFor(control string) *Plugin { return newPlugin(optionsFor(control), nil, func() {}) }

func granting(t *testing.T) *ociapitest.Agent {
	agent := ociapitest.Start(t)
	grant := grantOf(filepath.Dir(agent.Socket))
	agent.Answer(ociapi.Prepared{Grant: &grant})
	return agent
}

func (p *Plugin) create(t *testing.T, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error) {
	t.Helper()
	adjust, updates, err := p.CreateContainer(t.Context(), pod, c)
	if len(updates) > 0 {
		t.Errorf("other containers were changed: %v", updates)
	}
	return adjust, err
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

const bundles = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/"

func TestCreateContainer(t *testing.T) {
	agent := granting(t)
	p := pluginFor(agent.Socket)
	asking := pod("weir/memory.serve", "1GiB")
	for _, c := range []*api.Container{container("side"), container("init")} {
		if adjust, err := p.create(t, asking, c); adjust != nil || err != nil {
			t.Errorf("%s: %v, %v", c.Name, adjust, err)
		}
	}
	if got := agent.Prepared(); len(got) > 0 {
		t.Errorf("the agent was asked about %v", got)
	}
	adjust, err := p.create(t, asking, container("serve"))
	if err != nil || adjust.GetAnnotations()["weir/injected"] != grantID {
		t.Fatalf("%v, %v", adjust, err)
	}
	asked := agent.Prepared()[0]
	if asked.ID != "serve-id" || asked.Bundle != bundles+"serve-id" || !asked.Early || !asked.ReadImage || asked.PID != 0 {
		t.Errorf("%+v", asked)
	}
	agent.Answer(ociapi.Prepared{Reason: "it has a GPU and no annotation of weir's"})
	if adjust, err := p.create(t, asking, container("serve")); adjust != nil || err != nil {
		t.Errorf("what passes: %v, %v", adjust, err)
	}
	agent.Refuse(`annotation "weir/memory": "x" is not a size`)
	if _, err := p.create(t, asking, container("serve")); err == nil ||
		err.Error() != `weir: container serve: annotation "weir/memory": "x" is not a size` {
		t.Errorf("refused with %v", err)
	}
	before := len(agent.Prepared())
	privileged := container("proxy")
	privileged.Linux = &api.LinuxContainer{Resources: &api.LinuxResources{
		Devices: []*api.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}, {Allow: true, Access: "rwm"}}}}
	if adjust, err := p.create(t, asking, privileged); adjust != nil || err != nil {
		t.Errorf("privileged: %v, %v", adjust, err)
	}
	if got := agent.Prepared()[before:]; len(got) != 1 || !got[0].AllDevices || got[0].HasGPU {
		t.Errorf("the agent was asked about %+v", got)
	}
}

func TestMountedPreload(t *testing.T) {
	agent := granting(t)
	source := filepath.Join(t.TempDir(), "preload")
	if err := os.WriteFile(source, []byte("/mounted.so\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := container("serve")
	c.Mounts = []*api.Mount{mountOf(source, "/etc/ld.so.preload")}
	p := pluginFor(agent.Socket)
	if _, err := p.create(t, pod("weir/memory", "1GiB"), c); err != nil {
		t.Fatal(err)
	}
	if asked := agent.Prepared()[0]; asked.Preload != "/mounted.so\n" || asked.ReadImage {
		t.Errorf("%+v", asked)
	}
	c.Mounts = []*api.Mount{mountOf("/nonexistent/preload", "/etc/ld.so.preload")}
	c.Linux = &api.LinuxContainer{Devices: []*api.LinuxDevice{{Path: "/dev/nvidia0"}}}
	for _, pod := range []*api.PodSandbox{pod("weir/memory", "1GiB"), pod()} { // one that is granted unasked, too
		if _, err := p.create(t, pod, c); err == nil || !strings.Contains(err.Error(), "/nonexistent/preload") {
			t.Errorf("%v", err)
		}
	}
	for _, asked := range agent.Prepared()[1:] {
		if !strings.Contains(asked.Obstacle, "/nonexistent/preload") {
			t.Errorf("the agent was told %q", asked.Obstacle)
		}
	}
	if got := len(agent.Prepared()); got != 3 {
		t.Errorf("the agent was asked %d times", got)
	}
	agent.Refuse("no")
	if _, err := p.create(t, pod("weir/memory", "1GiB"), container("refused")); err == nil || p.note("refused-id", false) {
		t.Errorf("%v, and a container that was refused is still thought of", err)
	}
}

// Without an agent only those fail that asked.
func TestNoAgent(t *testing.T) {
	p := pluginFor("/nonexistent/control.sock")
	if _, err := p.create(t, pod("weir/memory", "1GiB"), container("serve")); !errors.Is(err, ociapi.ErrUnreachable) ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
	c := container("serve")
	c.Linux = &api.LinuxContainer{Devices: []*api.LinuxDevice{{Path: "/dev/nvidia0"}}}
	if adjust, err := p.create(t, pod(), c); adjust != nil || err != nil {
		t.Errorf("with a GPU, unasked: %v, %v", adjust, err)
	}
	if _, err := p.Synchronize(t.Context(), nil, nil); err != nil {
		t.Errorf("%v", err)
	}
}

// An agent that is late is not waited for, and what it grants then is given back.
func TestLateAgent(t *testing.T) {
	agent := granting(t)
	release := agent.Hold()
	p := pluginFor(agent.Socket)
	p.waitFor(10 * time.Millisecond)
	if _, err := p.create(t, pod("weir/memory", "1GiB"), container("serve")); !errors.Is(err, ociapi.ErrUnreachable) {
		t.Errorf("%v", err)
	}
	release()
	eventually(t, "what was granted late is released", func() bool {
		return slices.Equal(agent.Events(), []string{"release " + bundles + "serve-id"})
	})
}

// What is granted when the runtime has gone is given back.
func TestConnectionOver(t *testing.T) {
	agent := granting(t)
	p := pluginFor(agent.Socket)
	over := make(chan struct{})
	close(over)
	p.over = over
	if _, err := p.create(t, pod("weir/memory", "1GiB"), container("serve")); !errors.Is(err, errOver) {
		t.Errorf("%v", err)
	}
	eventually(t, "the grant is released", func() bool {
		return slices.Equal(agent.Events(), []string{"release " + bundles + "serve-id"})
	})
}

// At a start the agent is told what is mounted at a grant's place, whoever wanted it, and decides.
func TestStartContainer(t *testing.T) {
	agent := granting(t)
	p := pluginFor(agent.Socket)
	c := container("serve")
	asking := pod("weir/memory", "1GiB")
	grants := filepath.Join(filepath.Dir(agent.Socket), "c")
	if err := p.StartContainer(t.Context(), pod("weir/memory.side", "1GiB"), c); err != nil || len(agent.Started()) > 0 {
		t.Errorf("one that does not ask: %v", err)
	}
	adjust, err := p.create(t, asking, c)
	if err != nil {
		t.Fatal(err)
	}
	forged := []*api.Mount{mountOf(grants+"/"+grantID, "/run/weir"), mountOf(grants+"/another", "/run//weir")}
	gpu := container("gpu")
	gpu.Linux = &api.LinuxContainer{Devices: []*api.LinuxDevice{{Path: "/dev/nvidia0"}}}
	for i, test := range []struct {
		pod     *api.PodSandbox
		c       *api.Container
		mounts  []*api.Mount
		mounted string
	}{
		{asking, c, adjust.Mounts, grants + "/" + grantID},
		{asking, c, forged, grants + "/another"},
		{asking, c, nil, ""},
		{pod(), gpu, nil, ""},
	} {
		test.c.Mounts = test.mounts
		if err := p.StartContainer(t.Context(), test.pod, test.c); err != nil {
			t.Errorf("the agent lets it start: %v", err)
		}
		if got := agent.Started()[2*i]; got.Mounted != test.mounted || got.Container.Bundle != bundles+test.c.Id {
			t.Errorf("%+v", got)
		}
		agent.Refuse("it may not")
		const want = "weir: container "
		if err := p.StartContainer(t.Context(), test.pod, test.c); err == nil || err.Error() != want+test.c.Name+": it may not" {
			t.Errorf("the agent refuses it: %v", err)
		}
		agent.Answer(ociapi.Prepared{})
	}
	away := pluginFor("/nonexistent/control.sock")
	if err := away.StartContainer(t.Context(), asking, c); !errors.Is(err, ociapi.ErrUnreachable) {
		t.Errorf("without an agent, one that asks: %v", err)
	}
	if err := away.StartContainer(t.Context(), pod(), gpu); err != nil {
		t.Errorf("without an agent, one with a GPU: %v", err)
	}
}

func TestRemoveContainer(t *testing.T) {
	agent := granting(t)
	p := pluginFor(agent.Socket)
	remove := func(p *Plugin, c *api.Container) {
		if err := p.RemoveContainer(t.Context(), nil, c); err != nil {
			t.Error(err)
		}
	}
	remove(p, container("other"))
	// One whose making was undone has its grant only in the plugin's memory.
	if _, err := p.create(t, pod("weir/memory", "1GiB"), container("undone")); err != nil {
		t.Fatal(err)
	}
	remove(p, container("undone"))
	eventually(t, "the undone one is released", func() bool {
		return slices.Equal(agent.Events(), []string{"release " + bundles + "undone-id"})
	})
	// Of one that was made, a new plugin sees it.
	made := container("made")
	made.Mounts = []*api.Mount{mountOf(filepath.Dir(agent.Socket)+"/c/"+grantID, "/run/weir")}
	remove(pluginFor(agent.Socket), made)
	eventually(t, "the one that was made is released", func() bool {
		return slices.Contains(agent.Events(), "release "+bundles+"made-id")
	})
	if got := agent.Events(); len(got) != 2 {
		t.Errorf("%q", got)
	}
}

func TestSynchronize(t *testing.T) {
	agent := granting(t)
	agent.Early(map[string]string{"gone-id": "aaaa", "made-id": "bbbb", "late-id": "cccc", "forged-id": "dddd"})
	running := func(name string) *api.Container {
		c := container(name)
		c.State = api.ContainerState_CONTAINER_RUNNING
		return c
	}
	mount := func(id string) []*api.Mount {
		return []*api.Mount{mountOf(filepath.Dir(agent.Socket)+"/c/"+id, "/run/weir")}
	}
	injected, made, forged := running("injected"), container("made"), running("forged")
	injected.Mounts, made.Mounts, forged.Mounts = mount(grantID), mount("bbbb"), mount(grantID)
	p := pluginFor(agent.Socket)
	synced := false
	p.synced = func() { synced = true }
	if _, err := p.Synchronize(context.Background(), []*api.PodSandbox{pod("weir/memory.late", "1GiB", "weir/memory.injected", "1GiB",
		"weir/memory.made", "1GiB", "weir/memory.forged", "1GiB")},
		[]*api.Container{made, running("late"), running("side"), injected, forged}); err != nil || !synced {
		t.Fatal(err)
	}
	eventually(t, "what is gone is released, and what runs is told", func() bool { return len(agent.Events()) >= 6 })
	got := agent.Events()
	slices.Sort(got[:3])
	if !slices.Equal(got, []string{"release aaaa", "release cccc", "release dddd", "missed late", "missed injected", "missed forged"}) {
		t.Errorf("%q", got)
	}
}
