// Package lib is libweir.so as the Go binary carries it: from there it is installed.
//
// It is a package of its own so that who embeds the library need not compile its C files, which the
// package above compiles for its tests.
package lib

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

// Version is the library's: WEIR_VERSION of version.h, which a test compares.
const Version = "0.1.0"

// This folder holds libweir.so once it is built; the make target build sees to that. It always holds
// a README, so that the package compiles before.
//
//go:embed [Rl]*
var built embed.FS

// ErrNotBuilt is returned by [Library] where this binary was compiled before the library was.
var ErrNotBuilt = errors.New(
	"libweir.so is not built into this binary: build it with `make build`, which builds the library first")

// Library returns the contents of libweir.so. It returns ErrNotBuilt where there is none.
func Library() ([]byte, error) {
	contents, err := built.ReadFile("libweir.so")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotBuilt
	}
	if err != nil {
		return nil, fmt.Errorf("reading embedded libweir.so: %w", err)
	}
	return contents, nil
}
