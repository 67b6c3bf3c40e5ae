package cases

// Rows C of the field failures, written for whatever starts containers: here runc alone, and in
// containerd_test.go containerd of two generations.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// stage is what a row is played on: a node, and what starts its containers.
type stage struct {
	*testing.T
	n *node.Node
	s node.Starter
}

// onRunc plays a row with runc and a node of its own.
func onRunc(t *testing.T, row func(stage)) {
	t.Helper()
	node.NeedRunc(t)
	n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "1MiB")})
	row(stage{t, n, node.Runc{Node: n}})
}

// part plays a part of a row as a test of its own.
func (s stage) part(name string, play func(stage)) {
	s.Run(name, func(t *testing.T) {
		n := s.n.For(t)
		s.T, s.n, s.s = t, n, s.s.For(t)
		play(s)
	})
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
func (s stage) notStarted(wish node.Wish, words string) {
	s.Helper()
	p := s.s.Container(wish).Start()
	code, _ := p.Wait(time.Minute)
	s.n.Eventually(func() string {
		if said := p.Stderr(); code == 0 || !strings.Contains(said, words) {
			return fmt.Sprintf("%s: code %d, and it said %q, want %q", wish.Name, code, said, words)
		}
		return ""
	})
}

// of is what /proc says of a container's first process.
func (s stage) of(c node.Container, file string) string {
	s.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.n.Container(c.Name()).PID, file))
	if err != nil {
		s.Fatal(err)
	}
	return string(text)
}

// compile makes a program or library of C text with a compiler, and returns its path.
func (s stage) compile(text, compiler string, flags ...string) string {
	s.Helper()
	source := filepath.Join(s.TempDir(), "source.c")
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		s.Fatal(err)
	}
	made := strings.TrimSuffix(source, ".c")
	build := exec.Command(compiler, append(flags, "-o", made, source)...)
	if out, err := build.CombinedOutput(); err != nil {
		s.Fatalf("%v: %s", err, out)
	}
	return made
}

func TestC1C10ExecWithAClearedEnvironment(t *testing.T) { onRunc(t, rowC1C10) }

func rowC1C10(s stage) {
	c := s.s.Container(node.Wish{Name: "web", Annotations: asks})
	first := c.Puppet()
	first.OK("init")
	first.OK("alloc %d", 8*mib)
	second := c.Exec()
	second.OK("init")
	second.OK("alloc %d", 16*mib)
	if code := second.Code("alloc %d", 16*mib); code != 2 {
		s.Errorf("the cap is not one for both: code %d", code)
	}
	second.Leave()
	s.n.Eventually(func() string {
		if used, _ := s.n.Use(c.Name()); used != 8*mib {
			return "the container holds something else than its first process does"
		}
		return ""
	})
	first.OK("alloc %d", 16*mib)
}

func TestC2ImagesOwnPreload(t *testing.T) { onRunc(t, rowC2) }

func rowC2(s stage) {
	library := s.compile("", "gcc", "-shared")
	c := s.s.Container(node.Wish{Name: "web", Annotations: asks, Env: []string{"LD_PRELOAD=/env.so"}, Image: node.Image{
		Add: []node.Entry{{Path: "env.so", File: library}, {Path: "file.so", File: library},
			{Path: "etc/ld.so.preload", Text: "/file.so\n"}}}})
	capped(s.T, c.Puppet())
	maps := s.of(c, "maps")
	for _, library := range []string{"/env.so", "/file.so", "/libweir.so"} {
		if !strings.Contains(maps, library) {
			s.Errorf("%s is not loaded", library)
		}
	}
	if bundle, ok := c.(*node.Bundle); ok {
		text, err := os.ReadFile(filepath.Join(bundle.Root, "etc/ld.so.preload"))
		if err != nil || string(text) != "/file.so\n" {
			s.Errorf("the image's file has become %q, %v", text, err)
		}
	}
}

func TestC3LinksOutOfTheImage(t *testing.T) { onRunc(t, rowC3) }

func rowC3(s stage) {
	outside, err := os.MkdirTemp("/var/tmp", "weir-e2e-") // where no container has anything mounted
	if err != nil {
		s.Fatal(err)
	}
	defer os.RemoveAll(outside)
	c := s.s.Container(node.Wish{Name: "web", Annotations: asks, Image: node.Image{Add: []node.Entry{
		{Path: "etc", Link: outside}, {Path: "run", Link: outside}, {Path: outside[1:] + "/of-the-image", Text: "x"},
	}}})
	capped(s.T, c.Puppet())
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		s.Errorf("outside there is %v, %v", left, err)
	}
}

func TestC4KindsOfContainers(t *testing.T) { onRunc(t, rowC4) }

func rowC4(s stage) {
	for _, wish := range []node.Wish{
		{Name: "read-only", ReadOnly: true},
		{Name: "uid-1000", User: 1000},
		{Name: "no-etc", Image: node.Image{Without: []string{"etc"}}},
		{Name: "user-namespace", UserNamespace: true},
	} {
		s.part(wish.Name, func(s stage) {
			wish.Annotations = asks
			if why := s.s.Lacks(wish); why != "" {
				s.Skip(why)
			}
			c := s.s.Container(wish)
			capped(s.T, c.Puppet())
			if wish.UserNamespace && strings.Join(strings.Fields(s.of(c, "uid_map")), " ") == "0 0 4294967295" {
				s.Error("it is in the machine's own user namespace")
			}
		})
	}
}

func TestC5AgentRestarted(t *testing.T) { onRunc(t, rowC5) }

func rowC5(s stage) {
	var puppets []*node.Puppet
	for _, name := range []string{"one", "two"} {
		p := s.s.Container(node.Wish{Name: name, Annotations: asks}).Puppet()
		p.OK("init")
		p.OK("alloc %d", 24*mib)
		puppets = append(puppets, p)
	}
	s.n.KillAgent()
	s.n.StartAgent()
	for _, p := range puppets {
		if code := p.Code("alloc %d", 16*mib); code != 2 {
			s.Errorf("after the restart: code %d, want 2 (out of memory)", code)
		}
		p.OK("alloc %d", 4*mib)
	}
}

func TestC7Unasked(t *testing.T) { onRunc(t, rowC7) }

func rowC7(s stage) {
	rules := "[[containers]]\nmemory = \"32MiB\"\n"
	for unasked, want := range map[string]string{"pass": "untouched", "default": "capped", "refuse": "refused"} {
		s.part(unasked, func(s stage) {
			s.n.Configure("unasked_gpu = \"" + unasked + "\"\n" + rules)
			wish := node.Wish{Name: unasked, GPU: true}
			switch want {
			case "refused":
				s.notStarted(wish, "unasked_gpu")
			case "capped":
				capped(s.T, s.s.Container(wish).Puppet())
			default:
				c := s.s.Container(wish)
				p := c.Puppet()
				p.OK("init")
				p.OK("alloc %d", 64*mib)
				if c.Touched() || len(s.n.EventsOf("unenforced", c.Name())) != 1 {
					s.Error("its specification was changed, or nothing says that it is not enforced")
				}
			}
			without := s.s.Container(node.Wish{Name: unasked + "-without"})
			without.Puppet().OK("init")
			if without.Touched() {
				s.Error("a container without a GPU was touched")
			}
		})
	}
}

func TestC8AgentDown(t *testing.T) { onRunc(t, rowC8) }

func rowC8(s stage) {
	s.n.StopAgent()
	s.notStarted(node.Wish{Name: "asking", Annotations: asks}, "no agent answers at")
	s.s.Container(node.Wish{Name: "other"}).Puppet().OK("init")
	s.n.StartAgent()
}

func TestC9StaticAndMuslPrograms(t *testing.T) { onRunc(t, rowC9) }

func rowC9(s stage) {
	still := func(s stage, compiler string, flags ...string) node.Wish {
		program := s.compile("#include <unistd.h>\nint main(void) { pause(); }\n", compiler, flags...)
		return node.Wish{Name: filepath.Base(compiler), Annotations: asks, Args: []string{"/still"},
			Image: node.Image{Add: []node.Entry{{Path: "still", File: program}}}}
	}
	s.part("static", func(s stage) {
		c := s.s.Container(still(s, "gcc", "-static"))
		p := c.Start()
		s.n.Eventually(func() string {
			for _, shown := range s.n.Containers() {
				if shown.Name == c.Name() && !shown.Enforced && strings.Contains(shown.Reason, "it is a static program") {
					return ""
				}
			}
			return "it is not shown as not enforced"
		})
		p.Kill()
	})
	s.part("musl", func(s stage) {
		const loader = "/lib/ld-musl-x86_64.so.1"
		if _, err := os.Stat(loader); err != nil {
			s.Skip(err)
		}
		wish := still(s, "musl-gcc")
		wish.Image.Add = append(wish.Image.Add, node.Entry{Path: "usr" + loader, File: loader})
		c := s.s.Container(wish)
		p := c.Start()
		s.n.Eventually(func() string {
			for _, shown := range s.n.Containers() {
				if shown.Name == c.Name() && shown.PID > 0 && strings.Contains(s.of(c, "maps"), "/libweir.so") {
					return ""
				}
			}
			return "the library is not in it"
		})
		p.Kill()
	})
}

func TestC11NothingIsPrintedInContainers(t *testing.T) { onRunc(t, rowC11) }

// What the program prints is read from a file, since who attaches to a container may come after its first words. The
// shell stays, because who is attached leaves when nobody can write to the container's output any more.
func rowC11(s stage) {
	dir, err := os.MkdirTemp(s.n.SimDir, "said")
	if err != nil {
		s.Fatal(err)
	}
	file := filepath.Join(dir, "all")
	p := s.s.Container(node.Wish{Name: "quiet", Annotations: map[string]string{"weir/memory": "8MiB"},
		Args: []string{"/bin/sh", "-c", `"$0" >"$1" 2>&1; exit $?`, node.Build(s, "e2e/puppet"), file}}).Start()
	said := func() []string {
		text, _ := os.ReadFile(file) // it may not be there yet
		return strings.SplitAfter(string(text), "\n")
	}
	asked := 0
	untoward(s.T, s.n, func(command string) string {
		p.Send(command)
		asked++
		s.n.Eventually(func() string {
			if len(said()) <= asked {
				return "no answer to " + command
			}
			return ""
		})
		return said()[asked-1]
	})
	code, lines := p.Wait(time.Minute)
	// ctr has warnings of its own there.
	if all := said(); code != 0 || len(all) != asked+1 || len(lines) > 0 || strings.Contains(p.Stderr(), "weir") {
		s.Errorf("exit %d, it wrote %q, and its shell %q and %q", code, all, lines, p.Stderr())
	}
}

func TestC12PodWithOneNamedContainer(t *testing.T) { onRunc(t, rowC12) }

func rowC12(s stage) {
	s.n.Configure("[[containers]]\nnamespace = \"team-*\"\nmemory_max = \"64MiB\"\n")
	pod := func(memory string) node.Pod {
		return node.Pod{Name: "pod-" + strings.ToLower(memory), Namespace: "team-a",
			Annotations: map[string]string{"weir/memory.web": memory}}
	}
	// open is another container of the pod, with no cap.
	open := func(name string) (*node.Program, *node.Puppet) {
		c := s.s.Container(node.Wish{Name: name, Pod: pod("32MiB")})
		program := c.Start()
		p := s.n.AsInnerPuppet(program)
		p.OK("init")
		p.OK("alloc %d", 40*mib)
		if c.Touched() {
			s.Errorf("%s was touched", name)
		}
		return program, p
	}
	end := func(name string, program *node.Program) {
		if code, _ := program.Wait(time.Minute); code != 0 {
			s.Errorf("%s ended with code %d: %s", name, code, program.Stderr())
		}
	}
	first, _ := open("init")
	end("init", first)
	_, sidecar := open("sidecar")
	web := s.s.Container(node.Wish{Name: "web", Pod: pod("32MiB")}).Start()
	capped(s.T, s.n.AsInnerPuppet(web))
	sidecar.OK("alloc %d", 40*mib)
	end("web", web)
	sidecar.OK("alloc %d", 40*mib)

	s.notStarted(node.Wish{Name: "web", Pod: pod("65MiB")}, "over the ceiling of 64MiB")
	named := node.Wish{Name: "web", Pod: pod("33MiB"), Annotations: map[string]string{"weir/memory": "1KiB"}}
	named.Annotations["weir/memory.web"] = "32MiB"
	capped(s.T, s.s.Container(named).Puppet())
}
