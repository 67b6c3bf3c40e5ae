package page

// The usage page: shared with one tenant, believed in nothing.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"weir/cgo/abi"
)

// ErrForged is returned where a page claims more credit than the session was granted, or where what
// only the agent writes is not as the agent left it.
var ErrForged = errors.New("the usage page claims more than was granted, or was written over")

// ErrNotFound is returned where a process's usage page cannot be opened again.
var ErrNotFound = errors.New("the process's usage page was not found")

// retriesMax bounds how often a credit word is tried that changes under our hands. Each failed try
// is an allocation or free of the tenant; one that keeps its word moving keeps its credit.
const retriesMax = 1000

// Usage is a session's usage page as the agent sees it: memory in which every word may be a lie.
// Each word is read once, checked against the grant, and only then used.
//
// Of each GPU the agent changes two words at once: the unused credit, and beside it the count of
// its own changes, its moves. So an agent that was killed in the midst of a move leaves behind, in
// one number, whether the move was made. The library never touches the count.
type Usage struct {
	mapping
	inode uint64
}

// NewUsage makes the usage page of a session. fd is for the tenant and to be closed by the caller.
func NewUsage(session uint64) (u *Usage, fd int, err error) {
	m, fd, err := create(usageName, usageSeals)
	if err != nil {
		return nil, -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		m.unmap()
		unix.Close(fd)
		return nil, -1, fmt.Errorf("making page %s: %w", usageName, err)
	}
	u = &Usage{mapping: m, inode: st.Ino}
	p := (*abi.UsagePage)(u.at(0))
	p.Magic, p.Abi, p.Session = abi.UsageMagic, abi.Version, session
	return u, fd, nil
}

// Begin puts the first credit into a page that the tenant does not have yet.
func (u *Usage) Begin(gpu int, bytes uint64) { atomic.StoreUint64(u.word(gpu), bytes) }

// Inode is the number by which the page can be found again.
func (u *Usage) Inode() uint64 { return u.inode }

// Close lets go of the page. The tenant keeps its own mapping.
func (u *Usage) Close() { u.unmap() }

// Credit returns the unused credit on a GPU in bytes, or ErrForged if it is above granted.
func (u *Usage) Credit(gpu int, granted uint64) (uint64, error) {
	credit := atomic.LoadUint64(u.word(gpu))
	if credit > granted {
		return 0, ErrForged
	}
	return credit, nil
}

// Intact checks every word of the page that means anything, for the session with this id: granted
// and moves are those of each GPU. It returns ErrForged if any is not as it must be.
func (u *Usage) Intact(session uint64, granted, moves []uint64) error {
	p := (*abi.UsagePage)(u.at(0))
	if atomic.LoadUint32(&p.Magic) != abi.UsageMagic || atomic.LoadUint32(&p.Abi) != abi.Version ||
		atomic.LoadUint64(&p.Session) != session {
		return ErrForged
	}
	for gpu := range granted {
		if _, err := u.Credit(gpu, granted[gpu]); err != nil || u.Moves(gpu) != moves[gpu] {
			return ErrForged
		}
	}
	return nil
}

// Shown returns what the process says that its contexts take on a GPU, and their code and limits, in
// bytes: for display only, and each at most limit.
func (u *Usage) Shown(gpu int, limit uint64) (contexts, code uint64) {
	g := &(*abi.UsagePage)(u.at(0)).Gpus[gpu]
	return min(atomic.LoadUint64(&g.Context_bytes), limit), min(atomic.LoadUint64(&g.Code_bytes), limit)
}

// Pooled returns what the process says that pools of its which others may have imported have reserved on
// a GPU, in bytes, and at most limit.
func (u *Usage) Pooled(gpu int, limit uint64) uint64 {
	return min(atomic.LoadUint64(&(*abi.UsagePage)(u.at(0)).Gpus[gpu].Pooled_bytes), limit)
}

// Moves returns the count of the agent's moves on a GPU.
func (u *Usage) Moves(gpu int) uint64 { return atomic.LoadUint64(&u.pair(gpu)[1]) }

// Take takes at most limit bytes from the unused credit and returns how many it took. The tenant
// need not help: it may be stopped, and it may take at the same time. moves is the count before; it
// has risen by one if any bytes were taken. announce is called with the number of bytes before they
// are taken, perhaps more than once; the last call is the one that counts. An error of it is
// returned.
func (u *Usage) Take(gpu int, moves, granted, limit uint64,
	announce func(bytes uint64) error) (uint64, error) {
	for range retriesMax {
		credit, err := u.Credit(gpu, granted)
		taken := min(credit, limit)
		if err != nil || taken == 0 {
			return 0, err
		}
		if err := announce(taken); err != nil {
			return 0, err
		}
		moved, err := u.takeExactly(gpu, moves, granted, taken)
		if err != nil {
			return 0, err
		}
		if moved {
			return taken, nil
		}
	}
	return 0, nil
}

// takeExactly takes so many bytes, unless there are fewer. Announcing takes much longer than a busy
// tenant needs to change its word, so what was announced is tried again as the word changes.
func (u *Usage) takeExactly(gpu int, moves, granted, taken uint64) (bool, error) {
	for range retriesMax {
		credit, err := u.Credit(gpu, granted)
		if err != nil || credit < taken {
			return false, err
		}
		if moved, err := u.move(gpu, moves, credit, credit-taken); moved || err != nil {
			return moved, err
		}
	}
	return false, nil
}

// Give adds bytes to the unused credit, which was at most granted so far. It tells whether they are
// there now, and the count of moves has then risen by one: a tenant that keeps its word moving gets
// none.
func (u *Usage) Give(gpu int, moves, granted, bytes uint64) (bool, error) {
	for range retriesMax {
		credit, err := u.Credit(gpu, granted)
		if err != nil {
			return false, err
		}
		if moved, err := u.move(gpu, moves, credit, credit+bytes); moved || err != nil {
			return moved, err
		}
	}
	return false, nil
}

// move is one try to change the credit together with the count.
func (u *Usage) move(gpu int, moves, from, to uint64) (bool, error) {
	if compareAndSwapPair(u.pair(gpu), from, moves, to, moves+1) {
		return true, nil
	}
	if u.Moves(gpu) != moves {
		return false, ErrForged
	}
	return false, nil
}

func (u *Usage) word(gpu int) *uint64 { return &u.pair(gpu)[0] }

func (u *Usage) pair(gpu int) *[2]uint64 {
	return (*[2]uint64)(unsafe.Pointer(&(*abi.UsagePage)(u.at(0)).Gpus[gpu]))
}

// Reopen finds a usage page that an earlier agent made, by its inode, in the process that has it.
// The page is accepted only if it is a memfd of that inode with the seals of one.
func Reopen(pid int, inode uint64) (*Usage, error) {
	if u, err := reopenDescriptor(pid, inode); err == nil {
		return u, nil
	}
	return reopenMapping(pid, inode)
}

// reopenDescriptor looks among the process's open descriptors.
func reopenDescriptor(pid int, inode uint64) (*Usage, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	d, err := os.Open(dir)
	if err != nil {
		return nil, ErrNotFound
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, ErrNotFound
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		target, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(target, "/memfd:"+usageName) {
			continue
		}
		if u, err := accept(path, inode); err == nil {
			return u, nil
		}
	}
	return nil, ErrNotFound
}

// reopenMapping looks among what the process has mapped: it may have lost the descriptor. Only a
// privileged agent may follow these links.
func reopenMapping(pid int, inode uint64) (*Usage, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, ErrNotFound
	}
	number := strconv.FormatUint(inode, 10)
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if len(f) < 6 || f[4] != number || !strings.HasPrefix(f[5], "/memfd:"+usageName) {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		// The names of the links have no leading zeros, which lines of maps may have.
		link := fmt.Sprintf("/proc/%d/map_files/%s-%s", pid,
			strings.TrimLeft(from, "0"), strings.TrimLeft(to, "0"))
		if u, err := accept(link, inode); err == nil {
			return u, nil
		}
	}
	return nil, ErrNotFound
}

// accept opens the page at path if it is the right one. What lies there is in the tenant's hands
// and may change meanwhile: it is pinned first without opening it, and opened once it is known.
func accept(path string, inode uint64) (*Usage, error) {
	pin, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(pin)
	var st unix.Stat_t
	if err := unix.Fstat(pin, &st); err != nil {
		return nil, err
	}
	if st.Ino != inode || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != abi.PageBytes {
		return nil, ErrNotFound
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", pin), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	// Only a memfd can carry seals, and the number is that of one file among all memfds.
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	const forbidden = unix.F_SEAL_WRITE | unix.F_SEAL_FUTURE_WRITE
	if err != nil || seals&usageSeals != usageSeals || seals&forbidden != 0 {
		return nil, ErrNotFound
	}
	m, err := mapShared(fd)
	if err != nil {
		return nil, err
	}
	return &Usage{mapping: m, inode: inode}, nil
}
