// objects_test.go: the object reader on whole and damaged objects, under the sanitizers.

package routes

import (
	"debug/elf"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
)

var damagedCopies = flag.Int("copies", 400, "damaged copies of each object that are read")

// Whole and damaged objects, read under the sanitizers. The oddities are those that linkers make: one kind of
// hash table, no exports, no SONAME, several versions of one function, eager and lazy binding.
func TestObjectsReadSafely(t *testing.T) {
	need(t, "gcc")
	if err := buildHost("gcc", "image", "image.c", "-g", "-D_GNU_SOURCE", "-fsanitize=address,undefined",
		"-fno-sanitize-recover=all", "../objects.c", "../preload/slots.c"); err != nil {
		t.Fatal(err)
	}
	objects := []struct {
		name, source string
		flags        []string
		functions    []string // that it defines and exports
	}{
		{"both.so", "plugin.c", []string{"-Wl,--hash-style=both"}, []string{"plugin_run"}},
		{"gnu.so", "plugin.c", []string{"-Wl,--hash-style=gnu,-z,now"}, []string{"plugin_run"}},
		{"sysv.so", "plugin.c", []string{"-Wl,--hash-style=sysv,-soname,sysv.so.1"}, []string{"plugin_run"}},
		{"none.so", "plugin.c", []string{"-Wl,--hash-style=gnu,--version-script=" + hosts + "/none.map"}, nil},
		{"versions.so", "versions.c", []string{"-Wl,--version-script=" + hosts + "/versions.map"}, []string{"choose"}},
	}
	for _, object := range objects {
		t.Run(object.name, func(t *testing.T) {
			flags := append([]string{"-fPIC", "-shared", "-L" + built, "-lcuda"}, object.flags...)
			if err := buildHost("gcc", object.name, object.source, flags...); err != nil {
				t.Fatal(err)
			}
			readDamaged(t, filepath.Join(built, object.name), object.functions)
		})
	}
	t.Run("driver", func(t *testing.T) {
		readDamaged(t, filepath.Join(built, "libcuda.so.1"), []string{"cuInit", "cuMemAlloc_v2", "cuWaitExternalSemaphoresAsync_ptsz"})
	})
	t.Run("weir", func(t *testing.T) {
		readDamaged(t, filepath.Join(built, "libweir.so"), []string{"dlsym", "cuInit"})
	})
}

// readDamaged reads an object and checks what was found against debug/elf.
func readDamaged(t *testing.T, path string, functions []string) {
	t.Helper()
	seed := rand.Uint32()
	t.Logf("seed %d", seed)
	names := append([]string{"no_such_name", "plugin_hidden", "printf", ""}, functions...)
	args := append([]string{path, fmt.Sprint(seed), fmt.Sprint(*damagedCopies)}, names...)
	printed := run(t, host{program: "image", args: args})
	want := map[string]string{"no_such_name": "0", "plugin_hidden": "0", "printf": "0", "": "0"}
	for name, address := range addresses(t, path, functions) {
		want[name] = fmt.Sprintf("%#x", address)
	}
	for name, address := range want {
		if !strings.Contains("\n"+printed, "\n"+name+" "+address+"\n") {
			t.Errorf("%q is not at %s; printed\n%s", name, address, printed)
		}
	}
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	soname, err := file.DynString(elf.DT_SONAME)
	if err != nil {
		t.Fatal(err)
	}
	if soname = append(soname, "none"); !strings.Contains(printed, "\nsoname "+soname[0]+"\n") {
		t.Errorf("SONAME is %s; printed\n%s", soname[0], printed)
	}
	checkReferences(t, file, printed, len(functions) != 0)
	if !strings.HasSuffix(printed, "damaged some\n") {
		t.Errorf("damage was not of the right measure; printed\n%s", printed)
	}
}

// checkReferences checks that all of an object's references lie before the place that was printed, which must
// be known for one that exports something.
func checkReferences(t *testing.T, file *elf.File, printed string, exports bool) {
	t.Helper()
	var end int
	_, text, _ := strings.Cut(printed, "\nreferences ")
	if _, err := fmt.Sscan(text, &end); err != nil {
		t.Fatalf("%v; printed\n%s", err, printed)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for i, symbol := range symbols {
		if symbol.Section == elf.SHN_UNDEF {
			last = i + 1 // the list lacks symbol 0
		}
	}
	if end == 0 && last != 0 && exports && file.Section(".gnu.hash") != nil {
		t.Errorf("where its references end is not known; printed\n%s", printed)
	}
	if end != 0 && last >= end {
		t.Errorf("symbol %d is a reference, not one of the first %d", last, end)
	}
}

// addresses tells where the default versions of functions are.
func addresses(t *testing.T, path string, functions []string) map[string]uint64 {
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
	found := map[string]uint64{}
	for _, name := range functions {
		for _, symbol := range symbols {
			if symbol.Name == name && symbol.Section != elf.SHN_UNDEF && !symbol.VersionIndex.IsHidden() {
				found[name] = symbol.Value
			}
		}
		if found[name] == 0 {
			t.Fatalf("%s does not export %s", path, name)
		}
	}
	return found
}
