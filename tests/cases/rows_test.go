package cases

// The rows that weir promises to hold, each by tests that are named after it: TestM5…, TestR2R5….

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"weir/tests/e2e/node"
)

// rowNames are the rows about finding the driver's functions (R), memory (M), devices (D), containers
// and output (C), launches and time (T), managed memory in place of plain memory (U).
var rowNames = []string{
	"R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "R11",
	"M1", "M2", "M3", "M4", "M5", "M6", "M7", "M8", "M9", "M10", "M11", "M12", "M13", "M14", "M15", "M16", "M17",
	"D1", "D2", "D3", "C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C11", "C12",
	"T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "T9", "T10", "T11",
	"U1", "U2", "U3", "U4", "U5", "U6", "U7", "U8",
}

func TestEveryRowHasATest(t *testing.T) {
	functions := regexp.MustCompile(`(?m)^func Test((?:[RMDCTU][0-9]+)+)[A-Z]`)
	rows := regexp.MustCompile(`[RMDCTU][0-9]+`)
	found := map[string]bool{}
	for _, folder := range []string{"tests/cases", "cgo/routes"} {
		files, err := filepath.Glob(filepath.Join(node.Root(t), folder, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no tests: %v", folder, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, function := range functions.FindAllStringSubmatch(string(text), -1) {
				for _, row := range rows.FindAllString(function[1], -1) {
					found[row] = true
				}
			}
		}
	}
	for _, row := range rowNames {
		if !found[row] {
			t.Errorf("row %s has no test named after it", row)
		}
	}
}
