package session

// What a thousand sessions cost the agent while they do nothing.

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/agent/control"
	"weir/agent/session/sessiontest"
)

// figures reads an agent's memory in bytes and the processor time that it has used.
func figures(t *testing.T, pid int) (resident int64, busy time.Duration) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmRSS:") {
			fmt.Sscanf(line, "VmRSS: %d kB", &resident)
		}
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		t.Skipf("no times of threads here: %v", err)
	}
	for _, task := range threads {
		var ns int64
		if text, err := os.ReadFile(task); err == nil {
			fmt.Sscan(string(text), &ns)
		}
		busy += time.Duration(ns)
	}
	return resident * 1024, busy
}

// TestThousandSessions: idle, they take at most 64 MiB and 2 % of a core. Without LONG it only
// shows that so many sessions can be had.
func TestThousandSessions(t *testing.T) {
	sessions, watched := 200, time.Second/2
	if long() {
		sessions, watched = 1000, 30*time.Second
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "crowd")
	gcc := exec.Command("gcc", "-O1", "-o", program, "testdata/crowd.c")
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Skipf("the crowd cannot be built here: %v: %s", err, out)
	}
	hello := filepath.Join(dir, "hello")
	if err := os.WriteFile(hello, sessiontest.Hello("crowd"), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := startAgent(t, dir, "")
	var grant control.RunGrant
	agent.ask(&grant, "run %d %d", os.Getpid(), 64*mib)
	crowd := exec.Command(program, grant.Socket, hello, fmt.Sprint(sessions))
	in, err := crowd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := crowd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := crowd.Start(); err != nil {
		t.Fatal(err)
	}
	defer crowd.Wait()
	defer in.Close()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the crowd: %q, %v", line, err)
	}
	t.Logf("%d sessions begun in %v", sessions, time.Since(begin))
	pid := agent.cmd.Process.Pid
	_, before := figures(t, pid)
	time.Sleep(watched)
	resident, after := figures(t, pid)
	share := float64(after-before) / float64(watched)
	t.Logf("%d idle sessions: %d KiB resident, %.2f%% of a core", sessions, resident>>10, 100*share)
	if long() && (resident > 64*mib || share > 0.02) {
		t.Errorf("more than 64 MiB or 2%% of a core")
	}
	var list []control.Container
	agent.ask(&list, "ps")
	if len(list[0].Sessions) != sessions {
		t.Errorf("%d sessions are listed", len(list[0].Sessions))
	}
}
