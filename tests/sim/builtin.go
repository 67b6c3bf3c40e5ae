// The ready-made machine files, which are part of the program, and how a machine is named.

package sim

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

//go:embed machines/*.toml
var machineFiles embed.FS

// ErrUnknownMachine says that a name is no ready-made machine.
var ErrUnknownMachine = errors.New("no such machine")

// MachineNames lists the ready-made machines.
func MachineNames() []string {
	entries, _ := fs.ReadDir(machineFiles, "machines") // embedded: cannot fail
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), ".toml"))
	}
	return names
}

// LoadMachine reads a machine file, or the ready-made one of that name. What holds a slash or ends
// in ".toml" is a file. Errors: ErrUnknownMachine, *FileError, or of reading.
func LoadMachine(nameOrFile string) (*Machine, error) {
	if strings.Contains(nameOrFile, "/") || strings.HasSuffix(nameOrFile, ".toml") {
		data, err := os.ReadFile(nameOrFile)
		if err != nil {
			return nil, fmt.Errorf("reading the machine file: %w", err)
		}
		return ParseMachine(nameOrFile, data)
	}
	file := path.Join("machines", nameOrFile+".toml")
	data, err := machineFiles.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %.40q; want one of %s, or a file with its ending .toml",
			ErrUnknownMachine, nameOrFile, strings.Join(MachineNames(), ", "))
	}
	return ParseMachine(file, data)
}
