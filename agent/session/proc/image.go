package proc

// The program that a process runs: its file, and the environment that it was started with.

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel runs no program whose table of segments is longer, in bytes.
const segmentsMax = 64 << 10

// lookWait is how long a look into a program's file may take, and looksMax how many may be under way: a file may lie on
// a file system that never answers, which only that program's end, or the system's, ends.
const (
	lookWait = time.Second
	looksMax = 8
)

var looks = make(chan struct{}, looksMax)

// look waits for a look for no longer than lookWait.
func look(into func() (bool, error)) (bool, error) {
	select {
	case looks <- struct{}{}:
	default:
		return false, errors.New("other programs' files do not answer")
	}
	type answer struct {
		found bool
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		defer func() { <-looks }()
		found, err := into()
		answers <- answer{found, err}
	}()
	select {
	case a := <-answers:
		return a.found, a.err
	case <-time.After(lookWait):
		return false, errors.New("the program's file does not answer")
	}
}

// Executable is the file of the program that a process runs: its device and inode, and when that was last changed,
// in ns. An error means that it cannot be told.
func Executable(pid int) (device, inode uint64, changed int64, err error) {
	var st unix.Stat_t
	_, err = look(func() (bool, error) { return true, unix.Stat(fmt.Sprintf("/proc/%d/exe", pid), &st) })
	if err != nil {
		return 0, 0, 0, fmt.Errorf("looking at the program of process %d: %w", pid, err)
	}
	return uint64(st.Dev), st.Ino, st.Ctim.Nano(), nil
}

// HasLoader tells whether the program that a process runs is started by a loader, which can load
// libraries into it: a static program is not. An error means that it cannot be told.
//
// The file is the tenant's and may say anything. Package debug/elf would read all the sections
// that it claims to have, gigabytes if it says so; here no more is read than the kernel needs to
// start it.
func HasLoader(pid int) (bool, error) {
	return look(func() (bool, error) {
		file, err := os.Open(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil {
			return false, err
		}
		defer file.Close()
		return hasLoader(file)
	})
}

func hasLoader(file io.ReaderAt) (bool, error) {
	var head [64]byte // of the longer form; no program is shorter than that
	if _, err := file.ReadAt(head[:], 0); err != nil {
		return false, err
	}
	if string(head[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return false, errors.New("not an ELF file")
	}
	order := binary.LittleEndian
	at, sizes := int64(order.Uint64(head[32:])), head[54:]
	if elf.Class(head[elf.EI_CLASS]) == elf.ELFCLASS32 {
		at, sizes = int64(order.Uint32(head[28:])), head[42:]
	}
	size, count := int(order.Uint16(sizes)), int(order.Uint16(sizes[2:]))
	if size < 4 || size*count > segmentsMax {
		return false, fmt.Errorf("%d segments of %d bytes each", count, size)
	}
	segments := make([]byte, size*count)
	if _, err := file.ReadAt(segments, at); err != nil {
		return false, err
	}
	for i := range count {
		if elf.ProgType(order.Uint32(segments[i*size:])) == elf.PT_INTERP {
			return true, nil
		}
	}
	return false, nil
}

// The kernel starts no program with a longer variable in its environment, in bytes.
const variableMax = 128 << 10

// Started tells which of these variables were in the environment with which a process's program
// was started. An error means that it cannot be told.
func Started(pid int, names ...string) ([]bool, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	there := make([]bool, len(names))
	entries := bufio.NewScanner(file)
	entries.Buffer(nil, variableMax+1)
	entries.Split(func(data []byte, atEnd bool) (int, []byte, error) {
		if end := bytes.IndexByte(data, 0); end >= 0 {
			return end + 1, data[:end], nil
		}
		return 0, nil, nil // what has no end is no entry
	})
	for entries.Scan() {
		written, _, _ := bytes.Cut(entries.Bytes(), []byte{'='})
		for i, name := range names {
			there[i] = there[i] || string(written) == name
		}
	}
	return there, entries.Err()
}
