package e2e

// Allocate and free, over and over, in eight threads: nothing may grow, and no checker of memory or threads may
// complain. Over the null driver whatever grows is the library's; the simulated one has every kind, and is
// checked together with the library.
//
// LONG=1 takes 100,000 pairs of each kind: as many in each thread, or, under a checker that makes them ten times
// as slow, in all threads together.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// Pairs of each kind in each thread, with LONG.
const (
	pairsEach     = 100_000
	pairsTogether = pairsEach / 8
)

// churnMemory is the client's cap in bytes.
const churnMemory = 256 << 20

// What the client may have more in memory after nine tenths of its work than after one, in bytes: pages of stacks
// and tables that are touched late. That of the null driver is the library alone, and a growth of 40 bytes a pair of
// one kind exceeds it in the short run, of one byte with LONG. The simulated driver's comes from malloc, whose
// heaps, one a thread, vary; but what it has given out is counted.
const (
	growthOfLibrary = 512 << 10
	growthOfHeaps   = 4 << 20
	growthOfMalloc  = 64 << 10
	growthOfAgent   = 16 << 20 // Go's heap varies by itself.
)

// nullKinds are those that the null driver can answer for. (Its pools never give anything back.)
var nullKinds = strings.Fields("plain pitched managed array mipmap async pooled physical mapped context module library")

// churning is one run of the client.
type churning struct {
	kinds     []string // none: all
	null      bool     // over the null driver, else the simulated one
	sanitizer string   // the client's build with library and simulated driver: asan or tsan
	checker   []string // a program that runs the client
	env       []string
	pairs     int // of each kind, in each thread
	longPairs int // the same with LONG
}

// had is what the client, and the agent, have at one time, in bytes.
type had struct {
	resident, heap, mapped int64
	descriptors            int64 // their number
	free, total            int64 // device memory, as the client is told
	used                   int64 // device memory, as the agent tells
	agentResident          int64
	agentDescriptors       int64
}

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

// start begins the run on a node of its own, with two GPUs or more: the last has contexts that nobody else uses.
func (c churning) start(t *testing.T) (*node.Node, *node.Program) {
	t.Helper()
	options := node.Options{Machine: "a100x4", CountContext: !c.null}
	client, env := node.Build(t, "e2e/churn"), c.env
	if c.sanitizer != "" {
		// The library is in the program. The thread sanitizer's shadow wants the usual layout of memory.
		options.Through = []string{"setarch", "-R", "env", "-u", "LD_PRELOAD"}
		client = node.Build(t, filepath.Join("sim/obj", c.sanitizer, "churn"))
		env = append(env, "LD_LIBRARY_PATH="+filepath.Dir(client))
	}
	n := node.Start(t, options)
	if c.null {
		env = append(env, nullDriver(t, n)...)
	}
	command := append(append([]string{}, c.checker...), client, strconv.Itoa(c.pairs))
	command = append(command, c.kinds...)
	run := node.RunOptions{Name: "churn", Memory: strconv.Itoa(churnMemory), Env: env}
	return n, n.Run(run, command[0], command[1:]...)
}

// await reads the client's output up to a line with that word; those about kinds go into the log.
func (c churning) await(t *testing.T, n *node.Node, p *node.Program, word string) (h had) {
	t.Helper()
	wait := 10 * time.Minute
	if os.Getenv("LONG") != "" {
		wait = 10 * time.Hour
	}
	line := p.LineWithin(wait)
	for ; strings.HasPrefix(line, "kind "); line = p.LineWithin(wait) {
		var name string
		var resident, heap, ms int64
		if _, err := fmt.Sscanf(line, "kind %s %d %d %d", &name, &resident, &heap, &ms); err != nil {
			t.Fatalf("it says %q", line)
		}
		t.Logf("%-12s %d pairs: %+d bytes resident, %+d of malloc, %d ms of processor time",
			name, c.pairs, resident, heap, ms)
	}
	if _, err := fmt.Sscanf(line, word+" %d %d %d %d %d %d", &h.resident, &h.heap, &h.mapped, &h.descriptors,
		&h.free, &h.total); err != nil {
		t.Fatalf("it says %q\n%s", line, p.Stderr())
	}
	h.used, _ = n.Use("churn")
	h.agentResident = resident(t, n.Agent())
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.Agent()))
	if err != nil {
		t.Fatal(err)
	}
	h.agentDescriptors = int64(len(open))
	return h
}

// run runs the client under a cap. What must be so under any checker is checked; what it, and the agent, had after
// a tenth of the work and at the end is returned.
func (c churning) run(t *testing.T) (warm, done had) {
	t.Helper()
	if os.Getenv("LONG") != "" {
		c.pairs = c.longPairs
	}
	n, p := c.start(t)
	warm = c.await(t, n, p, "warm")
	p.Send("go on")
	done = c.await(t, n, p, "done")
	p.Send("end")
	if code, _ := p.Wait(10 * time.Minute); code != 0 || p.Stderr() != "" {
		t.Errorf("exit %d\n%s", code, p.Stderr())
	}
	t.Logf("from the first tenth to the end: %+d bytes resident, %+d of malloc, %+d mapped; the agent %+d resident",
		done.resident-warm.resident, done.heap-warm.heap, done.mapped-warm.mapped,
		done.agentResident-warm.agentResident)
	if done.total != churnMemory || done.free != warm.free || done.used != warm.used {
		t.Errorf("device memory: %d of %d bytes are free and %d used, of which %d and %d were after a tenth",
			done.free, done.total, done.used, warm.free, warm.used)
	}
	if done.descriptors != warm.descriptors || done.agentDescriptors > warm.agentDescriptors+2 {
		t.Errorf("descriptors: %d, and %d of the agent, of which %d and %d were after a tenth",
			done.descriptors, done.agentDescriptors, warm.descriptors, warm.agentDescriptors)
	}
	if denied := n.EventsOf("denied", "churn"); len(denied) != 0 {
		t.Errorf("what fits was refused: %v", denied)
	}
	return warm, done
}

// checkGrowth fails the test where the client has grown beyond a limit, or the agent.
func checkGrowth(t *testing.T, warm, done had, limit int64) {
	t.Helper()
	for _, grown := range []struct {
		what         string
		bytes, limit int64
	}{
		{"the client's resident memory", done.resident - warm.resident, limit},
		{"the client's address space", done.mapped - warm.mapped, limit},
		{"what the client has of malloc", done.heap - warm.heap, growthOfMalloc},
		{"the agent's resident memory", done.agentResident - warm.agentResident, growthOfAgent},
	} {
		if grown.bytes > grown.limit {
			t.Errorf("%s has grown by %d bytes", grown.what, grown.bytes)
		}
	}
}

func TestChurnDoesNotGrow(t *testing.T) {
	t.Run("null", func(t *testing.T) {
		warm, done := churning{null: true, kinds: nullKinds, pairs: 2000, longPairs: pairsEach}.run(t)
		checkGrowth(t, warm, done, growthOfLibrary)
	})
	t.Run("simulated", func(t *testing.T) {
		warm, done := churning{pairs: 500, longPairs: pairsEach}.run(t)
		checkGrowth(t, warm, done, growthOfHeaps)
	})
}

// Whatever a sanitizer finds it writes to stderr, and ends the client with a code of its own.
func TestChurnUnderSanitizers(t *testing.T) {
	for _, c := range []churning{
		// A small quarantine of freed memory: with the usual one, all memory of short runs stays there.
		{sanitizer: "asan", env: []string{"ASAN_OPTIONS=detect_leaks=1:quarantine_size_mb=16"},
			pairs: 60, longPairs: pairsEach},
		{sanitizer: "tsan", pairs: 30, longPairs: pairsTogether},
	} {
		t.Run(c.sanitizer, func(t *testing.T) { c.run(t) })
	}
}

func TestChurnUnderValgrind(t *testing.T) {
	valgrind, err := exec.LookPath("valgrind")
	if err != nil {
		t.Skip("valgrind is not there")
	}
	for name, c := range map[string]churning{
		"null": {null: true, kinds: nullKinds, pairs: 200, longPairs: pairsEach, checker: []string{
			"--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"}},
		// It cannot look for leaks through the simulated memory, 130 GiB of address space; the address
		// sanitizer does.
		"simulated": {pairs: 20, longPairs: pairsTogether, checker: []string{"--leak-check=no"}},
	} {
		t.Run(name, func(t *testing.T) {
			reports := t.TempDir()
			c.checker = append([]string{valgrind, "-q", "--error-exitcode=9", "--log-file=" + reports + "/%p"},
				c.checker...)
			c.run(t)
			checkValgrind(t, reports)
		})
	}
}

// checkValgrind reads the reports. Valgrind says of each new kind of error "ERROR SUMMARY" or a stack; of the
// library's question to the kernel whether an address can be read, that it does not know it.
func checkValgrind(t *testing.T, reports string) {
	t.Helper()
	files, err := filepath.Glob(reports + "/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no reports of valgrind: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(`(?m)^==\d+== .*`).Find(text); found != nil {
			t.Errorf("valgrind says %s\n%s", found, text)
		}
	}
}
