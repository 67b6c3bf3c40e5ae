// cases_test.go: small sequences that broke programs of this kind in the field, by their row.

package routes

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// hooked holds the exports that have wrappers.
func hooked(t *testing.T) map[string]bool {
	hooked := map[string]bool{}
	for _, row := range rows(t) {
		hooked[row.Export] = row.Kind == "HOOK"
	}
	return hooked
}

// expectAnswers runs the queries against the driver in path with and without the library, and fails where
// code, status or function differ, but for wrappers in place of hooked functions. It returns the answers with the
// library, by query.
func expectAnswers(t *testing.T, path string, queries []string) map[string]string {
	t.Helper()
	h := host{program: "procaddr", args: queries, path: path}
	bare := strings.Split(strings.TrimSpace(run(t, h)), "\n")
	h.preload = library
	with := strings.Split(strings.TrimSpace(run(t, h)), "\n")
	if len(bare) != len(queries) || len(with) != len(queries) {
		t.Fatalf("%d queries, %d and %d answers", len(queries), len(bare), len(with))
	}
	hooked := hooked(t)
	answers := map[string]string{}
	for i, want := range bare {
		head, export, found := strings.Cut(want, " driver/")
		if found && hooked[export] {
			want = head + " weir/" + export
		}
		if with[i] != want {
			t.Errorf("%s: got %q, want %q", queries[i], with[i], want)
		}
		answers[queries[i]] = strings.TrimPrefix(with[i], strings.Replace(queries[i], "EMPTY", "", 1)+" ")
	}
	return answers
}

// An export that the driver lacks is not found by way of the library either, and calling the wrapper that a
// program is linked with returns a code.
func TestR1DriverLacksAName(t *testing.T) {
	for _, lacks := range []string{"cuMemAlloc_v2", "cuMemAllocManaged", "cuMemGetInfo", "cuGetProcAddress_v2"} {
		t.Run(lacks, func(t *testing.T) {
			dir := t.TempDir()
			if err := buildDriver(dir, lacks); err != nil {
				t.Fatal(err)
			}
			asked := strings.TrimSuffix(lacks, "_v2")
			var queries []string
			for _, form := range []string{"v1", "v2", "v2-"} {
				if lacks == "cuGetProcAddress_v2" && form != "v1" {
					continue
				}
				for _, version := range []string{"2000", "3020", "12000"} {
					queries = append(queries, form+":"+asked+":"+version+":0")
				}
			}
			expectAnswers(t, dir, queries)
		})
	}
	dir := t.TempDir()
	if err := buildDriver(dir, "cuMemAlloc_v2"); err != nil {
		t.Fatal(err)
	}
	printed := run(t, host{program: "linked", path: dir, preload: library})
	if !strings.HasPrefix(printed, "code 0 500 0\npointer 0\n") {
		t.Errorf("a wrapper without its function: printed\n%s", printed)
	}
}

// Every name, version and flag that the driver knows: the library gives the export that the driver gives.
func TestR2AskedVersionDecides(t *testing.T) {
	var queries []string
	for _, line := range table(t, "driver-555-getprocaddress.tsv") {
		since, err := strconv.Atoi(line[2])
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range []int{since - 10, since, 12090} {
			queries = append(queries, fmt.Sprintf("v2:%s:%d:%s", line[0], version, line[1]))
		}
	}
	answers := expectAnswers(t, built, queries)
	for query, want := range map[string]string{
		"v2:cuMemAlloc:2000:0":   "0 0 weir/cuMemAlloc",
		"v2:cuMemAlloc:3020:0":   "0 0 weir/cuMemAlloc_v2",
		"v2:cuMemAlloc:12090:0":  "0 0 weir/cuMemAlloc_v2",
		"v2:cuCtxCreate:12090:0": "0 0 weir/cuCtxCreate_v4",
		"v2:cuCtxCreate:11040:0": "0 0 weir/cuCtxCreate_v3",
	} {
		if answers[query] != want {
			t.Errorf("%s: got %q, want %q", query, answers[query], want)
		}
	}
}

func TestR3AsksForItself(t *testing.T) {
	answers := expectAnswers(t, built, []string{
		"v1:cuGetProcAddress:11030:0", "v1:cuGetProcAddress:12000:0",
		"v2:cuGetProcAddress:11030:0", "v2:cuGetProcAddress:12000:0",
		"self1:cuInit:12000:0", "self2:cuInit:12000:0", "self2:noSuchName:12000:0", "self1:noSuchName:12000:0",
	})
	for query, want := range map[string]string{
		"v1:cuGetProcAddress:11030:0": "0 -1 weir/cuGetProcAddress",
		"v1:cuGetProcAddress:12000:0": "0 -1 weir/cuGetProcAddress_v2",
		"v2:cuGetProcAddress:11030:0": "0 0 weir/cuGetProcAddress",
		"v2:cuGetProcAddress:12000:0": "0 0 weir/cuGetProcAddress_v2",
		"self1:cuInit:12000:0":        "0 -1 weir/cuInit",
		"self2:cuInit:12000:0":        "0 0 weir/cuInit",
		"self1:noSuchName:12000:0":    "500 -1 untouched",
		"self2:noSuchName:12000:0":    "0 1 null",
	} {
		if answers[query] != want {
			t.Errorf("%s: got %q, want %q", query, answers[query], want)
		}
	}
}

func TestR4NoSuchName(t *testing.T) {
	answers := expectAnswers(t, built, []string{
		"v2-:noSuchName:12000:0", "v2:noSuchName:12000:0", "v1:noSuchName:12000:0", "v2:EMPTY:0:0",
		"v2:cuMemAlloc:1000:0", "v2:cuMemAlloc:12000:9", "v2:cuMemAlloc_v2:12000:0", "v2-:cuInit:99000:0",
	})
	for query, want := range map[string]string{
		"v2-:noSuchName:12000:0": "0 -1 null",
		"v1:noSuchName:12000:0":  "500 -1 untouched",
		"v2:cuMemAlloc:12000:9":  "1 -1 untouched",
		"v2-:cuInit:99000:0":     "0 -1 weir/cuInit",
	} {
		if answers[query] != want {
			t.Errorf("%s: got %q, want %q", query, answers[query], want)
		}
	}
}

// The per-thread stream flag gives the variant for it, and that is hooked if its row says so.
func TestR5PerThreadStream(t *testing.T) {
	var queries []string
	want := map[string]string{}
	for _, row := range rows(t) {
		if row.Streams == "THREAD" {
			query := fmt.Sprintf("v1:%s:%d:2", row.Asked, row.Since)
			queries = append(queries, query)
			want[query] = "0 -1 driver/" + row.Export
			if row.Kind == "HOOK" {
				want[query] = "0 -1 weir/" + row.Export
			}
		}
	}
	answers := expectAnswers(t, built, queries)
	for query, want := range want {
		if answers[query] != want {
			t.Errorf("%s: got %q, want %q", query, answers[query], want)
		}
	}
	if got := answers["v1:cuMemFreeAsync:11020:2"]; got != "0 -1 weir/cuMemFreeAsync_ptsz" {
		t.Errorf("cuMemFreeAsync per thread: got %q", got)
	}
}

// Another preloaded library's RTLD_NEXT is relative to itself, in both orders.
func TestR6NextOfAnother(t *testing.T) {
	bare := run(t, host{program: "next_host", preload: []string{"libnext.so"}})
	if !strings.HasPrefix(bare, "open works 1\nnext_open libc.so.6\nnext_init null\nnext_init libcuda.so.1\n") {
		t.Fatalf("without the library:\n%s", bare)
	}
	for _, preload := range [][]string{{"libnext.so", "libweir.so"}, {"libweir.so", "libnext.so"}} {
		t.Run(strings.Join(preload, ","), func(t *testing.T) {
			expect(t, run(t, host{program: "next_host", preload: preload}), "open works 1",
				"next_open libc.so.6", "next_init null", "next_init libweir.so", "code 0", "calls 1")
		})
	}
}

// One function reached by three routes is counted as one.
func TestR8OneCount(t *testing.T) {
	printed := run(t, host{program: "routes", args: []string{"three"}, preload: library})
	if !strings.HasSuffix(printed, "get 0\ncode 0\ntotal 3\n") {
		t.Errorf("printed\n%s", printed)
	}
}

// A process that never uses CUDA is as without the library, whether there is a driver or not. With the real
// wrappers.
func TestR9NeverUsesCuda(t *testing.T) {
	real := filepath.Join(realLibrary(t), "libweir.so")
	for _, path := range []string{built, t.TempDir()} {
		h := host{program: "idle", path: path}
		bare := run(t, h)
		if !strings.Contains(bare, "threads 3\n") || !strings.Contains(bare, "drivers 0\nmemfds 0\n") {
			t.Fatalf("without the library:\n%s", bare)
		}
		h.preload = []string{real}
		expect(t, run(t, h), strings.Split(strings.TrimSpace(bare), "\n")...)
	}
	empty := t.TempDir()
	printed, err := try(host{program: "routes", args: []string{"local"}, path: empty, preload: []string{real}})
	if err == nil || !strings.HasPrefix(printed, "failed dlopen: libcuda.so.1: ") {
		t.Errorf("a program that looks for a driver where there is none: %v, printed\n%s", err, printed)
	}
	for _, program := range []string{"/bin/true", "bare"} {
		expect(t, run(t, host{program: program, path: empty, preload: []string{real}}), "")
	}
}

// The export table is the driver's: same function, pointer and contents.
func TestR11ExportTable(t *testing.T) {
	bare := run(t, host{program: "table"})
	expect(t, run(t, host{program: "table", preload: library}), strings.Split(strings.TrimSpace(bare), "\n")...)
	if !strings.Contains(bare, "procaddr libcuda.so.1 0 libcuda.so.1 this is the driver's") {
		t.Errorf("the driver's own:\n%s", bare)
	}
}
