package node

// What /proc says of a process.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Footprint is what a process has that a library could have added.
type Footprint struct {
	Threads int
	Files   []string // where its descriptors lead, in the order of their numbers
	Mapped  []string // the files, memfds and shared memory that it maps, each once
}

// Footprint of any process.
func (n *Node) Footprint(pid int) Footprint {
	n.t.Helper()
	var print Footprint
	proc := fmt.Sprintf("/proc/%d", pid)
	tasks, err := os.ReadDir(filepath.Join(proc, "task"))
	if err != nil {
		n.t.Fatal(err)
	}
	print.Threads = len(tasks)
	fds, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		n.t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(proc, "fd", fd.Name())); err == nil {
			print.Files = append(print.Files, fd.Name()+" "+to)
		}
	}
	maps, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		n.t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(maps)) {
		if _, path, found := strings.Cut(line, " /"); found && !seen[path] {
			seen[path] = true
			print.Mapped = append(print.Mapped, "/"+strings.TrimSpace(path))
		}
	}
	return print
}

// Maps tells whether a mapped file's path contains the text.
func (f Footprint) Maps(text string) bool {
	for _, path := range f.Mapped {
		if strings.Contains(path, text) {
			return true
		}
	}
	return false
}
