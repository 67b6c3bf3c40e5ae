// Where an agent keeps its things and where the other commands look for it: a matter of the user
// and the environment, both passed in.

package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The system agent's places. An ordinary user's agent has its own, in the user's XDG directories.
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

// parseDir accepts an absolute path without blanks and colons, which separate in LD_PRELOAD: the
// library may be loaded from either directory.
func parseDir(text string) (string, error) {
	if !filepath.IsAbs(text) {
		return "", fmt.Errorf("%.70q: want an absolute path, such as %q", text, SystemRunDir)
	}
	if strings.ContainsAny(text, ": \t\n") {
		return "", fmt.Errorf("%.70q: want a path without blanks and colons, "+
			"which LD_PRELOAD cannot carry", text)
	}
	return filepath.Clean(text), nil
}
