// Tests of the configuration file and of the directories.

package config

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func user(uid int, env map[string]string) User {
	return User{UID: uid, Getenv: func(name string) string { return env[name] }}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadFile(t *testing.T) {
	got := Default(user(0, nil))
	err := got.ReadFile(write(t, `
run_dir = "/srv/weir/run/"
nvml = "/opt/sim/libnvidia-ml.so.1"
agent_wait = "1m30s"
log_level = "DEBUG"
count_context = false
undeclared = "end"
incompatible = "pass"
unasked_gpu = "refuse"
containerd = "/run/k3s/containerd/containerd.sock"
driver_limit = "off"
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		RunDir: "/srv/weir/run", StateDir: "/var/lib/weir", NVML: "/opt/sim/libnvidia-ml.so.1",
		AgentWait: 90 * time.Second, LogLevel: slog.LevelDebug,
		EndUndeclared: true, PassIncompatible: true, UnaskedGPU: "refuse",
		Containerd:    "/run/k3s/containerd/containerd.sock",
		NoDriverLimit: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadFileNamesTheMistake(t *testing.T) {
	for text, want := range map[string]string{
		"\nrun_dri = \"/x\"\n":     `:2: unknown key "run_dri"; accepted: run_dir, state_dir, nvml, `,
		"[memory]\ndefault = 1\n":  `:1: unknown key "memory"; accepted:`,
		"run_dir = 5\n":            `:1: run_dir: want a directory in quotes, such as "/run/weir"`,
		"run_dir = \"run\"\n":      `:1: run_dir: "run": want an absolute path`,
		"run_dir = \"/a b\"\n":     `:1: run_dir: "/a b": want a path without blanks and colons`,
		"state_dir = \"\"\n":       `:1: state_dir: "": want an absolute path`,
		"\n\nagent_wait = 5\n":     `:3: agent_wait: want a duration in quotes, such as "5s"`,
		"agent_wait = \"5\"\n":     `:1: agent_wait: "5" is not a duration: want one with its unit`,
		"agent_wait = \"-5s\"\n":   `:1: agent_wait: "-5s" is not a duration`,
		"log_level = 4\n":          `:1: log_level: want "debug", "info", "warn" or "error"`,
		"log_level = \"loud\"\n":   `:1: log_level: "loud" is no log level`,
		"run_dir = \n":             `:1: `,
		"count_context = \"no\"\n": `:1: count_context: want true or false, without quotes`,
		"undeclared = \"kill\"\n":  `:1: undeclared: "kill": want end or report`,
		"incompatible = true\n":    `:1: incompatible: want "refuse" or "pass"`,
		"unasked_gpu = \"drop\"\n": `:1: unasked_gpu: "drop": want pass, default or refuse`,
		"containerd = \"sock\"\n":  `:1: containerd: "sock": want auto, off or the absolute path of a socket`,
		"nvml='a'\nnvml='b'\n":     `:2: nvml: key nvml is already defined`,
	} {
		c := Default(user(0, nil))
		err := c.ReadFile(write(t, text))
		if err == nil {
			t.Errorf("%q: no error", text)
			continue
		}
		got := err.Error()
		if !strings.Contains(got, "weir.toml"+want) || strings.Contains(got, "\n") {
			t.Errorf("%q: %v\nwant one line with %q", text, err, want)
		}
	}
}

func TestReadFileMissing(t *testing.T) {
	c := Default(user(0, nil))
	if err := c.ReadFile("/nonexistent/weir.toml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want os.ErrNotExist", err)
	}
}

func TestSetKnowsEveryKey(t *testing.T) {
	values := map[string]string{
		"run_dir": "/a", "state_dir": "/b", "nvml": "/c", "agent_wait": "7s", "log_level": "warn",
		"count_context": "true", "undeclared": "end", "incompatible": "pass",
		"unasked_gpu": "default", "containerd": "off",
		"driver_limit": "off",
	}
	var c Config
	for _, key := range Keys {
		if err := c.Set(key.Name, values[key.Name]); err != nil {
			t.Errorf("Set(%s): %v", key.Name, err)
		}
	}
	want := Config{"/a", "/b", "/c", 7 * time.Second, slog.LevelWarn, true, true, true, "default", "off", true, nil}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
	if err := c.Set("nonsense", "1"); err == nil {
		t.Error("an unknown key was taken")
	}
}

func TestUserDirectories(t *testing.T) {
	home := map[string]string{"HOME": "/home/eva", "XDG_RUNTIME_DIR": "/run/user/7"}
	xdg := map[string]string{"XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c", "XDG_RUNTIME_DIR": "no"}
	for _, test := range []struct {
		user             User
		run, state, file string
	}{
		{user(0, home), "/run/weir", "/var/lib/weir", "/etc/weir/weir.toml"},
		{user(7, home), "/run/user/7/weir", "/home/eva/.local/state/weir",
			"/home/eva/.config/weir/weir.toml"},
		{user(7, xdg), "/tmp/weir-7", "/s/weir", "/c/weir/weir.toml"},
	} {
		got := []string{test.user.RunDir(), test.user.StateDir(), test.user.File()}
		if diff := cmp.Diff([]string{test.run, test.state, test.file}, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestFindSocket(t *testing.T) {
	dir := t.TempDir()
	someone := user(7, map[string]string{"XDG_RUNTIME_DIR": dir})
	if got, _ := someone.FindSocket("/x"); got != "/x/control.sock" {
		t.Errorf("a given directory: %s", got)
	}
	own := filepath.Join(dir, "weir", SocketName)
	got, tried := someone.FindSocket("")
	if got != "/run/weir/control.sock" || len(tried) != 2 || tried[0] != own {
		t.Errorf("no own agent: %s, tried %v", got, tried)
	}
	if err := os.Mkdir(filepath.Dir(own), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := someone.FindSocket(""); got != own {
		t.Errorf("own agent: %s, want %s", got, own)
	}
}
