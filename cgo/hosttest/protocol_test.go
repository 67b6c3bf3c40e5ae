// What the stand-in for the agent answers, and how tests look at its books.

package hosttest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"weir/cgo/abi"
)

func decode[T any](message []byte) (value T) {
	binary.Read(bytes.NewReader(message), binary.LittleEndian, &value)
	return value
}

// handle answers one message, with mu held.
func (a *agent) handle(conn *net.UnixConn, pid int32, message []byte) error {
	header := decode[abi.Header](message)
	if int(header.Bytes) != len(message) {
		a.t.Errorf("message of type %d says %d bytes, has %d", header.Type, header.Bytes, len(message))
	}
	if header.Type == abi.MsgHello {
		return a.welcome(conn, pid, decode[abi.Hello](message))
	}
	s := a.sessions[pid]
	if s == nil || s.conn != conn {
		a.t.Errorf("message of type %d before HELLO", header.Type)
		return errors.New("no session")
	}
	if done, err := a.movableMessage(s, header, message); done {
		return err
	}
	switch header.Type {
	case abi.MsgRequest:
		request := decode[abi.Request](message)
		a.requests = append(a.requests, request)
		return a.send(s, a.decide(s, request), nil)
	case abi.MsgQuery:
		a.queries++
		query := decode[abi.Query](message)
		gpu := int(query.Gpu)
		others, _ := a.charged(gpu)
		for _, one := range a.sessions {
			others -= atomic.LoadUint64(one.usage.credit(gpu))
		}
		answer := abi.Answer{Header: abi.Header{Type: abi.MsgAnswer, Bytes: uint16(unsafe.Sizeof(abi.Answer{})), Seq: header.Seq},
			Gpu: query.Gpu, Free_bytes: max(a.caps[gpu], others) - others, Cap_bytes: a.caps[gpu], Used_bytes: others}
		return a.send(s, answer, nil)
	case abi.MsgExport, abi.MsgImport, abi.MsgDrop:
		if answer := a.share(s, decode[abi.Share](message)); answer != nil {
			return a.send(s, *answer, nil)
		}
	case abi.MsgMeasure:
		measure := decode[abi.Measure](message)
		a.measures = append(a.measures, measure)
		a.contextBytes = a.measured
		a.publish()
		answer := abi.Measured{Header: abi.Header{Type: abi.MsgMeasured, Bytes: uint16(unsafe.Sizeof(abi.Measured{})), Seq: header.Seq},
			Gpu: measure.Gpu, Bytes: a.measured}
		return a.send(s, answer, nil)
	case abi.MsgWant, abi.MsgDrained, abi.MsgProgress, abi.MsgIdle:
		a.turns = append(a.turns, decode[abi.Turn](message))
	case abi.MsgNote:
		a.notes = append(a.notes, decode[abi.Note](message))
	default:
		a.t.Errorf("message of type %d", header.Type)
	}
	return nil
}

// welcome begins or renews a session: what it was granted becomes what it declares.
func (a *agent) welcome(conn *net.UnixConn, pid int32, hello abi.Hello) error {
	s := a.sessions[pid]
	if s == nil {
		s = &session{pid: pid}
		a.sessions[pid] = s
	}
	if hello.Magic != abi.HelloMagic || hello.Header.Seq == 0 {
		a.t.Errorf("HELLO magic %x seq %d", hello.Magic, hello.Header.Seq)
	}
	if s.conn != nil && s.conn != conn {
		s.conn.Close()
		delete(a.conns, s.conn)
	}
	s.hello, s.hellos, s.conn = hello, s.hellos+1, conn
	s.granted = [gpus]uint64{}
	a.unnamed(s, hello.Session == 0)
	for _, held := range hello.Held[:hello.Held_count] {
		for gpu := range gpus {
			if held.Uuid == uuidOf(gpu) {
				s.granted[gpu] += held.Bytes
			}
		}
	}
	a.nextID++
	s.id = a.nextID
	s.usage = newPage(a.t, abi.PageBytes, usageSeals)
	var stat unix.Stat_t
	if err := unix.Fstat(s.usage.fd, &stat); err != nil {
		return err
	}
	s.inode = stat.Ino
	*s.usage.word32(0) = abi.UsageMagic
	*s.usage.word32(4) = abi.Version
	*s.usage.word64(8) = s.id
	a.publish()
	welcome := abi.Welcome{Header: abi.Header{Type: abi.MsgWelcome, Bytes: uint16(unsafe.Sizeof(abi.Welcome{})), Seq: hello.Header.Seq},
		Abi: abi.Version, Gpu_count: gpus, Agent_wait_ms: a.waitMS, Session: s.id, Page_bytes: abi.PageBytes, Flags: a.welcomeFlags}
	return a.send(s, welcome, []int{a.control.fd, s.usage.fd})
}

// decide grants what fits, after it has recalled what nobody uses.
func (a *agent) decide(s *session, request abi.Request) abi.Verdict {
	gpu := int(request.Gpu)
	verdict := abi.Verdict{Header: abi.Header{Type: abi.MsgVerdict, Bytes: uint16(unsafe.Sizeof(abi.Verdict{})), Seq: request.Header.Seq},
		Verdict: abi.OverCap, Gpu: request.Gpu, Cap_bytes: a.caps[gpu]}
	charged, _ := a.charged(gpu)
	if charged > a.caps[gpu] || a.caps[gpu]-charged < request.Bytes {
		for _, other := range a.sessions {
			unused := atomic.SwapUint64(other.usage.credit(gpu), 0)
			other.granted[gpu] -= unused
			charged -= unused
		}
	}
	if charged <= a.caps[gpu] && a.caps[gpu]-charged >= request.Bytes {
		s.granted[gpu] += request.Bytes
		charged += request.Bytes
		verdict.Verdict, verdict.Granted_bytes = abi.Granted, request.Bytes
	}
	verdict.Charged_bytes = charged
	a.publish()
	return verdict
}

func (a *agent) send(s *session, message any, fds []int) error {
	if a.meddle != nil {
		var pass bool
		if message, fds, pass = a.meddle(s, message, fds); !pass {
			return nil
		}
	}
	return a.write(s.conn, message, fds)
}

func (a *agent) write(conn *net.UnixConn, message any, fds []int) error {
	data, ok := message.([]byte)
	if !ok {
		var buffer bytes.Buffer
		if err := binary.Write(&buffer, binary.LittleEndian, message); err != nil {
			return err
		}
		data = buffer.Bytes()
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := conn.WriteMsgUnix(data, rights, nil)
	return err
}

// end sends CLOSE to every session and ends its connection.
func (a *agent) end(reason uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.sessions {
		if s.conn == nil {
			continue
		}
		text := abi.Close{Header: abi.Header{Type: abi.MsgClose, Bytes: uint16(unsafe.Sizeof(abi.Close{}))}, Reason: reason}
		a.write(s.conn, text, nil)
		s.conn.Close()
	}
}

// session returns the session of a process, once it is connected for the n-th time.
func (a *agent) session(h *host, n int) *session {
	a.t.Helper()
	pid := int32(h.cmd.Process.Pid)
	var found *session
	a.eventually("a session of the process", func() bool {
		found = a.sessions[pid]
		return found != nil && found.conn != nil && found.hellos >= n
	})
	return found
}

// eventually waits until a condition, looked at with mu held, is true.
func (a *agent) eventually(what string, holds func() bool) {
	a.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		a.mu.Lock()
		done := holds()
		a.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(deadline) {
			a.t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// noted waits for a note and returns it.
func (a *agent) noted(code uint32) (note abi.Note) {
	a.t.Helper()
	a.eventually("a note", func() bool {
		for _, one := range a.notes {
			if one.Code == code {
				note = one
				return true
			}
		}
		return false
	})
	return note
}

// balance compares the agent's books of a session with the library's: G - U must be what it owns.
func (a *agent) balance(h *host, s *session) {
	a.t.Helper()
	for gpu := range gpus {
		books := h.ok("books %d", gpu)
		a.mu.Lock()
		granted, unused := s.granted[gpu], atomic.LoadUint64(s.usage.credit(gpu))
		a.mu.Unlock()
		if unused > granted || granted-unused != books[0] || books[1] != 0 {
			a.t.Errorf("GPU %d: granted %d, unused %d, but the library owns %d and keeps %d back",
				gpu, granted, unused, books[0], books[1])
		}
	}
}

func threadsOf(t *testing.T, h *host) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(h.cmd.Process.Pid), "task"))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// newSeed gives a seed and prints it; WEIR_TEST_SEED repeats a run.
func newSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("WEIR_TEST_SEED"); text != "" {
		given, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = given
	}
	t.Logf("seed %d (WEIR_TEST_SEED repeats it)", seed)
	return seed
}
