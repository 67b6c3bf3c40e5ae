package e2e

// What holds for Docker and Podman alike, whose users start containers by `run`.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// nothingLeft waits until the agent and its run directory have nothing of containers.
func nothingLeft(t *testing.T, n *node.Node) {
	t.Helper()
	n.Eventually(func() string {
		dirs, err := filepath.Glob(n.RunDir + "/c/*")
		notes, _ := filepath.Glob(n.RunDir + "/notes/*")
		if containers := n.Containers(); err != nil || len(containers)+len(dirs)+len(notes) > 0 {
			return fmt.Sprintf("left are %d containers, %q and %q, %v", len(containers), dirs, notes, err)
		}
		return ""
	})
}

// A container that its user starts again and again has its name, its cap and all of its memory each time.
func startedAgain(t *testing.T, n *node.Node, s node.Starter, wish node.Wish, again func(name string)) {
	const times = 5
	dir, err := os.MkdirTemp(n.SimDir, "said") // which containers may write to
	if err != nil {
		t.Fatal(err)
	}
	said := filepath.Join(dir, "all")
	wish.Detached = true
	wish.Args = []string{"/bin/sh", "-c", fmt.Sprintf("(echo init; echo alloc %d; echo alloc %d) | %s >>%s; exec sleep infinity",
		24*mib, 32*mib, node.Build(t, "e2e/puppet"), said)}
	c := s.Container(wish)
	if code, _ := c.Start().Wait(time.Minute); code != 0 {
		t.Fatal("it does not start")
	}
	for i := range times {
		n.Eventually(func() string {
			text, _ := os.ReadFile(said)
			if lines := strings.Count(string(text), "\n"); lines < 3*(i+1) {
				return fmt.Sprintf("start %d: it has said %d lines", i+1, lines)
			}
			return ""
		})
		if shown := n.Containers(); len(shown) != 1 || shown[0].Name != c.Name() || !shown[0].Enforced {
			t.Errorf("start %d: weir ps has %+v", i+1, shown)
		}
		if i < times-1 {
			again(c.Name())
		}
	}
	text, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	answers := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i := 0; i+2 < len(answers); i += 3 {
		if !strings.HasPrefix(answers[i], "ok") || !strings.HasPrefix(answers[i+1], "ok") || answers[i+2] != "error 2" {
			t.Errorf("start %d: %q", i/3+1, answers[i:i+3])
		}
	}
}

// Containers that come and go, several at a time, leave nothing.
func manyOfEngine(t *testing.T, n *node.Node, s node.Starter, wish node.Wish) {
	wish.Args = []string{"/bin/sh", "-c", "test -S /run/weir/agent.sock"}
	comeAndGo(t, s, wish, 9, 3, func(code int, _ []string) bool { return code == 0 })
	nothingLeft(t, n)
}

// A container that asks for nothing has no part of weir's, and what is exec'd in one that does has its cap.
func untouchedBeside(t *testing.T, n *node.Node, s node.Starter, wish node.Wish) {
	plain := s.Container(node.Wish{Name: "plain"})
	p := plain.Puppet()
	p.OK("init")
	p.OK("alloc %d", 64*mib)
	if plain.Touched() {
		t.Error("a container that asks for nothing was touched")
	}
	c := s.Container(wish)
	first := c.Puppet()
	first.OK("init")
	first.OK("alloc %d", 24*mib)
	second := c.Exec()
	second.OK("init")
	if code := second.Code("alloc %d", 32*mib); code != outOfMemory {
		t.Errorf("exec'd, over the cap: code %d, want 2 (out of memory)", code)
	}
	if total := second.Numbers("nvml 0")[0]; total != 48*mib {
		t.Errorf("exec'd: NVML's total is %d", total)
	}
	n.SetCap(c.Name(), "96MiB")
	second.OK("alloc %d", 32*mib)
}

// unconfiguresWhenNoneRuns asserts that `weir runtime unconfigure` is refused while a container named "runs" does, and
// only then.
func unconfiguresWhenNoneRuns(
	t *testing.T, n *node.Node, c node.Container, runtime func(verb string, flags ...string) node.Output,
) {
	t.Helper()
	p := c.Start()
	n.AsInnerPuppet(p).OK("init")
	if out := runtime("unconfigure"); out.Code != 1 || !strings.Contains(out.Stderr, "container runs runs under weir") {
		t.Errorf("exit %d: %s", out.Code, out.Stderr)
	}
	if code, _ := p.Wait(time.Minute); code != 0 {
		t.Errorf("code %d: %s", code, p.Stderr())
	}
	nothingLeft(t, n)
	if out := runtime("unconfigure"); out.Code != 0 {
		t.Fatal(out.Stderr)
	}
}
