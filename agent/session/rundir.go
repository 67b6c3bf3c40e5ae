package session

// The run directory and its lock.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// runDir is the run directory. Below it lie:
//
//	agent.lock             held by the agent, with its pid
//	c/<container>/         one directory a container, with agent.sock
//	containers-<boot>.json the containers and their caps
//	grants                 what each session was granted
//	shares                 who has which shared memory
//	lib/<hash>/libweir.so  the library
type runDir struct {
	path string
	lock *os.File
}

const (
	socketName = "agent.sock"
	// socketPathMax is the longest path that a Unix socket can have, its end included.
	socketPathMax = 108
	// lockPatience covers the moment in which a killed agent still holds what it had open.
	lockPatience = 500 * time.Millisecond
)

// openRunDir makes the run directory where it is missing, checks that nobody else can write to it,
// and takes its lock.
func openRunDir(path string) (*runDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	if err := checkText(path, "--run-dir"); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	r := &runDir{path: path}
	if length := len(r.socket(strings.Repeat("0", 12))) + len(".new"); length >= socketPathMax {
		return nil, fmt.Errorf("run directory %s: its sockets' paths would be %d bytes long, "+
			"and %d is the most; choose a shorter --run-dir", path, length, socketPathMax-1)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	// Other users' programs must pass through a system-wide agent's directories, and no further.
	open, pass := fs.FileMode(0o700), fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		open, pass = 0o755, 0o711
	}
	for _, d := range []struct {
		path string
		mode fs.FileMode
	}{{path, open}, {r.containers(), pass}} {
		if err := ownDirectory(d.path, d.mode); err != nil {
			return nil, fmt.Errorf("run directory: %w", err)
		}
	}
	if err := r.takeLock(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *runDir) containers() string         { return filepath.Join(r.path, "c") }
func (r *runDir) grants() string             { return filepath.Join(r.path, "grants") }
func (r *runDir) shares() string             { return filepath.Join(r.path, "shares") }
func (r *runDir) container(id string) string { return filepath.Join(r.containers(), id) }
func (r *runDir) socket(id string) string    { return filepath.Join(r.container(id), socketName) }

func (r *runDir) close() { r.lock.Close() }

// checkText refuses a path that is not UTF-8: specifications of containers, which name what lies below it, are.
func checkText(path, flag string) error {
	if utf8.ValidString(path) {
		return nil
	}
	return fmt.Errorf("%q is not UTF-8, so no container's specification can name it; give another %s", path, flag)
}

// ownDirectory makes a directory, or accepts one that is the agent's own and closed to others.
func ownDirectory(path string, mode fs.FileMode) error {
	err := os.Mkdir(path, mode)
	if err == nil {
		return os.Chmod(path, mode) // whatever the umask
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return fmt.Errorf("%s is a symbolic link; give the directory itself", path)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is not a directory", path)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, not to the agent's user %d; remove it, or give "+
			"another directory", path, st.Uid, os.Geteuid())
	case st.Mode&0o022 != 0:
		return fmt.Errorf("%s can be written by others (mode %04o); chmod go-w it, or give "+
			"another directory", path, st.Mode&0o7777)
	}
	return nil
}

// takeLock makes sure that no other agent serves the directory.
func (r *runDir) takeLock() error {
	path := filepath.Join(r.path, "agent.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Since(begin) > lockPatience {
			holder := make([]byte, 20)
			n, _ := f.ReadAt(holder, 0)
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return fmt.Errorf("another agent (pid %s) serves %s; stop it, or give another "+
					"--run-dir", bytes.TrimSpace(holder[:n]), r.path)
			}
			return fmt.Errorf("locking %s: %w", path, err)
		}
	}
	if err = f.Truncate(0); err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("writing %s: %w", path, err)
	}
	r.lock = f
	return nil
}
