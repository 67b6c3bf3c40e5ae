package e2e

// `make gpu-check` itself: that it passes where weir works, fails where it does not, and cleans up.

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/tests/e2e/node"
)

// needsRuntime are the checks that need NVIDIA's runtime, which is never run on the simulated driver.
var needsRuntime = regexp.MustCompile(`^(CUDA programs|PyTorch: .*|numba)$`)

// watched is the check of what the agent finds undeclared: it takes longer than all others together.
const watched = "reconciliation"

// gpuCheck runs the checks with more of an environment. What the table says of each; nothing of the
// one that takes long, unless it is wanted.
func gpuCheck(t *testing.T, patient bool, environment ...string) (
	outcomes map[string]string, passed bool, table string,
) {
	t.Helper()
	outcomes, passed, table = gpuChecks(t, patient, nil, environment...)
	if len(outcomes) < 20 {
		t.Fatalf("the table has %d rows:\n%s", len(outcomes), table)
	}
	if !patient {
		delete(outcomes, watched)
	}
	return outcomes, passed, table
}

// gpuChecks is the same with more flags.
func gpuChecks(t *testing.T, patient bool, flags []string, environment ...string) (
	outcomes map[string]string, passed bool, table string,
) {
	t.Helper()
	for _, name := range []string{
		"sim/libcuda.so.1", "gpu/cost", "gpu/probe", "gpu/swapper", "gpu/worker", "e2e/puppet", "e2e/acrobat", "e2e/troupe",
	} {
		node.Build(t, name)
	}
	dir := temporary(t)
	file := filepath.Join(t.TempDir(), "table.md")
	command := exec.Command(node.Build(t, "gpu/check"), append([]string{"-table", file}, flags...)...)
	if !patient {
		command.Args = append(command.Args, "-watch", "0")
	}
	command.Dir = node.Root(t)
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); !strings.HasPrefix(name, "WEIR_GPU_CHECK") {
			command.Env = append(command.Env, entry)
		}
	}
	command.Env = append(append(command.Env, "TMPDIR="+dir), environment...)
	out, err := command.CombinedOutput()
	t.Logf("%s", out)
	text, readErr := os.ReadFile(file)
	if readErr != nil {
		t.Fatalf("it writes no table: %v; %v", readErr, err)
	}
	outcomes = map[string]string{}
	row := regexp.MustCompile(`(?m)^\| ([^|]+) \| (pass|FAIL|skipped) \|`)
	for _, found := range row.FindAllStringSubmatch(string(text), -1) {
		outcomes[found[1]] = found[2]
	}
	leavesNothing(t, dir)
	return outcomes, err == nil, string(text)
}

// allPass fails the test unless all checks pass but those that cannot run here.
func allPass(t *testing.T, outcomes map[string]string, passed bool) {
	t.Helper()
	for check, outcome := range outcomes {
		want := "pass"
		if needsRuntime.MatchString(check) {
			want = "skipped"
		}
		if outcome != want {
			t.Errorf("%s: %s, want %s", check, outcome, want)
		}
	}
	if !passed {
		t.Error("it does not end with 0")
	}
}

func TestGPUCheckOnASimulatedMachine(t *testing.T) {
	t.Parallel()
	outcomes, passed, table := gpuCheck(t, true, "WEIR_GPU_CHECK_SIMULATED=1")
	for range timeTries - 1 {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(outcomes)), func(check string) bool {
			return isTime(check) && outcomes[check] == "FAIL"
		}) {
			break
		}
		outcomes, passed, table = gpuCheck(t, true, "WEIR_GPU_CHECK_SIMULATED=1")
	}
	allPass(t, outcomes, passed)
	if !strings.HasPrefix(table, "## SIMULATED") {
		t.Errorf("the table does not say at once that it is of a simulated machine:\n%s", table)
	}
}

// A check that cannot fail says nothing.
func TestGPUCheckFailsWhereNothingIsEnforced(t *testing.T) {
	t.Parallel()
	const weights = "time: weights 1:3"
	for sabotage, passes := range map[string]func(check string) bool{
		// What is not about caps, or about having one; and what does not depend on the library.
		"library": func(check string) bool {
			return slices.Contains([]string{"exports", "cost", "time: launches"}, check)
		},
		"cap": func(check string) bool {
			return slices.Contains([]string{"exports", "cost", "context", "pool loop"}, check) || isTime(check)
		},
		"share": func(check string) bool { return check != weights },
	} {
		t.Run(sabotage, func(t *testing.T) {
			t.Parallel()
			outcomes, passed, _ := gpuCheck(t, sabotage == "library", "WEIR_GPU_CHECK_SIMULATED=1",
				"WEIR_GPU_CHECK_SABOTAGE="+sabotage)
			for check, outcome := range outcomes {
				want := "FAIL"
				switch {
				case needsRuntime.MatchString(check):
					want = "skipped"
				case passes(check):
					want = "pass"
				}
				if outcome != want && !(want == "pass" && isTime(check)) {
					t.Errorf("%s: %s, want %s", check, outcome, want)
				}
			}
			if passed {
				t.Error("it ends with 0")
			}
		})
	}
}

// Without swap its check fails, too.
func TestGPUCheckOfSwapFailsWithoutIt(t *testing.T) {
	t.Parallel()
	for sabotage, want := range map[string]string{"": "pass", "swap": "FAIL"} {
		outcomes, _, _ := gpuChecks(t, false, []string{"-only", "^swap$"}, "WEIR_GPU_CHECK_SIMULATED=1",
			"WEIR_GPU_CHECK_SABOTAGE="+sabotage)
		if outcomes["swap"] != want {
			t.Errorf("sabotage %q: %s, want %s", sabotage, outcomes["swap"], want)
		}
	}
}

// timeTries: a test's processor time is not its own.
const timeTries = 3

// isTime: how much GPU time programs get depends on what else the machine does, so only one test demands that it is right.
func isTime(check string) bool { return strings.HasPrefix(check, "time: ") }

// Where a GPU and a driver are, those are used; here they are a card in disguise. Without a PATH, so that
// no runtime of NVIDIA's is found.
func TestGPUCheckUsesTheCardThatIsThere(t *testing.T) {
	t.Parallel()
	outcomes, _, table := gpuCheck(t, false, "LD_LIBRARY_PATH="+anotherDriver(t), "PATH=/nonexistent")
	maps.DeleteFunc(outcomes, func(check, _ string) bool { return isTime(check) })
	allPass(t, outcomes, true)
	if !strings.HasPrefix(table, "## A30 24GB, driver ") || strings.Contains(table, "SIMULATED") {
		t.Errorf("the table is of another card:\n%s", table)
	}
}

// Where no GPU is, the command says so in one line, builds nothing and is content.
func TestGPUCheckWithoutAGPU(t *testing.T) {
	n := node.Start(t, node.Options{NoAgent: true})
	build := filepath.Dir(node.Build(t, "weir"))
	node.Build(t, "gpu/probe")
	command := exec.Command(filepath.Join(node.Root(t), "tests/gpu/run.sh"), build, "false")
	// The simulated driver is found, and finds no machine: WEIR_SIM is not for this command.
	command.Env = n.Env()
	out, err := command.CombinedOutput()
	said := string(out)
	if err != nil || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "gpu-check: skipped: ") {
		t.Errorf("%v\n%s", err, said)
	}
}
