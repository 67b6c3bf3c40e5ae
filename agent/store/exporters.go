package store

// Executables that have tried to export memory which could not be exported because it may be swapped out: they get
// plain memory from then on.

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
)

const (
	// exportersSchema is the version of exporters.json.
	exportersSchema = 1
	// ExportersMax is how many executables are remembered; the oldest makes room.
	ExportersMax = 4096
)

// Executable names a program's file: one that is replaced or written to is another.
type Executable struct {
	Device  uint64 `json:"device"`
	Inode   uint64 `json:"inode"`
	Changed int64  `json:"changed_ns"` // when it, or its inode, was last changed
}

type exportersFile struct {
	Schema      int          `json:"schema"`
	Executables []Executable `json:"executables"`
}

// Exporters is the file of such executables. Its methods may be called at the same time.
type Exporters struct {
	path string

	mu    sync.Mutex
	known []Executable // the oldest first
}

// LoadExporters reads the file in the state directory dir. None are known where there is none; of a damaged one the
// error says so, and the result is usable all the same: what was in it is learned again, at one failing export each.
func LoadExporters(dir string) (*Exporters, error) {
	e := &Exporters{path: filepath.Join(dir, "exporters.json")}
	var file exportersFile
	if err := readKept(e.path, exportersSchema, &file); err != nil {
		return e, fmt.Errorf("reading which programs export memory from %s: %w", e.path, err)
	}
	e.known = file.Executables[max(0, len(file.Executables)-ExportersMax):]
	return e, nil
}

// Has tells whether an executable is remembered.
func (e *Exporters) Has(x Executable) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.known, x)
}

// Add remembers an executable; it is on the disk when Add returns. On an error it is remembered by this agent only.
func (e *Exporters) Add(x Executable) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Contains(e.known, x) {
		return nil
	}
	e.known = append(e.known[max(0, len(e.known)+1-ExportersMax):], x)
	text, err := json.MarshalIndent(exportersFile{exportersSchema, e.known}, "", "  ")
	if err == nil {
		err = replace(e.path, append(text, '\n'), true)
	}
	if err != nil {
		return fmt.Errorf("writing which programs export memory: %w", err)
	}
	return nil
}
