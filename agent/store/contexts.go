package store

// What a context takes on each kind of GPU, as it was measured.

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
)

// contextsSchema is the version of contexts.json.
const contextsSchema = 1

// ContextSize is what one context takes on a kind of GPU under a driver, in bytes. Both decide it.
type ContextSize struct {
	GPU         string `json:"gpu"` // its name, as NVML has it
	MemoryBytes int64  `json:"memory_bytes"`
	Driver      string `json:"driver"`
	Bytes       int64  `json:"context_bytes"`
}

type contextsFile struct {
	Schema int           `json:"schema"`
	Sizes  []ContextSize `json:"sizes"`
}

// ContextSizes is the file of measured sizes. Its methods must not be called at the same time.
type ContextSizes struct {
	path  string
	sizes []ContextSize
}

// LoadContextSizes reads the file in the state directory dir. None are known where there is none;
// of a damaged one the error says so, and the result is usable all the same: what was in it will be
// measured again.
func LoadContextSizes(dir string) (*ContextSizes, error) {
	c := &ContextSizes{path: filepath.Join(dir, "contexts.json")}
	var file contextsFile
	if err := readKept(c.path, contextsSchema, &file); err != nil {
		return c, fmt.Errorf("reading what contexts take from %s: %w", c.path, err)
	}
	for _, s := range file.Sizes {
		if s.Bytes > 0 && s.Bytes <= s.MemoryBytes {
			c.sizes = append(c.sizes, s)
		}
	}
	return c, nil
}

// Of returns what a context takes, 0 where it was never measured.
func (c *ContextSizes) Of(gpu string, memory int64, driver string) int64 {
	if i := c.find(gpu, memory, driver); i >= 0 {
		return c.sizes[i].Bytes
	}
	return 0
}

func (c *ContextSizes) find(gpu string, memory int64, driver string) int {
	return slices.IndexFunc(c.sizes, func(s ContextSize) bool {
		return s.GPU == gpu && s.MemoryBytes == memory && s.Driver == driver
	})
}

// Set notes a size; it is on the disk when Set returns.
func (c *ContextSizes) Set(size ContextSize) error {
	if i := c.find(size.GPU, size.MemoryBytes, size.Driver); i >= 0 {
		c.sizes[i] = size
	} else {
		c.sizes = append(c.sizes, size)
	}
	text, err := json.MarshalIndent(contextsFile{contextsSchema, c.sizes}, "", "  ")
	if err == nil {
		err = replace(c.path, append(text, '\n'), true)
	}
	if err != nil {
		return fmt.Errorf("writing what contexts take: %w", err)
	}
	return nil
}
