package e2e

// The simulated driver's own tests under the library: what they know of each call must hold as well when the call goes
// through the library's hooks, by a session with an agent, beside a program that takes all GPU time that it can get.

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/node"
	"weir/tests/sim"
)

// alone are tests that know how long something takes, or how often the GPU works, where nobody else is there and nobody
// measures.
var alone = map[string]bool{
	"advice_test": true, "graph_test": true, "managed_test": true, "peer_test": true, "working_set_test": true,
}

func TestDriversOwnTestsUnderTheLibrary(t *testing.T) {
	n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "2MiB") + node.Card("256MiB", "2MiB")})
	machine, err := sim.Open(n.SimDir)
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	books, err := machine.Books()
	if err != nil {
		t.Fatal(err)
	}
	// A test makes a machine of its own, with GPUs that the agent takes for those that it knows.
	var uuids []string
	for _, gpu := range books.GPUs {
		uuids = append(uuids, strings.ReplaceAll(strings.TrimPrefix(gpu.UUID, "GPU-"), "-", ""))
	}
	hog := n.Run(node.RunOptions{Name: "hog"}, node.Build(t, "demo/hog"), "1000", "600")
	defer hog.Kill()
	ran := 0
	for _, name := range driverTests(t) {
		if alone[name] {
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) {
			run := n.Run(node.RunOptions{Name: name, Env: []string{"WEIR_TEST_UUIDS=" + strings.Join(uuids, ",")}},
				node.Build(t, "sim/obj/plain/"+name))
			if code, lines := run.Wait(2 * time.Minute); code != 0 {
				t.Errorf("exit %d\n%s\n%s", code, strings.Join(lines, "\n"), run.Stderr())
			}
		})
	}
	if ran < 15 {
		t.Errorf("only %d tests", ran)
	}
}

// driverTests are the tests of the driver within one process, by the lists of their makefile.
func driverTests(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(node.Root(t), "tests/sim/build.mk"))
	if err != nil {
		t.Fatal(err)
	}
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	for _, list := range regexp.MustCompile(`(?m)^SIM_(?:GRAPH|DRIVER)_TESTS := (.*)$`).FindAllStringSubmatch(joined, -1) {
		for name := range strings.FieldsSeq(list[1]) {
			if !strings.HasPrefix(name, "$") {
				names = append(names, name)
			}
		}
	}
	return names
}
