package cases

// Containers that runc starts through weir-runtime: rows C of the field failures, as far as they need no
// containerd.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// containers is a node whose containers are started by runc.
func containers(t *testing.T, config string) *node.Node {
	t.Helper()
	node.NeedRunc(t)
	return node.Start(t, node.Options{Machine: node.Machine("256MiB", "1MiB"), Config: config})
}

var asks = map[string]string{"weir/memory": "32MiB"}

// capped asserts that a puppet gets 24 MiB and no 16 more.
func capped(t *testing.T, p *node.Puppet) {
	t.Helper()
	p.OK("init")
	p.OK("alloc %d", 24*mib)
	if code := p.Code("alloc %d", 16*mib); code != 2 {
		t.Errorf("16MiB more: code %d, want 2 (out of memory)", code)
	}
}

// notStarted asserts that a container does not start, and that its user is told why. What a program wrote
// last may be read after its end.
func notStarted(n *node.Node, b *node.Bundle, words string) {
	p := b.Start()
	code, _ := p.Wait(time.Minute)
	n.Eventually(func() string {
		if said := p.Stderr(); code != 1 || !strings.Contains(said, words) {
			return fmt.Sprintf("%s: code %d, and it said %q, want %q", b.Name(), code, said, words)
		}
		return ""
	})
}

func TestC1C10ExecWithAClearedEnvironment(t *testing.T) {
	n := containers(t, "")
	b := n.Bundle("web", asks, nil)
	first := b.Puppet()
	first.OK("init")
	first.OK("alloc %d", 8*mib)
	second := b.Exec()
	second.OK("init")
	second.OK("alloc %d", 16*mib)
	if code := second.Code("alloc %d", 16*mib); code != 2 {
		t.Errorf("the cap is not one for both: code %d", code)
	}
	second.Leave()
	n.Eventually(func() string {
		if used, _ := n.Use(b.Name()); used != 8*mib {
			return "the container holds something else than its first process does"
		}
		return ""
	})
	first.OK("alloc %d", 16*mib)
}

func TestC2ImagesOwnPreload(t *testing.T) {
	n := containers(t, "")
	b := n.Bundle("web", asks, func(s node.Spec) {
		process := s["process"].(node.Spec)
		process["env"] = append(process["env"].([]any), "LD_PRELOAD=/env.so")
	})
	for _, name := range []string{"env.so", "file.so"} {
		build := exec.Command("gcc", "-shared", "-o", filepath.Join(b.Root, name), "-x", "c", "/dev/null")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	own := filepath.Join(b.Root, "etc/ld.so.preload")
	if err := os.WriteFile(own, []byte("/file.so\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := b.Puppet()
	capped(t, p)
	maps, err := os.ReadFile("/proc/" + strconv.Itoa(n.Container(b.Name()).PID) + "/maps")
	if err != nil {
		t.Fatal(err)
	}
	for _, library := range []string{"/env.so", "/file.so", "/libweir.so"} {
		if !strings.Contains(string(maps), library) {
			t.Errorf("%s is not loaded", library)
		}
	}
	if text, err := os.ReadFile(own); err != nil || string(text) != "/file.so\n" {
		t.Errorf("the image's file has become %q, %v", text, err)
	}
}

func TestC3LinksOutOfTheImage(t *testing.T) {
	n := containers(t, "")
	b := n.Bundle("web", asks, nil)
	outside := t.TempDir()
	for _, name := range []string{"etc", "run"} {
		place := filepath.Join(b.Root, name)
		if err := os.RemoveAll(place); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, place); err != nil {
			t.Fatal(err)
		}
	}
	capped(t, b.Puppet())
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside there is %v, %v", left, err)
	}
}

func TestC4KindsOfContainers(t *testing.T) {
	n := containers(t, "")
	set := func(part, key string, value any) func(node.Spec) {
		return func(s node.Spec) { s[part].(node.Spec)[key] = value }
	}
	for name, change := range map[string]func(node.Spec){
		"read-only": set("root", "readonly", true),
		"uid-1000":  set("process", "user", node.Spec{"uid": 1000, "gid": 1000}),
		"no-etc":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			n := n.For(t)
			b := n.Bundle(name, asks, change)
			if name == "no-etc" {
				if err := os.Remove(filepath.Join(b.Root, "etc")); err != nil {
					t.Fatal(err)
				}
			}
			capped(t, b.Puppet())
		})
	}
}

func TestC5AgentRestarted(t *testing.T) {
	n := containers(t, "")
	var puppets []*node.Puppet
	for _, name := range []string{"one", "two"} {
		p := n.Bundle(name, asks, nil).Puppet()
		p.OK("init")
		p.OK("alloc %d", 24*mib)
		puppets = append(puppets, p)
	}
	n.KillAgent()
	n.StartAgent()
	for _, p := range puppets {
		if code := p.Code("alloc %d", 16*mib); code != 2 {
			t.Errorf("after the restart: code %d, want 2 (out of memory)", code)
		}
		p.OK("alloc %d", 4*mib)
	}
}

func TestC7Unasked(t *testing.T) {
	withGPU := func(s node.Spec) {
		s["linux"].(node.Spec)["devices"] = []any{node.Spec{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}}
	}
	rules := "[[containers]]\nmemory = \"32MiB\"\n"
	for unasked, want := range map[string]string{"pass": "untouched", "default": "capped", "refuse": "refused"} {
		t.Run(unasked, func(t *testing.T) {
			n := containers(t, "unasked_gpu = \""+unasked+"\"\n"+rules)
			b := n.Bundle("web", nil, withGPU)
			before := b.Text()
			switch want {
			case "refused":
				notStarted(n, b, "unasked_gpu")
			case "capped":
				capped(t, b.Puppet())
			default:
				p := b.Puppet()
				p.OK("init")
				p.OK("alloc %d", 64*mib)
				if b.Text() != before || len(n.EventsOf("unenforced", b.Name())) != 1 {
					t.Error("its specification was changed, or nothing says that it is not enforced")
				}
			}
			without := n.Bundle("without", nil, nil)
			before = without.Text()
			without.Puppet().OK("init")
			if without.Text() != before {
				t.Error("a container without a GPU was touched")
			}
		})
	}
}

func TestC8AgentDown(t *testing.T) {
	n := containers(t, "")
	n.StopAgent()
	notStarted(n, n.Bundle("asking", asks, nil), "no agent answers at")
	n.Bundle("other", nil, nil).Puppet().OK("init")
}

func TestC9StaticProgram(t *testing.T) {
	n := containers(t, "")
	b := n.Bundle("static", asks, func(s node.Spec) { s["process"].(node.Spec)["args"] = []any{"/still"} })
	source := filepath.Join(t.TempDir(), "still.c")
	if err := os.WriteFile(source, []byte("#include <unistd.h>\nint main(void) { pause(); }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("gcc", "-static", "-o", filepath.Join(b.Root, "still"), source)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := b.Start()
	n.Eventually(func() string {
		for _, c := range n.Containers() {
			if c.Name == b.Name() && !c.Enforced && strings.Contains(c.Reason, "it is a static program") {
				return ""
			}
		}
		return "it is not shown as not enforced"
	})
	p.Kill()
}

func TestC12PodWithOneNamedContainer(t *testing.T) {
	n := containers(t, "[[containers]]\nnamespace = \"team-*\"\nmemory_max = \"64MiB\"\n")
	pod := func(container, memory string) *node.Bundle {
		return n.Bundle(container, map[string]string{
			"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.container-name": container,
			"io.kubernetes.cri.sandbox-namespace": "team-a", "io.kubernetes.cri.sandbox-name": "pod",
			"weir/memory.web": memory,
		}, nil)
	}
	for _, other := range []string{"init", "sidecar"} {
		b := pod(other, "32MiB")
		before := b.Text()
		b.Puppet().OK("init")
		if b.Text() != before {
			t.Errorf("%s was touched", other)
		}
	}
	notStarted(n, pod("web", "65MiB"), "over the ceiling of 64MiB")
	capped(t, n.Bundle("named", map[string]string{
		"io.kubernetes.cri.container-name": "web", "io.kubernetes.cri.sandbox-namespace": "team-a",
		"weir/memory": "1KiB", "weir/memory.web": "32MiB",
	}, nil).Puppet())
}
