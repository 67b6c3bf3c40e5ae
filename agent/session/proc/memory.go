package proc

// Host memory that a process's control groups leave it.

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// memoryNames are the files that tell it: the limit, what is in use, and in memory.stat what of that is files' pages,
// which the kernel drops where it needs room.
type memoryNames struct{ limit, used, files string }

// memoryFiles are those of version 2, and of version 1's controller.
var memoryFiles = map[string]memoryNames{
	"":       {"memory.max", "memory.current", "file"},
	"memory": {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"},
}

// HostMemoryLeft is how much memory the limits of a process's control groups, and of those above them, leave it;
// math.MaxInt64 where there is no limit.
func HostMemoryLeft(pid int) (int64, error) {
	all, err := cgroups(pid)
	if err != nil {
		return 0, err
	}
	left := int64(math.MaxInt64)
	for controller, files := range memoryFiles {
		path, there := all[controller]
		if !there {
			continue
		}
		mounted, err := mountOf(controller)
		if err != nil || mounted.at == "" || !within(mounted.root, path) {
			continue // not to be looked into from here
		}
		left = min(left, files.left(mounted.at, filepath.Join(mounted.at, strings.TrimPrefix(path, mounted.root))))
	}
	return left, nil
}

// left is what a control group's directory, and those above it up to where their file system is mounted, leave.
func (f memoryNames) left(at, directory string) int64 {
	left := int64(math.MaxInt64)
	for ; within(at, directory); directory = filepath.Dir(directory) {
		limit, limited := readNumber(filepath.Join(directory, f.limit))
		used, known := readNumber(filepath.Join(directory, f.used))
		if limited && known {
			left = min(left, max(0, limit-used+statOf(directory, f.files)))
		}
		if directory == at {
			break
		}
	}
	return left
}

// readNumber reads a file of one number; false where there is none, or another word.
func readNumber(path string) (int64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	number, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return number, err == nil
}

// statOf is one line of memory.stat, 0 where it is not there.
func statOf(directory, key string) int64 {
	text, err := os.ReadFile(filepath.Join(directory, "memory.stat"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == key {
			number, _ := strconv.ParseInt(value, 10, 64)
			return number
		}
	}
	return 0
}
