// embed_test.go: what the rest of weir gets of the library.

package lib

import (
	"bytes"
	"debug/elf"
	"errors"
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
