// routes_test.go: every route by which a program reaches the driver, alone and beside others.

package routes

import (
	"path/filepath"
	"strings"
	"testing"
)

// What the program routes prints when its lookup has reached the wrapper.
var reached = []string{
	"errno 77", "cuInit libweir.so", "code 0", "cuEventRecord libcuda.so.1", "cuNoSuchName null", "dlerror set", "calls 1",
}

// Each route by which a program finds the driver leads to the wrapper, and what is not hooked to the driver.
func TestR7EveryRoute(t *testing.T) {
	absolute := filepath.Join(built, "libcuda.so.1")
	for _, route := range [][]string{{"local"}, {"deepbind"}, {"dlvsym"}, {"path", absolute}} {
		t.Run(route[0], func(t *testing.T) {
			expect(t, run(t, host{program: "routes", args: route, preload: library}), reached...)
		})
	}
	for _, program := range []string{"linked", "linked_lazy"} {
		t.Run(program, func(t *testing.T) {
			expect(t, run(t, host{program: program, preload: library}),
				"code 0 0 0", "pointer 1", "calls 1 1 0", "default libweir.so", "next libweir.so")
		})
	}
	t.Run("ctypes", func(t *testing.T) {
		need(t, "python3")
		script := `
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
print("code", driver.cuInit(0))
print("calls", ctypes.CDLL(None).cuTestCalls(b"cuInit"))
`
		expect(t, run(t, host{program: "/usr/bin/env", args: []string{"python3", "-c", script}, preload: library}),
			"code 0", "calls 1")
	})
}

// Objects that look in their own dependencies first are bound after they were loaded, whether the loader
// binds them at once or at the first call.
func TestDeepbindPlugin(t *testing.T) {
	for _, test := range []struct{ plugin, mode string }{
		{"plugin_now.so", "deep"}, {"plugin_now.so", "deep,lazy"},
		{"plugin_lazy.so", "deep"}, {"plugin_lazy.so", "deep,lazy"},
		{"plugin_now.so", "plain"}, {"plugin_lazy.so", "plain,lazy"},
	} {
		t.Run(test.plugin+","+test.mode, func(t *testing.T) {
			args := []string{"plugin", filepath.Join(built, test.plugin), test.mode}
			expect(t, run(t, host{program: "routes", args: args, preload: library}),
				"dlerror null", "code 0", "table libweir.so", "launch libcuda.so.1", "dlsym libweir.so",
				"code 0", "calls 3")
		})
	}
}

// The pages that had to be written are read-only again.
func TestDeepbindPagesReadOnly(t *testing.T) {
	args := []string{"readonly", filepath.Join(built, "plugin_now.so")}
	expect(t, run(t, host{program: "routes", args: args, preload: library}), "cuInit libweir.so", "writable 0")
}

func TestOwnDlsym(t *testing.T) {
	expect(t, run(t, host{program: "routes", args: []string{"own"}, preload: library}),
		"dlsym libweir.so", "cuInit libweir.so")
}

// A name that the program would not find without the library it does not find with it.
func TestDefaultScope(t *testing.T) {
	bare := run(t, host{program: "routes", args: []string{"default"}})
	with := run(t, host{program: "routes", args: []string{"default"}, preload: library})
	if want := strings.ReplaceAll(bare, "libcuda.so.1", "libweir.so"); with != want {
		t.Errorf("with the library:\n%s\nwithout:\n%s", with, bare)
	}
	if !strings.Contains(bare, "before null\ndlerror set") || !strings.Contains(bare, "global libcuda.so.1") {
		t.Errorf("the program did not test what it should:\n%s", bare)
	}
}

// The driver is unloaded and loaded again: what was known of the first one is not used.
func TestDriverReloaded(t *testing.T) {
	expect(t, run(t, host{program: "routes", args: []string{"reload"}, preload: library}),
		"cuInit libweir.so", "gone null", "cuInit libweir.so", "gone null", "cuInit libweir.so", "gone null",
		"code 0", "calls 3")
}

// A plugin is found by the RUNPATH of the object that loads it, and the driver by the scope of the one
// that asks.
func TestCallerStaysTheCaller(t *testing.T) {
	args := []string{filepath.Join(built, "loader.so")}
	bare := run(t, host{program: "loader_host", args: args})
	if !strings.HasPrefix(bare, "default libcuda.so.1\nown null\nplain loaded\ndeep loaded\n") {
		t.Fatalf("without the library:\n%s", bare)
	}
	expect(t, run(t, host{program: "loader_host", args: args, preload: library}),
		"default libweir.so", "own null", "plain loaded", "deep loaded",
		"code 0", "table libweir.so", "launch libcuda.so.1", "dlsym libweir.so", "code 0", "calls 3")
}

// Weak references that the program asks for a driver.
func TestWeakReferences(t *testing.T) {
	absent := []string{"cuInit null", "cuMemAlloc null", "dlvsym there there", "cuInit_from null", "code -1"}
	for _, program := range []string{"weak", "weak_exports"} {
		expect(t, run(t, host{program: program, preload: library}), absent...)
	}
	expect(t, run(t, host{program: "weak", preload: []string{"libweir.so", "libcuda.so.1"}}),
		"cuInit there", "cuMemAlloc there", "dlvsym there there", "cuInit_from libweir.so", "code 0")
}

// Functions of the driver's names in a library that is not the driver work as without this library.
func TestStandIn(t *testing.T) {
	expect(t, run(t, host{program: "linked_standin", preload: library}),
		"code 42 43 44", "pointer 1", "calls 1 1 0", "default libstandin.so", "next libstandin.so")
	expect(t, run(t, host{program: "weak_standin", preload: library}), "cuInit there", "cuMemAlloc there",
		"dlvsym there there", "cuInit_from libstandin.so", "code 42")
}

// WEIR_DRIVER names the driver by SONAME or path; a name that is not loaded changes nothing.
func TestDriverOverride(t *testing.T) {
	other := t.TempDir()
	if err := buildDriver(other, ""); err != nil {
		t.Fatal(err)
	}
	other = filepath.Join(other, "libcuda.so.1")
	first := filepath.Join(built, "libcuda.so.1")
	both := []string{"libweir.so", "libcuda.so.1"}
	for _, test := range []struct {
		name, override, opened string
		preload                []string
		want                   string
	}{
		{"first loaded", "", other, both, "cuInit libcuda.so.1"},
		{"path", other, other, both, "cuInit libweir.so"},
		{"path through a link", filepath.Join(filepath.Dir(other), "libcuda.so"), other, both, "cuInit libweir.so"},
		{"not loaded", "/nowhere/libcuda.so.1", first, library, "cuInit libweir.so"},
		{"no driver", "libc.so.6", first, library, "cuInit libweir.so"},
		{"soname", "libcuda.so.1", first, library, "cuInit libweir.so"},
	} {
		t.Run(test.name, func(t *testing.T) {
			printed := run(t, host{program: "routes", args: []string{"path", test.opened},
				preload: test.preload, env: []string{"WEIR_DRIVER=" + test.override}})
			if !strings.HasPrefix(printed, "errno 77\n"+test.want+"\n") {
				t.Errorf("printed\n%swant first %s", printed, test.want)
			}
		})
	}
}

// Children by fork, vfork and exec find the driver as their parent does.
func TestChildren(t *testing.T) {
	expect(t, run(t, host{program: "children", preload: library}),
		"parent libweir.so 0 1", "forked libweir.so 0 2", "ended 0", "executed libweir.so 0 1", "ended 0",
		"parent libweir.so 0 2")
}

// Other preloaded libraries that stand in front of dlsym or of the functions it uses, in both orders.
func TestBesideOtherLibraries(t *testing.T) {
	for _, other := range []string{
		"/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
		"/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
	} {
		for _, preload := range [][]string{{"libweir.so", other}, {other, "libweir.so"}} {
			t.Run(filepath.Base(preload[0])+","+filepath.Base(preload[1]), func(t *testing.T) {
				need(t, other)
				expect(t, run(t, host{program: "routes", args: []string{"local"}, preload: preload}), reached...)
			})
		}
	}
}

// Lookups from inside an allocation, before the program is started.
func TestLookupsDoNotAllocate(t *testing.T) {
	for _, preload := range [][]string{{"libweir.so", "liballocator.so"}, {"liballocator.so", "libweir.so"}} {
		expect(t, run(t, host{program: "routes", args: []string{"local"}, preload: preload}), reached...)
	}
}

// A program of another C library.
func TestMusl(t *testing.T) {
	need(t, "musl-gcc")
	for _, plan := range []struct {
		output, source string
		flags          []string
	}{
		{"musl_routes", "routes.c", nil}, {"musl_idle", "idle.c", nil},
		{"musl_linked", "linked.c", []string{"-L" + built, "-lcuda"}}, {"musl_weak", "weak.c", nil},
	} {
		if err := buildHost("musl-gcc", plan.output, plan.source, plan.flags...); err != nil {
			t.Fatal(err)
		}
	}
	for _, route := range []string{"local", "deepbind", "dlvsym"} {
		expect(t, run(t, host{program: "musl_routes", args: []string{route}, preload: library}), reached...)
	}
	expect(t, run(t, host{program: "musl_linked", preload: library}),
		"code 0 0 0", "pointer 1", "calls 1 1 0", "default libweir.so", "next libweir.so")
	expect(t, run(t, host{program: "musl_weak", preload: library}),
		"cuInit null", "cuMemAlloc null", "dlvsym null null", "cuInit_from null", "code -1")
	idle := host{program: "musl_idle"}
	bare := run(t, idle)
	idle.preload = library
	expect(t, run(t, idle), strings.Split(strings.TrimSpace(bare), "\n")...)
}

// A program without any C library.
func TestBare(t *testing.T) {
	expect(t, run(t, host{program: "bare", preload: library}), "")
}

// Threads that find the driver at once, under the thread sanitizer.
func TestThreads(t *testing.T) {
	onlyOn(t, "amd64")
	need(t, "setarch")
	flags := []string{"-fsanitize=thread", "-g", "-D_GNU_SOURCE", "-Wno-tsan", "-Wno-unused-parameter", "-pthread", "../callas_amd64.S"}
	for _, source := range routeSources {
		flags = append(flags, "../"+source)
	}
	if err := buildHost("gcc", "threads", "threads.c", flags...); err != nil {
		t.Fatal(err)
	}
	args := []string{"-R", filepath.Join(built, "threads")}
	expect(t, run(t, host{program: "/usr/bin/setarch", args: args}), "wrong 0")
}
