// Package store keeps what must survive a restart of the agent: the containers with their caps (a
// JSON file) and each session's credit record, in the run directory. None of it outlives the machine's
// boot, as no process does, so nothing needs to be on a disk. Invariants:
//   - a file is replaced by rename only, so a kill at any instruction leaves the old one or the new;
//   - a file that cannot be understood is an error that names it, never an empty answer: caps and
//     charges are not silently forgotten.
package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"weir/oci"
)

// containersSchema is the version of the containers' file.
const containersSchema = 1

// Caps are a container's limits as they are kept; nil is "not set".
type Caps struct {
	MemoryBytes *int64           `json:"memory_bytes"`
	MemoryByGPU map[string]int64 `json:"memory_bytes_by_gpu,omitempty"` // by UUID, over MemoryBytes
	SwapBytes   *int64           `json:"swap_bytes"`
	Weight      *float64         `json:"weight"`
}

// Container is what is kept of one container.
type Container struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Namespace string    `json:"namespace"`
	Identity  string    `json:"identity"`
	PID       int       `json:"pid"`   // the process whose end ends the container; 0: not there yet
	Start     uint64    `json:"start"` // its start time, in clock ticks since boot
	UID       uint32    `json:"uid"`
	Command   []string  `json:"command"`
	Started   time.Time `json:"started"`
	Caps      Caps      `json:"caps"`
	// Virtual: its memory reports show cap and swap together as the total.
	Virtual bool   `json:"virtual,omitempty"`
	Library string `json:"library"`       // the path of the one that it was given
	OCI     *OCI   `json:"oci,omitempty"` // nil: one of weir run
}

// OCI is what is kept of a container that a container runtime starts.
type OCI struct {
	ID         string       `json:"id"`     // the runtime's own
	Bundle     string       `json:"bundle"` // names it as long as it is there
	Root       string       `json:"root"`
	Pod        string       `json:"pod"`
	PodUID     string       `json:"pod_uid"`
	Image      string       `json:"image"`
	Devices    []oci.Device `json:"devices"`
	FixedImage bool         `json:"fixed_image"`
	ReadImage  bool         `json:"read_image"` // as in its grant
	Early      bool         `json:"early"`      // until it has begun it is kept as long as nobody releases it
	Asked      string       `json:"asked"`      // names what it was prepared for
	Cgroup     *Cgroup      `json:"cgroup"`     // nil: not known yet
	// DriverLimited: the driver may hold limits of its own for the control group.
	DriverLimited bool `json:"driver_limited,omitempty"`
}

// Cgroup is a control group of a hierarchy: that of version 2 where the controller is empty.
type Cgroup struct {
	Controller string `json:"controller"`
	Path       string `json:"path"`
}

// Prepared tells whether the container has been granted what it asked for, and has not begun.
func (c *Container) Prepared() bool { return c.OCI != nil && c.PID == 0 }

type containersFile struct {
	Schema     int         `json:"schema"`
	Containers []Container `json:"containers"`
}

// Containers is the file of containers and caps. Its name has the boot id: a machine that has crashed
// leaves perhaps half of it, in a file that nobody reads again. Its methods must not be called at the
// same time.
type Containers struct{ path string }

// NewContainers names the file in a directory; boot is the machine's boot id.
func NewContainers(dir, boot string) *Containers {
	return &Containers{filepath.Join(dir, "containers-"+boot+".json")}
}

// Load reads the containers kept, and removes the files of earlier boots. None are kept where there is
// no file. A damaged file is an error.
func (c *Containers) Load() ([]Container, error) {
	if err := c.removeEarlier(); err != nil {
		return nil, fmt.Errorf("removing containers and caps of an earlier boot: %w", err)
	}
	text, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading containers and caps: %w", err)
	}
	file, err := parseContainers(text)
	if err != nil {
		return nil, fmt.Errorf("reading containers and caps from %s: %w; restore the file, or "+
			"move it away to start without it (containers that still run then have no cap)",
			c.path, err)
	}
	return file.Containers, nil
}

func (c *Containers) removeEarlier() error {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(c.path), "containers-*.json"))
	for _, file := range files {
		if file != c.path {
			err = errors.Join(err, os.Remove(file))
		}
	}
	return err
}

// Save replaces the file by one with these containers.
func (c *Containers) Save(containers []Container) error {
	if containers == nil {
		containers = []Container{}
	}
	text, err := json.Marshal(containersFile{containersSchema, containers})
	if err != nil {
		return fmt.Errorf("writing containers and caps: %w", err)
	}
	if err := replace(c.path, append(text, '\n'), false); err != nil {
		return fmt.Errorf("writing containers and caps: %w", err)
	}
	return nil
}

func parseContainers(text []byte) (containersFile, error) {
	var file containersFile
	in := json.NewDecoder(bytes.NewReader(text))
	if err := in.Decode(&file); err != nil {
		return file, fmt.Errorf("damaged: %w", err)
	}
	if _, err := in.Token(); err != io.EOF {
		return file, errors.New("damaged: text after its end")
	}
	if file.Schema != containersSchema {
		return file, fmt.Errorf("of schema %d, where this version knows %d",
			file.Schema, containersSchema)
	}
	seen := make(map[string]bool)
	for _, c := range file.Containers {
		if err := c.check(); err != nil {
			return file, fmt.Errorf("damaged: container %q: %w", c.ID, err)
		}
		if seen[c.ID] || seen["/"+c.Namespace+"/"+c.Name] {
			return file, fmt.Errorf("damaged: container %q is there twice", c.Name)
		}
		seen[c.ID], seen["/"+c.Namespace+"/"+c.Name] = true, true
	}
	return file, nil
}

var containerID = regexp.MustCompile(`^[0-9a-f]{12}$`)

func (c *Container) check() error {
	switch {
	case !containerID.MatchString(c.ID):
		return errors.New("the id is not 12 hexadecimal digits")
	case c.Name == "":
		return errors.New("it has no name")
	case c.OCI != nil && !filepath.IsAbs(c.OCI.Bundle):
		return errors.New("it has no bundle")
	case c.PID <= 0 && !c.Prepared():
		return fmt.Errorf("its pid is %d", c.PID)
	case c.Caps.MemoryBytes != nil && *c.Caps.MemoryBytes <= 0:
		return fmt.Errorf("its memory cap is %d", *c.Caps.MemoryBytes)
	}
	for gpu, bytes := range c.Caps.MemoryByGPU {
		if bytes <= 0 {
			return fmt.Errorf("its memory cap on %s is %d", gpu, bytes)
		}
	}
	return nil
}
