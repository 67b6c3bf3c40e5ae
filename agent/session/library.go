package session

// The library on the disk. Invariants: what lies in a directory named by the contents is never written
// over, and is removed only when no container that was given it is left.

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// installLibrary puts the library where programs can load it from, in a directory named by its
// contents, and returns its path. A library that is there is never written over: programs may have
// it mapped. The first of dirs from which programs may be loaded is taken: /run often forbids it.
func installLibrary(dirs []string, content []byte) (string, error) {
	if len(content) == 0 {
		return "", errors.New("this binary has no library in it; build it with make build")
	}
	var dir string
	for _, d := range dirs {
		var fs unix.Statfs_t
		if err := unix.Statfs(d, &fs); err != nil {
			return "", fmt.Errorf("installing the library in %s: %w", d, err)
		}
		if fs.Flags&unix.ST_NOEXEC == 0 {
			dir = d
			break
		}
	}
	if dir == "" {
		return "", fmt.Errorf("%s are mounted noexec, so no program could load the library from "+
			"there; give another --run-dir", strings.Join(dirs, " and "))
	}
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o755
	}
	hash := sha256.Sum256(content)
	path := filepath.Join(dir, "lib", hex.EncodeToString(hash[:8]), "libweir.so")
	for _, d := range []string{filepath.Dir(filepath.Dir(path)), filepath.Dir(path)} {
		if err := ownDirectory(d, mode); err != nil {
			return "", fmt.Errorf("installing the library: %w", err)
		}
	}
	if err := writeOnce(path, content); err != nil {
		return "", fmt.Errorf("installing the library: %w", err)
	}
	return path, nil
}

func writeOnce(path string, content []byte) error {
	if there, err := os.ReadFile(path); err == nil {
		if !bytes.Equal(there, content) {
			return fmt.Errorf("%s is not what its name says; remove it", path)
		}
		return nil
	}
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(temporary, content, 0o644); err != nil {
		return err
	}
	if err := os.Chmod(temporary, 0o555); err != nil { // whatever the umask
		return err
	}
	return os.Rename(temporary, path)
}

// libraryDirName is the name of a library's directory: of its contents.
var libraryDirName = regexp.MustCompile(`^[0-9a-f]{16}$`)

// dropLibraries removes the libraries of earlier agents that no container has any more. Called under mu.
func (n *Node) dropLibraries() error {
	used := map[string]bool{filepath.Dir(n.library): true}
	for _, c := range n.containers {
		used[filepath.Dir(c.spec.Library)] = true
	}
	var failed error
	for _, place := range n.libraryPlaces() {
		entries, err := os.ReadDir(filepath.Join(place, "lib"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
		for _, e := range entries {
			dir := filepath.Join(place, "lib", e.Name())
			if e.IsDir() && libraryDirName.MatchString(e.Name()) && !used[dir] {
				failed = errors.Join(failed, os.RemoveAll(dir))
			}
		}
	}
	if failed != nil {
		return fmt.Errorf("removing what no container has any more of earlier libraries: %w", failed)
	}
	return nil
}

// libraryPlaces are below which directories the library may lie.
func (n *Node) libraryPlaces() []string { return []string{n.run.path, n.opts.StateDir} }
