package main

// Tests of hook/front alone: with nothing beside it, so that what it does not do by itself fails.

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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
	missing       = "weir: weir-runtime-create, which has to lie beside weir-runtime, cannot be started: "
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
	handsOver(n, "plain", "restore", "web")
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

// TestFrontLogs: what it cannot do is said where container runtimes look, too.
func TestFrontLogs(t *testing.T) {
	n := alone(t, plainSettings)
	path := n.dir + "/log.json"
	for _, flags := range [][]string{
		{"--log", path, "--log-format", "json"}, {"--log=" + path, "-log-format=json"},
		{"--root", "/r", "--systemd-cgroup", "-log", path, "--log-level", "debug", "--log-format", "json"},
		{"--log-format", "text", "--log", "create", "--log-format", "json", "--log", path},
	} {
		_, stderr := n.call(asking, append(slices.Clone(flags), "create", "web", "--log", "/not/this")...)
		var line struct{ Level, Msg string }
		log := n.read("log.json")
		if err := json.Unmarshal([]byte(log), &line); err != nil || !strings.HasSuffix(log, "}\n") || line.Level != "error" ||
			line.Msg+"\n" != stderr || !strings.HasPrefix(stderr, missing+"it is not there; ") {
			t.Errorf("%v: the log has %q, %v, and stderr %q", flags, log, err, stderr)
		}
	}
	n.write("front/weir-runtime-create", "no program", 0o755)
	_, stderr := n.call(asking, "--log", path, "run", "web")
	if log := n.read("log.json"); !strings.HasPrefix(stderr, missing+"see what it is; ") ||
		log != "level=error msg=\""+strings.TrimSpace(stderr)+"\"\n" {
		t.Errorf("the log has %q, and stderr %q", log, stderr)
	}
	// A log that cannot be written to, or is a pipe or a link, is let be.
	link := n.dir + "/link"
	if err := errors.Join(syscall.Mkfifo(n.dir+"/pipe", 0o600), os.Symlink(n.dir+"/b/config.json", link)); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"/nonexistent/log", n.dir + "/pipe", link, ""} {
		if _, stderr := n.call(asking, "--log", place, "create", "web"); !strings.HasPrefix(stderr, missing) || n.read("b/config.json") != asking {
			t.Errorf("%q: stderr has %q", place, stderr)
		}
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
