// Agents that restart, stay away, say no, answer late, or misbehave.

package hosttest

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"weir/cgo/abi"
)

func TestAgentRestarts(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 10*mib)
	h := startHost(t, plain, a.path)
	first := h.ok("alloc %d", mib)[0]
	spare := h.ok("alloc %d", mib)[0]
	h.want("ok 0", "free %d", spare)
	before := a.session(h, 1).id
	inode := a.session(h, 1).inode
	a.stop()
	second := h.ok("alloc %d", mib/2)[0] // out of credit
	h.want("ok 0", "free %d", first)
	h.send("alloc %d", 4*mib) // waits
	select {
	case line := <-h.lines:
		t.Fatalf("allocation beyond credit without an agent: %q", line)
	case <-time.After(300 * time.Millisecond):
	}
	a.start()
	if line := h.answer(); !strings.HasPrefix(line, "ok ") {
		t.Fatalf("allocation after the agent is back: %q", line)
	}
	s := a.session(h, 2)
	if s.hello.Session != before || s.hello.Usage_inode != inode || s.hello.Held_count != 1 || s.hello.Held[0].Bytes != mib/2 {
		t.Errorf("declared session %d inode %d held %v, want %d %d %d", s.hello.Session, s.hello.Usage_inode,
			s.hello.Held[0], before, inode, mib/2)
	}
	a.balance(h, s)
	h.want("ok 0", "free %d", second)
	a.balance(h, s)
}

// While a new connection is being made, from HELLO to WELCOME, the credit is closed: what is freed then
// must come out of the new page.
func TestFreeWhileConnecting(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 10*mib)
	h := startHost(t, plain, a.path)
	first, second := h.ok("alloc %d", mib)[0], h.ok("alloc %d", 2*mib)[0]
	a.session(h, 1)
	a.stop()
	release := make(chan struct{})
	a.meddle = func(s *session, message any, fds []int) (any, []int, bool) {
		if _, ok := message.(abi.Welcome); !ok {
			return message, fds, true
		}
		conn := s.conn
		go func() {
			<-release
			a.write(conn, message, fds)
		}()
		return nil, nil, false
	}
	a.start()
	s := a.session(h, 2)
	h.want("ok 0", "free %d", first)
	if got := h.ok("books 0"); got[0] != 2*mib || got[1] != mib {
		t.Errorf("owns %d and keeps %d back, want %d and %d", got[0], got[1], 2*mib, mib)
	}
	h.send("alloc %d", mib) // has to wait: the freed memory cannot be used before the page is open
	select {
	case line := <-h.lines:
		t.Fatalf("allocation while the credit is closed: %q", line)
	case <-time.After(200 * time.Millisecond):
	}
	close(release)
	if line := h.answer(); !strings.HasPrefix(line, "ok ") {
		t.Errorf("allocation: %q", line)
	}
	if unused := atomic.LoadUint64(s.usage.credit(0)); unused != mib {
		t.Errorf("%d in the credit word, want the %d that were freed", unused, mib)
	}
	a.balance(h, s)
	h.want("ok 0", "free %d", second)
	a.balance(h, s)
}

// A connection is made anew while a thread is inside the driver: what it allocates is declared already.
func TestReconnectDuringDriverCall(t *testing.T) {
	for _, code := range []int{0, 2} {
		t.Run(fmt.Sprintf("driver returns %d", code), func(t *testing.T) {
			t.Parallel()
			a := startAgent(t, 10*mib)
			h := startHost(t, plain, a.path)
			h.want("ok 0", "free %d", h.ok("alloc %d", mib)[0])
			s := a.session(h, 1)
			h.ok("fail %d", code)
			h.ok("dawdle 2000000") // more than a new connection takes
			h.send("alloc %d", mib)
			a.eventually("the credit is taken", func() bool { return atomic.LoadUint64(s.usage.credit(0)) == 0 })
			a.drop()
			s = a.session(h, 2)
			if s.hello.Held_count != 1 || s.hello.Held[0].Bytes != mib {
				t.Errorf("declared %d: %v, want %d", s.hello.Held_count, s.hello.Held[0], mib)
			}
			if line := h.answer(); strings.HasPrefix(line, "ok ") != (code == 0) {
				t.Errorf("allocation: %q", line)
			}
			a.balance(h, s)
		})
	}
}

func TestAgentAbsent(t *testing.T) {
	t.Parallel()
	a := newAgent(t, mib)
	h := startHost(t, plain, a.path)
	h.want("ok 0", "init")
	started := time.Now()
	h.want("err 2", "alloc 1000")
	if waited := time.Since(started); waited < agentWaitMS*time.Millisecond/2 {
		t.Errorf("refused after %v, want a wait", waited)
	}
	if got := h.ok("info"); got[0] != 0 {
		t.Errorf("free memory where all is refused: %d", got[0])
	}
	a.start()
	if note := a.noted(abi.NoteRefused); note.B != 1024 {
		t.Errorf("note: %+v", note)
	}
	h.ok("alloc 1000")
	a.balance(h, a.session(h, 1))
	h.want("ok 0", "errno")
}

// A socket path that no socket can have, and a socket that nobody may be at, are agents that are away.
func TestSocketPaths(t *testing.T) {
	t.Parallel()
	h := startHost(t, plain, "/"+strings.Repeat("x", 200))
	h.want("err 2", "alloc 1000")
	h.want("ok 0", "errno")
}

func TestSessionEndsForGood(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 10*mib)
	h := startHost(t, plain, a.path)
	h.ok("alloc %d", mib)
	a.session(h, 1)
	a.end(abi.CloseIdentity)
	a.stop()
	started := time.Now()
	h.want("err 2", "alloc %d", 2*mib)
	if waited := time.Since(started); waited > agentWaitMS*time.Millisecond/2 {
		t.Errorf("waited %v for an agent that has said no", waited)
	}
	a.start() // another agent may think otherwise
	s := a.session(h, 2)
	// The agent has let the process in, but its helper may not have read so yet: until then it refuses.
	deadline := time.Now().Add(20 * time.Second)
	for !strings.HasPrefix(h.do("alloc %d", 2*mib), "ok") {
		if time.Now().After(deadline) {
			t.Fatal("refused though another agent has let the process in")
		}
		time.Sleep(time.Millisecond)
	}
	a.balance(h, s)
	a.end(abi.CloseShutdown)
	h.ok("alloc %d", 3*mib)
	a.balance(h, a.session(h, 3))
}

// TestRefusedBeforeItGreets: an agent that knows at once that it does not serve this process says so
// and hangs up, be it before or after HELLO has come. The reason is heard, so nobody waits.
func TestRefusedBeforeItGreets(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agent.sock")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			refusal := closing(abi.CloseIdentity, 0)
			conn.Write(unsafe.Slice((*byte)(unsafe.Pointer(&refusal)), unsafe.Sizeof(refusal)))
			conn.Close()
		}
	}()
	for range 10 {
		h := startHost(t, plain, path)
		started := time.Now()
		h.want("err 2", "alloc %d", mib)
		if waited := time.Since(started); waited > agentWaitMS*time.Millisecond/2 {
			t.Fatalf("waited %v for an agent that has said no", waited)
		}
	}
}

func TestLateGrant(t *testing.T) {
	t.Parallel()
	a := newAgent(t, 10*mib)
	a.waitMS = 50
	var late atomic.Bool
	a.meddle = func(s *session, message any, fds []int) (any, []int, bool) {
		if _, ok := message.(abi.Verdict); ok && late.Load() {
			conn := s.conn
			time.AfterFunc(400*time.Millisecond, func() { a.write(conn, message, nil) })
			return nil, nil, false
		}
		return message, fds, true
	}
	a.start()
	h := startHost(t, plain, a.path)
	h.ok("alloc 512")
	s := a.session(h, 1)
	late.Store(true)
	h.want("err 2", "alloc %d", mib)
	a.eventually("the late grant in the credit word", func() bool { return atomic.LoadUint64(s.usage.credit(0)) == mib })
	a.balance(h, s)
	h.ok("alloc %d", mib)
}

// What an agent must not do: each costs it the connection, and nothing else.
func TestBadAgent(t *testing.T) {
	small := func(t *testing.T) int { return newFile(t, 4096, usageSeals) }
	tests := []struct {
		name   string
		meddle func(t *testing.T, message any, fds []int) (any, []int)
	}{
		{"WELCOME without pages", func(t *testing.T, m any, fds []int) (any, []int) { return m, nil }},
		{"WELCOME with one page", func(t *testing.T, m any, fds []int) (any, []int) { return m, fds[:1] }},
		{"WELCOME with three pages", func(t *testing.T, m any, fds []int) (any, []int) { return m, append(fds, fds[0]) }},
		{"WELCOME with many pages", func(t *testing.T, m any, fds []int) (any, []int) {
			return m, append(append(append(fds, fds...), fds...), fds...)
		}},
		{"pages swapped", func(t *testing.T, m any, fds []int) (any, []int) { return m, []int{fds[1], fds[0]} }},
		{"usage page short", func(t *testing.T, m any, fds []int) (any, []int) { return m, []int{fds[0], small(t)} }},
		{"usage page not sealed", func(t *testing.T, m any, fds []int) (any, []int) {
			return m, []int{fds[0], newFile(t, abi.PageBytes, 0)}
		}},
		{"usage page of zeros", func(t *testing.T, m any, fds []int) (any, []int) {
			return m, []int{fds[0], newFile(t, abi.PageBytes, usageSeals)}
		}},
		{"WELCOME of another question", func(t *testing.T, m any, fds []int) (any, []int) {
			w := m.(abi.Welcome)
			w.Header.Seq++
			return w, fds
		}},
		{"WELCOME with too many GPUs", func(t *testing.T, m any, fds []int) (any, []int) {
			w := m.(abi.Welcome)
			w.Gpu_count = abi.GPUsMax + 1
			return w, fds
		}},
		{"unknown type", func(t *testing.T, m any, fds []int) (any, []int) { return []byte{99, 0, 8, 0, 1, 0, 0, 0}, nil }},
		{"short message", func(t *testing.T, m any, fds []int) (any, []int) { return []byte{2, 0}, nil }},
		{"long message", func(t *testing.T, m any, fds []int) (any, []int) { return make([]byte, 5000), nil }},
		{"message with a wrong length", func(t *testing.T, m any, fds []int) (any, []int) {
			return []byte{abi.MsgVerdict, 0, 40, 0, 1, 0, 0, 0}, nil
		}},
		{"VERDICT in place of WELCOME", func(t *testing.T, m any, fds []int) (any, []int) {
			return abi.Verdict{Header: abi.Header{Type: abi.MsgVerdict, Bytes: 40, Seq: 1}}, nil
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := newAgent(t, 10*mib)
			bad := true
			a.meddle = func(s *session, message any, fds []int) (any, []int, bool) {
				if _, ok := message.(abi.Welcome); ok && bad {
					bad = false
					message, fds = test.meddle(t, message, fds)
				}
				return message, fds, true
			}
			a.start()
			h := startHost(t, address, a.path)
			before := h.ok("descriptors")[0]
			h.ok("alloc 512")
			a.balance(h, a.session(h, 2))
			if after := h.ok("descriptors")[0]; after != before+2 {
				t.Errorf("%d descriptors before, %d after, want the socket and the usage page more", before, after)
			}
		})
	}
}

func newFile(t *testing.T, size int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("file", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return fd
}

// A verdict that does not answer its question must not turn into memory.
func TestWrongVerdicts(t *testing.T) {
	tests := []struct {
		name   string
		meddle func(v abi.Verdict) any
	}{
		{"less granted", func(v abi.Verdict) any { v.Granted_bytes /= 2; return v }},
		{"more granted", func(v abi.Verdict) any { v.Granted_bytes *= 2; return v }},
		{"an answer to a request", func(v abi.Verdict) any {
			return abi.Answer{Header: abi.Header{Type: abi.MsgAnswer, Bytes: uint16(unsafe.Sizeof(abi.Answer{})), Seq: v.Header.Seq}}
		}},
		{"of another GPU than there is", func(v abi.Verdict) any { v.Header.Seq += 7; v.Gpu = 99; return v }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := newAgent(t, 10*mib)
			a.waitMS = 1500 // where nothing answers the question
			bad := true
			a.meddle = func(s *session, message any, fds []int) (any, []int, bool) {
				if v, ok := message.(abi.Verdict); ok && bad {
					bad = false
					message = test.meddle(v)
					s.granted = [gpus]uint64{}
				}
				return message, fds, true
			}
			a.start()
			h := startHost(t, address, a.path)
			h.do("alloc 4096")
			h.ok("alloc 8192")
			if got := h.ok("driver"); got[0] > 4096+8192 {
				t.Errorf("the driver has %d in use", got[0])
			}
			a.balance(h, a.session(h, 1))
		})
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	path := t.TempDir() + "/log"
	h := startHost(t, plain, a.path, "WEIR_LOG="+path)
	h.ok("alloc 512")
	a.session(h, 1)
	text := readFile(t, path)
	if !strings.HasPrefix(text, "weir ") || !strings.Contains(text, ": connected, session: ") {
		t.Errorf("log: %q", text)
	}
}
