// The scripts in testdata and the fake agent that they talk to.

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"weir/agent/control"
	"weir/agent/control/controltest"
)

// The test binary plays other programs if the environment says so: weirMode makes it weir,
// childMode what `weir run` starts (child_test.go).
const (
	weirMode  = "WEIR_TEST_WEIR"
	childMode = "WEIR_TEST_CHILD"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" && os.Getenv("WEIR_SOCKET") != "" {
		os.Exit(child(mode))
	}
	if os.Getenv(weirMode) != "" {
		main()
	}
	testscript.Main(m, map[string]func(){"weir": main})
}

func ptr[T any](v T) *T { return &v }

const mib = 1 << 20

// sampleNode is what the fake agent of the scripts serves.
func sampleNode(library string) *controltest.Node {
	started := time.Now().Add(-2 * time.Hour)
	node := &controltest.Node{
		Agent: control.AgentInfo{
			Version: "9.8.7", ABI: 1, PID: 4000, RunDir: "/run/weir", Driver: "535.54", Simulated: true, TimeShared: true,
			Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			GPUs: []control.GPU{
				{Index: 0, UUID: "GPU-0", Name: "Simulated A30", MemoryBytes: 384 * mib, UsedBytes: ptr(int64(96 * mib)),
					UtilisationRatio: ptr(0.87), LinkInBytesPerSecond: ptr(int64(375e6)), LinkOutBytesPerSecond: ptr(int64(370e6)), Simulated: true},
				{Index: 1, UUID: "GPU-1", Name: "A30", MemoryBytes: 24576 * mib},
				{Index: 1, MIG: ptr(0), UUID: "MIG-1", Name: "A30 MIG 1g.6gb", MemoryBytes: 5856 * mib},
			},
		},
		Grant: control.RunGrant{ID: "run-id", Socket: "/c/run-id/agent.sock", Library: library},
		Note:  "48MiB in use, so new allocations fail until it drops",
	}
	node.List = []control.Container{
		{
			ID: "0123456789abcdef0123", Name: "trainer", Namespace: "default", Identity: "path", PID: 4120,
			Command: []string{"python3", "train.py", "--data", "/srv/data/that/is/long"}, Started: started,
			Caps: control.Caps{
				MemoryBytes: ptr(int64(64 * mib)), Weight: ptr(2.0), SwapBytes: ptr(int64(16 * mib)),
			},
			Report: control.ReportCap, Enforced: true, EnforcedBy: ptr(control.ByLibrary), Refused: 3, State: "running",
			GPUs: []control.GPUUse{
				{Index: 0, UUID: "GPU-0", CapBytes: ptr(int64(64 * mib)), ChargedBytes: 50 * mib,
					UsedBytes: 48 * mib, CreditBytes: 2 * mib, ContextBytes: 5 * mib, CodeBytes: mib / 2,
					MovableBytes: 32 * mib, Swap: &control.SwapUse{
						LimitBytes: 16 * mib, ResidentBytes: ptr(int64(24 * mib)), SwappedBytes: ptr(int64(6 * mib)),
						MovedInBytes: ptr(int64(512 * mib)), MovedOutBytes: ptr(int64(518 * mib)),
						FaultedBytes: ptr(int64(2 * mib)), DisplacedBytes: ptr(int64(0)), OverCapBytes: ptr(int64(0)),
						OverCapMostBytes: ptr(int64(2 * mib)),
					}},
				{Index: 1, UUID: "GPU-1", CapBytes: ptr(int64(64 * mib))},
			},
			Sessions: []control.Session{{
				ID: 1, PID: 4121, Program: "python3", State: "connected", Since: started, Library: "9.8.7",
				ABI: 1, GPUs: []control.GPUUse{{Index: 0, UUID: "GPU-0", CapBytes: ptr(int64(64 * mib)),
					ChargedBytes: 50 * mib, UsedBytes: 48 * mib, CreditBytes: 2 * mib, ContextBytes: 5 * mib,
					CodeBytes: mib / 2}},
			}},
		},
		{
			ID: "fedcba9876543210fedc", Name: "legacy", Namespace: "k8s.io", Identity: "cgroup", PID: 5,
			Command: []string{"./a\x1b[31m"}, Started: started, Reason: "the library is not loaded",
			ReasonKind: control.ReasonNoLibrary,
			State:      "ending",
		},
		{
			ID: "web", Name: "web", Namespace: "team-a", PID: 6, Command: []string{}, Started: started,
			Reason: "it has a GPU and no annotation of weir's", ReasonKind: control.ReasonUnasked, State: "running", Pod: "web-0", Image: "web:1",
		},
	}
	node.Flows = []control.Flow{
		{
			ContainerID: node.List[1].ID, Container: "legacy", Namespace: "k8s.io", Index: 1, MIG: ptr(0), UUID: "MIG-1",
			Mode: control.ModeOff, Weight: 1,
		},
		{
			ContainerID: node.List[0].ID, Container: "trainer", Namespace: "default", UUID: "GPU-0", Weight: 3,
			Mode: control.ModeLeased, State: "waiting", VirtualNS: ptr(int64(7_654_321_000_000)), LagNS: ptr(int64(-12_345_678)),
			ShareAsked: ptr(0.75), ShareGot1s: ptr(0.7), ShareGot10s: ptr(0.7512), Leases: 9000, Handovers: 8000,
			WaitMeanNS: ptr(int64(20_123_456)), WaitWorstNS: ptr(int64(1_234_567_890)), ServedNS: 90_400_000_000,
			WaitedNS: 181_111_104_000_000, WaitingNS: ptr(int64(4_000_000)), GotNS: 95_000_000_000,
			BusyNS: 999, Submitted: 123456, Ungated: 1, Reopened: 2, Expired: 3,
		},
		{
			ContainerID: "fedc00", Container: "hog\x1b[31m", UUID: "GPU-0", Mode: control.ModeOpen, State: "open", Weight: 1,
			VirtualNS: ptr(int64(0)), LagNS: ptr(int64(0)), ShareAsked: ptr(0.25), ShareGot1s: ptr(0.0),
		},
	}
	at := time.Date(2026, 1, 2, 12, 4, 11, 0, time.UTC)
	node.Append(control.Event{Time: at, Type: "agent", Message: "agent 9.8.7 started"})
	node.Append(control.Event{Time: at, Type: "denied", Container: "trainer", Namespace: "default",
		PID: 4121, GPUUUID: "GPU-0", Asked: ptr(int64(mib)), Used: ptr(int64(2)), Cap: ptr(int64(3)),
		Count: 12,
		Message: "cuMemAlloc 1MiB: used 64MiB, cap 64MiB; " +
			"raise it with `weir caps set trainer --memory SIZE`"})
	node.Append(control.Event{Time: at, Type: "start-refused", Container: "gone", Namespace: "k8s.io",
		Message: `not started: annotation "weir/memory": "x" is not a size`})
	node.Append(control.Event{Time: time.Now().Add(-time.Minute), Type: "caps", Container: "legacy",
		Namespace: "k8s.io", Message: "memory none -> 1GiB"})
	return node
}

// serveFake runs the fake agent on dir/control.sock until the returned function is called.
func serveFake(dir string, node control.Node) (stop func(), err error) {
	listener, err := control.Listen(filepath.Join(dir, "control.sock"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		control.NewServer(node, slog.New(slog.DiscardHandler)).Serve(ctx, listener)
	}()
	return func() { cancel(); <-served }, nil
}

// anyLibrary is a library of the system's that can stand for weir's: loading it does nothing.
func anyLibrary() (string, error) {
	for _, pattern := range []string{"/lib/*/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0], nil
		}
	}
	return "", errors.New("no libm.so.6 on this system")
}

// TestScripts runs testdata/script/*.txtar, each with a fake agent of its own in $WEIR_RUN_DIR.
func TestScripts(t *testing.T) {
	library, err := anyLibrary()
	if err != nil {
		t.Skip(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			dir, err := os.MkdirTemp("", "weir")
			if err != nil {
				return err
			}
			node := sampleNode(library)
			stop, err := serveFake(dir, node)
			if err != nil {
				return err
			}
			env.Defer(func() { stop(); os.RemoveAll(dir) })
			env.Values["node"] = node
			env.Setenv("WEIR_RUN_DIR", dir)
			env.Setenv("LIBRARY", library)
			env.Setenv("TZ", "UTC")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each command takes a second under -race
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": scriptExits, "ended": scriptEnded, "told": scriptTold, "lacks": scriptLacks,
			"timeoff": scriptTimeOff,
		},
		Condition: scriptCondition,
	})
}

// scriptCondition has [mounts]: a mount namespace can be made here.
func scriptCondition(name string) (bool, error) {
	if name != "mounts" {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	return exec.Command("unshare", "--mount", "mount", "--bind", "/etc", "/etc").Run() == nil, nil
}

// scriptExits is `exits CODE COMMAND...`: the command must exit with that code.
func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	got := 0
	err := ts.Exec(args[1], args[2:]...)
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		got = ended.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// scriptEnded is `ended ID`: the agent was told that this run has ended.
func scriptEnded(ts *testscript.TestScript, neg bool, args []string) {
	node := ts.Value("node").(*controltest.Node)
	node.Lock()
	defer node.Unlock()
	if (strings.Join(node.Ended, " ") == strings.Join(args, " ")) == neg {
		ts.Fatalf("ended runs: %q", node.Ended)
	}
}

// scriptTold is `told TEXT`: what the agent was told of the latest run or change of caps.
func scriptTold(ts *testscript.TestScript, neg bool, args []string) {
	node := ts.Value("node").(*controltest.Node)
	node.Lock()
	defer node.Unlock()
	var got []string
	if n := len(node.Runs); n > 0 {
		run := node.Runs[n-1].Request
		got = append(got, run.Name, strings.Join(run.Command, " "), strings.TrimSpace(capsText(run.Caps)+" "+run.Report))
	}
	if n := len(node.Changes); n > 0 {
		change := node.Changes[n-1]
		how := fmt.Sprint(change.Unset, change.DryRun)
		if change.Drain {
			how += " drain"
		}
		got = append(got, capsText(change.Set), how)
	}
	if (strings.Join(got, "|") == strings.Join(args, " ")) == neg {
		ts.Fatalf("the agent was told %q", strings.Join(got, "|"))
	}
}

// scriptLacks is `lacks TEXT`: the agent answers everything with this, that it cannot do it.
func scriptLacks(ts *testscript.TestScript, neg bool, args []string) {
	node := ts.Value("node").(*controltest.Node)
	node.Lock()
	defer node.Unlock()
	node.Fail = fmt.Errorf("%w: %s", control.ErrUnsupported, strings.Join(args, " "))
	if neg {
		node.Fail = nil
	}
}

// scriptTimeOff is `timeoff`: the agent shares out no GPU time.
func scriptTimeOff(ts *testscript.TestScript, neg bool, _ []string) {
	node := ts.Value("node").(*controltest.Node)
	node.Lock()
	defer node.Unlock()
	node.Agent.TimeShared = neg
}

func capsText(caps control.Caps) string {
	return fmt.Sprintf("%s %s %s", memoryText(caps, nil, "-"), sizeOr(caps.SwapBytes, "-"),
		weightOr(caps.Weight, "-"))
}
