// Package proc looks at processes: who they are, from whom they descend, which program image they
// run, and when they end. It reads /proc and pidfds and changes nothing.
//
// A pid alone names nobody: it is reused. A process is named by its pid and its start time, and
// held by a pidfd.
package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrGone is returned for a process that has ended.
var ErrGone = errors.New("the process has ended")

// ID names one process for the time from one boot to the next.
type ID struct {
	PID   int
	Start uint64 // in clock ticks since boot
}

// Stat is what /proc/PID/stat says of a process.
type Stat struct {
	ID
	Parent int
	Zombie bool
	Name   string
	// Image tells the program image that the process runs from the next: it changes with every
	// exec, and not by a fork. 0 where it cannot be told: for lack of permission, or in the midst
	// of an exec.
	Image uint64
}

// Fields of /proc/PID/stat, counted from the one after the name.
const (
	statState     = 0
	statParent    = 1
	statStart     = 19
	statStartCode = 23
	statFields    = 45
)

// The addresses that an exec sets anew: start_code, end_code, start_stack, start_data, end_data,
// start_brk. What a program may move by itself, as its arguments, is not among them.
var statImage = [...]int{statStartCode, 24, 25, 42, 43, 44}

// Read returns the state of a process, or ErrGone.
func Read(pid int) (Stat, error) {
	room := statRoom.Get().(*[statBytesMax]byte)
	defer statRoom.Put(room)
	content, err := readStat(pid, room[:])
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return Stat{}, ErrGone
	}
	if err != nil {
		return Stat{}, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	return parseStat(pid, content)
}

// statBytesMax is more than a line of 52 numbers and a name of 15 letters has.
const statBytesMax = 2048

// statRoom keeps room for lines, which would make the stack of each goroutine grow.
var statRoom = sync.Pool{New: func() any { return new([statBytesMax]byte) }}

// readStat reads /proc/PID/stat with three system calls, a third of what package os needs: it is read
// several times for each process that connects.
func readStat(pid int, room []byte) ([]byte, error) {
	path := strconv.AppendInt(append(make([]byte, 0, 32), "/proc/"...), int64(pid), 10)
	fd, err := unix.Open(string(append(path, "/stat"...)), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Read(fd, room)
		if !errors.Is(err, unix.EINTR) {
			return room[:max(n, 0)], err
		}
	}
}

func parseStat(pid int, content []byte) (Stat, error) {
	// The name is whatever the program likes, parentheses and spaces included.
	open, end := bytes.IndexByte(content, '('), bytes.LastIndexByte(content, ')')
	if open < 0 || end < open {
		return Stat{}, fmt.Errorf("process %d: no name in its stat", pid)
	}
	fields := bytes.Fields(content[end+1:])
	if len(fields) < statFields {
		return Stat{}, fmt.Errorf("process %d: %d fields in its stat", pid, len(fields))
	}
	s := Stat{ID: ID{PID: pid}, Name: string(content[open+1 : end])}
	var err error
	if s.Parent, err = strconv.Atoi(string(fields[statParent])); err != nil {
		return Stat{}, fmt.Errorf("process %d: parent in its stat: %w", pid, err)
	}
	if s.Start, err = strconv.ParseUint(string(fields[statStart]), 10, 64); err != nil {
		return Stat{}, fmt.Errorf("process %d: start time in its stat: %w", pid, err)
	}
	state := fields[statState][0]
	s.Zombie = state == 'Z' || state == 'X'
	// The kernel shows 1 for the code's addresses to those who may not know them.
	if code := string(fields[statStartCode]); code != "0" && code != "1" {
		h := fnv.New64a()
		for _, i := range statImage {
			h.Write(fields[i])
			h.Write([]byte{' '})
		}
		s.Image = h.Sum64() | 1
	}
	return s, nil
}

// Descendants returns root, if it lives, and all processes that descend from it now.
func Descendants(all []Stat, root ID) []Stat {
	children := make(map[int][]Stat)
	var found []Stat
	for _, s := range all {
		children[s.Parent] = append(children[s.Parent], s)
		if s.ID == root {
			found = append(found, s)
		}
	}
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].PID]...)
	}
	return found
}

// All returns the state of all processes that are visible; those that end meanwhile are left out.
func All() ([]Stat, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []Stat
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, err := Read(pid); err == nil {
			all = append(all, s)
		}
	}
	return all, nil
}

// Owner returns the user that a process runs as, or ErrGone.
func Owner(pid int) (uid uint32, err error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, ErrGone
	}
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) == 5 && fields[0] == "Uid:" {
			effective, err := strconv.ParseUint(fields[2], 10, 32)
			return uint32(effective), err
		}
	}
	return 0, fmt.Errorf("process %d: no user in its status", pid)
}

// Maps tells whether a file whose path ends in suffix is mapped by a process. An error means that
// it cannot be told.
func Maps(pid int, suffix string) (bool, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return false, err
	}
	defer file.Close()
	// Line by line: a process may have so many mappings, with such paths, that the whole is hundreds
	// of megabytes long.
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if strings.HasSuffix(strings.TrimSuffix(lines.Text(), " (deleted)"), suffix) {
			return true, nil
		}
	}
	return false, lines.Err()
}

// BootID returns the machine's boot id, 36 characters.
func BootID() (string, error) {
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the machine's boot id: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// ticksPerSecond is the unit of start times; it is part of the kernel's interface to programs.
const ticksPerSecond = 100

// Age returns how long ago a process started.
func Age(start uint64) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano()) - time.Duration(start)*(time.Second/ticksPerSecond)
}
