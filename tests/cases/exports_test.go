package cases

// Every export of the driver that takes device memory, or submits work, is used once under the library,
// by its own name. The rows of cgo/symbols.def say which they are.

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/tests/e2e/node"
)

// exportsOf are the exports of some classes by symbols.def.
func exportsOf(t *testing.T, classes ...string) (exports []string) {
	t.Helper()
	rows := fileMatches(t, "cgo/symbols.def",
		`(?m)^(?:HOOK|LATER|PASS)\((\w+), \w+, \d+, \w+, (\w+)`)
	for _, row := range rows {
		if slices.Contains(classes, row[2]) {
			exports = append(exports, row[1])
		}
	}
	if len(exports) == 0 {
		t.Fatalf("symbols.def has no row of %v", classes)
	}
	return exports
}

func fileMatches(t *testing.T, name, pattern string) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(node.Root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
}

// onTheWay are exports of these classes that take nothing by themselves; the acts of the client, or
// the tests named here, use them beside others.
var onTheWay = map[string]string{
	"cuMemPoolCreate":                    "cuMemAllocFromPoolAsync",
	"cuMemPoolImportFromShareableHandle": "TestM12ImportedPools",
	"cuMemPoolImportPointer":             "TestM12ImportedPools",
	"cuMemRetainAllocationHandle":        "TestM1CreatedMemory",
	"cuIpcCloseMemHandle":                "cuIpcOpenMemHandle",
	"cuDestroyExternalMemory":            "cuImportExternalMemory",
	"cuModuleUnload":                     "cuModuleLoad",
	"cuLibraryUnload":                    "cuLibraryLoadData",
}

// checkComplete fails the test for a row without an act, and for an act without a row. What the
// simulated driver refuses by decision cannot be tried on it.
func checkComplete(t *testing.T, rows, acts []string) {
	t.Helper()
	refused := map[string]bool{}
	for _, name := range fileMatches(t, "tests/sim/driver/unsupported.inc", `(?m)^R\((\w+),`) {
		refused[name[1]] = true
	}
	for _, row := range rows {
		if !slices.Contains(acts, row) && !refused[row] && onTheWay[row] == "" {
			t.Errorf("%s has no act in clients/acrobat_exports.c: no test would see what it takes", row)
		}
	}
	for _, act := range acts {
		if !slices.Contains(rows, act) {
			t.Errorf("clients/acrobat_exports.c has %s, which symbols.def does not call so", act)
		}
	}
}

// What takes memory is charged at least what was asked for, refused at the cap without a trace, and
// given back.
func TestEveryExportThatTakesMemory(t *testing.T) {
	const bytes, most = 4 * mib, 8 * mib
	machine := node.Machine("256MiB", "256KiB") + "pool_chunk = \"1MiB\"\n"
	n := node.Start(t, node.Options{Machine: machine, CountContext: true})
	p := n.Acrobat(node.RunOptions{Name: "takes", Memory: "8MiB",
		Env: []string{"CUDA_MODULE_LOADING=EAGER"}})
	p.OK("init")
	acts := p.OK("exports take")
	rows := exportsOf(t, "ALLOC", "IMPORT", "CODE", "LAUNCH")
	rows = slices.DeleteFunc(rows, func(name string) bool { return strings.HasPrefix(name, "cuLaunch") })
	checkComplete(t, rows, acts)

	stranger := n.BarePuppet()
	stranger.OK("init")
	// What others have, twice: who imports the same memory again has no more of it.
	descriptor := func() string {
		return fmt.Sprintf("/proc/%d/fd/%d", stranger.PID(),
			stranger.Number("fd %d", stranger.Number("create %d", bytes)))
	}
	handle := func() string { return stranger.OK("ipc %d", stranger.Number("alloc %d", bytes))[0] }
	from := map[string][2]string{
		"cuMemImportFromShareableHandle": {descriptor(), descriptor()},
		"cuImportExternalMemory":         {descriptor(), descriptor()},
		"cuIpcOpenMemHandle":             {handle(), handle()},
		"cuIpcOpenMemHandle_v2":          {handle(), handle()},
	}
	own := func() int64 {
		used, _ := n.Use("takes")
		return used
	}
	empty := own()
	for _, name := range acts {
		slot := p.Number("take %s %d %s", name, bytes, from[name][0])
		if used := own(); used < empty+bytes || used > empty+bytes+mib {
			t.Errorf("%s of %d bytes: %d are charged", name, bytes, used-empty)
		}
		full := p.Number("take cuMemAlloc_v2 %d", most-own())
		before := own()
		more := bytes
		if strings.HasPrefix(name, "cuGraph") {
			more = most // one of the same size would use the memory of the first again
		}
		if code := p.Code("take %s %d %s", name, more, from[name][1]); code != outOfMemory {
			t.Errorf("%s at the cap: code %d", name, code)
		}
		if used := own(); used > before {
			t.Errorf("%s was refused, and %d bytes more are charged", name, used-before)
		}
		p.OK("free %d", full)
		p.OK("free %d", slot)
		p.OK("sync")
		if used := own(); used != empty {
			t.Errorf("%s: given back, and %d bytes are charged", name, used-empty)
		}
	}
	booksAgreeWith(t, n, "in the end", stranger, "takes")
}

// booksAgreeWith compares with what the card says beyond what a process without weir has.
func booksAgreeWith(t *testing.T, n *node.Node, what string, bare *node.Puppet, name string) {
	t.Helper()
	n.Eventually(func() string {
		card := books(t, n).GPUs[0]
		process, _ := card.Process(bare.PID())
		used, _ := n.Use(name)
		if others := card.UsedBytes - process.AllocatedBytes - process.ContextBytes; others != used {
			return fmt.Sprintf("%s: the card's books say %d bytes, %s uses %d", what, others, name, used)
		}
		return ""
	})
}

// What submits work does it, through whatever the library makes of it.
func TestEveryExportThatLaunches(t *testing.T) {
	n := node.Start(t, node.Options{})
	p := n.Acrobat(node.RunOptions{Name: "runs", Memory: "64MiB"})
	p.OK("init")
	acts := p.OK("exports run")
	rows := slices.DeleteFunc(exportsOf(t, "LAUNCH"), func(name string) bool {
		return !strings.HasPrefix(name, "cuLaunch") // graphs take memory, too
	})
	checkComplete(t, rows, acts)
	for i, name := range acts {
		if got := p.Number("run %s %d", name, 1000+i); got != int64(1000+i) {
			t.Errorf("%s: the kernel wrote %d, not %d", name, got, 1000+i)
		}
	}
}

// Only what the parts to come need may still wait: none that takes memory or time does.
func TestNothingThatTakesMemoryOrTimeWaits(t *testing.T) {
	for _, row := range fileMatches(t, "cgo/symbols.def", `(?m)^LATER\((\w+), .*, (\w+)\)$`) {
		if row[2] != "MANAGED" {
			t.Errorf("%s waits for %s", row[1], row[2])
		}
	}
}
