package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The system agent's places. An ordinary user's agent has its own, below the user's XDG directories.
const (
	SystemRunDir   = "/run/weir"
	SystemStateDir = "/var/lib/weir"
	systemFile     = "/etc/weir/weir.toml"
)

// SocketName is the control socket's name in a run directory.
const SocketName = "control.sock"

// User is who runs the agent or asks it: the effective uid and the environment.
type User struct {
	UID    int
	Getenv func(string) string
}

// CurrentUser is this process's.
func CurrentUser() User {
	return User{UID: os.Geteuid(), Getenv: os.Getenv}
}

// RunDir is where this user's agent has its sockets: root's in /run/weir, another's in
// $XDG_RUNTIME_DIR/weir or, where there is no such directory, /tmp/weir-UID.
func (u User) RunDir() string {
	if u.UID == 0 {
		return SystemRunDir
	}
	if dir := u.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "weir")
	}
	return fmt.Sprintf("/tmp/weir-%d", u.UID)
}

// StateDir is what this user's agent keeps over a restart of the machine.
func (u User) StateDir() string {
	if u.UID == 0 {
		return SystemStateDir
	}
	return u.xdg("XDG_STATE_HOME", ".local/state", "weir")
}

// File is the configuration that this user's agent reads if it is there and no other is named.
func (u User) File() string {
	if u.UID == 0 {
		return systemFile
	}
	return u.xdg("XDG_CONFIG_HOME", ".config", "weir/weir.toml")
}

func (u User) xdg(variable, belowHome, name string) string {
	if dir := u.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, name)
	}
	if home := u.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, belowHome, name)
	}
	return filepath.Join(fmt.Sprintf("/tmp/weir-%d-home", u.UID), belowHome, name)
}

// FindSocket is where a command finds the agent: in the run directory given; else the user's own
// agent's socket if there is one; else the system's. tried lists the paths in order.
func (u User) FindSocket(runDir string) (socket string, tried []string) {
	if runDir != "" {
		socket = filepath.Join(runDir, SocketName)
		return socket, []string{socket}
	}
	own := filepath.Join(u.RunDir(), SocketName)
	system := filepath.Join(SystemRunDir, SocketName)
	if own == system {
		return system, []string{system}
	}
	if _, err := os.Lstat(own); err == nil {
		return own, []string{own}
	}
	return system, []string{own, system}
}

// MakeDir makes a directory of the agent's, or accepts one that only this user can write. Another
// user's directory, as anyone may leave in /tmp, is refused: sockets and records live there.
func MakeDir(dir string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("making %s: %w", filepath.Dir(dir), err)
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("making %s: %w", dir, err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("looking at %s: %w", dir, err)
	}
	if info.Mode()&os.ModeSymlink != 0 {
		return fmt.Errorf("%s is a symbolic link: name the directory itself", dir)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if owner != os.Geteuid() {
		return fmt.Errorf("%s belongs to uid %d, not to uid %d that starts the agent",
			dir, owner, os.Geteuid())
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s can be written by others: chmod go-w %s", dir, dir)
	}
	return nil
}

func parseDir(text string) (string, error) {
	if !filepath.IsAbs(text) {
		return "", fmt.Errorf("%.70q: want an absolute path, such as \"/var/lib/weir\"", text)
	}
	return filepath.Clean(text), nil
}

// runDirBytesMax leaves room in the 107 bytes of a socket's address for "/c/ID/agent.sock".
const runDirBytesMax = 70

// parseRunDir accepts a path that can stand in LD_PRELOAD, where blanks and colons separate, and
// in the addresses of the sockets below it.
func parseRunDir(text string) (string, error) {
	dir, err := parseDir(text)
	if err != nil {
		return "", err
	}
	if strings.ContainsAny(dir, ": \t\n") {
		return "", fmt.Errorf("%.70q: want a path without blanks and colons, "+
			"which LD_PRELOAD cannot carry", text)
	}
	if len(dir) > runDirBytesMax {
		return "", fmt.Errorf("%.70q…: want a path of at most %d bytes, "+
			"because a socket's address holds no more", text, runDirBytesMax)
	}
	return dir, nil
}
