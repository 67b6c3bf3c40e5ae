// Package wire reads the messages of tenants and writes those of the agent. It is pure: bytes in,
// values out. What a tenant sends may be anything at all; whatever is not exactly a message of the
// version in use is an error whose text says what was wrong, made to be shown to the tenant.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"weir/agent/ledger"
	"weir/cgo/abi"
)

// BytesMax is the most that one request may ask for, or a process may declare on one GPU, in bytes.
const BytesMax = ledger.RequestMax

// ErrVersion is returned for a HELLO that offers no version of the ABI that this agent speaks.
var ErrVersion = errors.New("no common version of the ABI")

const (
	headerBytes = 8
	// hello.abi_newest ends here: what must be there to know how to read the rest of a HELLO.
	helloVersionBytes = 16
	// answerBytes is room for every message of the agent.
	answerBytes = 128
	// leaseMax is the highest number of a lease: bit 0 of its word is not of it.
	leaseMax = 1<<31 - 1
)

// Want, Drained, Progress and Idle are what a tenant says of GPU time; they, too, differ in their types only.
type (
	Want     struct{ abi.Turn }
	Drained  struct{ abi.Turn }
	Progress struct{ abi.Turn }
	Idle     struct{ abi.Turn }
)

// Export, Import and Drop are the three things that a tenant says of a shared piece of memory. They
// look alike; what differs is the type in the header.
type (
	Export struct{ abi.Share }
	Import struct{ abi.Share }
	Drop   struct{ abi.Share }
)

// Decode reads one message of a tenant: an *abi.Hello, *abi.Request, *abi.Query, *abi.Measure,
// *Export, *Import, *Drop, *Want, *Drained, *Progress, *Idle, *abi.Moved, *Used, *Freed or *abi.Note.
func Decode(packet []byte) (any, error) {
	if len(packet) < headerBytes {
		return nil, fmt.Errorf("message of %d bytes, shorter than a header", len(packet))
	}
	if len(packet) > abi.MsgBytesMax {
		return nil, fmt.Errorf("message longer than %d bytes", abi.MsgBytesMax)
	}
	kind, length := binary.LittleEndian.Uint16(packet), binary.LittleEndian.Uint16(packet[2:])
	if int(length) != len(packet) {
		return nil, fmt.Errorf("message of %d bytes that says it has %d", len(packet), length)
	}
	switch kind {
	case abi.MsgHello:
		return decodeHello(packet)
	case abi.MsgRequest:
		return decode("REQUEST", packet, checkRequest)
	case abi.MsgQuery:
		return decode("QUERY", packet, checkQuery)
	case abi.MsgMeasure:
		return decode("MEASURE", packet, checkMeasure)
	case abi.MsgExport:
		return decode("EXPORT", packet, checkExport)
	case abi.MsgImport:
		return decode("IMPORT", packet, checkImport)
	case abi.MsgDrop:
		return decode("DROP", packet, checkDrop)
	case abi.MsgNote:
		return decode("NOTE", packet, checkNote)
	case abi.MsgWant:
		return decode("WANT", packet, func(m *Want) error { return checkTurn(&m.Turn, false) })
	case abi.MsgDrained:
		return decode("DRAINED", packet, func(m *Drained) error { return checkTurn(&m.Turn, true) })
	case abi.MsgProgress:
		return decode("PROGRESS", packet, func(m *Progress) error { return checkTurn(&m.Turn, true) })
	case abi.MsgIdle:
		return decode("IDLE", packet, func(m *Idle) error { return checkTurn(&m.Turn, false) })
	case abi.MsgMoved:
		return decode("MOVED", packet, checkMoved)
	case abi.MsgUsed:
		return decode("USED", packet, func(m *Used) error { return checkNamed(&m.Named, 0) })
	case abi.MsgFreed:
		return decode("FREED", packet, func(m *Freed) error { return checkNamed(&m.Named, 1) })
	default:
		return nil, fmt.Errorf("message of unknown type %d", kind)
	}
}

// decode reads a message that has exactly the size of its type, and checks its fields.
func decode[T any](name string, packet []byte, check func(*T) error) (any, error) {
	m := new(T)
	// The types are laid out as the messages are, little-endian (a test looks): package binary would
	// take its time over a HELLO, of which each process of a crowd sends one.
	if want := int(unsafe.Sizeof(*m)); len(packet) != want {
		return nil, fmt.Errorf("%s of %d bytes, where it has %d", name, len(packet), want)
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(m)), len(packet)), packet)
	if err := check(m); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// decodeHello looks at the offered versions first: a library of a later version may send more than
// this one knows, but begins its HELLO in the same way if it offers to speak this version.
func decodeHello(packet []byte) (any, error) {
	if len(packet) < helloVersionBytes {
		return nil, fmt.Errorf("HELLO of %d bytes", len(packet))
	}
	if magic := binary.LittleEndian.Uint32(packet[8:]); magic != abi.HelloMagic {
		return nil, fmt.Errorf("HELLO with magic %#x", magic)
	}
	oldest := binary.LittleEndian.Uint16(packet[12:])
	newest := binary.LittleEndian.Uint16(packet[14:])
	if oldest > abi.Version || newest < abi.Oldest || oldest > newest {
		return nil, fmt.Errorf("%w: the library speaks %d to %d, the agent %d to %d",
			ErrVersion, oldest, newest, abi.Oldest, abi.Version)
	}
	if known := binary.Size(abi.Hello{}); newest > abi.Version && len(packet) > known {
		packet = packet[:known]
	}
	return decode("HELLO", packet, checkHello)
}

func checkHello(m *abi.Hello) error {
	if m.Held_count > abi.GPUsMax {
		return fmt.Errorf("%d GPUs, more than %d", m.Held_count, abi.GPUsMax)
	}
	if m.Reserved != 0 {
		return errors.New("reserved field is not zero")
	}
	if !slices.Contains(m.Library[:], 0) || !slices.Contains(m.Program[:], 0) {
		return errors.New("text without an end")
	}
	seen := make(map[[16]byte]bool)
	for _, h := range m.Held[:m.Held_count] {
		if h.Bytes > BytesMax {
			return fmt.Errorf("%d bytes held on one GPU", h.Bytes)
		}
		if seen[h.Uuid] {
			return errors.New("a GPU is there twice")
		}
		seen[h.Uuid] = true
	}
	return nil
}

func checkRequest(m *abi.Request) error {
	if m.Bytes == 0 || m.Bytes > BytesMax {
		return fmt.Errorf("%d bytes asked for", m.Bytes)
	}
	if m.Kind < abi.KindPlain || m.Kind > abi.KindMovable {
		return fmt.Errorf("unknown kind %d", m.Kind)
	}
	if err := checkMovable(m); err != nil {
		return err
	}
	return checkSeq(m.Header)
}

func checkQuery(m *abi.Query) error {
	if m.Reserved != 0 {
		return errors.New("reserved field is not zero")
	}
	return checkSeq(m.Header)
}

func checkMeasure(m *abi.Measure) error {
	if m.Contexts == 0 || m.Contexts > abi.ContextsMax {
		return fmt.Errorf("%d contexts to be measured, of 1 to %d", m.Contexts, abi.ContextsMax)
	}
	if m.Bytes > BytesMax {
		return fmt.Errorf("%d bytes held beside them", m.Bytes)
	}
	return checkSeq(m.Header)
}

func checkExport(m *Export) error {
	if m.Bytes > BytesMax {
		return fmt.Errorf("%d bytes exported", m.Bytes)
	}
	return checkShare(&m.Share)
}

func checkImport(m *Import) error {
	if m.Bytes > BytesMax {
		return fmt.Errorf("%d bytes imported", m.Bytes)
	}
	return checkShare(&m.Share)
}

func checkDrop(m *Drop) error {
	all := m.Flags == abi.ShareAgain
	if all && (m.Gpu != 0 || m.Bytes != 0 || m.Key != abi.ShareKey{}) {
		return errors.New("all is declared, and something is named")
	}
	return checkShare(&m.Share)
}

func checkShare(m *abi.Share) error {
	if m.Flags&^abi.ShareAgain != 0 {
		return fmt.Errorf("unknown flags %#x", m.Flags)
	}
	return checkSeq(m.Header)
}

// checkTurn: waiting threads are told of by two of the messages only. Which GPUs there are the session knows.
func checkTurn(m *abi.Turn, waiting bool) error {
	switch {
	case m.Gpu >= abi.GPUsMax:
		return fmt.Errorf("GPU %d, of %d at most", m.Gpu, abi.GPUsMax)
	case m.Lease > leaseMax:
		return fmt.Errorf("lease %d, of %d at most", m.Lease, leaseMax)
	case m.Waiting != 0 && !waiting:
		return fmt.Errorf("%d threads that wait, where that is not told", m.Waiting)
	case m.Reserved != 0:
		return errors.New("reserved field is not zero")
	}
	return nil
}

func checkNote(m *abi.Note) error {
	if m.Code < abi.NoteRefused || m.Code > abi.NoteExported {
		return fmt.Errorf("unknown code %d", m.Code)
	}
	return nil
}

func checkSeq(h abi.Header) error {
	if h.Seq == 0 {
		return errors.New("question with number 0")
	}
	return nil
}

// Negotiated is the version that both sides of an accepted HELLO speak.
func Negotiated(m *abi.Hello) uint16 { return min(m.Abi_newest, abi.Version) }

// Text reads a zero-terminated string of a message. What cannot be printed is replaced: it ends up
// on operators' terminals.
func Text(field []int8) string {
	var s strings.Builder
	for _, c := range field {
		switch {
		case c == 0:
			return s.String()
		case c < ' ' || c == 0x7f:
			s.WriteByte('?')
		default:
			s.WriteByte(byte(c))
		}
	}
	return s.String()
}

// Encode writes a message of the agent, whose header it completes.
func Encode(m any) []byte {
	packet, err := binary.Append(make([]byte, 0, answerBytes), binary.LittleEndian, m)
	if err != nil {
		panic(fmt.Sprintf("wire: encoding %T: %v", m, err)) // not a message at all
	}
	var kind uint16
	switch m.(type) {
	case *abi.Welcome:
		kind = abi.MsgWelcome
	case *abi.Verdict:
		kind = abi.MsgVerdict
	case *abi.Answer:
		kind = abi.MsgAnswer
	case *abi.Measured:
		kind = abi.MsgMeasured
	case *abi.Shared:
		kind = abi.MsgShared
	case *abi.Turn: // of these the agent sends one only
		kind = abi.MsgLook
	case *abi.Move:
		kind = abi.MsgMove
	case *abi.Close:
		kind = abi.MsgClose
	}
	binary.LittleEndian.PutUint16(packet, kind)
	binary.LittleEndian.PutUint16(packet[2:], uint16(len(packet)))
	return packet
}

// Close makes the last message of a connection; text is cut to what fits.
func Close(reason, flags uint32, text string) []byte {
	m := &abi.Close{Reason: reason, Flags: flags}
	for i := range min(len(text), len(m.Text)-1) {
		m.Text[i] = int8(text[i])
	}
	return Encode(m)
}
