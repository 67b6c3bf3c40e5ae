// main_test.go: builds the host programs, the test driver and the test library, and runs them.

package routes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// routeSources are the C files of the package that make up the routes, and the wrappers of these tests in
// place of the library's.
var routeSources = []string{
	"objects.c", "driver.c", "nvml.c", "host.c", "callas.c", "procaddr.c",
	"routes/testdata/hosts/wrappers.c",
}

const hosts = "testdata/hosts"

// hostFlags are for all host programs and libraries.
var hostFlags = []string{"-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I..", "-I" + hosts}

// built is the folder with what the tests run; TestMain fills it.
var built string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weir-routes-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = dir
	if err := buildAll(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// buildAll builds the test library, the test driver and the host programs.
func buildAll() error {
	if err := linkLibrary(built, routeSources...); err != nil {
		return err
	}
	if err := buildDriver(built, ""); err != nil {
		return err
	}
	if err := buildNVML(); err != nil {
		return err
	}
	driver := []string{"-L" + built, "-lcuda"}
	nvml := []string{"-L" + built, "-l:libnvidia-ml.so.1"}
	shared := []string{"-fPIC", "-shared"}
	hidden := filepath.Join(built, "hidden")
	if err := os.Mkdir(hidden, 0o755); err != nil {
		return err
	}
	plans := []struct {
		output, source string
		flags          []string
	}{
		{"routes", "routes.c", nil},
		{"linked", "linked.c", driver},
		{"linked_lazy", "linked.c", append([]string{"-no-pie", "-Wl,-z,lazy"}, driver...)},
		{"weak", "weak.c", nil},
		{"weak_exports", "weak.c", []string{"-rdynamic"}},
		{"procaddr", "procaddr.c", nil},
		{"children", "children.c", nil},
		{"idle", "idle.c", nil},
		{"table", "table.c", driver},
		{"next_host", "next_host.c", nil},
		{"loader_host", "loader_host.c", nil},
		{"starts", "starts.c", []string{"-O2"}},
		{"costs", "costs.c", []string{"-O2"}},
		{"bare", "bare.c", []string{"-nostdlib", "-fPIE", "-pie"}},
		{"nvml", "nvml.c", nil},
		{"nvml_linked", "nvml_plugin.c", nvml},
		{"nvml_plugin.so", "nvml_plugin.c", append(append([]string{"-Wl,-z,now,-z,relro"}, shared...), nvml...)},
		{"libnext.so", "next.c", shared},
		{"liballocator.so", "allocator.c", shared},
		{"libstandin.so", "standin.c", shared},
		{"linked_standin", "linked.c", []string{"-L" + built, "-lstandin"}},
		{"weak_standin", "weak.c", []string{"-Wl,--no-as-needed", "-L" + built, "-lstandin"}},
		{"plugin_now.so", "plugin.c", append(append([]string{"-Wl,-z,now,-z,relro"}, shared...), driver...)},
		{"plugin_lazy.so", "plugin.c", append(append([]string{"-Wl,-z,lazy"}, shared...), driver...)},
		{"hidden/plugin_hidden.so", "plugin.c", append(append([]string{"-Wl,-z,now"}, shared...), driver...)},
		{"loader.so", "loader.c", append(append([]string{
			"-Wl,--enable-new-dtags,-rpath,$ORIGIN/hidden", "-Wl,--no-as-needed"}, shared...), driver...)},
	}
	for _, plan := range plans {
		if err := buildHost("gcc", plan.output, plan.source, plan.flags...); err != nil {
			return err
		}
	}
	return nil
}

// linkLibrary links libweir.so into dir: the real one, or with the given C files in place of the
// package's.
func linkLibrary(dir string, sources ...string) error {
	args := append([]string{"run", "weir/cgo/link", "-o", filepath.Join(dir, "libweir.so")}, sources...)
	return command("go", args...)
}

// buildDriver builds the test driver into dir, with or without one of its exports.
func buildDriver(dir, lacks string) error {
	output := filepath.Join(dir, "libcuda.so.1")
	args := append([]string{"-fPIC", "-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1",
		"-Wl,-Bsymbolic", "-Wno-builtin-declaration-mismatch", "-o", output,
		hosts + "/driver.c", hosts + "/driver_names.S", "-lgcc"}, hostFlags...)
	if lacks != "" {
		script := filepath.Join(dir, "lacks.map")
		if err := os.WriteFile(script, []byte("{ local: "+lacks+"; };\n"), 0o644); err != nil {
			return err
		}
		args = append(args, `-DLACKS="`+lacks+`"`, "-Wl,--version-script="+script)
	}
	if err := command("gcc", args...); err != nil {
		return err
	}
	link := filepath.Join(dir, "libcuda.so")
	if err := os.Symlink("libcuda.so.1", link); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// buildNVML builds the stand-in for NVML.
func buildNVML() error {
	return buildHost("gcc", "libnvidia-ml.so.1", "nvml_library.c", "-fPIC", "-shared", "-Wl,-soname,libnvidia-ml.so.1")
}

// buildHost builds one file of testdata/hosts with the given compiler.
func buildHost(compiler, output, source string, flags ...string) error {
	args := append([]string{"-o", filepath.Join(built, output), filepath.Join(hosts, source)}, hostFlags...)
	return command(compiler, append(args, flags...)...)
}

func command(name string, args ...string) error {
	printed, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running %s %s: %w\n%s", name, strings.Join(args, " "), err, printed)
	}
	return nil
}

// a host is one run of a host program.
type host struct {
	program string   // of the folder built, or an absolute path
	args    []string // its arguments
	preload []string // libraries of the folder built, or absolute paths, in order
	path    string   // where the driver is found; built where empty
	env     []string // NAME=VALUE beside the usual
}

// library is the preload of most tests.
var library = []string{"libweir.so"}

// run runs a host program and returns what it printed. It fails the test where the program does not end
// with 0 within a time that no working program needs.
func run(t testing.TB, h host) string {
	t.Helper()
	printed, err := try(h)
	if err != nil {
		t.Fatalf("%s %v with preload %v: %v\n%s", h.program, h.args, h.preload, err, printed)
	}
	return printed
}

func try(h host) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, inBuilt(h.program), h.args...)
	if h.path == "" {
		h.path = built
	}
	var preload []string
	for _, library := range h.preload {
		preload = append(preload, inBuilt(library))
	}
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+h.path, "LD_PRELOAD="+strings.Join(preload, ":"))
	cmd.Env = append(cmd.Env, h.env...)
	printed, err := cmd.CombinedOutput()
	return string(printed), err
}

func inBuilt(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(built, name)
}

// expect fails the test where the lines that a program printed are not the wanted ones.
func expect(t *testing.T, printed string, want ...string) {
	t.Helper()
	got := strings.Split(strings.TrimRight(printed, "\n"), "\n")
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("printed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// need skips the test where a program or file is not there.
func need(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if strings.Contains(name, "/") {
			if _, err := os.Stat(name); err != nil {
				t.Skipf("needs %s", name)
			}
		} else if _, err := exec.LookPath(name); err != nil {
			t.Skipf("needs %s", name)
		}
	}
}

// onlyOn skips the test on other machines.
func onlyOn(t *testing.T, arch string) {
	t.Helper()
	if runtime.GOARCH != arch {
		t.Skipf("for %s only", arch)
	}
}
