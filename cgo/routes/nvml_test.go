// nvml_test.go: every route by which a program reaches NVML's reports.

package routes

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestNVMLRoutes(t *testing.T) {
	for _, route := range []string{"local", "deepbind"} {
		expect(t, run(t, host{program: "nvml", args: []string{route}, preload: library}),
			"memory libweir.so", "code 11", "name libnvidia-ml.so.1", "list null", "calls 1")
	}
	expect(t, run(t, host{program: "nvml_linked", preload: library}), "code 11 11", "calls 2")
	for _, route := range []string{"plugin", "deep_plugin"} {
		args := []string{route, filepath.Join(built, "nvml_plugin.so")}
		expect(t, run(t, host{program: "nvml", args: args, preload: library}), "code 11 11", "calls 2")
	}
	// By ctypes, as Python's bindings do it.
	t.Run("ctypes", func(t *testing.T) {
		need(t, "python3")
		script := `
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
print("code", nvml.nvmlDeviceGetMemoryInfo(None, None), nvml.nvmlDeviceGetMemoryInfo_v2(None, None), nvml.nvmlDeviceGetName())
print("calls", ctypes.CDLL(None).cuTestNvmlCalls(b"nvmlDeviceGetMemoryInfo"))
`
		expect(t, run(t, host{program: "/usr/bin/env", args: []string{"python3", "-c", script}, preload: library}),
			"code 11 12 13", "calls 1")
	})
}

// What a program would not find without the library it does not find with it.
func TestNVMLDefaultScope(t *testing.T) {
	bare := run(t, host{program: "nvml", args: []string{"default"}})
	with := run(t, host{program: "nvml", args: []string{"default"}, preload: library})
	expect(t, bare, "weak null", "before null", "local null", "global libnvidia-ml.so.1")
	expect(t, with, "weak null", "before null", "local null", "global libweir.so")
	expect(t, run(t, host{program: "nvml", args: []string{"default"}, preload: []string{"libweir.so", "libnvidia-ml.so.1"}}),
		"weak there", "before libweir.so", "local libweir.so", "global libweir.so")
}

// Rows are sorted, and every function that NVML 535 has for memory or processes in it has one.
func TestNVMLRows(t *testing.T) {
	text, err := os.ReadFile("../nvml.def")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^NVML_(?:HOOK|USE)\((\w+)\)$`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, match[1])
	}
	if !slices.IsSorted(names) {
		t.Error("nvml.def is not sorted")
	}
	reports := regexp.MustCompile(`MemoryInfo(_v\d+)?$|RunningProcess`)
	exports := table(t, "nvml-535-exports.tsv")
	if len(exports) < 300 {
		t.Errorf("%d exports", len(exports))
	}
	for _, row := range exports {
		if reports.MatchString(row[0]) && !strings.Contains(row[0], "Vgpu") && !slices.Contains(names, row[0]) {
			t.Errorf("%s tells about memory and has no row in nvml.def", row[0])
		}
	}
}
