// Tests of `weir agent` as a process, on a node without GPUs, and of where its settings come from.

package main

import (
	"bufio"
	"bytes"
	"flag"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"weir/agent/config"
	"weir/agent/control"
	"weir/agent/device"
	"weir/cgo/lib"
)

// agentCmd is `weir agent` on run and state directories below dir.
func agentCmd(t *testing.T, dir string) (cmd *exec.Cmd, talk *bytes.Buffer) {
	t.Helper()
	if _, err := lib.Library(); err != nil {
		t.Skip(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self, "agent", "--run-dir", filepath.Join(dir, "run"), "--state-dir",
		filepath.Join(dir, "state"), "--nvml", "/nonexistent/libnvidia-ml.so.1",
		"--containerd", "off")
	cmd.Env = append(os.Environ(), weirMode+"=1", "XDG_CONFIG_HOME="+dir)
	talk = &bytes.Buffer{}
	cmd.Stderr = talk
	return cmd, talk
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestAgentServesUntilItIsTold(t *testing.T) {
	dir := shortDir(t)
	cmd, talk := agentCmd(t, dir)
	address := &net.UnixAddr{Name: dir + "/notify", Net: "unixgram"}
	systemd, err := net.ListenUnixgram("unixgram", address)
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+address.Name)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	out := bufio.NewReader(pipe)
	line, _ := out.ReadString('\n')
	want := "weir agent ready: " + dir + "/run/control.sock, no GPU, so there is nothing to cap ("
	if !strings.HasPrefix(line, want) {
		t.Fatalf("%q, want %q; stderr: %s", line, want, talk)
	}
	told := func(want string) {
		t.Helper()
		systemd.SetReadDeadline(time.Now().Add(10 * time.Second))
		message := make([]byte, 256)
		n, _, err := systemd.ReadFrom(message)
		if err != nil || string(message[:n]) != want {
			t.Errorf("systemd was told %q, %v; want %q", message[:n], err, want)
		}
	}
	told("READY=1")

	client := control.NewClient(dir + "/run/control.sock")
	info, err := client.Info(t.Context())
	if err != nil || info.PID != cmd.Process.Pid || info.Version != version || len(info.GPUs) != 0 {
		t.Errorf("Info: %+v, %v", info, err)
	}

	second, secondTalk := agentCmd(t, dir)
	if second.Run(); second.ProcessState.ExitCode() != exitFailed ||
		!strings.Contains(secondTalk.String(), "pid "+strconv.Itoa(cmd.Process.Pid)) {
		t.Errorf("a second agent: %v, %s", second.ProcessState, secondTalk)
	}

	cmd.Process.Signal(syscall.SIGTERM)
	told("STOPPING=1")
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("more on stdout: %q, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v, %s", err, talk)
	}
	if _, err := os.Lstat(dir + "/run/control.sock"); !os.IsNotExist(err) {
		t.Errorf("the control socket was left: %v", err)
	}
}

func TestAgentRefusesABadConfiguration(t *testing.T) {
	dir := shortDir(t)
	if err := os.WriteFile(dir+"/weir.toml", []byte("\nmemroy = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"--config", dir + "/weir.toml"},
			dir + `/weir.toml:2: unknown key "memroy"; accepted: run_dir,`},
		{[]string{"--config", dir + "/none.toml"}, "--config: there is no " + dir + "/none.toml"},
		{[]string{"--agent-wait", "5"}, `--agent-wait: "5" is not a duration`},
		{[]string{"--log-level", "loud"}, `--log-level: "loud" is no log level`},
		{[]string{"--run-dir", "/a b"}, `--run-dir: "/a b": want a path without blanks and colons`},
		{[]string{"--run-dir", ""}, `--run-dir: "": want an absolute path`},
		{[]string{"now"}, `unexpected "now"`},
	} {
		cmd, talk := agentCmd(t, dir)
		cmd.Args = append(cmd.Args, test.args...)
		cmd.Run()
		text := talk.String()
		if cmd.ProcessState.ExitCode() != exitUsage || !strings.Contains(text, test.says) ||
			strings.Count(text, "\n") != 1 {
			t.Errorf("%q: %v, %s; want exit code 2 and one line with %s", test.args, cmd.ProcessState,
				text, test.says)
		}
	}
}

// Flag over environment over file over default.
func TestAgentSettingsPrecedence(t *testing.T) {
	dir := shortDir(t)
	if err := os.MkdirAll(dir+"/weir", 0o700); err != nil {
		t.Fatal(err)
	}
	file := "run_dir = \"/file\"\nstate_dir = \"/file\"\nnvml = \"/file\"\n"
	if err := os.WriteFile(dir+"/weir/weir.toml", []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"XDG_CONFIG_HOME": dir, "WEIR_STATE_DIR": "/env", "WEIR_NVML": "/env",
		"WEIR_LOG_LEVEL": ""}
	user := config.User{UID: 1000, Getenv: func(name string) string { return env[name] }}
	set := flag.NewFlagSet("", flag.ContinueOnError)
	for _, flag := range agentCommand().Flags {
		if err := flag.Apply(set); err != nil {
			t.Fatal(err)
		}
	}
	if err := set.Parse([]string{"--nvml=/flag"}); err != nil {
		t.Fatal(err)
	}
	got, err := agentConfig(cli.NewContext(nil, set, nil), user)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default(user)
	want.RunDir, want.StateDir, want.NVML = "/file", "/env", "/flag"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSummarise(t *testing.T) {
	real := device.GPU{Name: "A30", MemoryBytes: 24 << 30}
	simulated := device.GPU{Name: "Simulated A30", MemoryBytes: 384 << 20, Simulated: true}
	for want, gpus := range map[string][]device.GPU{
		"no GPU, so there is nothing to cap (EOF)": nil,
		"1 GPU (A30, 24GiB)":                       {real},
		"1 simulated GPU (Simulated A30, 384MiB)":  {simulated},
		"2 simulated GPUs (Simulated A30, 384MiB)": {simulated, simulated},
	} {
		if got := summarise(gpus, io.EOF); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
