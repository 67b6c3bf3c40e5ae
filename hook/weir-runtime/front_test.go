package main

// Tests of hook/front alone: with nothing beside it, so that what it does not do by itself fails.

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// alone is a node whose program is the front alone, with settings.
func alone(t *testing.T, settings string) *node {
	t.Helper()
	if program == os.Args[0] {
		t.Skip("without make or a C compiler there is no front")
	}
	n := newNode(t, "/nonexistent")
	n.write("runtime.toml", strings.ReplaceAll(settings, "DIR", n.dir), 0o644)
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	n.write("front/weir-runtime", string(text), 0o755)
	n.program = filepath.Join(n.dir, "front/weir-runtime")
	return n
}

const (
	plainSettings = "# x\n\n runtime = \"DIR/bin/runc\"\ncontrol_socket=\"/s\"\n"
	missing       = "weir: there is no weir-runtime-create beside weir-runtime; "
)

func TestFrontPasses(t *testing.T) {
	for _, settings := range []string{plainSettings, "", "runtime = \"runc\"", "\t# only a comment"} {
		n := alone(t, settings)
		if settings == "" {
			os.Remove(n.settings)
		}
		for _, args := range [][]string{{"--root", "/r", "start", "web"}, {"--version"}, {},
			{"exec", "--process", "/p", "web"}, {"delete", "--force", "creates"}} {
			if called, stderr := n.call(asking, args...); called != strings.Join(args, " ") {
				t.Errorf("%q, %v: called with %q: %s", settings, args, called, stderr)
			}
		}
	}
}

// TestFrontHandsOver what it cannot decide: calls that may make a container, settings that are not
// plain, and a runtime that cannot be had.
func TestFrontHandsOver(t *testing.T) {
	handsOver := func(n *node, what string, args ...string) {
		t.Helper()
		if called, stderr := n.call(asking, args...); called != "" || !strings.HasPrefix(stderr, missing) {
			t.Errorf("%s, %v: called with %q, and said %q", what, args, called, stderr)
		}
	}
	n := alone(t, plainSettings)
	handsOver(n, "plain", "--root", "/r", "create", "web")
	handsOver(n, "plain", "run", "web")
	handsOver(n, "plain", "exec", "web", "run")
	for _, settings := range []string{
		"runtime = 'DIR/bin/runc'", "runtime = \"DIR/bin/runc\" # x", "runtime = \"DIR/bin\\u002frunc\"",
		"runtimes = \"runc\"", "runtime", "runtime = \"", "runtime = \"\"", "[runtime]", "runtime = runc",
		"runtime = \"./runc\"", "runtime = \"no-such-runtime\"", "runtime = \"DIR/none\"",
		"runtime = \"DIR/front/weir-runtime\"", "runtime = \"" + strings.Repeat("/x", 3000) + "\"",
		"runtime = \"DIR/bin/runc\"\n" + strings.Repeat("# long\n", 1000),
	} {
		handsOver(alone(t, settings), settings, "start", "web")
	}
}

// TestFrontInTheShadow: under the name runc and first in PATH neither part takes the front for runc.
func TestFrontInTheShadow(t *testing.T) {
	n := alone(t, "")
	for from, to := range map[string]string{n.program: "shadow/runc", os.Args[0]: "shadow/weir-runtime-create"} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		n.write(to, string(text), 0o755)
	}
	n.program = filepath.Join(n.dir, "shadow/runc")
	for _, args := range [][]string{{"start", "web"}, {"create", "-b", n.dir + "/b", "web"}} {
		if called, stderr := n.call(plain, args...); called != strings.Join(args, " ") {
			t.Errorf("%v: called with %q: %s", args, called, stderr)
		}
	}
}

// TestRestAlone: the program in Go knows what the front does, too.
func TestRestAlone(t *testing.T) {
	n := newNode(t, "/nonexistent")
	n.program = os.Args[0]
	if called, stderr := n.call(asking, "start", "web"); called != "start web" {
		t.Errorf("called with %q: %s", called, stderr)
	}
}
