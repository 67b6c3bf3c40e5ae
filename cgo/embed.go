// embed.go: the built library inside the Go binary, from where it is installed.

package library

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

// The folder lib holds libweir.so once it is built; the make target build sees to that. It always holds
// a README, so that the package compiles before.
//
//go:embed all:lib
var built embed.FS

// ErrNotBuilt is returned by [Library] where this binary was compiled before the library was.
var ErrNotBuilt = errors.New(
	"libweir.so is not built into this binary: build it with `make build`, which builds the library first")

// Library returns the contents of libweir.so. It returns ErrNotBuilt where there is none.
func Library() ([]byte, error) {
	contents, err := built.ReadFile("lib/libweir.so")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotBuilt
	}
	if err != nil {
		return nil, fmt.Errorf("reading embedded libweir.so: %w", err)
	}
	return contents, nil
}
