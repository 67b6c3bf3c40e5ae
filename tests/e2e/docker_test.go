package e2e

// Docker: what its users have of weir, with annotations where it has them, and by the node's rules where not.

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"weir/tests/e2e/ctrd"
	"weir/tests/e2e/node"
)

// dockerRules give a cap to what has a GPU and asks for nothing, since Docker before 24 cannot ask.
const dockerRules = `unasked_gpu = "default"
[[containers]]
namespace = "moby"
image = "weir.test/*"
memory = "48MiB"
memory_max = "96MiB"
`

func TestDocker(t *testing.T) {
	n := node.Start(t, node.Options{Machine: node.Machine("16GiB", "1MiB"), Config: dockerRules})
	d := ctrd.StartDocker(t, n, ctrd.DockerOptions{Configure: []string{"--set-as-default"}, Path: nvidia(t, n)})
	t.Logf("Docker %s", d.Version)
	s := ctrd.DockerStarter{Docker: d, Runtime: "-"}
	part := func(name string, test func(*testing.T, *node.Node, ctrd.DockerStarter)) {
		t.Run(name, func(t *testing.T) {
			view := ctrd.DockerStarter{Docker: d.For(t), Runtime: "-"}
			test(t, view.Docker.Node, view)
		})
	}
	part("exec", func(t *testing.T, n *node.Node, s ctrd.DockerStarter) {
		untouchedBeside(t, n, s, node.Wish{Name: "web", GPU: true})
	})
	part("names", dockerNames)
	part("gpus-flag", dockerGPUs)
	part("not-enforced", dockerNotEnforced)
	part("identical", dockerIdentical)
	part("refused", dockerRefused)
	part("started-again", func(t *testing.T, n *node.Node, s ctrd.DockerStarter) {
		startedAgain(t, n, s, node.Wish{Name: "again", GPU: true}, func(name string) {
			s.Docker.MustDocker("restart", "--time", "0", name)
		})
	})
	part("many", func(t *testing.T, n *node.Node, s ctrd.DockerStarter) {
		manyOfEngine(t, n, s, node.Wish{GPU: true})
	})
	if s.Lacks(node.Wish{Annotations: memory("1GiB")}) == "" {
		part("two-caps", func(t *testing.T, n *node.Node, s ctrd.DockerStarter) {
			n.Configure("")
			twoCaps(t, n, s)
		})
		part("bad-input", func(t *testing.T, n *node.Node, s ctrd.DockerStarter) {
			n.Configure("")
			badInput(t, n, s)
		})
	}
	part("unconfigure", dockerUnconfigured)
}

// nvidia is a folder with what Docker takes for NVIDIA's hook, by which it gives GPUs.
func nvidia(t *testing.T, n *node.Node) string {
	t.Helper()
	dir := filepath.Join(n.Dir, "nvidia")
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "nvidia-container-runtime-hook"), []byte("#!/bin/sh\n"), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Docker has told the runtime neither name nor image.
func dockerNames(t *testing.T, n *node.Node, s ctrd.DockerStarter) {
	c := s.Container(node.Wish{Name: "web", GPU: true})
	c.Puppet().OK("init")
	shown := n.Container("web")
	if shown.Namespace != "moby" || shown.Image != "weir.test/base:1" || !shown.Enforced ||
		shown.RuntimeID != s.Docker.MustDocker("inspect", "--format", "{{.Id}}", "web") {
		t.Errorf("%+v", shown)
	}
}

// What has a GPU and no cap is shown by its name, too.
func dockerNotEnforced(t *testing.T, n *node.Node, s ctrd.DockerStarter) {
	n.Configure("")
	s.Container(node.Wish{Name: "passed", GPU: true}).Puppet().OK("init")
	shows(t, n, "moby/passed: it has a GPU and no annotation of weir's")
	n.Configure(dockerRules)
}

// A GPU that Docker gives by --gpus is one.
func dockerGPUs(t *testing.T, _ *node.Node, s ctrd.DockerStarter) {
	s.Flags = []string{"--gpus", "all"}
	p := s.Container(node.Wish{Name: "gpus"}).Puppet()
	p.OK("init")
	if code := p.Code("alloc %d", 64*mib); code != outOfMemory {
		t.Errorf("over the cap of the rule: code %d, want 2 (out of memory)", code)
	}
}

// What asks for nothing is what Docker has made, to the last word of the specification.
func dockerIdentical(t *testing.T, _ *node.Node, s ctrd.DockerStarter) {
	d := s.Docker
	s.Container(node.Wish{Name: "plain"}).Puppet().OK("init")
	id := d.MustDocker("inspect", "--format", "{{.Id}}", "plain")
	text, err := os.ReadFile(filepath.Join(d.Containerd.Bundle("moby", id), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var started any
	var made struct{ Spec any }
	for value, from := range map[any]string{&started: string(text),
		&made: d.Containerd.MustCtr("--namespace", "moby", "containers", "info", id)} {
		if err := json.Unmarshal([]byte(from), value); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(started, made.Spec) {
		t.Errorf("started was\n%v\nDocker has made\n%v", started, made.Spec)
	}
}

// Why a container does not start is on its user's terminal; without an agent only those do not that ask.
func dockerRefused(t *testing.T, n *node.Node, s ctrd.DockerStarter) {
	n.Configure("unasked_gpu = \"refuse\"\n")
	refused(t, n, s, node.Wish{Name: "no-cap", GPU: true}, "unasked_gpu")
	n.StopAgent()
	s.Container(node.Wish{Name: "did-not-ask"}).Puppet().OK("init")
	if ask := (node.Wish{Name: "asks", Annotations: memory("1GiB")}); s.Lacks(ask) == "" {
		refused(t, n, s, ask, "start one with: weir agent")
	}
	n.StartAgent()
	n.Configure(dockerRules)
}

// unconfigure is refused while a container runs under weir, and then puts back every byte.
func dockerUnconfigured(t *testing.T, n *node.Node, s ctrd.DockerStarter) {
	d := s.Docker
	n.Configure(dockerRules)
	unconfiguresWhenNoneRuns(t, n, s.Container(node.Wish{Name: "runs", GPU: true}), d.Runtime)
	if text, err := os.ReadFile(d.Config()); err != nil || string(text) != d.Original() {
		t.Errorf("%v, daemon.json has become:\n%s", err, text)
	}
	d.Stop()
	d.Run()
	if out := d.MustDocker("info"); strings.Contains(out, "weir-runtime") || strings.Contains(out, "weir runc") {
		t.Errorf("Docker still has the runtime weir: %s", out)
	}
	plain := ctrd.DockerStarter{Docker: d, Runtime: "-"}.Container(node.Wish{Name: "after", GPU: true})
	plain.Puppet().OK("init")
	if plain.Touched() {
		t.Error("a container is still given weir's part")
	}
}
