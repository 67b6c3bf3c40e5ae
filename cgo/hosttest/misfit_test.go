// Pages and versions that do not go with the library, under both settings of what then becomes of a
// program.

package hosttest

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"weir/cgo/abi"
)

// misfitPages are pages that are not to be used, and what the agent is told of each.
var misfitPages = map[string]struct {
	fds    func(t *testing.T, fds []int) []int
	reason uint32
}{
	"control page too long": {func(t *testing.T, fds []int) []int {
		return []int{newFile(t, 2*abi.PageBytes, controlSeals), fds[1]}
	}, abi.BadPageFile},
	"usage page too short": {func(t *testing.T, fds []int) []int {
		return []int{fds[0], newFile(t, 4096, usageSeals)}
	}, abi.BadPageFile},
	"a pipe": {func(t *testing.T, fds []int) []int {
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(ends[0]); unix.Close(ends[1]) })
		return []int{fds[0], ends[0]}
	}, abi.BadPageFile},
	"control page not sealed": {func(t *testing.T, fds []int) []int {
		return []int{newFile(t, abi.PageBytes, usageSeals), fds[1]}
	}, abi.BadPageSeals},
	"usage page not sealed": {func(t *testing.T, fds []int) []int {
		return []int{fds[0], newFile(t, abi.PageBytes, unix.F_SEAL_SEAL)}
	}, abi.BadPageSeals},
	"control page of a later version": {func(t *testing.T, fds []int) []int {
		later := newPage(t, abi.PageBytes, controlSeals)
		*later.word32(0) = abi.ControlMagic
		*later.word32(4) = abi.Version + 1
		return []int{later.fd, fds[1]}
	}, abi.BadPageContents},
	"usage page of zeros": {func(t *testing.T, fds []int) []int {
		return []int{fds[0], newFile(t, abi.PageBytes, usageSeals)}
	}, abi.BadPageContents},
}

// TestMisfitPages: the program is refused memory or let pass, and the agent is told once why.
func TestMisfitPages(t *testing.T) {
	for name, page := range misfitPages {
		for _, pass := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, passed %v", name, pass), func(t *testing.T) {
				t.Parallel()
				if !pass && !strings.HasPrefix(name, "control page") {
					t.Skip("each takes as long as a program waits for an agent that was never there")
				}
				a := newAgent(t, 10*mib)
				if pass {
					a.welcomeFlags = abi.WelcomePass
				}
				bad := true
				a.meddle = func(s *session, message any, fds []int) (any, []int, bool) {
					if _, ok := message.(abi.Welcome); ok && bad {
						fds = page.fds(t, fds)
					}
					return message, fds, true
				}
				a.start()
				h := startHost(t, address, a.path)
				if pass {
					h.ok("alloc %d", 20*mib)
				} else {
					h.want("err 2", "alloc 4096")
				}
				a.eventually("the agent was told", func() bool { return len(a.notes) > 0 })
				a.mu.Lock()
				if n := a.notes[0]; len(a.notes) != 1 || n.Code != abi.NoteBadPage || n.A != page.reason {
					t.Errorf("notes %+v", a.notes)
				}
				hellos := a.sessions[int32(h.cmd.Process.Pid)].hellos
				bad = false // from now on the agent is as it should be
				a.mu.Unlock()
				if !pass {
					h.ok("alloc %d", 2*mib)
					h.want("err 2", "alloc %d", 20*mib)
					return
				}
				// It is released for good, and asks nobody any more.
				h.ok("alloc %d", 20*mib)
				time.Sleep(100 * time.Millisecond)
				a.mu.Lock()
				defer a.mu.Unlock()
				if s := a.sessions[int32(h.cmd.Process.Pid)]; s.hellos != hellos || len(a.requests) > 0 {
					t.Errorf("%d connections, requests %+v", s.hellos, a.requests)
				}
			})
		}
	}
}

func closing(reason, flags uint32) abi.Close {
	return abi.Close{
		Header: abi.Header{Type: abi.MsgClose, Bytes: uint16(unsafe.Sizeof(abi.Close{}))},
		Reason: reason, Flags: flags,
	}
}

// TestVersionRefused: an agent that does not speak the library's version says what is to become of
// the program: of what waits, and of what comes later. Only that reason releases anyone.
func TestVersionRefused(t *testing.T) {
	for _, c := range []struct {
		reason, flags uint32
		released      bool
	}{
		{abi.CloseVersion, 0, false}, {abi.CloseVersion, abi.ClosePass, true},
		{abi.CloseIdentity, abi.ClosePass, false}, {abi.ClosePage, abi.ClosePass, false},
		{abi.CloseVersion, ^uint32(abi.ClosePass), false},
	} {
		t.Run(fmt.Sprintf("reason %d, flags %x", c.reason, c.flags), func(t *testing.T) {
			t.Parallel()
			a := newAgent(t, 10*mib)
			a.meddle = func(s *session, message any, fds []int) (any, []int, bool) {
				if _, ok := message.(abi.Welcome); ok {
					return closing(c.reason, c.flags), nil, true
				}
				return message, fds, true
			}
			a.start()
			h := startHost(t, address, a.path)
			for range 2 {
				if c.released {
					h.ok("alloc %d", 20*mib)
				} else {
					h.want("err 2", "alloc 4096")
				}
			}
		})
	}
}

// TestReleasedWhileItWaits: threads that wait for an answer go on when the agent that comes back does
// not speak their version any more, and what they have freed before is no credit of anybody's.
func TestReleasedWhileItWaits(t *testing.T) {
	t.Parallel()
	a := newAgent(t, 10*mib)
	var silent, later bool
	a.meddle = func(s *session, message any, fds []int) (any, []int, bool) {
		switch message.(type) {
		case abi.Welcome:
			if later {
				return closing(abi.CloseVersion, abi.ClosePass), nil, true
			}
		case abi.Verdict:
			return message, fds, !silent
		}
		return message, fds, true
	}
	a.start()
	h := startHost(t, address, a.path)
	p := h.ok("alloc %d", 4*mib)[0]
	a.session(h, 1)
	a.mu.Lock()
	silent = true
	before := len(a.requests)
	a.mu.Unlock()
	h.send("alloc %d", 5*mib)
	a.eventually("it asks", func() bool { return len(a.requests) > before })
	a.mu.Lock()
	later = true
	a.mu.Unlock()
	a.drop()
	if got := h.answer(); len(got) < 2 || got[:2] != "ok" {
		t.Errorf("the waiting thread got %q", got)
	}
	h.ok("free %d", p)
	h.ok("alloc %d", 100*mib)
}
