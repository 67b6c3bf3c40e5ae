// Where machines are kept: one directory each, by the user and the environment.

package sim

// #include "machine.h"
import "C"

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// SystemDir is where the simulated driver looks for a machine if WEIR_SIM names no directory.
const SystemDir = C.SIM_DIRECTORY

// Dir is the directory of this user's machine: $WEIR_SIM; else for root SystemDir, and for another
// $XDG_RUNTIME_DIR/weir-sim or, without that variable, /tmp/weir-sim-UID.
func Dir() string {
	return dirOf(os.Geteuid(), os.Getenv)
}

func dirOf(uid int, getenv func(string) string) string {
	if dir := getenv("WEIR_SIM"); dir != "" {
		return dir
	}
	if uid == 0 {
		return SystemDir
	}
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "weir-sim")
	}
	return fmt.Sprintf("/tmp/weir-sim-%d", uid)
}

// makeDir makes a machine's directory for a user. One that is there must be the user's or root's:
// in /tmp anybody could have made it, to put machines of his own there. A link counts as its
// owner's. Root may use anybody's.
func makeDir(dir string, uid int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the machine's directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("looking at the machine's directory: %w", err)
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if uid != 0 && owner != 0 && owner != uid {
		return fmt.Errorf("%s belongs to user %d: %w", dir, owner, fs.ErrPermission)
	}
	return nil
}
