// Package gatetest tests the gate, the handshake between threads that launch and the one that takes a
// lease away (cgo/gate.h), from outside: a program (program/) that plays agent, program and revoker is
// compiled in several ways. The model of the same steps is in tests/model.
package gatetest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// torment is how long each form of torture takes.
var torment = flag.Duration("torment", 600*time.Millisecond, "how long each form of torture takes")

// hangs is how long a run may take; only one that hangs does.
const hangs = 5 * time.Minute

// A build is one way to compile the test program, compiled at most once.
type build struct {
	name     string
	compiler string
	flags    []string
	wrapper  []string // what it runs under
	once     sync.Once
	path     string
	err      error
	lacks    string // why it cannot be had here
}

var (
	plain = &build{name: "plain", compiler: "gcc"}
	// More threads than words.
	few     = &build{name: "few", compiler: "gcc", flags: []string{"-DWEIR_GATE_WORDS=4"}}
	address = &build{name: "asan", compiler: "gcc", flags: []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=all"}}
	// Its shadow memory wants the usual layout.
	threads = &build{name: "tsan", compiler: "gcc", flags: []string{"-fsanitize=thread"}, wrapper: []string{"setarch", "-R"}}
	other   = &build{name: "clang", compiler: "clang"}
	musl    = &build{name: "musl", compiler: "musl-gcc", flags: kernelHeaders}
	arm64   = &build{name: "arm64", compiler: "aarch64-linux-gnu-gcc", flags: []string{"-static", "-mno-outline-atomics"}, wrapper: []string{"qemu-aarch64-static"}}
	// What the handshake would be without its barrier.
	broken = &build{name: "broken", compiler: "gcc", flags: []string{"-DWEIR_GATE_WITHOUT_MEMBARRIER"}}
)

// musl's own folder lacks the kernel's headers.
var kernelHeaders = []string{"-idirafter", "/usr/include", "-idirafter", "/usr/include/" + machine() + "-linux-gnu"}

func machine() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64"
	}
	return "x86_64"
}

var buildDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "weir-gatetest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// compile runs a compiler over sources, which it reads, so that the go command knows what a test's result
// depends on.
func compile(compiler, output string, args ...string) error {
	headers, err := filepath.Glob("../*.h")
	if err != nil {
		return err
	}
	for _, name := range append(append(headers, "../abi/weir_abi.h", "program/program.h"), args...) {
		if ext := filepath.Ext(name); ext != ".c" && ext != ".h" {
			continue
		}
		if _, err := os.ReadFile(name); err != nil {
			return err
		}
	}
	common := []string{"-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fno-stack-protector", "-o", output}
	if out, err := exec.Command(compiler, append(common, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", compiler, err, out)
	}
	return nil
}

// program returns the command that runs a build of the test program.
func (b *build) program(t *testing.T) []string {
	t.Helper()
	b.once.Do(func() {
		for _, tool := range append([]string{b.compiler}, b.wrapper...) {
			if _, err := exec.LookPath(tool); err != nil && !strings.HasPrefix(tool, "-") {
				b.lacks = err.Error()
				return
			}
		}
		b.path = filepath.Join(buildDir, b.name)
		sources, err := filepath.Glob("program/*.c")
		if err != nil {
			b.err = err
			return
		}
		b.err = compile(b.compiler, b.path, append(append(slices.Clone(b.flags), "-pthread", "../gate.c", "../revoke.c"), sources...)...)
	})
	if b.lacks != "" {
		t.Skip(b.lacks)
	}
	if b.err != nil {
		t.Fatal(b.err)
	}
	return append(slices.Clone(b.wrapper), b.path)
}

// say runs a build with these arguments and returns what it says.
func (b *build) say(t *testing.T, args ...string) string {
	t.Helper()
	command := append(b.program(t), args...)
	run := exec.Command(command[0], command[1:]...)
	run.Env = append(os.Environ(), "TSAN_OPTIONS=halt_on_error=1", "ASAN_OPTIONS=detect_leaks=0")
	timer := time.AfterFunc(hangs, func() { run.Process.Kill() })
	defer timer.Stop()
	out, err := run.CombinedOutput()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() == 3 {
		t.Skip(strings.TrimSpace(string(out)))
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// What may happen to a thread: nested launches, jumps, ends, forks, pages that change, agents that go.
func TestCases(t *testing.T) {
	// An emulator does not wipe on fork, and makes a fork of a vfork.
	emulated := []string{"forks", "vforks"}
	for _, b := range []*build{plain, few, address, other, musl, arm64} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			for _, name := range strings.Fields(b.say(t, "cases")) {
				if b == arm64 && slices.Contains(emulated, name) {
					continue
				}
				t.Run(name, func(t *testing.T) {
					if said := b.say(t, name); strings.HasPrefix(said, "skipped") {
						t.Skip(said)
					}
				})
			}
		})
	}
}

// figures are what torture prints.
type figures map[string]int

func (b *build) torture(t *testing.T, args ...string) figures {
	t.Helper()
	said := b.say(t, append([]string{"torture", "ms", strconv.FormatInt(torment.Milliseconds(), 10)}, args...)...)
	words := strings.Fields(said)
	got := make(figures)
	for i := 0; i+1 < len(words); i += 2 {
		n, err := strconv.Atoi(words[i+1])
		if err != nil {
			t.Fatalf("%q: %v", said, err)
		}
		got[words[i]] = n
	}
	t.Logf("%s %s: %s", b.name, strings.Join(args, " "), said)
	return got
}

// asleepUs is how long a lease may be closed for torture to know what a wait that ended by itself means:
// half of such a wait.
const asleepUs = 50000

// soundly runs torture and checks that no launch and no wake-up was lost.
func soundly(t *testing.T, b *build, args ...string) figures {
	t.Helper()
	swaps := slices.Contains(args, "swap")
	var got figures
	for range 3 {
		got = b.torture(t, args...)
		for _, none := range []string{"lost", "late", "inside", "ungated", "abandoned"} {
			if got[none] != 0 {
				t.Errorf("%s %d, want none", none, got[none])
			}
		}
		if got["launches"] == 0 || got["gated"] == 0 {
			t.Errorf("%d launches, of which %d had to wait: nothing was tried", got["launches"], got["gated"])
		}
		// Whoever sleeps on a page that is replaced has to wake up by itself.
		if swaps || got["closed_us"] < asleepUs {
			break
		}
	}
	switch {
	case swaps:
	case got["closed_us"] >= asleepUs:
		t.Logf("the machine is too busy to say whether a wake-up was lost: the lease was closed for %d us", got["closed_us"])
	case got["overslept"] != 0:
		t.Errorf("%d wake-ups were lost", got["overslept"])
	}
	return got
}

func TestTorture(t *testing.T) {
	few.program(t)
	for _, form := range [][]string{
		{"threads", "1"},
		{"threads", "2"},
		{"threads", "8"},
		{"threads", "2", "locked"},
		{"threads", "8", "locked"},
		{"threads", "3", "swap"},
		{"threads", "3", "swap", "locked"},
	} {
		t.Run(strings.Join(form, " "), func(t *testing.T) { soundly(t, plain, form...) })
	}
	t.Run("more threads than words", func(t *testing.T) { soundly(t, few, "threads", "8") })
	t.Run("musl", func(t *testing.T) { soundly(t, musl, "threads", "4") })
	t.Run("arm64", func(t *testing.T) { soundly(t, arm64, "threads", "4") })
}

// Threads that come and go use one another's words.
func TestTortureOfThreadsThatEnd(t *testing.T) {
	for _, b := range []*build{plain, few} {
		got := soundly(t, b, "threads", "4", "churn")
		if got["ended"] < 100 {
			t.Errorf("%d threads have ended: nothing was tried", got["ended"])
		}
		if got["words"] > 16+got["ended"]/4 {
			t.Errorf("%d words for %d threads of which 4 lived at a time", got["words"], got["ended"])
		}
	}
}

func TestTortureUnderTheThreadSanitizer(t *testing.T) {
	soundly(t, threads, "threads", "4")
	soundly(t, threads, "threads", "4", "locked")
	soundly(t, threads, "threads", "3", "swap", "churn")
}

// Without the barrier a plain store and a load lose launches, and this torture sees it: else it would show
// nothing about the gate.
func TestWithoutTheBarrierLaunchesAreLost(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("needs two processors")
	}
	var got figures
	for range 10 {
		if got = broken.torture(t, "threads", "2"); got["lost"] > 0 {
			t.Logf("%.1f %% of the leases were taken with a launch under way", 100*float64(got["lost"])/float64(got["leases"]))
			return
		}
	}
	t.Errorf("no launch was lost in %d leases", got["leases"])
}
