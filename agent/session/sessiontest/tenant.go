package sessiontest

// A tenant that keeps to the protocol.

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"weir/cgo/abi"
)

// Errors of Alloc.
var (
	// ErrOverCap is a refusal by the agent.
	ErrOverCap = errors.New("refused: over the cap")
	// ErrAway is a refusal because no agent answered within its agent_wait.
	ErrAway = errors.New("refused: the agent is away")
)

// reconnectFirst and reconnectLast bound the back-off between tries to reach an agent.
const (
	reconnectFirst = 5 * time.Millisecond
	reconnectLast  = 100 * time.Millisecond
	awayDefault    = 5 * time.Second
)

// Tenant is one process's session, kept up as the library keeps it: allocations are taken out of
// the usage page where that suffices, else asked for; a lost connection is made anew, declaring
// what is held. Its methods may be called at the same time.
type Tenant struct {
	path    string
	program string

	mu        sync.Mutex
	conn      *Conn
	control   *abi.ControlPage // read-only
	usage     *abi.UsagePage
	open      bool // usage is in use; else what is in it is not to be touched any more
	controlFD int
	usageFD   int
	session   uint64
	seq       uint32
	away      time.Duration
	held      map[int]uint64
	shared    map[abi.ShareKey]piece
	movables  map[uint64]movable
	moves     map[uint64]abi.MoveEntry // that it was told of, and has not answered
	pending   []byte                   // an EXPORT that was not answered before the connection was lost
	uuids     [][16]byte
}

// piece is shared memory that a tenant has and is not charged for itself.
type piece struct {
	gpu      int
	bytes    uint64
	exported bool
}

// Connect makes the session of this process with the agent behind a socket.
func Connect(path, program string) (*Tenant, error) {
	t := &Tenant{
		path: path, program: program, held: make(map[int]uint64),
		shared: make(map[abi.ShareKey]piece), away: awayDefault,
		controlFD: -1, usageFD: -1,
	}
	if err := t.hello(); err != nil {
		return nil, err
	}
	return t, nil
}

// Close closes the connection and lets go of the pages. What is held stays charged.
func (t *Tenant) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.disconnect()
	t.dropPages()
}

// Alloc takes n bytes on a GPU, given by its place in the control page.
func (t *Tenant) Alloc(gpu int, n uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	wait := reconnectFirst
	for left := t.away; ; {
		if t.take(gpu, n) {
			t.held[gpu] += n
			return nil
		}
		verdict, err := t.ask(gpu, n)
		var closed *Closed
		switch {
		case err == nil && verdict.Verdict == abi.Granted:
			t.held[gpu] += verdict.Granted_bytes
			return nil
		case err == nil && verdict.Verdict == abi.OverCap:
			return ErrOverCap
		case err == nil:
			return fmt.Errorf("verdict %d", verdict.Verdict)
		case errors.As(err, &closed) && closed.Reason != abi.CloseShutdown:
			return err
		case left <= 0:
			return fmt.Errorf("%w: %w", ErrAway, err)
		}
		time.Sleep(wait)
		left -= wait // however long this process was stopped meanwhile
		wait = min(2*wait, reconnectLast)
	}
}

// Free gives back n bytes of what is held on a GPU.
func (t *Tenant) Free(gpu int, n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held[gpu] -= n
	if t.open {
		atomic.AddUint64(t.word(gpu), n)
	}
}

// Held is what the process holds on a GPU.
func (t *Tenant) Held(gpu int) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held[gpu]
}

// Credit is the unused credit on a GPU.
func (t *Tenant) Credit(gpu int) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open {
		return 0
	}
	return atomic.LoadUint64(t.word(gpu))
}

// Forge writes any value where the unused credit is.
func (t *Tenant) Forge(gpu int, value uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	atomic.StoreUint64(t.word(gpu), value)
}

// Pooled shows what pools of its that others may have imported have reserved.
func (t *Tenant) Pooled(gpu int, n uint64) {
	atomic.StoreUint64(&t.usage.Gpus[gpu].Pooled_bytes, n)
}

// Export makes n bytes of what is held on a GPU known by a key, and tells whether they are the
// container's now.
func (t *Tenant) Export(gpu int, n uint64, key abi.ShareKey) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	answer, err := t.share(abi.MsgExport, gpu, n, key)
	if err != nil || answer.Verdict != abi.Granted {
		return false, err
	}
	t.held[gpu] -= n
	t.shared[key] = piece{gpu, n, true}
	return true, nil
}

// Import takes what a key names, and tells whether somebody is charged for it.
func (t *Tenant) Import(key abi.ShareKey) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	answer, err := t.share(abi.MsgImport, -1, 0, key)
	if err != nil || answer.Verdict != abi.ChargedElsewhere {
		return false, err
	}
	p := t.shared[key]
	t.shared[key] = piece{int(answer.Gpu), answer.Bytes, p.exported}
	return true, nil
}

// Drop ends the having of what a key names.
func (t *Tenant) Drop(key abi.ShareKey) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.shared, key)
	if t.conn == nil {
		return nil // the next connection's declaration leaves it out
	}
	_, err := t.share(abi.MsgDrop, -1, 0, key)
	return err
}

// Forget has the next declaration leave out what a key names.
func (t *Tenant) Forget(key abi.ShareKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.shared, key)
}

// share says one thing of shared memory and waits for the answer. A connection that is lost
// meanwhile is made anew, and it is said again.
func (t *Tenant) share(kind uint16, gpu int, n uint64, key abi.ShareKey) (answer abi.Shared,
	err error) {
	t.seq++
	question := Share(kind, t.seq, uint32(gpu), n, key, 0)
	wait := reconnectFirst
	for left := t.away; ; {
		if t.conn == nil {
			err = t.hello()
		}
		if err == nil && t.pending != nil {
			err = t.receive(abi.MsgShared, &answer)
		} else if err == nil {
			err = t.roundTrip(question, abi.MsgShared, &answer)
		}
		t.pending = nil
		if kind == abi.MsgExport && t.conn == nil {
			t.pending = question
		}
		var closed *Closed
		if err == nil || left <= 0 ||
			errors.As(err, &closed) && closed.Reason != abi.CloseShutdown {
			return answer, err
		}
		err = nil
		time.Sleep(wait)
		left -= wait
		wait = min(2*wait, reconnectLast)
	}
}

// declare says what is shared to a new connection.
func (t *Tenant) declare() error {
	if err := t.declareMovable(); err != nil {
		return err
	}
	for key, p := range t.shared {
		kind := uint16(abi.MsgImport)
		if p.exported {
			kind = abi.MsgExport
		}
		again := Share(kind, 1, uint32(p.gpu), p.bytes, key, abi.ShareAgain)
		if err := t.conn.Send(again); err != nil {
			return err
		}
	}
	if t.pending != nil {
		if err := t.conn.Send(t.pending); err != nil {
			return err
		}
	}
	return t.conn.Send(Share(abi.MsgDrop, 1, 0, 0, abi.ShareKey{}, abi.ShareAgain))
}

// Query asks how much one plain allocation on a GPU could still get.
func (t *Tenant) Query(gpu int) (free, limit uint64, err error) {
	answer, err := t.Answer(gpu)
	return answer.Free_bytes, answer.Cap_bytes, err
}

// Answer is Query with all that the agent says.
func (t *Tenant) Answer(gpu int) (answer abi.Answer, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == nil {
		if err := t.hello(); err != nil {
			return answer, err
		}
	}
	t.seq++
	question := Packet(abi.MsgQuery, t.seq, &abi.Query{Gpu: uint32(gpu)})
	err = t.roundTrip(question, abi.MsgAnswer, &answer)
	return answer, err
}

// Note tells the agent something that an operator should see.
func (t *Tenant) Note(code, a uint32, b uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conn.Send(Packet(abi.MsgNote, 0, &abi.Note{Code: code, A: a, B: b}))
}

// Shown is what the control page says of a GPU.
func (t *Tenant) Shown(gpu int) (limit, charged uint64, holders uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := &t.control.Gpus[gpu]
	for range 1000 { // an agent that was killed may have left the sequence odd
		before := atomic.LoadUint32(&g.Sequence)
		limit, charged = atomic.LoadUint64(&g.Cap_bytes), atomic.LoadUint64(&g.Charged_bytes)
		holders = atomic.LoadUint32(&g.Holders)
		if before%2 == 0 && atomic.LoadUint32(&g.Sequence) == before {
			break
		}
	}
	return limit, charged, holders
}

// Ended tells whether the control page says that it is out of date.
func (t *Tenant) Ended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return atomic.LoadUint32(&t.control.Ended) != 0
}

// FDs are the descriptors of the connection, the control page and the usage page.
func (t *Tenant) FDs() (conn, control, usage int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	conn = -1
	if t.conn != nil {
		conn = t.conn.FD
	}
	return conn, t.controlFD, t.usageFD
}

// Reconnect drops the connection, if there is one, and says HELLO anew.
func (t *Tenant) Reconnect() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.disconnect()
	return t.hello()
}

// ask sends a REQUEST and waits for its verdict.
func (t *Tenant) ask(gpu int, n uint64) (v abi.Verdict, err error) {
	if t.conn == nil {
		if err := t.hello(); err != nil {
			return v, err
		}
	}
	t.seq++
	err = t.roundTrip(Request(t.seq, uint32(gpu), n), abi.MsgVerdict, &v)
	return v, err
}

func (t *Tenant) roundTrip(question []byte, kind uint16, answer any) error {
	if err := t.conn.Send(question); err != nil && !errors.Is(err, unix.EPIPE) {
		t.disconnect()
		return err
	}
	return t.receive(kind, answer) // a CLOSE may still lie in the socket
}

func (t *Tenant) receive(kind uint16, answer any) error {
	packet, _, err := t.conn.Receive()
	for err == nil && (Type(packet) == abi.MsgLook || Type(packet) == abi.MsgMove) {
		if err = t.keepMoves(packet); err == nil {
			packet, _, err = t.conn.Receive()
		}
	}
	if err == nil && Type(packet) == abi.MsgClose {
		err = AsClosed(packet)
	} else if err == nil && Type(packet) != kind {
		err = fmt.Errorf("message of type %d, where %d was due", Type(packet), kind)
	}
	if err == nil {
		return Decode(packet, answer)
	}
	t.disconnect()
	return err
}

// hello connects and declares. From the declaration on the old usage page is dead: credit taken
// from it would not be among what is declared. It stays open all the same until there is a new one,
// so that the agent can recall what is unused in it.
func (t *Tenant) hello() error {
	conn, err := Dial(t.path)
	if err != nil {
		return err
	}
	t.open = false
	var held []abi.Held
	for gpu, n := range t.held {
		held = append(held, abi.Held{Uuid: t.uuids[gpu], Bytes: n})
	}
	var packet []byte
	var fds []int
	again := t.session
	err = conn.Send(HelloAgain(again, t.program, held...))
	if err == nil || errors.Is(err, unix.EPIPE) {
		packet, fds, err = conn.Receive()
	}
	if err == nil && Type(packet) == abi.MsgClose {
		err = AsClosed(packet)
	}
	if err == nil {
		err = t.welcome(packet, fds)
	}
	if err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		conn.Close()
		return err
	}
	t.conn, t.moves = conn, nil
	if again == 0 {
		return nil
	}
	return t.declare()
}

func (t *Tenant) welcome(packet []byte, fds []int) error {
	var m abi.Welcome
	if err := Decode(packet, &m); err != nil {
		return err
	}
	if len(fds) != 2 || m.Page_bytes != abi.PageBytes {
		return fmt.Errorf("WELCOME with %d descriptors, pages of %d bytes", len(fds), m.Page_bytes)
	}
	const reading, writing = unix.PROT_READ, unix.PROT_READ | unix.PROT_WRITE
	control, err := unix.Mmap(fds[0], 0, abi.PageBytes, reading, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping the control page: %w", err)
	}
	usage, err := unix.Mmap(fds[1], 0, abi.PageBytes, writing, unix.MAP_SHARED)
	if err != nil {
		unix.Munmap(control)
		return fmt.Errorf("mapping the usage page: %w", err)
	}
	t.dropPages()
	t.control = (*abi.ControlPage)(unsafe.Pointer(&control[0]))
	t.usage, t.open = (*abi.UsagePage)(unsafe.Pointer(&usage[0])), true
	if t.usage.Session != m.Session || t.control.Count != uint32(m.Gpu_count) {
		return errors.New("the pages are not those of the WELCOME")
	}
	t.controlFD, t.usageFD, t.session = fds[0], fds[1], m.Session
	t.away = time.Duration(m.Agent_wait_ms) * time.Millisecond
	t.uuids = nil
	for _, g := range t.control.Gpus[:m.Gpu_count] {
		t.uuids = append(t.uuids, g.Uuid)
	}
	return nil
}

func (t *Tenant) take(gpu int, n uint64) bool {
	for t.open {
		credit := atomic.LoadUint64(t.word(gpu))
		if credit < n {
			return false
		}
		if atomic.CompareAndSwapUint64(t.word(gpu), credit, credit-n) {
			return true
		}
	}
	return false
}

func (t *Tenant) word(gpu int) *uint64 { return &t.usage.Gpus[gpu].Credit_bytes }

func (t *Tenant) disconnect() {
	if t.conn != nil {
		t.conn.Close()
		t.conn = nil
	}
}

func (t *Tenant) dropPages() {
	if t.usage != nil {
		unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(t.usage)), abi.PageBytes))
		unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(t.control)), abi.PageBytes))
		unix.Close(t.usageFD)
		unix.Close(t.controlFD)
	}
	t.usage, t.control, t.controlFD, t.usageFD, t.open = nil, nil, -1, -1, false
}
