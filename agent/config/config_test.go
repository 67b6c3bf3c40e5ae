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

func pointer[T any](v T) *T { return &v }

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
swap_host_limit = "64GiB"
metrics_listen = "0.0.0.0:9400"
time = "off"
contention = "off"
quantum = "40ms"
threshold = "0s"
grace = "0s"
drain_timeout = "2s"
gate_wait_max = "1m"
window = "8ms"
slots = 2
utilisation_max = 85
alpha = 2.5
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		RunDir: "/srv/weir/run", StateDir: "/var/lib/weir", NVML: "/opt/sim/libnvidia-ml.so.1",
		AgentWait: 90 * time.Second, LogLevel: slog.LevelDebug,
		EndUndeclared: true, PassIncompatible: true, UnaskedGPU: "refuse",
		Containerd:    "/run/k3s/containerd/containerd.sock",
		NoDriverLimit: true, SwapHostLimit: pointer(int64(64 << 30)), MetricsListen: "0.0.0.0:9400",
		Time: Time{
			Off: true, AlwaysGate: true, Quantum: 40 * time.Millisecond, DrainTimeout: 2 * time.Second,
			GateWaitMax: time.Minute, Window: 8 * time.Millisecond, Slots: 2, UtilisationMax: 85, Alpha: 2.5,
		},
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
		"swap_host_limit = 5\n":    `:1: swap_host_limit: want "half" or a size in quotes, such as "64GiB"`,
		"swap_host_limit = '-1'\n": `:1: swap_host_limit: "-1" is negative: want a size`,
		"swap_host_limit = 'no'\n": `or half: of the machine's memory`,
		"time = true\n":            `:1: time: want "on" or "off"`,
		"contention = \"no\"\n":    `:1: contention: "no": want off or on`,
		"\nquantum = \"0s\"\n":     `:2: quantum: "0s": want a duration from 1ms to 1h`,
		"quantum = 20\n":           `:1: quantum: want a duration in quotes, such as "20ms"`,
		"quantum = \"20\"\n":       `:1: quantum: "20": want a duration from 1ms to 1h, with its unit`,
		"threshold = \"-1ms\"\n":   `:1: threshold: "-1ms": want a duration from 0s to 1h`,
		"grace = \"2h\"\n":         `:1: grace: "2h": want a duration from 0s to 1h`,
		"drain_timeout = \"0s\"\n": `:1: drain_timeout: "0s": want a duration from 1ms to 1h`,
		"slots = 0\n":              `:1: slots: "0": want a number from 1 to 64`,
		"slots = \"2\"\n":          `:1: slots: want a number from 1 to 64, without quotes`,
		"utilisation_max=101\n":    `:1: utilisation_max: "101": want a percentage, 0 to 100`,
		"utilisation_max=nan\n":    `:1: utilisation_max: "NaN": want a percentage, 0 to 100`,
		"utilisation_max='9'\n":    `:1: utilisation_max: want a percentage, 0 to 100, without quotes`,
		"alpha = -1\n":             `:1: alpha: "-1": want a number, 0 or more`,
		"alpha = nan\n":            `:1: alpha: "NaN": want a number, 0 or more`,
		"nvml='a'\nnvml='b'\n":     `:2: nvml: key nvml is already defined`,
	} {
		c := Default(user(0, nil))
		err := c.ReadFile(write(t, text))
		if err == nil {
			t.Errorf("%q: no error", text)
			continue
		}
		got := err.Error()
		if strings.HasPrefix(want, ":") {
			want = "weir.toml" + want
		}
		if !strings.Contains(got, want) || strings.Contains(got, "\n") {
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
		"driver_limit": "off", "swap_host_limit": "1MiB", "metrics_listen": "[::1]:9400",
		"time": "off", "contention": "off", "quantum": "1ms", "threshold": "2ms", "grace": "3ms",
		"drain_timeout": "4ms", "gate_wait_max": "5ms", "window": "6ms", "slots": "7", "utilisation_max": "80",
		"alpha": "8",
	}
	const ms = time.Millisecond
	var c Config
	for _, key := range Keys {
		if err := c.Set(key.Name, values[key.Name]); err != nil {
			t.Errorf("Set(%s): %v", key.Name, err)
		}
	}
	times := Time{true, true, ms, 2 * ms, 3 * ms, 4 * ms, 5 * ms, 6 * ms, 7, 80, 8}
	want := Config{"/a", "/b", "/c", 7 * time.Second, slog.LevelWarn, true, true, true, "default", "off", true, pointer(int64(1 << 20)),
		"[::1]:9400", times, nil}
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
