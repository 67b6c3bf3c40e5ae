// Package node gives whole-system tests a node of their own: a simulated machine (or the GPU that is
// there), an agent in a private run directory, and CUDA programs under `weir run`. It uses what `make build` made and
// builds nothing; where that is missing, a test skips and says so.
package node

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for anything that should happen soon. It is generous, because
// it decides only when a test gives up.
const patience = 30 * time.Second

// Options describe a node. The zero value is one simulated A30 and an agent with defaults.
type Options struct {
	Machine string // name of a ready-made machine, or the text of a machine file
	Config  string // lines of the agent's weir.toml
	// CountContext has contexts and code count against caps, as they do unless the configuration says
	// otherwise. Most tests are about allocations, and leave it.
	CountContext bool
	NoAgent      bool
	// NoDriver lets the agent find NVML but not the driver, as where the driver is not for it to load.
	NoDriver bool
	// RealCard takes the machine's own GPU and driver in place of a simulated machine.
	RealCard bool
	// Through are words before every program that runs under weir: `env` and what it is to change.
	Through []string
	// OrdinaryUser runs everything as nobody where the test runs as root.
	OrdinaryUser bool
	programs     string // see Upgrade
}

// Node is one simulated machine and its agent, private to a test and gone with it.
type Node struct {
	t       testing.TB
	Dir     string // everything of this node lies below
	RunDir  string // the agent's
	SimDir  string // the simulated machine's
	options Options
	log     *SyncBuffer
	*running
}

// running is the present agent, one for all views of a node.
type running struct {
	agent *exec.Cmd
	ended chan struct{} // closed when it has ended
	ready string        // the line that it printed when it served
}

// SyncBuffer collects a process's output while tests read it.
type SyncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *SyncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *SyncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Build returns the path of a build output. Where it is not there the test skips, but fails where
// `make` should have built it (CI is set, as by .ci/run).
func Build(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(buildDir(t), name)
	if _, err := os.Stat(path); err != nil {
		missing(t, path)
	}
	return path
}

func missing(t testing.TB, path string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is not built", path)
	}
	t.Skipf("%s is not built: run `make e2e` or `make chaos`", path)
}

// buildDir is where `make` puts what it builds: build, or what WEIR_TEST_BUILD names (`make BUILD=…`).
func buildDir(t testing.TB) string {
	if dir := os.Getenv("WEIR_TEST_BUILD"); dir != "" {
		return dir
	}
	return filepath.Join(Root(t), "build")
}

// Root is the top of the tree: the folder with go.mod, above the test's own.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the test's folder")
	return ""
}

// Start makes a node and removes it when the test ends.
func Start(t testing.TB, options Options) *Node {
	t.Helper()
	needed := []string{"weir"}
	if !options.RealCard {
		needed = append(needed, "sim/libcuda.so.1", "sim/libnvidia-ml.so.1")
	}
	for _, name := range needed {
		Build(t, name)
	}
	// Not t.TempDir: an agent's sockets lie below, and their addresses are short.
	dir, err := os.MkdirTemp("", "weir-e2e-")
	if err == nil {
		err = os.Chmod(dir, 0o711) // users of user namespaces come through
	}
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{
		t: t, Dir: dir, RunDir: filepath.Join(dir, "run"), SimDir: filepath.Join(dir, "sim"),
		options: options, log: &SyncBuffer{}, running: &running{},
	}
	t.Cleanup(n.remove)
	n.writeConfig(options.Config)
	if n.attributes().Credential != nil {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if !options.RealCard {
		n.startMachine()
	}
	if !options.NoAgent {
		n.StartAgent()
	}
	return n
}

// For is the same node for another test, or a part of one: what fails, fails that one, and programs that it
// starts end with it.
func (n *Node) For(t testing.TB) *Node {
	view := *n
	view.t = t
	return &view
}

// nobody is an ordinary user that every Debian has.
const nobody = 65534

// attributes of this node's processes: who runs them.
func (n *Node) attributes() *syscall.SysProcAttr {
	if !n.options.OrdinaryUser || os.Getuid() != 0 {
		return &syscall.SysProcAttr{}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}

// Configure gives the agent other lines of weir.toml, and starts it anew if it runs.
func (n *Node) Configure(lines string) {
	n.t.Helper()
	n.writeConfig(lines)
	if n.HasAgent() {
		n.StopAgent()
		n.StartAgent()
	}
}

func (n *Node) writeConfig(lines string) {
	n.t.Helper()
	// The machine's own containerd is none of the test's.
	config := fmt.Sprintf("count_context = %t\ncontainerd = %q\n%s", n.options.CountContext, n.Containerd(), lines)
	if err := os.WriteFile(n.configFile(), []byte(config), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// Containerd is where the agent looks for a containerd, which a test may start there.
func (n *Node) Containerd() string { return filepath.Join(n.Dir, "ctrd", "c.sock") }

func (n *Node) configFile() string { return filepath.Join(n.Dir, "weir.toml") }

func (n *Node) startMachine() {
	n.t.Helper()
	machine := n.options.Machine
	if machine == "" {
		machine = "a30"
	}
	if strings.Contains(machine, "\n") {
		file := filepath.Join(n.Dir, "machine.toml")
		if err := os.WriteFile(file, []byte(machine), 0o644); err != nil {
			n.t.Fatal(err)
		}
		machine = file
	}
	n.MustWeir("sim", "up", machine, "--dir", n.SimDir)
}

// Env is the environment of this node's processes: its own simulated machine, driver and agent, or
// the machine's driver where that finds it, and nothing of weir's from outside.
func (n *Node) Env() []string {
	env := make([]string, 0, len(os.Environ())+4)
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "WEIR_") && !strings.HasPrefix(name, "WEIR_TEST_") ||
			name == "LD_PRELOAD" || name == "LD_LIBRARY_PATH" && !n.options.RealCard {
			continue
		}
		env = append(env, entry)
	}
	env = append(env, "WEIR_RUN_DIR="+n.RunDir)
	if n.options.RealCard {
		return env
	}
	return append(env, "WEIR_SIM="+n.SimDir, "LD_LIBRARY_PATH="+filepath.Join(buildDir(n.t), "sim"))
}

// StartAgent starts the agent and returns when it serves.
func (n *Node) StartAgent() {
	n.t.Helper()
	if n.agent != nil {
		n.t.Fatal("the agent runs already")
	}
	program := Build(n.t, "weir")
	if n.options.programs != "" {
		program = filepath.Join(n.options.programs, "weir")
	}
	agent := exec.Command(program, n.agentArguments()...)
	agent.Env = n.Env()
	if n.options.NoDriver {
		agent.Args = append(agent.Args, "--nvml", Build(n.t, "sim/libnvidia-ml.so.1"))
		agent.Env = append(agent.Env, "LD_LIBRARY_PATH=")
	}
	agent.Stderr = n.log
	// The agent dies with a test that is killed.
	agent.SysProcAttr = n.attributes()
	agent.SysProcAttr.Pdeathsig = syscall.SIGKILL
	out, err := agent.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := StartLocked(agent); err != nil {
		n.t.Fatal(err)
	}
	ready, ended := make(chan string, 1), make(chan struct{})
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		ready <- line
		_ = agent.Wait()
		close(ended)
	}()
	n.agent, n.ended = agent, ended
	select {
	case line := <-ready:
		if !strings.Contains(line, "ready") {
			n.t.Fatalf("the agent did not get ready: %q\n%s", line, n.log)
		}
		n.ready = strings.TrimSpace(line)
	case <-time.After(patience):
		n.t.Fatalf("the agent is not ready after %s\n%s", patience, n.log)
	}
}

// Upgrade has StartAgent take the agent's programs out of another folder from now on.
func (n *Node) Upgrade(programs string) { n.options.programs = programs }

func (n *Node) agentArguments() []string {
	return []string{"agent", "--config", n.configFile(), "--run-dir", n.RunDir,
		"--state-dir", filepath.Join(n.Dir, "state")}
}

// Agent is the agent's pid.
func (n *Node) Agent() int { return n.agent.Process.Pid }

// HasAgent tells whether the node's agent has been started and not ended by the test.
func (n *Node) HasAgent() bool { return n.agent != nil }

// ControlSocket is where the agent is asked.
func (n *Node) ControlSocket() string { return filepath.Join(n.RunDir, "control.sock") }

// Log is what the agents of this node have written to stderr so far.
func (n *Node) Log() string { return n.log.String() }

// KillAgent kills the agent with SIGKILL and returns when it is gone.
func (n *Node) KillAgent() { n.endAgent(syscall.SIGKILL) }

// StopAgent ends the agent in the orderly way.
func (n *Node) StopAgent() { n.endAgent(syscall.SIGTERM) }

func (n *Node) endAgent(signal syscall.Signal) {
	n.t.Helper()
	if err := n.agent.Process.Signal(signal); err != nil {
		n.t.Errorf("the agent has ended by itself: %v\n%s", err, n.log)
	}
	select {
	case <-n.ended:
	case <-time.After(patience):
		n.t.Errorf("the agent did not end after %s", signal)
		_ = n.agent.Process.Kill()
		<-n.ended
	}
	n.agent = nil
}

// AgentAlive fails the test if the agent has ended.
func (n *Node) AgentAlive() {
	n.t.Helper()
	select {
	case <-n.ended:
		n.t.Fatalf("the agent has ended\n%s", n.log)
	default:
	}
}

func (n *Node) remove() {
	if n.agent != nil {
		n.StopAgent()
	}
	if n.t.Failed() {
		n.t.Logf("the agent's log:\n%s", tail(n.log.String(), 60))
	}
	if !n.options.RealCard {
		n.Weir("sim", "down", "--dir", n.SimDir)
	}
	if err := os.RemoveAll(n.Dir); err != nil {
		n.t.Errorf("removing the node's folder: %v", err)
	}
}

func tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Eventually calls probe until it returns an empty string; the test fails with the last one if that
// takes too long.
func (n *Node) Eventually(probe func() string) {
	n.t.Helper()
	var last string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if last = probe(); last == "" {
			return
		}
	}
	n.t.Fatalf("after %s still: %s", patience, last)
}
