// The stand-in for the agent: sockets, pages, sessions. What it says is in protocol_test.go.

package hosttest

import (
	"errors"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"weir/cgo/abi"
)

const (
	gpus          = 2
	usageSeals    = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	controlSeals  = usageSeals | unix.F_SEAL_FUTURE_WRITE
	agentWaitMS   = 5000
	unlimited     = uint64(abi.Unlimited)
	pageCredit    = unsafe.Offsetof(abi.UsagePage{}.Gpus)
	pageGPUs      = unsafe.Offsetof(abi.ControlPage{}.Gpus)
	sizeofUsage   = unsafe.Sizeof(abi.GPUUsage{})
	sizeofControl = unsafe.Sizeof(abi.GPUControl{})
)

// page is a memory file, mapped here for writing.
type page struct {
	fd     int
	memory []byte
}

func newPage(t testing.TB, size int64, seals int) page {
	fd, err := unix.MemfdCreate("page", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	memory, err := unix.Mmap(fd, 0, abi.PageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fd)
		unix.Munmap(memory)
	})
	return page{fd, memory}
}

func (p page) word64(at uintptr) *uint64 { return (*uint64)(unsafe.Pointer(&p.memory[at])) }
func (p page) word32(at uintptr) *uint32 { return (*uint32)(unsafe.Pointer(&p.memory[at])) }

// credit is the word that both sides change.
func (p page) credit(gpu int) *uint64 {
	return p.word64(pageCredit + uintptr(gpu)*sizeofUsage)
}

// session is what the agent knows of one process.
type session struct {
	id      uint64
	pid     int32
	conn    *net.UnixConn // nil: detached
	usage   page
	inode   uint64
	granted [gpus]uint64
	hello   abi.Hello // the latest
	hellos  int
}

// agent is a stand-in for weir's agent with one container: it keeps the promises of the ABI unless told
// to break one.
type agent struct {
	t    testing.TB
	path string

	mu       sync.Mutex
	listener *net.UnixListener
	conns    map[*net.UnixConn]bool
	sessions map[int32]*session
	control  page
	caps     [gpus]uint64
	nextID   uint64
	waitMS   uint32
	notes    []abi.Note
	turns    []abi.Turn // what was said of GPU time
	requests []abi.Request
	queries  int
	shares   map[abi.ShareKey]*share
	drops    int
	// What the control page says of contexts, and what the answer to a MEASURE is.
	contextBytes, measured uint64
	countContexts          bool
	measures               []abi.Measure
	welcomeFlags           uint32
	movable                movables
	// Changes a message before it leaves, or keeps it by returning false. Called with mu held.
	meddle func(s *session, message any, fds []int) (any, []int, bool)
	work   sync.WaitGroup
}

func uuidOf(gpu int) [16]uint8 {
	var uuid [16]uint8
	for i := range uuid {
		uuid[i] = uint8(0xa0 + gpu)
	}
	return uuid
}

// newAgent makes an agent that does not run yet.
func newAgent(t testing.TB, caps ...uint64) *agent {
	a := &agent{t: t, path: filepath.Join(t.TempDir(), "agent.sock"), sessions: map[int32]*session{},
		shares: map[abi.ShareKey]*share{},
		conns:  map[*net.UnixConn]bool{}, waitMS: agentWaitMS, caps: [gpus]uint64{unlimited, unlimited}}
	copy(a.caps[:], caps)
	t.Cleanup(a.stop)
	return a
}

func startAgent(t testing.TB, caps ...uint64) *agent {
	a := newAgent(t, caps...)
	a.start()
	return a
}

// start makes a new control page and listens: a restarted agent that has read its records.
func (a *agent) start() {
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: a.path, Net: "unixpacket"})
	if err != nil {
		a.t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listener = listener
	a.control = newPage(a.t, abi.PageBytes, controlSeals)
	a.nextID += 1000
	*a.control.word32(0) = abi.ControlMagic
	*a.control.word32(4) = abi.Version
	*a.control.word32(8) = gpus
	*a.control.word64(16) = a.nextID
	for gpu := range gpus {
		uuid := uuidOf(gpu)
		copy(a.control.memory[pageGPUs+uintptr(gpu)*sizeofControl:], uuid[:])
	}
	a.publish()
	a.work.Add(1)
	go a.accept(listener)
}

// stop ends the agent as SIGKILL would: nothing is said to anyone.
func (a *agent) stop() {
	a.mu.Lock()
	if a.listener != nil {
		a.listener.Close()
		a.listener = nil
	}
	for conn := range a.conns {
		conn.Close()
		delete(a.conns, conn)
	}
	for _, s := range a.sessions {
		s.conn = nil
	}
	a.mu.Unlock()
	a.work.Wait()
}

// drop ends the connections, the agent lives on.
func (a *agent) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for conn := range a.conns {
		conn.Close()
	}
}

func (a *agent) setCap(gpu int, bytes uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.caps[gpu] = bytes
	a.publish()
}

// publish writes caps and charges into the control page.
func (a *agent) publish() {
	for gpu := range gpus {
		charged, holders := a.charged(gpu)
		at := pageGPUs + uintptr(gpu)*sizeofControl
		sequence := a.control.word32(at + unsafe.Offsetof(abi.GPUControl{}.Sequence))
		atomic.AddUint32(sequence, 1)
		atomic.StoreUint32(a.control.word32(at+unsafe.Offsetof(abi.GPUControl{}.Holders)), holders)
		atomic.StoreUint64(a.control.word64(at+unsafe.Offsetof(abi.GPUControl{}.Cap_bytes)), a.caps[gpu])
		atomic.StoreUint64(a.control.word64(at+unsafe.Offsetof(abi.GPUControl{}.Charged_bytes)), charged)
		atomic.StoreUint64(a.control.word64(at+unsafe.Offsetof(abi.GPUControl{}.Context_bytes)), a.contextBytes)
		if a.countContexts {
			atomic.StoreUint32(a.control.word32(at+unsafe.Offsetof(abi.GPUControl{}.Flags)), abi.GPUCountContext)
		}
		atomic.AddUint32(sequence, 1)
	}
	a.publishSwap()
}

func (a *agent) charged(gpu int) (bytes uint64, holders uint32) {
	for _, s := range a.sessions {
		bytes += s.granted[gpu]
		if s.granted[gpu] > 0 {
			holders++
		}
	}
	for _, one := range a.shares {
		if one.gpu == gpu {
			bytes += one.bytes
		}
	}
	return bytes, holders
}

func (a *agent) accept(listener *net.UnixListener) {
	defer a.work.Done()
	for {
		conn, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		a.mu.Lock()
		if a.listener != listener {
			conn.Close()
		} else {
			a.conns[conn] = true
			a.work.Add(1)
			go a.serve(conn)
		}
		a.mu.Unlock()
	}
}

func peer(conn *net.UnixConn) (pid int32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = cred.Pid
		}
	})
	return pid, errors.Join(err, controlErr)
}

func (a *agent) serve(conn *net.UnixConn) {
	defer a.work.Done()
	pid, err := peer(conn)
	buffer := make([]byte, abi.MsgBytesMax)
	for err == nil {
		var n int
		n, err = conn.Read(buffer)
		if err != nil || n == 0 {
			break
		}
		a.mu.Lock()
		if a.conns[conn] {
			err = a.handle(conn, pid, buffer[:n])
		}
		a.mu.Unlock()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[pid]; s != nil && s.conn == conn {
		s.conn = nil
	}
	delete(a.conns, conn)
	conn.Close()
}
