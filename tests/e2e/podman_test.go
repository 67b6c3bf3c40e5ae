package e2e

// Podman, in each way in which it can be made to use weir. It has no daemon: what is configured holds at once, and
// nobody has to be restarted.

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/ctrd"
	"weir/tests/e2e/node"
)

// podmanWay is one of them.
type podmanWay struct {
	mode, runtime string // of `configure`, and the OCI runtime that Podman uses
	more          []string
	starter       ctrd.PodmanStarter
}

func TestPodman(t *testing.T) {
	podman(t, podmanWay{"runtime", "runc", nil, ctrd.PodmanStarter{Flags: []string{"--runtime", "weir"}}}, true)
}

func TestPodmanHooks(t *testing.T) {
	podman(t, podmanWay{"hooks", "crun", nil, ctrd.PodmanStarter{}}, true)
}

func TestPodmanByDefault(t *testing.T) {
	podman(t, podmanWay{"runtime", "crun", []string{"--set-as-default"}, ctrd.PodmanStarter{}}, false)
}

func TestPodmanCDI(t *testing.T) {
	podman(t, podmanWay{"cdi", "runc", nil, ctrd.PodmanStarter{More: []string{"--device", "weir/gpu=0"}}}, false)
}

// podman plays what its users do in one way: all of it, or what differs between ways.
func podman(t *testing.T, way podmanWay, all bool) {
	n := node.Start(t, node.Options{Machine: node.Machine("16GiB", "1MiB")})
	p := ctrd.StartPodman(t, n, way.runtime)
	before := files(t, p.Etc(""))
	if out := p.Runtime("configure", append([]string{"--mode", way.mode}, way.more...)...); out.Code != 0 {
		t.Fatal(out.Stderr)
	}
	if way.mode == "cdi" {
		n.MustWeir("cdi", "generate", "--output", p.Etc("cdi/weir-gpu.json"))
	}
	part := func(name string, test func(*testing.T, *node.Node, ctrd.PodmanStarter)) {
		t.Run(name, func(t *testing.T) {
			view := way.starter
			view.Podman = p.For(t)
			test(t, view.Podman.Node, view)
		})
	}
	asks := node.Wish{Name: "web", Annotations: memory("48MiB")}
	part("exec", func(t *testing.T, n *node.Node, s ctrd.PodmanStarter) { untouchedBeside(t, n, s, asks) })
	part("names", podmanNames)
	part("image's-annotations", podmanImageAnnotations)
	part("bad-input", func(t *testing.T, n *node.Node, s ctrd.PodmanStarter) { badInput(t, n, s) })
	if all {
		part("two-caps", func(t *testing.T, n *node.Node, s ctrd.PodmanStarter) { twoCaps(t, n, s) })
		part("many", func(t *testing.T, n *node.Node, s ctrd.PodmanStarter) { manyOfEngine(t, n, s, asks) })
		part("started-again", func(t *testing.T, n *node.Node, s ctrd.PodmanStarter) {
			startedAgain(t, n, s, asks, func(name string) {
				s.Podman.MustPodman(append(s.Flags[:len(s.Flags):len(s.Flags)], "restart", "--time", "0", name)...)
			})
		})
	}
	if way.mode != "cdi" {
		part("unconfigure", func(t *testing.T, n *node.Node, s ctrd.PodmanStarter) { podmanUnconfigured(t, n, s, before) })
	}
}

// Podman has told neither name nor image, by which an annotation and a rule are for this container.
func podmanNames(t *testing.T, n *node.Node, s ctrd.PodmanStarter) {
	n.Configure("[[containers]]\nimage = \"weir.test/*\"\nmemory = \"48MiB\"\n")
	p := s.Container(node.Wish{Name: "by-name", Annotations: map[string]string{"weir/weight.by-name": "2"}}).Puppet()
	p.OK("init")
	if code := p.Code("alloc %d", 64*mib); code != outOfMemory {
		t.Errorf("over the cap of the rule: code %d, want 2 (out of memory)", code)
	}
	if shown := n.Container("by-name"); shown.Image != "weir.test/base:1" || !shown.Enforced || len(shown.RuntimeID) != 64 {
		t.Errorf("%+v", shown)
	}
	n.Configure("")
}

// Podman gives a container the annotations of its image, by which nobody gets a cap, a name or another's rule.
func podmanImageAnnotations(t *testing.T, n *node.Node, s ctrd.PodmanStarter) {
	n.Configure("[[containers]]\nnamespace = \"vip\"\nmemory_max = \"8GiB\"\n[[containers]]\nimage = \"weir.test/*\"\nmemory_max = \"64MiB\"\n")
	defer n.Configure("")
	image := s.Podman.Annotated(map[string]string{"weir/memory": "4GiB", "org.opencontainers.image.ref.name": "vip/a",
		"io.kubernetes.cri.sandbox-namespace": "vip"})
	s.Image = image
	for name, test := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"theirs": {nil, `annotation "weir/memory": "4GiB" is what its image says`}, "over": {memory("1GiB"), "over the ceiling of 64MiB"},
	} {
		p := s.Container(node.Wish{Name: name, Annotations: test.annotations}).Start()
		if code, _ := p.Wait(time.Minute); code == 0 {
			t.Errorf("%s has started", name)
		}
		n.Eventually(func() string { // what it said last may be read after its end
			if said := p.Stderr(); !strings.Contains(said, test.want) {
				return fmt.Sprintf("%s: it says %q", name, said)
			}
			return ""
		})
		if told := n.EventsOf("start-refused", name); len(told) != 1 || !strings.Contains(told[0].Message, test.want) {
			t.Errorf("%s: the events tell %+v", name, told)
		}
	}
	mine := s.Container(node.Wish{Name: "mine", Annotations: memory("48MiB")}).Puppet()
	mine.OK("init")
	if code := mine.Code("alloc %d", 64*mib); code != outOfMemory {
		t.Errorf("over its user's cap: code %d, want 2 (out of memory)", code)
	}
}

// unconfigure is refused while a container runs under weir, and then puts back every file.
func podmanUnconfigured(t *testing.T, n *node.Node, s ctrd.PodmanStarter, before map[string]string) {
	p := s.Podman
	unconfiguresWhenNoneRuns(t, n, s.Container(node.Wish{Name: "runs", Annotations: memory("48MiB")}), p.Runtime)
	after := files(t, p.Etc(""))
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s was %q, and is %q", name, text, after[name])
		}
		delete(after, name)
	}
	if len(after) > 0 {
		t.Errorf("left is %q", after)
	}
}

// files are all that lie below a directory, and what is in them.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			all[path] = entry.Type().String()
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
