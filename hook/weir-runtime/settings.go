package main

// The settings: a few lines of TOML, all of them strings. They are read with each call, so not by a
// library that costs more than all the rest.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// settingsFile is where the settings are; settingsVariable names another.
const (
	settingsFile     = "/etc/weir/runtime.toml"
	settingsVariable = "WEIR_RUNTIME_CONFIG"
)

// settings are weir-runtime's.
type settings struct {
	Runtime       string // the OCI runtime below: a path, or a name to be found in PATH
	ControlSocket string // the agent's
	File          string // where they were looked for
	none          bool   // File is not there
}

// source says where the settings are from, for the middle of a sentence.
func (s *settings) source() string {
	if s.none {
		return s.File + ", which is not there,"
	}
	return s.File
}

// readSettings gives the settings; of those that are not understood the usual ones, with an error.
func readSettings() (settings, error) {
	path := os.Getenv(settingsVariable)
	if path == "" {
		path = settingsFile
	}
	usual := settings{Runtime: "runc", ControlSocket: "/run/weir/control.sock", File: path}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		usual.none = true
		return usual, nil
	}
	if err != nil {
		return usual, err
	}
	read, err := parseSettings(string(text), usual)
	if err != nil {
		return read, fmt.Errorf("%s:%w", path, err)
	}
	return read, nil
}

// parseSettings reads lines of key = "value"; blank lines and those that begin with # say nothing. What is
// understood before a mistake counts.
func parseSettings(text string, usual settings) (settings, error) {
	read := usual
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, found := strings.Cut(line, "=")
		key = strings.TrimSpace(key)
		value, err := unquote(strings.TrimSpace(value))
		switch {
		case !found || err != nil:
			return read, fmt.Errorf(`%d: want KEY = "VALUE" on one line`, number)
		case key == "runtime":
			if value == "" || strings.Contains(value, "/") && !filepath.IsAbs(value) {
				return read, fmt.Errorf("%d: runtime: %q: want an absolute path, or a name to be found in PATH", number, value)
			}
			read.Runtime = value
		case key == "control_socket":
			if !filepath.IsAbs(value) {
				return read, fmt.Errorf("%d: control_socket: %q: want an absolute path", number, value)
			}
			read.ControlSocket = value
		default:
			return read, fmt.Errorf("%d: unknown key %q; accepted: runtime, control_socket", number, key)
		}
	}
	return read, nil
}

// unquote takes the quotes off a string of TOML, with a comment behind it.
func unquote(text string) (string, error) {
	if text == "" || text[0] != '"' && text[0] != '\'' {
		return "", strconv.ErrSyntax
	}
	value := ""
	end := strings.IndexByte(text[1:], text[0]) + 1
	if text[0] == '\'' {
		if end == 0 {
			return "", strconv.ErrSyntax
		}
		value = text[1:end]
	} else {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return "", err
		}
		end = len(quoted) - 1
		if value, err = strconv.Unquote(quoted); err != nil {
			return "", err
		}
	}
	if rest := strings.TrimSpace(text[end+1:]); rest != "" && rest[0] != '#' {
		return "", strconv.ErrSyntax
	}
	return value, nil
}
