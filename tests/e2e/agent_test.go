package e2e

// The agent's own life: not there, twice, killed, restarted.

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

func TestAgentUnreachable(t *testing.T) {
	n := node.Start(t, node.Options{NoAgent: true})
	socket := filepath.Join(n.RunDir, "control.sock")
	for _, command := range [][]string{
		{"ps"}, {"inspect", "x"}, {"caps", "get"}, {"caps", "set", "x", "--memory", "1GiB"}, {"events"},
		{"run", "--memory", "1GiB", "--", "/bin/true"}, {"run", "--", "/bin/true"},
	} {
		out := n.Weir(command...)
		if out.Code != 5 || !strings.Contains(out.Stderr, socket) || !strings.Contains(out.Stderr, "weir agent") {
			t.Errorf("weir %s: exit %d, want 5 with the socket and how to start the agent\n%s",
				strings.Join(command, " "), out.Code, out.Stderr)
		}
		if out.Stdout != "" {
			t.Errorf("weir %s writes to stdout: %s", strings.Join(command, " "), out.Stdout)
		}
	}
}

func TestRunRefusesWhatItCannotCap(t *testing.T) {
	n := node.Start(t, node.Options{NoAgent: true})
	marker := filepath.Join(n.Dir, "ran")
	if out := n.Weir("run", "--memory", "1GiB", "--", "/bin/touch", marker); out.Code != 5 {
		t.Errorf("exit %d, want 5\n%s", out.Code, out.Stderr)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the program was started without its cap")
	}
	out := n.Weir("run", "--memory", "1GiB", "--allow-unenforced", "--", "/bin/sh", "-c", "echo ran; exit 3")
	if out.Code != 3 || out.Stdout != "ran\n" {
		t.Errorf("--allow-unenforced: exit %d, stdout %q\n%s", out.Code, out.Stdout, out.Stderr)
	}
	if out.Stderr == "" {
		t.Error("--allow-unenforced says nothing of what is not enforced")
	}
}

func TestSecondAgentIsRefused(t *testing.T) {
	n := node.Start(t, node.Options{})
	out := n.Weir("agent", "--run-dir", n.RunDir, "--state-dir", filepath.Join(n.Dir, "state2"))
	if out.Code == 0 || !strings.Contains(out.Stderr, strconv.Itoa(n.Agent())) {
		t.Errorf("a second agent: exit %d, and not the pid %d of the first\n%s", out.Code, n.Agent(), out.Stderr)
	}
	n.AgentAlive()
	n.MustWeir("ps")
}

// What an agent that was killed left behind does not stop the next one; caps and containers are there
// again.
func TestRestartKeepsContainersAndCaps(t *testing.T) {
	n := node.Start(t, node.Options{})
	p := n.Puppet(node.RunOptions{Name: "kept", Memory: "64MiB"})
	p.OK("init")
	p.OK("alloc %d", 32*mib)
	n.SetCap("kept", "48MiB")
	for range 3 {
		n.KillAgent()
		n.StartAgent()
		if caps := n.Container("kept").Caps; caps.MemoryBytes == nil || *caps.MemoryBytes != 48*mib {
			t.Fatalf("after the restart the cap is %v", caps.MemoryBytes)
		}
		if used, charged := n.Use("kept"); used > charged || charged < 32*mib || charged > 48*mib {
			t.Errorf("after the restart %d bytes are used, %d charged", used, charged)
		}
		if code := p.Code("alloc %d", 17*mib); code != outOfMemory {
			t.Errorf("past the cap after the restart: code %d", code)
		}
		p.OK("alloc %d", 16*mib)
		p.OK("free 1")
	}
	// One that ended in the meantime is gone.
	n.KillAgent()
	p.Kill()
	n.Eventually(func() string {
		if err := syscall.Kill(p.PID(), 0); err == nil {
			return fmt.Sprintf("%d lives", p.PID())
		}
		return ""
	})
	n.StartAgent()
	n.Eventually(func() string {
		if left := n.Containers(); len(left) != 0 {
			return fmt.Sprintf("containers %+v", left)
		}
		return ""
	})
}

// While the agent is away, what fits the credit goes on at once; the rest waits for the agent as long
// as it should, and is refused then.
func TestAllocationWaitsForTheAgent(t *testing.T) {
	n := node.Start(t, node.Options{Config: `agent_wait = "2s"` + "\n"})
	p := n.Puppet(node.RunOptions{Name: "waiter", Memory: "64MiB"})
	p.OK("init")
	p.OK("alloc %d", mib)
	p.OK("fill 0 5")
	n.KillAgent()
	p.OK("free 0")
	p.OK("alloc %d", mib) // out of what has just been freed
	p.Tell("alloc %d", 32*mib)
	time.Sleep(500 * time.Millisecond)
	n.StartAgent()
	if code := p.Answer(); code != 0 {
		t.Errorf("the agent came back in time, and the allocation was refused: code %d", code)
	}
	n.KillAgent()
	start := time.Now()
	if code := p.Code("alloc %d", 16*mib); code != outOfMemory {
		t.Errorf("without an agent: code %d", code)
	}
	if waited := time.Since(start); waited < time.Second || waited > 10*time.Second {
		t.Errorf("refused after %s, want about 2s", waited)
	}
	n.StartAgent()
	p.OK("alloc %d", 16*mib)
}

// An orderly stop of the agent is no different for the tenants.
func TestOrderlyStop(t *testing.T) {
	n := node.Start(t, node.Options{})
	p := n.Puppet(node.RunOptions{Name: "stay", Memory: "64MiB"})
	p.OK("init")
	p.OK("alloc %d", 40*mib)
	n.StopAgent()
	n.StartAgent()
	if code := p.Code("alloc %d", 25*mib); code != outOfMemory {
		t.Errorf("past the cap after the restart: code %d", code)
	}
	p.OK("alloc %d", 24*mib)
}

func TestMachineFileMistakes(t *testing.T) {
	n := node.Start(t, node.Options{NoAgent: true})
	good := node.Machine("64MiB", "1MiB")
	for name, mistake := range map[string][2]string{
		"unknown key":   {"queue_depth", "queue_dept"},
		"negative size": {`memory = "64MiB"`, `memory = "-64MiB"`},
		"no such unit":  {`memory = "64MiB"`, `memory = "64MB/s"`},
	} {
		file := filepath.Join(n.Dir, "bad.toml")
		if err := os.WriteFile(file, []byte(strings.Replace(good, mistake[0], mistake[1], 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		out := n.Weir("sim", "up", file, "--dir", filepath.Join(n.Dir, "other"))
		key := strings.Fields(mistake[1])[0]
		if out.Code != 2 || strings.Count(out.Stderr, "\n") != 1 || !strings.Contains(out.Stderr, file) || !strings.Contains(out.Stderr, key) {
			t.Errorf("%s: exit %d, want 2 and one line naming %s and %s\n%s", name, out.Code, file, key, out.Stderr)
		}
	}
}

func TestMistakesOnTheCommandLine(t *testing.T) {
	n := node.Start(t, node.Options{})
	for _, mistake := range []struct {
		arguments []string
		names     []string // what the message must name
	}{
		{[]string{"run", "--memory", "-1GiB", "--", "/bin/true"}, []string{"--memory", "-1GiB"}},
		{[]string{"run", "--memory", "1.5B", "--", "/bin/true"}, []string{"--memory", "1.5B"}},
		{[]string{"run", "--memori", "1GiB", "--", "/bin/true"}, []string{"memori"}},
		{[]string{"run"}, []string{"command", "weir run"}},
		{[]string{"caps", "set", "x"}, []string{"--memory"}},
		{[]string{"caps", "set", "x", "--memory", ""}, []string{"--memory"}},
		{[]string{"ps", "-o", "xml"}, []string{"xml", "json"}},
		{[]string{"nosuch"}, []string{"nosuch"}},
	} {
		out := n.Weir(mistake.arguments...)
		if out.Code != 2 {
			t.Errorf("weir %q: exit %d, want 2\n%s", mistake.arguments, out.Code, out.Stderr)
		}
		for _, name := range mistake.names {
			if !strings.Contains(out.Stderr, name) {
				t.Errorf("weir %q: the message does not name %q:\n%s", mistake.arguments, name, out.Stderr)
			}
		}
	}
}
