// image_test.go: what the linked library imports, exports and holds, here and on the other machine.

package routes

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

var realOnce = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(built, "real")
	return dir, linkLibrary(dir)
})

// realLibrary links libweir.so as users get it and returns the folder that it is in.
func realLibrary(t testing.TB) string {
	t.Helper()
	dir, err := realOnce()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// What the library imports, exports and needs: the rules that let one file load into every process.
func TestImage(t *testing.T) {
	checkImage(t, filepath.Join(realLibrary(t), "libweir.so"))
}

func checkImage(t *testing.T, path string) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var imports, exports []string
	for _, symbol := range symbols {
		if elf.ST_BIND(symbol.Info) == elf.STB_LOCAL {
			continue // of a section; some linkers list them
		}
		if symbol.Section == elf.SHN_UNDEF {
			imports = append(imports, symbol.Name)
			if elf.ST_BIND(symbol.Info) != elf.STB_WEAK {
				t.Errorf("%s is imported, and not weak: a process without it would not start", symbol.Name)
			}
			continue
		}
		exports = append(exports, symbol.Name)
		if elf.ST_TYPE(symbol.Info) != elf.STT_FUNC {
			t.Errorf("%s is exported and no function", symbol.Name)
		}
		if symbol.Version != "" {
			t.Errorf("%s is exported with version %s: lookups of another one would pass it by", symbol.Name, symbol.Version)
		}
	}
	slices.Sort(imports)
	if want := []string{"dl_iterate_phdr", "environ"}; !slices.Equal(imports, want) {
		t.Errorf("imports %v, want %v", imports, want)
	}
	want := append([]string{"dlopen", "dlsym", "dlvsym"}, nvmlHooks(t)...)
	for _, row := range rows(t) {
		if row.Kind == "HOOK" {
			want = append(want, row.Export)
		}
	}
	slices.Sort(want)
	slices.Sort(exports)
	if !slices.Equal(exports, want) {
		t.Errorf("exports %v, want %v", exports, want)
	}
	if needed, err := file.ImportedLibraries(); err != nil || len(needed) != 0 {
		t.Errorf("needs %v (%v), want nothing", needed, err)
	}
	checkSegments(t, file)
}

// nvmlHooks returns NVML's functions that the library stands in front of.
func nvmlHooks(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../nvml.def")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile(`(?m)^NVML_HOOK\((\w+)\)$`).FindAllSubmatch(text, -1) {
		names = append(names, string(row[1]))
	}
	return names
}

func checkSegments(t *testing.T, file *elf.File) {
	t.Helper()
	relro := false
	for _, program := range file.Progs {
		switch {
		case program.Type == elf.PT_GNU_RELRO:
			relro = true
		case program.Type == elf.PT_TLS && (program.Memsz != 8 || program.Filesz != 0):
			t.Errorf("has %d bytes of thread-local storage: there is room for one pointer (docs/decisions/0013)", program.Memsz)
		case program.Type == elf.PT_GNU_STACK && program.Flags&elf.PF_X != 0:
			t.Error("asks for an executable stack")
		case program.Type == elf.PT_LOAD && program.Flags&(elf.PF_W|elf.PF_X) == elf.PF_W|elf.PF_X:
			t.Error("has a segment that is writable and executable")
		}
	}
	flags, err := file.DynValue(elf.DT_FLAGS)
	if err != nil || len(flags) != 1 || elf.DynFlag(flags[0])&elf.DF_BIND_NOW == 0 || !relro {
		t.Errorf("is not bound at once with its tables read-only from then on (%v)", err)
	}
	if section := file.Section(".data"); section != nil && section.Size != 0 {
		t.Errorf("has %d bytes of initialised data: a page that each process would have to copy", section.Size)
	}
	for _, name := range []string{".gnu.version", ".gnu.version_r", ".gnu.version_d"} {
		if file.Section(name) != nil {
			t.Errorf("has %s: no symbol of it may have a version", name)
		}
	}
	for _, name := range []string{".gnu.hash", ".hash"} {
		if file.Section(name) == nil {
			t.Errorf("has no %s: some loaders need it", name)
		}
	}
	if section := file.Section(".init_array"); section == nil || section.Size != 8 {
		t.Error("has another number of constructors than one")
	}
	if textrel, err := file.DynValue(elf.DT_TEXTREL); err != nil || len(textrel) != 0 {
		t.Errorf("has text relocations (%v)", err)
	}
}

// Another compiler makes other calls of its own out of the same sources; the library has to have them all.
func TestClang(t *testing.T) {
	need(t, "clang")
	t.Setenv("CC", "clang")
	dir := t.TempDir()
	if err := linkLibrary(dir); err != nil {
		t.Fatal(err)
	}
	checkImage(t, filepath.Join(dir, "libweir.so"))
	if err := linkLibrary(dir, routeSources...); err != nil {
		t.Fatal(err)
	}
	h := host{program: "routes", args: []string{"local"}, preload: []string{filepath.Join(dir, "libweir.so")}}
	expect(t, run(t, h), reached...)
}

// The same sources in another folder give the same bytes.
func TestSameBytesElsewhere(t *testing.T) {
	here := filepath.Join(realLibrary(t), "libweir.so")
	elsewhere := t.TempDir()
	if err := os.CopyFS(filepath.Join(elsewhere, "cgo"), os.DirFS("..")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(elsewhere, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "run", "./cgo/link", "-o", "elsewhere.so")
	cmd.Dir = elsewhere
	if printed, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	first, err := os.ReadFile(here)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(filepath.Join(elsewhere, "elsewhere.so"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Errorf("%d and %d bytes that differ", len(first), len(second))
	}
}

// The other machine: the library links, and where it can be run it finds its way.
func TestR10Arm64(t *testing.T) {
	onlyOn(t, "amd64")
	const cc = "aarch64-linux-gnu-gcc"
	need(t, cc)
	dir := t.TempDir()
	cross := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "GOARCH=arm64", "CC="+cc, "CGO_ENABLED=1")
		if printed, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, printed)
		}
	}
	tool := filepath.Join(dir, "link")
	if err := command("go", "build", "-o", tool, "weir/cgo/link"); err != nil {
		t.Fatal(err)
	}
	cross(tool, "-o", filepath.Join(dir, "real", "libweir.so"))
	checkImage(t, filepath.Join(dir, "real", "libweir.so"))
	if t.Failed() {
		return
	}
	need(t, "qemu-aarch64-static", "/usr/aarch64-linux-gnu/lib/libc.so.6")
	cross(tool, append([]string{"-o", filepath.Join(dir, "libweir.so")}, routeSources...)...)
	hostArgs := func(output string, args ...string) []string {
		return append(append([]string{"-o", filepath.Join(dir, output)}, args...), hostFlags...)
	}
	cross(cc, hostArgs("libcuda.so.1", "-fPIC", "-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic",
		hosts+"/driver.c", hosts+"/driver_names.S", "-lgcc")...)
	if err := os.Symlink("libcuda.so.1", filepath.Join(dir, "libcuda.so")); err != nil {
		t.Fatal(err)
	}
	cross(cc, hostArgs("routes", hosts+"/routes.c")...)
	cross(cc, hostArgs("plugin_now.so", hosts+"/plugin.c", "-fPIC", "-shared", "-L"+dir, "-lcuda")...)
	emulate := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("qemu-aarch64-static", append([]string{"-L", "/usr/aarch64-linux-gnu",
			"-E", "LD_PRELOAD=" + filepath.Join(dir, "libweir.so"), "-E", "LD_LIBRARY_PATH=" + dir,
			filepath.Join(dir, "routes")}, args...)...)
		printed, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("routes %v: %v\n%s", args, err, printed)
		}
		return string(printed)
	}
	for _, route := range []string{"local", "deepbind"} {
		expect(t, emulate(route), reached...)
	}
	printed := emulate("plugin", filepath.Join(dir, "plugin_now.so"), "deep")
	if !strings.HasSuffix(printed, "calls 3\n") {
		t.Errorf("plugin: printed\n%s", printed)
	}
}
