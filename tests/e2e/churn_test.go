package e2e

// Allocate and free, over and over: nothing may grow, and no memory checker may complain. Over the null
// driver, so that whatever grows is the library's.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// churnGrowth is what a process may have more in memory after nine tenths of its work than after one, in
// bytes: pages of stacks and tables that are touched late. A growth of one byte in ten pairs exceeds it.
const churnGrowth = 1 << 20

// nullDriver is the environment of programs that run over the null driver, which shows this node's GPU.
func nullDriver(t *testing.T, n *node.Node) []string {
	t.Helper()
	status := n.MustWeir("sim", "status", "--dir", n.SimDir, "-o", "json")
	uuid := regexp.MustCompile(`"uuid": *"([^"]*)"`).FindStringSubmatch(status)
	if uuid == nil {
		t.Fatalf("no UUID in %s", status)
	}
	driver := node.Build(t, "bench/libcuda.so.1")
	return []string{"WEIR_NULL_UUIDS=" + uuid[1], "LD_LIBRARY_PATH=" + filepath.Dir(driver)}
}

// resident returns a process's resident memory in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var all, pages int64
	if _, err := fmt.Sscan(string(text), &all, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// churn runs the client under a cap and returns its own growth and the agent's, in bytes.
func churn(t *testing.T, pairs int, checker ...string) (client, agent int64) {
	t.Helper()
	n := node.Start(t, node.Options{})
	command := append(checker, node.Build(t, "e2e/churn"), strconv.Itoa(pairs))
	p := n.Run(node.RunOptions{Name: "churn", Memory: "256MiB", Env: nullDriver(t, n)}, command[0], command[1:]...)
	var warm, done, free, total int64
	line := p.LineWithin(10 * time.Minute)
	if _, err := fmt.Sscanf(line, "warm %d", &warm); err != nil {
		t.Fatalf("it says %q\n%s", line, p.Stderr())
	}
	agent = -resident(t, n.Agent())
	p.Send("go on")
	line = p.LineWithin(10 * time.Minute)
	if _, err := fmt.Sscanf(line, "done %d %d %d", &done, &free, &total); err != nil {
		t.Fatalf("it says %q\n%s", line, p.Stderr())
	}
	agent += resident(t, n.Agent())
	// The null driver's two pools always say that they have reserved 32 MiB each.
	const pools = 64 << 20
	if total != 256<<20 || free != total-pools {
		t.Errorf("%d of %d bytes are free after all was freed", free, total)
	}
	if used, _ := n.Use("churn"); used != pools {
		t.Errorf("it is charged %d bytes after all was freed", used)
	}
	p.Send("end")
	if code, _ := p.Wait(time.Minute); code != 0 || len(checker) == 0 && p.Stderr() != "" {
		t.Errorf("exit %d\n%s", code, p.Stderr())
	}
	if denied := n.EventsOf("denied", "churn"); len(denied) != 0 {
		t.Errorf("what fits was refused: %v", denied)
	}
	return done - warm, agent
}

// 100,000 pairs of each kind in each of eight threads with LONG, else 2,000.
func TestChurnDoesNotGrow(t *testing.T) {
	pairs := 2000
	if os.Getenv("LONG") != "" {
		pairs = 100000
	}
	client, agent := churn(t, pairs)
	t.Logf("%d pairs: the client has grown by %d bytes, the agent by %d", pairs, client, agent)
	if client > churnGrowth {
		t.Errorf("the client has grown by %d bytes", client)
	}
	// Go's heap varies by itself.
	if agent > 16*churnGrowth {
		t.Errorf("the agent has grown by %d bytes", agent)
	}
}

func TestChurnUnderValgrind(t *testing.T) {
	valgrind, err := exec.LookPath("valgrind")
	if err != nil {
		t.Skip("valgrind is not there")
	}
	report := filepath.Join(t.TempDir(), "report")
	churn(t, 200, valgrind, "-q", "--error-exitcode=9", "--log-file="+report)
	// It says of each new kind of error "ERROR SUMMARY" or a stack; of the library's question to the
	// kernel whether an address can be read, that it does not know it.
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`(?m)^==\d+== .*`).Find(text); found != nil {
		t.Errorf("valgrind says %s\n%s", found, text)
	}
}
