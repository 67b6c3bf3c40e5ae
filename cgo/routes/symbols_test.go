// symbols_test.go: the rows of symbols.def against what is known of the driver's exports.

package routes

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// row is one row of symbols.def.
type row struct {
	Kind, Export, Asked string
	Since               int
	Streams, Class      string
	Waits               string // of LATER
}

var rowPattern = regexp.MustCompile(`^(HOOK|LATER|PASS)\((\w+), (\w+), (\d+), (\w+), (\w+)(?:, (\w+))?\)$`)

// rows reads symbols.def, comments aside. A line that is neither a row nor a directive fails the test.
func rows(t testing.TB) []row {
	t.Helper()
	text, err := os.ReadFile("../symbols.def")
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "//") || strings.HasPrefix(line, "#undef ") {
			continue
		}
		match := rowPattern.FindStringSubmatch(line)
		if match == nil {
			t.Fatalf("symbols.def: not a row: %s", line)
		}
		since, err := strconv.Atoi(match[4])
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row{match[1], match[2], match[3], since, match[5], match[6], match[7]})
	}
	return rows
}

// table reads a table of testdata, without its heading.
func table(t testing.TB, name string) [][]string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var table [][]string
	for line := range strings.Lines(string(text)) {
		table = append(table, strings.Split(strings.TrimSpace(line), "\t"))
	}
	return table[1:]
}

func TestSymbolsSorted(t *testing.T) {
	var exports []string
	for _, row := range rows(t) {
		exports = append(exports, row.Export)
	}
	if !slices.IsSorted(exports) {
		t.Errorf("symbols.def is not sorted by export; sorted, it begins to differ at %s", firstUnsorted(exports))
	}
	if unique := slices.Compact(slices.Clone(exports)); len(unique) != len(exports) {
		t.Errorf("symbols.def has %d rows twice", len(exports)-len(unique))
	}
}

func firstUnsorted(names []string) string {
	for i := 1; i < len(names); i++ {
		if names[i] < names[i-1] {
			return names[i]
		}
	}
	return ""
}

func TestEveryExportHasARow(t *testing.T) {
	known := map[string]bool{}
	for _, row := range rows(t) {
		known[row.Export] = true
	}
	names := map[string]bool{}
	for _, line := range table(t, "driver-535-exports.tsv") {
		names[line[0]] = true
	}
	for _, line := range table(t, "driver-555-getprocaddress.tsv") {
		names[line[3]] = true
	}
	for name := range names {
		if !known[name] {
			t.Errorf("the driver's export %s has no row in symbols.def: add one, with its class", name)
		}
	}
	for name := range known {
		if !names[name] {
			t.Errorf("symbols.def has %s, which no driver of testdata exports", name)
		}
	}
}

// The columns asked, since and streams are what cuGetProcAddress of driver 555 answers.
func TestColumnsAreTheDrivers(t *testing.T) {
	type answer struct {
		Asked   string
		Since   int
		Streams string
	}
	flags := map[string]string{}
	want := map[string]answer{}
	for _, line := range table(t, "driver-555-getprocaddress.tsv") {
		since, err := strconv.Atoi(line[2])
		if err != nil {
			t.Fatal(err)
		}
		flags[line[3]] += line[1]
		want[line[3]] = answer{Asked: line[0], Since: since}
	}
	streams := map[string]string{"012": "ANY", "01": "LEGACY", "2": "THREAD"}
	got := map[string]answer{}
	for _, row := range rows(t) {
		if row.Streams == "NEVER" {
			if row.Asked != "none" || row.Since != 0 {
				t.Errorf("%s is never given, but has asked %s, since %d", row.Export, row.Asked, row.Since)
			}
			continue
		}
		got[row.Export] = answer{row.Asked, row.Since, row.Streams}
	}
	for export, answer := range want {
		digits := []byte(flags[export])
		slices.Sort(digits)
		answer.Streams = streams[string(digits)]
		want[export] = answer
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("driver 555 (-) and symbols.def (+) differ:\n%s", diff)
	}
}

// passedByDecision are the exports of classes that matter which take no time of the GPU, and which others' work may
// wait for: the head of symbols.def says why they pass.
var passedByDecision = regexp.MustCompile(
	`^cuLaunchHostFunc(_ptsz)?$`)

// A wrapper or a reason to wait is what each export that takes, gives or moves device memory, or that
// submits work, must have; none may merely be passed on but by decision.
func TestNothingThatMattersIsPassedOn(t *testing.T) {
	matters := []string{"ALLOC", "FREE", "EXPORT", "IMPORT", "MAP", "CODE", "CONTEXT", "LAUNCH", "MEMOP", "COPY", "MOVE"}
	harmless := []string{"HOST", "REPORT", "RESOLVE", "ORDER", "GRAPH", "INTEROP", "DEBUG", "VIEW", "OTHER"}
	waits := []string{"MANAGED"}
	for _, row := range rows(t) {
		switch {
		case slices.Contains(matters, row.Class):
			if passed := passedByDecision.MatchString(row.Export); passed != (row.Kind == "PASS") {
				t.Errorf("%s is %s and is %s: it must be HOOK or LATER, unless it passes by decision", row.Export, row.Class, row.Kind)
			}
		case !slices.Contains(harmless, row.Class):
			t.Errorf("%s has unknown class %s", row.Export, row.Class)
		}
		if (row.Kind == "LATER") != slices.Contains(waits, row.Waits) {
			t.Errorf("%s is %s and waits for %q", row.Export, row.Kind, row.Waits)
		}
	}
}

// Names by which classes can be told must have those classes.
func TestClassesFitNames(t *testing.T) {
	rules := []struct {
		pattern *regexp.Regexp
		classes []string
	}{
		{regexp.MustCompile(`^cuMemAlloc(_|$|Pitch|Managed|Async|FromPool)`), []string{"ALLOC"}},
		{regexp.MustCompile(`^cuMemFree(_|$|Async)`), []string{"FREE"}},
		{regexp.MustCompile(`^cuLaunch|^cuGraphLaunch`), []string{"LAUNCH"}},
		{regexp.MustCompile(`^cuMem(cpy|set)`), []string{"COPY"}},
		{regexp.MustCompile(`Ctx(Create|Destroy|Reset|Retain|Release)(_|$)`), []string{"CONTEXT"}},
		{regexp.MustCompile(`^cuStream(BatchMemOp|(Wait|Write)Value)`), []string{"MEMOP"}},
		{regexp.MustCompile(`^cudbg`), []string{"DEBUG"}},
	}
	for _, row := range rows(t) {
		for _, rule := range rules {
			if rule.pattern.MatchString(row.Export) && !slices.Contains(rule.classes, row.Class) {
				t.Errorf("%s has class %s, want %v", row.Export, row.Class, rule.classes)
			}
		}
	}
}
