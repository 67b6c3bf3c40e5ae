package ctrd

// The end: whatever a test has left of its containerd is taken away, and tests that must leave nothing ask
// what there is.

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cgroup is the control group, in every hierarchy, below which all of a node's containers are.
func (s *scene) cgroup() string { return "/" + filepath.Base(s.Node.Dir) }

// Cgroups are the control groups of containers that there are now.
func (s *scene) Cgroups() []string {
	var found []string
	for _, top := range s.cgroupTops() {
		inside, _ := filepath.Glob(filepath.Join(top, "*"))
		found = append(found, slices.DeleteFunc(inside, func(path string) bool {
			info, err := os.Stat(path)
			return err != nil || !info.IsDir()
		})...)
	}
	return found
}

// cgroupTops is cgroup in every hierarchy where it is.
func (s *scene) cgroupTops() []string {
	tops, _ := filepath.Glob("/sys/fs/cgroup/*" + s.cgroup())
	if one := "/sys/fs/cgroup" + s.cgroup(); exists(one) {
		tops = append(tops, one)
	}
	return tops
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Mounts are the places of the node at which something is mounted now.
func (s *scene) Mounts() []string {
	s.t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		s.t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], s.Node.Dir+"/") {
			found = append(found, fields[4])
		}
	}
	return found
}

// Shims are the pids of the shims that run for this daemon.
func (d *Daemon) Shims() []int {
	var found []int
	for pid, words := range commands() {
		if strings.Contains(words[0], "containerd-shim") && slices.Contains(words, d.Address()) {
			found = append(found, pid)
		}
	}
	return found
}

// commands are the command lines of all processes.
func commands() map[int][]string {
	all := map[int][]string{}
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid <= 1 {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err == nil && len(text) > 0 {
			all[pid] = strings.Split(string(bytes.TrimRight(text, "\x00")), "\x00")
		}
	}
	return all
}

// members are the pids of all processes in the containers' control groups.
func (s *scene) members() []int {
	var found []int
	for _, top := range s.cgroupTops() {
		_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Name() != "cgroup.procs" {
				return nil
			}
			text, _ := os.ReadFile(path)
			for word := range strings.FieldsSeq(string(text)) {
				if pid, err := strconv.Atoi(word); err == nil && pid > 1 {
					found = append(found, pid)
				}
			}
			return nil
		})
	}
	return found
}

// remove ends the daemon and all that it has started, and takes away what they leave.
func (d *Daemon) remove() {
	if d.process != nil {
		_ = d.process.Process.Kill()
		<-d.ended
	}
	d.KillPlugin()
	if d.t.Failed() {
		d.t.Logf("weir's plugin's log:\n%s", lastLines(d.plugin.log.String(), 20))
		d.t.Logf("containerd's log:\n%s", lastLines(d.log.String(), 80))
	}
	d.removeSockets()
	d.clear(func() []int { return append(d.Shims(), d.members()...) })
}

// clear ends all processes that there are, and takes away what is mounted and the control groups.
func (s *scene) clear(processes func() []int) {
	deadline := time.Now().Add(patience)
	for {
		left := processes()
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			s.t.Errorf("processes %v that containers have left do not die", left)
			break
		}
		for _, pid := range left {
			if pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	mounts := s.Mounts()
	slices.Reverse(mounts) // the innermost first
	for _, place := range mounts {
		if err := unix.Unmount(place, unix.MNT_DETACH); err != nil && err != unix.EINVAL {
			s.t.Errorf("unmounting %s: %v", place, err)
		}
	}
	for _, top := range s.cgroupTops() {
		if err := removeCgroup(top); err != nil {
			s.t.Error(err)
		}
	}
}

// removeSockets removes the sockets of shims, which lie in one place of the machine whatever is configured: a shim
// that is killed leaves its own.
func (d *Daemon) removeSockets() {
	for _, words := range commands() {
		namespace, id := after(words, "-namespace"), after(words, "-id")
		if strings.Contains(words[0], "containerd-shim") && slices.Contains(words, d.Address()) && namespace+id != "" {
			name := sha256.Sum256([]byte(filepath.Join(d.Address(), namespace, id)))
			_ = os.Remove(fmt.Sprintf("/run/containerd/s/%x", name))
		}
	}
}

// after is the word that follows another.
func after(words []string, flag string) string {
	if i := slices.Index(words, flag); i >= 0 && i+1 < len(words) {
		return words[i+1]
	}
	return ""
}

// removeCgroup removes a control group and those below it.
func removeCgroup(top string) error {
	var dirs []string
	_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	slices.Reverse(dirs)
	for _, dir := range dirs {
		// A process that has just been killed may be in it for a moment.
		err := os.Remove(dir)
		for tries := 0; err != nil && tries < 200; tries++ {
			time.Sleep(10 * time.Millisecond)
			err = os.Remove(dir)
		}
		if err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("removing the control group %s: %w", dir, err)
		}
	}
	return nil
}

func lastLines(text string, count int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "\n")
}
