package e2e

// weir's plugin and a containerd that requires it, each of which goes and comes while containers are made and
// run. Pods have no runtime of weir's.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/tests/e2e/ctrd"
	"weir/tests/e2e/node"
)

// required is what containerd says while the plugin is away.
const required = "required plugin"

// pluginStage is a node with a containerd that asks the plugin.
type pluginStage struct {
	*testing.T
	n *node.Node
	d *ctrd.Daemon
}

// wrapped is a runtime of weir's, by hand, beside the plugin.
const wrapped = `
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.weir]
    runtime_type = "io.containerd.runc.v2"
    pod_annotations = ["weir/*"]
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.weir.options]
      Root = "@/runc"
      BinaryName = "%s"
`

func TestPlugin(t *testing.T) {
	ctrd.Each(t, func(t *testing.T, g ctrd.Generation) {
		if g.Old {
			t.Skip("this containerd has no plugins of this kind")
		}
		n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "1MiB")})
		d := ctrd.Start(t, g, n, ctrd.Options{Mode: "nri", More: fmt.Sprintf(wrapped, node.Build(t, "weir-runtime"))})
		for _, part := range []struct {
			name string
			play func(pluginStage)
		}{
			{"killed", pluginKilled}, {"containerd-killed", runtimeKilled}, {"frozen", pluginFrozen},
			{"removed-meanwhile", removedMeanwhile}, {"second-plugin", secondPlugin}, {"wrapper-too", wrapperToo},
			{"cdi-too", cdiToo}, {"forged", forgedGrant},
		} {
			t.Run(part.name, func(t *testing.T) { part.play(pluginStage{t, n.For(t), d.For(t)}) })
		}
	})
}

func (s pluginStage) pod(handler string) *ctrd.Pod {
	s.Helper()
	pod := node.Pod{Annotations: map[string]string{"weir/memory.web": "32MiB", "weir/memory.late": "32MiB"}}
	return ctrd.CRI{Daemon: s.d, Handler: handler}.Pod(pod, false)
}

// made makes a container and does not start it.
func (s pluginStage) made(pod *ctrd.Pod, name string) (id string) {
	s.Helper()
	id, out := pod.Create(node.Wish{Name: name})
	if out.Code != 0 {
		s.Fatal(out.Stderr)
	}
	return id
}

// aside starts the container web, with a puppet that does not depend on containerd.
func (s pluginStage) aside(pod *ctrd.Pod) *node.Puppet {
	s.Helper()
	wish, meet := s.n.Remote(node.Wish{Name: "web"})
	id, out := pod.Create(wish)
	if out.Code != 0 {
		s.Fatal(out.Stderr)
	}
	s.d.MustCrictl("start", id)
	return meet()
}

// full asserts that a container of 32 MiB that has 24 gets 16 more from nobody.
func (s pluginStage) full(p *node.Puppet) {
	s.Helper()
	if code := p.Code("alloc %d", 16<<20); code != 2 {
		s.Errorf("16MiB more: code %d, want 2 (out of memory)", code)
	}
}

// web is what the agent has of containers with that name.
func (s pluginStage) web() (states []string) {
	s.Helper()
	for _, c := range s.n.Containers() {
		if c.Name == "web" {
			states = append(states, c.State)
		}
	}
	return states
}

// Without the plugin containerd makes no container, and runs those that there are.
func pluginKilled(s pluginStage) {
	pod := s.pod("-")
	p := s.aside(pod)
	p.OK("init")
	p.OK("alloc %d", 24<<20)
	s.d.KillPlugin()
	// Containerd drops a plugin that is gone after the next request, which passes: here that for a pod.
	late := s.pod("-")
	for _, name := range []string{"late", "other"} {
		if _, out := late.Create(node.Wish{Name: name}); !strings.Contains(out.Stderr, required) {
			s.Errorf("%s: exit %d: %s", name, out.Code, out.Stderr)
		}
	}
	s.full(p)
	s.d.StartPlugin()
	s.Logf("after %v containers are made again", s.d.AwaitPlugin())
	s.full(p)
	s.made(pod, "other")
}

func runtimeKilled(s pluginStage) {
	p := s.aside(s.pod("-"))
	p.OK("init")
	p.OK("alloc %d", 24<<20)
	s.d.Kill()
	s.full(p)
	s.d.Run()
	s.Logf("%v after containerd serves containers are made again", s.d.AwaitPlugin())
	s.full(p)
	if states := s.web(); !slices.Equal(states, []string{"running"}) {
		s.Errorf("the agent has %q", states)
	}
}

// A plugin that does not answer is left out by containerd, even where it is required. What is made then is not
// started once the plugin is there again, and what was started is told.
func pluginFrozen(s pluginStage) {
	pod, other := s.pod("-"), s.pod("-")
	s.d.FreezePlugin()
	started := s.made(pod, "web")
	s.d.MustCrictl("start", started)
	s.d.ThawPlugin()
	s.d.AwaitPlugin()
	s.n.Eventually(func() string {
		for _, c := range s.n.Containers() {
			if c.Name == "web" && !c.Enforced && strings.Contains(c.Reason, "weir's plugin was not there") {
				return ""
			}
		}
		return "nothing says that a container runs without a cap"
	})
	if events := s.n.EventsOf("unenforced", "web"); len(events) != 1 {
		s.Errorf("%d events: %v", len(events), events)
	}
	s.d.FreezePlugin()
	later := s.made(other, "late")
	s.d.ThawPlugin()
	s.d.AwaitPlugin()
	s.refused(later, "container late: it was made while weir's plugin was away")
}

// A container that was made while the plugin was away and has another's directory mounted has no grant, whatever it
// looks like: it is not started, and one that runs is told.
func forgedGrant(s pluginStage) {
	p := s.aside(s.pod("-"))
	p.OK("init")
	grants, err := filepath.Glob(filepath.Join(s.n.RunDir, "c", "*"))
	if err != nil || len(grants) != 1 {
		s.Fatalf("the containers' directories are %q, %v", grants, err)
	}
	forging := ctrd.CRI{Daemon: s.d, Handler: "-", HostPaths: map[string]string{"/run/weir": grants[0]}}
	pod := func() *ctrd.Pod {
		return forging.Pod(node.Pod{Annotations: map[string]string{"weir/memory": "32MiB"}}, false)
	}
	first, second := pod(), pod()
	s.d.FreezePlugin()
	started := s.made(first, "runs")
	s.d.MustCrictl("start", started)
	s.d.ThawPlugin()
	s.d.AwaitPlugin()
	s.n.Eventually(func() string {
		for _, c := range s.n.Containers() {
			if c.Name == "runs" && !c.Enforced {
				return ""
			}
		}
		return "nothing says that a container runs without a cap of its own"
	})
	s.d.FreezePlugin()
	later := s.made(second, "late")
	s.d.ThawPlugin()
	s.d.AwaitPlugin()
	s.refused(later, "container late: it was made while weir's plugin was away")
}

// refused asserts that a container does not start, and what is said.
func (s pluginStage) refused(id, why string) {
	s.Helper()
	if out := s.d.Crictl("start", id); out.Code == 0 || !strings.Contains(out.Stderr, "weir: "+why) {
		s.Errorf("start: exit %d: %s", out.Code, out.Stderr)
	}
}

// The policy for containers with a GPU that asked for nothing holds for those that were made while the plugin was
// away, too.
func TestPluginPolicy(t *testing.T) {
	ctrd.Each(t, func(t *testing.T, g ctrd.Generation) {
		if g.Old {
			t.Skip("this containerd has no plugins of this kind")
		}
		n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "1MiB"), Config: "unasked_gpu = \"refuse\""})
		s := pluginStage{t, n, ctrd.Start(t, g, n, ctrd.Options{Mode: "nri"})}
		pod := ctrd.CRI{Daemon: s.d, Handler: "-"}.Pod(node.Pod{}, false)
		gpu := node.Wish{Name: "gpu", GPU: true}
		const why = "container gpu: it has a GPU and asks for no part of it"
		if _, out := pod.Create(gpu); out.Code == 0 || !strings.Contains(out.Stderr, "weir: container gpu: ") {
			t.Errorf("made while the plugin is there: exit %d: %s", out.Code, out.Stderr)
		}
		s.d.FreezePlugin()
		id, out := pod.Create(gpu)
		s.d.ThawPlugin()
		s.d.AwaitPlugin()
		if out.Code != 0 {
			t.Fatal(out.Stderr)
		}
		s.refused(id, why)
	})
}

// A container that is removed before it starts is released, be it while the plugin is away.
func removedMeanwhile(s pluginStage) {
	pod := s.pod("-")
	gone := func() {
		s.Helper()
		s.n.Eventually(func() string {
			if states := s.web(); len(states) > 0 {
				return fmt.Sprintf("the agent has %q", states)
			}
			return ""
		})
	}
	id := s.made(pod, "web")
	if states := s.web(); !slices.Equal(states, []string{"prepared"}) {
		s.Errorf("the agent has %q", states)
	}
	s.d.MustCrictl("rm", id)
	gone()
	id = s.made(pod, "web")
	s.d.KillPlugin()
	s.d.MustCrictl("rm", id)
	s.d.StartPlugin()
	gone()
	s.d.AwaitPlugin()
}

// A second plugin, as there is during an upgrade, changes nothing that the first has done.
func secondPlugin(s pluginStage) {
	end := s.d.SecondPlugin()
	defer end()
	p := s.aside(s.pod("-"))
	p.OK("init")
	p.OK("alloc %d", 24<<20)
	s.full(p)
	if states := s.web(); !slices.Equal(states, []string{"running"}) {
		s.Errorf("the agent has %q", states)
	}
}

// Where both ask about a container, it is one container.
func wrapperToo(s pluginStage) {
	settings := fmt.Sprintf("control_socket = %q\n", filepath.Join(s.n.RunDir, "control.sock"))
	if err := os.WriteFile(filepath.Join(s.d.Dir, "runtime.toml"), []byte(settings), 0o644); err != nil {
		s.Fatal(err)
	}
	p := s.aside(s.pod("weir"))
	p.OK("init")
	p.OK("alloc %d", 24<<20)
	s.full(p)
	if states := s.web(); !slices.Equal(states, []string{"running"}) {
		s.Errorf("the agent has %q", states)
	}
}

// A container that asks for a CDI device of weir's has hooks that ask, too.
func cdiToo(s pluginStage) {
	if err := os.MkdirAll(filepath.Dir(s.d.CDI()), 0o755); err != nil {
		s.Fatal(err)
	}
	s.n.MustWeir("cdi", "generate", "--output", s.d.CDI())
	annotations := map[string]string{"weir/memory.web": "32MiB"}
	pod := ctrd.CRI{Daemon: s.d, Handler: "-", Devices: []string{"weir/gpu=0"}}.Pod(node.Pod{Annotations: annotations}, false)
	p := s.aside(pod)
	p.OK("init")
	p.OK("alloc %d", 24<<20)
	s.full(p)
	if states := s.web(); !slices.Equal(states, []string{"running"}) {
		s.Errorf("the agent has %q", states)
	}
}
