package session

// An agent in a process of its own, which tests kill, also at a chosen step.

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/agent/control"
)

// agentVariable makes the test's program an agent process; its value is the directory to serve.
const agentVariable = "WEIR_SESSION_AGENT"

// crashVariable is the step at which the agent process kills itself, and the how many-th such step.
const crashVariable = "WEIR_SESSION_CRASH"

// agentMain is an agent that a test can kill. It answers each line with one line of JSON:
//
//	run PID CAP [SWAP]  register a container and return its grant
//	ps            list containers
//	caps REF CAP  change a cap
//	stop          stop in good order
func agentMain() {
	dir := os.Getenv(agentVariable)
	if dir == "" {
		return
	}
	opts := Options{
		RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"),
		Devices: newDevices(1), Library: []byte("not really a library"),
	}
	if step, count, found := strings.Cut(os.Getenv(crashVariable), ":"); found {
		left, _ := strconv.Atoi(count)
		opts.checkpoint = func(at string) {
			if at == step {
				if left--; left <= 0 {
					unix.Kill(os.Getpid(), unix.SIGKILL)
					select {}
				}
			}
		}
	}
	n, err := New(opts)
	if err != nil {
		fmt.Println("cannot start:", err)
		os.Exit(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- n.Serve(ctx) }()
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() && lines.Text() != "stop" {
		answer, err := command(n, strings.Fields(lines.Text()))
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		json.NewEncoder(os.Stdout).Encode(answer)
	}
	cancel()
	<-served
	os.Exit(0)
}

func command(n *Node, words []string) (any, error) {
	ctx := context.Background()
	switch words[0] {
	case "run":
		pid, _ := strconv.Atoi(words[1])
		limit, _ := strconv.ParseInt(words[2], 10, 64)
		req := control.RunRequest{Name: "box", Caps: control.Caps{MemoryBytes: &limit}}
		if len(words) > 3 {
			swap, _ := strconv.ParseInt(words[3], 10, 64)
			req.Caps.SwapBytes = &swap
		}
		return n.StartRun(ctx, pid, uint32(os.Geteuid()), req)
	case "caps":
		limit, _ := strconv.ParseInt(words[2], 10, 64)
		return n.ChangeCaps(ctx, words[1], control.CapsChange{Set: control.Caps{MemoryBytes: &limit}})
	default:
		return n.Containers(ctx)
	}
}

// agentProcess is an agent in a process of its own.
type agentProcess struct {
	t   *testing.T
	cmd *exec.Cmd
	say func(string)
	out *bufio.Reader
}

// startAgent starts an agent process on a directory; crash may name a step to die at.
func startAgent(t *testing.T, dir, crash string) *agentProcess {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), agentVariable+"="+dir, crashVariable+"="+crash)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a := &agentProcess{t: t, cmd: cmd, out: bufio.NewReader(out)}
	a.say = func(line string) { fmt.Fprintln(in, line) }
	t.Cleanup(a.kill)
	if line, err := a.out.ReadString('\n'); line != "ready\n" && crash == "" {
		t.Fatalf("the agent did not start: %q, %v", line, err)
	}
	return a
}

// ask sends a command and decodes the answer.
func (a *agentProcess) ask(answer any, format string, args ...any) {
	a.t.Helper()
	a.say(fmt.Sprintf(format, args...))
	line, err := a.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, answer)
	}
	if err != nil {
		a.t.Fatalf("asking the agent %q: %q, %v", format, line, err)
	}
}

// kill ends the agent by SIGKILL, at whatever instruction it is.
func (a *agentProcess) kill() {
	a.cmd.Process.Kill()
	a.cmd.Wait()
}
