// Package cases has one test for each small sequence that broke a program of this kind in the field,
// as far as this version reaches: R rows are about finding the driver's functions, M rows about
// memory, C rows about containers and injection. Each runs on the whole system: simulated GPU, agent,
// library, `weir run`.
package cases

import (
	"fmt"
	"strings"
	"testing"

	"weir/tests/e2e/node"
)

const (
	mib         = int64(1) << 20
	outOfMemory = 2 // CUDA_ERROR_OUT_OF_MEMORY
)

// both starts the same program under weir without a cap in the way, and without weir.
func both(t *testing.T) (under, bare *node.Puppet) {
	t.Helper()
	n := node.Start(t, node.Options{})
	return n.Puppet(node.RunOptions{Name: "routes", Memory: "64MiB"}), n.BarePuppet()
}

// sameAnswer compares what cuGetProcAddress says under weir with what the driver alone says: code,
// status, and whether there is a pointer.
func sameAnswer(t *testing.T, under, bare *node.Puppet, question string) []string {
	t.Helper()
	got, want := under.OK("look %s", question), bare.OK("look %s", question)
	if got[0] != want[0] || got[1] != want[1] || (got[2] == "-") != (want[2] == "-") {
		t.Errorf("%s: code %s status %s in %s; the driver alone: code %s status %s in %s",
			question, got[0], got[1], got[2], want[0], want[1], want[2])
	}
	return got
}

// R1, R4: what the driver does not have stays missing, before cuInit and after, with a place for the
// status and without.
func TestR4MissingNames(t *testing.T) {
	under, bare := both(t)
	questions := []string{
		"noSuchName 12000 0", "noSuchName 12000 0 null", "cuMemAlloc_v2 12000 0", "cuMemAlloc 1000 0",
		"cuMemAlloc 12000 99", "cuMemGetAttribute 12000 0", "cudbgMain 12000 0", "cuCtxCreate_v3 12000 0",
	}
	for _, question := range questions {
		sameAnswer(t, under, bare, question)
	}
	under.OK("init")
	bare.OK("init")
	for _, question := range questions {
		sameAnswer(t, under, bare, question)
	}
}

// R2, R5: the version and the stream flag choose the function, as with the driver alone.
func TestR2R5VersionAndStreamFlag(t *testing.T) {
	under, bare := both(t)
	for _, name := range []string{
		"cuCtxCreate", "cuMemAlloc", "cuMemFree", "cuMemGetInfo", "cuDeviceTotalMem", "cuMemAllocPitch",
		"cuMemAllocManaged", "cuMemAllocAsync", "cuMemFreeAsync", "cuLaunchKernel", "cuMemcpyHtoD",
		"cuGetProcAddress", "cuDevicePrimaryCtxRelease", "cuInit",
	} {
		for _, version := range []int{1000, 2000, 3020, 4000, 7000, 11020, 11030, 11040, 12000, 12090, 99999} {
			for flags := range 3 {
				sameAnswer(t, under, bare, fmt.Sprintf("%s %d %d", name, version, flags))
			}
		}
	}
	// What allocates is answered with our function.
	if got := under.OK("look cuMemAlloc 12000 0"); !strings.Contains(got[2], "libweir") {
		t.Errorf("cuMemAlloc is answered from %s", got[2])
	}
}

// R3: cuGetProcAddress of itself, by the version of either form; what it gives leads through the cap.
func TestR3ProcAddressOfItself(t *testing.T) {
	under, _ := both(t)
	under.OK("init")
	for _, version := range []int{11030, 11080, 12000, 12040} {
		under.OK("self %d", version)
		under.OK("alloc %d", mib)
		if code := under.Code("alloc %d", 64*mib); code != outOfMemory {
			t.Errorf("past the cap by version %d: code %d", version, code)
		}
		under.OK("free-all")
	}
}

// R7, R8: every route to the driver leads through the cap, and all draw on one count.
func TestR7R8EveryRoute(t *testing.T) {
	n := node.Start(t, node.Options{})
	driver := node.Build(t, "sim/libcuda.so.1")
	p := n.Puppet(node.RunOptions{Name: "routes", Memory: "64MiB"})
	p.OK("init")
	routes := []string{"link", "default", "local", "deepbind", "path " + driver, "procaddress 12000", "procaddress 11030"}
	for i, route := range routes {
		p.OK("via %s", route)
		p.OK("alloc %d", mib)
		if used, _ := n.Use("routes"); used != int64(i+1)*mib {
			t.Errorf("after one more MiB by %q inspect says %d bytes", route, used)
		}
		if code := p.Code("alloc %d", 64*mib); code != outOfMemory {
			t.Errorf("past the cap by %q: code %d", route, code)
		}
	}
	for i := range routes {
		p.OK("via %s", routes[len(routes)-1-i])
		p.OK("free %d", i)
	}
	if used, _ := n.Use("routes"); used != 0 {
		t.Errorf("all is freed by other routes, and inspect says %d bytes", used)
	}
}

// R6: another preloaded library finds the next `open` from its own place, not from ours.
func TestR6AnotherPreloadedLibrary(t *testing.T) {
	n := node.Start(t, node.Options{})
	other := node.Build(t, "e2e/libnext.so")
	run := node.RunOptions{Name: "two", Memory: "64MiB", Env: []string{"LD_PRELOAD=" + other}}
	p := n.Run(run, "/bin/cat", "/proc/self/maps")
	_, maps := p.Wait(patience)
	loaded := strings.Join(maps, "\n")
	if !strings.Contains(loaded, "libnext.so") || !strings.Contains(loaded, "libweir.so") {
		t.Errorf("not both libraries are loaded:\n%s", loaded)
	}
	puppet := n.Puppet(run)
	puppet.OK("init")
	if code := puppet.Code("alloc %d", 65*mib); code != outOfMemory {
		t.Errorf("past the cap beside another library: code %d", code)
	}
}

// R9: a process without the driver is left alone.
func TestR9NoDriver(t *testing.T) {
	n := node.Start(t, node.Options{})
	p := n.Run(node.RunOptions{Name: "none", Memory: "64MiB", Env: []string{"LD_LIBRARY_PATH="}}, "/bin/cat", "/proc/self/maps")
	code, maps := p.Wait(patience)
	loaded := strings.Join(maps, "\n")
	if code != 0 || p.Stderr() != "" || strings.Contains(loaded, "libcuda") || strings.Contains(loaded, "memfd:") {
		t.Errorf("exit %d, stderr %q, maps:\n%s", code, p.Stderr(), loaded)
	}
}

// R11: export tables are the driver's business.
func TestR11ExportTables(t *testing.T) {
	under, bare := both(t)
	for _, p := range []*node.Puppet{under, bare} {
		p.OK("init")
	}
	if got, want := under.OK("table"), bare.OK("table"); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("cuGetExportTable: %v, the driver alone %v", got, want)
	}
}
