package proc

// Control groups: where a process is in their hierarchies, and which processes are in one.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Cgroup is a place in one hierarchy of control groups. Controller is empty for version 2's only one,
// and else one of those of the hierarchy, or "name=…".
type Cgroup struct {
	Controller string `json:"controller"`
	Path       string `json:"path"` // as /proc/PID/cgroup has it: "/kubepods/…"
}

// preferred are version 1's hierarchies by how surely a container runtime uses them.
var preferred = []string{"devices", "pids", "memory", "freezer", "cpu", "name=systemd"}

// ErrNoCgroup says that a process is in no control group but its parent's, or the root, of each hierarchy.
var ErrNoCgroup = errors.New("it is in no control group of its own")

// CgroupOf finds the control group by which a container can be told from others: where its first
// process is, in the hierarchy that version 2 has, else in one of version 1. Its parent is a runtime's
// process: a group that this is in, too, was not made for the container. On a machine with both versions
// that can be version 2's, which older runtimes leave alone.
func CgroupOf(pid int) (Cgroup, error) {
	all, err := cgroups(pid)
	if err != nil {
		return Cgroup{}, err
	}
	process, err := Read(pid)
	if err != nil {
		return Cgroup{}, err
	}
	parents := map[string]string{}
	if process.Parent > 0 {
		if parents, err = cgroups(process.Parent); err != nil && !errors.Is(err, ErrGone) {
			return Cgroup{}, err
		}
	}
	return ownOf(all, parents)
}

// ownOf chooses among a process's places, by those of its parent.
func ownOf(all, parents map[string]string) (Cgroup, error) {
	for _, controller := range append([]string{""}, preferred...) {
		if path, there := all[controller]; there && path != "/" && path != parents[controller] {
			return Cgroup{controller, path}, nil
		}
	}
	return Cgroup{}, ErrNoCgroup
}

// Has tells whether a process is in the control group, or in one below it.
func (g Cgroup) Has(pid int) (bool, error) {
	all, err := cgroups(pid)
	if err != nil {
		return false, err
	}
	path, there := all[g.Controller]
	return there && within(g.Path, path), nil
}

// within tells whether a control group is group or below it.
func within(group, path string) bool {
	rest, begins := strings.CutPrefix(path, group)
	return begins && (rest == "" || rest[0] == '/' || strings.HasSuffix(group, "/"))
}

// cgroups are all of a process's places, by controller. Processes that end meanwhile are ErrGone.
func cgroups(pid int) (map[string]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("looking at the control groups of process %d: %w", pid, err)
	}
	return parseCgroups(text), nil
}

// parseCgroups reads lines of ID:CONTROLLERS:PATH.
func parseCgroups(text []byte) map[string]string {
	all := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 || !strings.HasPrefix(parts[2], "/") {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			all[controller] = parts[2]
		}
	}
	return all
}

// Directory is where the control group is in the file system; it may be gone.
func (g Cgroup) Directory() (string, error) {
	m, err := mountOf(g.Controller)
	if err != nil {
		return "", fmt.Errorf("looking for the control groups' file system: %w", err)
	}
	if m.at == "" || !within(m.root, g.Path) {
		return "", fmt.Errorf("the control group %s cannot be looked into: its file system is not mounted here",
			g.Path)
	}
	return filepath.Join(m.at, strings.TrimPrefix(g.Path, m.root)), nil
}

// cgroupMounted is where a hierarchy is mounted, and which part of it.
type cgroupMounted struct{ at, root string }

// cgroupMounts are those that were found, by controller: a node with many containers has thousands of mounts, and each of
// its containers is looked for every few seconds.
var cgroupMounts sync.Map

// mountOf finds where a hierarchy is mounted; at is empty where it is not.
func mountOf(controller string) (cgroupMounted, error) {
	if known, there := cgroupMounts.Load(controller); there && isCgroup(known.(cgroupMounted).at) {
		return known.(cgroupMounted), nil
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return cgroupMounted{}, err
	}
	var found cgroupMounted
	if found.at, found.root = cgroupMount(text, controller); found.at != "" {
		cgroupMounts.Store(controller, found)
	}
	return found, nil
}

// isCgroup tells whether a file system of control groups is mounted there.
func isCgroup(at string) bool {
	var st unix.Statfs_t
	return unix.Statfs(at, &st) == nil && (st.Type == unix.CGROUP2_SUPER_MAGIC || st.Type == unix.CGROUP_SUPER_MAGIC)
}

// Members are the pids in a control group and those below it, as its file system lists them. One that
// is gone has none.
func (g Cgroup) Members() (map[int]bool, error) {
	directory, err := g.Directory()
	if err != nil {
		return nil, err
	}
	pids := make(map[int]bool)
	err = filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for word := range bytes.FieldsSeq(text) {
			if pid, err := strconv.Atoi(string(word)); err == nil && pid > 0 {
				pids[pid] = true
			}
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
			return nil // gone meanwhile, or one whose processes are listed above it
		}
		return err
	})
	return pids, err
}

// cgroupMount finds where a hierarchy is mounted, and which part of it.
func cgroupMount(mountinfo []byte, controller string) (at, root string) {
	for line := range bytes.Lines(mountinfo) { // which may be long: an image has hundreds of layers
		before, after, found := strings.Cut(string(line), " - ")
		mount, kind := strings.Fields(before), strings.Fields(after)
		if !found || len(mount) < 5 || len(kind) < 3 {
			continue
		}
		unified := kind[0] == "cgroup2" && controller == ""
		first := kind[0] == "cgroup" && controller != "" && slices.Contains(strings.Split(kind[2], ","), controller)
		// The widest of several, such as a container's own.
		if (unified || first) && (at == "" || len(mount[3]) < len(root)) {
			at, root = unescape(mount[4]), unescape(mount[3])
		}
	}
	return at, root
}

// unescape reads a path as mountinfo writes it.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}
