package page

// The control page: written by the agent, read by tenants.

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"weir/cgo/abi"
)

// Control is a container's control page: the agent writes, the container's processes read. Its
// methods must not be called at the same time, but for SetTurn.
type Control struct {
	mapping
	readOnly int // the descriptor that tenants are given
}

// NewControl makes the control page of a container for the GPUs with these UUIDs, in this order.
func NewControl(generation uint64, uuids [][16]byte) (*Control, error) {
	m, fd, err := create(controlName, controlSeals)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	// The seals keep tenants from writing. A descriptor that is not open for it does so once more.
	readOnly, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		m.unmap()
		return nil, fmt.Errorf("making page %s: %w", controlName, err)
	}
	c := &Control{mapping: m, readOnly: readOnly}
	p := (*abi.ControlPage)(c.at(0))
	p.Magic, p.Abi = abi.ControlMagic, abi.Version
	p.Count, p.Generation = uint32(len(uuids)), generation
	for i, uuid := range uuids {
		p.Gpus[i].Uuid = uuid
		p.Gpus[i].Cap_bytes = abi.Unlimited
	}
	return c, nil
}

// Dup returns a descriptor to hand to a tenant, open for reading only, or -1 where the agent has
// none left. It is the caller's to close.
func (c *Control) Dup() int {
	fd, err := unix.FcntlInt(uintptr(c.readOnly), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// Account is how a container stands on a GPU: bytes, and how many sessions have a charge there.
type Account struct {
	Cap, Charged  uint64
	Swap, Movable uint64
	Holders       int
}

// SetGPU shows how the container stands on a GPU.
func (c *Control) SetGPU(gpu int, a Account) {
	g := &(*abi.ControlPage)(c.at(0)).Gpus[gpu]
	// Readers go by the sequence: odd while the words change.
	atomic.AddUint32(&g.Sequence, 1)
	atomic.StoreUint64(&g.Cap_bytes, a.Cap)
	atomic.StoreUint64(&g.Charged_bytes, a.Charged)
	atomic.StoreUint64(&g.Swap_bytes, a.Swap)
	atomic.StoreUint64(&g.Movable_bytes, a.Movable)
	atomic.StoreUint32(&g.Holders, uint32(a.Holders))
	atomic.AddUint32(&g.Sequence, 1)
}

// SetPiece shows what offsets of moves are multiples of on a GPU, in bytes.
func (c *Control) SetPiece(gpu int, bytes uint64) {
	atomic.StoreUint64(&(*abi.ControlPage)(c.at(0)).Gpus[gpu].Piece_bytes, bytes)
}

// SetContext shows what one context takes on a GPU in bytes, 0 where that is not known, whether contexts count against
// the cap, and whether memory reports are to show cap and swap together.
func (c *Control) SetContext(gpu int, bytes uint64, counted, virtual bool) {
	g := &(*abi.ControlPage)(c.at(0)).Gpus[gpu]
	var flags uint32
	if counted {
		flags = abi.GPUCountContext
	}
	if virtual {
		flags |= abi.GPUVirtual
	}
	atomic.StoreUint64(&g.Context_bytes, bytes)
	atomic.StoreUint32(&g.Flags, flags)
}

// End tells all who read or wait on the page that it is out of date.
func (c *Control) End() {
	ended := &(*abi.ControlPage)(c.at(0)).Ended
	atomic.StoreUint32(ended, 1)
	wake(ended)
}

// Close ends the page and lets go of it. Tenants keep their own mappings.
func (c *Control) Close() {
	c.End()
	c.unmap()
	unix.Close(c.readOnly)
}
