// Package page makes and holds the two pages that the agent shares with tenants: the control page,
// which only the agent can write, and the usage page, which the tenant can fill with anything.
//
// Both are sealed so that nobody can change their size: a tenant that could would end the agent at
// its next access. No page is ever taken from a tenant, except to find again one that the agent
// itself had made. Methods of one page must not be called at the same time as its Close.
package page

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"weir/cgo/abi"
)

const (
	controlName  = "weir-control"
	usageName    = "weir-usage"
	usageSeals   = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	controlSeals = usageSeals | unix.F_SEAL_FUTURE_WRITE
)

// mapping is one shared page in the agent's memory.
type mapping struct{ memory []byte }

func (m *mapping) at(offset uintptr) unsafe.Pointer { return unsafe.Pointer(&m.memory[offset]) }

func (m *mapping) unmap() error {
	memory := m.memory
	m.memory = nil
	return unix.Munmap(memory)
}

// create makes a memfd of a page's size, maps it for writing and then seals it.
func create(name string, seals int) (m mapping, fd int, err error) {
	// A page is no program, which newer kernels want to be told.
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err = unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return m, -1, fmt.Errorf("making page %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("making page %s: %w", name, err)
			unix.Close(fd)
		}
	}()
	if err = unix.Ftruncate(fd, abi.PageBytes); err != nil {
		return m, -1, err
	}
	if m, err = mapShared(fd); err != nil {
		return m, -1, err
	}
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		m.unmap()
		return m, -1, err
	}
	return m, fd, nil
}

func mapShared(fd int) (mapping, error) {
	memory, err := unix.Mmap(fd, 0, abi.PageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return mapping{memory}, err
}
