// embed_test.go: what the rest of weir gets of the library.

package library

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"regexp"
	"slices"
	"testing"
)

func TestLibraryIsBuiltIn(t *testing.T) {
	contents, err := Library()
	if errors.Is(err, ErrNotBuilt) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	file, err := elf.NewFile(bytes.NewReader(contents))
	if err != nil {
		t.Fatal(err)
	}
	if names, err := file.DynString(elf.DT_SONAME); err != nil || !slices.Equal(names, []string{"libweir.so"}) {
		t.Errorf("what is built in has the names %v (%v)", names, err)
	}
}

func TestVersionIsTheChangelogs(t *testing.T) {
	changelog, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## \[(\d[^]]*)\]`).FindSubmatch(changelog)
	if newest == nil || string(newest[1]) != Version {
		t.Errorf("version.h says %s, CHANGELOG.md %s", Version, newest)
	}
}
