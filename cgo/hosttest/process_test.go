// What else happens in a process: forks, closed descriptors, signals, kills, many at once.

package hosttest

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cgo/abi"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestFork(t *testing.T) {
	for _, kernel := range []string{"wipes", "does not wipe"} {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			a := startAgent(t, 10*mib)
			h := startHost(t, plain, a.path)
			if kernel != "wipes" {
				h.want("ok 0", "nowipe")
			}
			testFork(t, a, h, kernel == "wipes")
		})
	}
}

func testFork(t *testing.T, a *agent, h *host, wipes bool) {
	pointer := h.ok("alloc %d", mib)[0]
	s := a.session(h, 1)
	descriptors := h.ok("descriptors")[0]

	// A child that does not use CUDA has no session; what it inherits stays open until it does.
	if got := h.ok("fork descriptors"); got[0] != descriptors {
		t.Errorf("child has %d descriptors, want %d", got[0], descriptors)
	}
	if parent, child := h.ok("mapped")[0], h.ok("fork mapped")[0]; parent != 2 || child != 0 {
		t.Errorf("pages mapped: %d, in a child %d", parent, child)
	}
	if got := h.ok("fork books 0"); wipes && (got[0] != 0 || got[2] != 0) {
		t.Errorf("child begins with %v", got)
	}
	// Memory of the parent that a child frees is not the child's to give back.
	h.ok("fork free %d", pointer)
	if wipes && len(a.sessions) != 1 {
		t.Errorf("%d sessions, want the parent's only", len(a.sessions))
	}
	h.ok("fork alloc %d", 2*mib)
	var child *session
	a.eventually("the child's session", func() bool {
		for pid, one := range a.sessions {
			if pid != s.pid && one.granted[0] > 0 {
				child = one
			}
		}
		return child != nil
	})
	hello := child.hello
	if hello.Session != 0 || hello.Held[0].Bytes != 0 || child.granted[0] != 2*mib || int32(hello.Pid) != child.pid {
		t.Errorf("child declared %+v and was granted %v", hello.Header, child.granted)
	}
	a.noted(abi.NoteForked)
	h.ok("alloc %d", mib)
	a.balance(h, a.session(h, 1))
	if s.hellos != 1 {
		t.Errorf("the parent's session was renewed %d times", s.hellos-1)
	}
}

// The child closes the descriptors that it inherited, and has its own two in their place.
func TestForkedChildClosesInherited(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 10*mib)
	h := startHost(t, plain, a.path)
	h.ok("alloc 512")
	a.session(h, 1)
	want := h.ok("descriptors")[0]
	if got := h.ok("fork alloc 512 ; descriptors"); got[0] != want {
		t.Errorf("child has %d descriptors after its first use, want %d", got[0], want)
	}
	// Where the host has put something else there, that stays.
	want = h.ok("fork closefrom 1")[0]
	if got := h.ok("fork closefrom 1 ; alloc 512 ; descriptors"); got[0] != want+2 {
		t.Errorf("child has %d descriptors, want %d and two of its own", got[0], want)
	}
	a.balance(h, a.session(h, 1))
}

func TestVfork(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 10*mib)
	h := startHost(t, plain, a.path)
	h.ok("alloc 512")
	s := a.session(h, 1)
	h.want("ok 0", "vfork")
	h.ok("alloc %d", mib)
	a.balance(h, s)
	if s.hellos != 1 {
		t.Errorf("a vforked child ended its parent's connection")
	}
}

func TestClosefrom(t *testing.T) {
	for _, reuse := range []string{"nothing", "files", "sockets"} {
		t.Run("then "+reuse, func(t *testing.T) {
			t.Parallel()
			a := startAgent(t, 10*mib)
			h := startHost(t, plain, a.path)
			h.ok("alloc %d", mib)
			a.session(h, 1)
			left := h.ok("closefrom %d", map[string]int{"files": 1, "sockets": 2}[reuse])[0]
			h.ok("alloc %d", 2*mib)
			s := a.session(h, 2)
			if s.hello.Held_count != 1 || s.hello.Held[0].Bytes != mib {
				t.Errorf("declared %d: %v, want %d", s.hello.Held_count, s.hello.Held[0], mib)
			}
			if got := h.ok("descriptors")[0]; got != left+2 {
				t.Errorf("%d descriptors, want the program's %d and two", got, left)
			}
			if reuse == "sockets" {
				h.want("ok 0", "touched")
			}
			a.balance(h, s)
		})
	}
}

// A descriptor that is closed while nothing is asked: the helper notices by itself.
func TestClosefromIdle(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 10*mib)
	h := startHost(t, plain, a.path)
	pointer := h.ok("alloc %d", mib)[0]
	a.session(h, 1)
	h.ok("closefrom 1")
	h.ok("free %d", pointer)
	s := a.session(h, 2)
	a.balance(h, s)
}

// What a program makes of its rights and its environment before it uses CUDA does not free it of its
// cap.
func TestDaemon(t *testing.T) {
	for _, what := range []string{"group", "clear", "unset"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if what == "group" && os.Geteuid() != 0 {
				t.Skip("only root may take another group")
			}
			a := startAgent(t, 2*mib)
			h := startHost(t, plain, a.path, "WEIR_SOCKE=/nowhere", "WEIR_SOCKETS=/nowhere",
				"LONG="+strings.Repeat("WEIR_SOCKET=/nowhere", 100))
			h.want("ok 0", "daemon %s", what)
			h.want("err 2", "alloc %d", 3*mib)
			h.ok("alloc %d", mib)
			a.balance(h, a.session(h, 1))
		})
	}
}

func TestSignalHandlerComesBack(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	h := startHost(t, plain, a.path)
	pointer := h.ok("alloc 512")[0]
	h.want("ok 2 2 0", "locked") // allocation and free refused, the report is given
	h.ok("free %d", pointer)
	h.ok("signals 700")
	if got := h.ok("books 0"); got[0] != 0 || got[2] != 0 {
		t.Errorf("after all was freed: %v", got)
	}
	a.balance(h, a.session(h, 1))
}

// The helper: there once the agent is needed, named, its signals blocked but those of the libc, and
// gone with the process.
func TestHelperThread(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	h := startHost(t, plain, a.path)
	h.want("ok 0", "init")
	if threads := threadsOf(t, h); threads != 1 {
		t.Errorf("%d threads before the agent is needed", threads)
	}
	h.ok("alloc 512")
	a.session(h, 1)
	dir := "/proc/" + strconv.Itoa(h.cmd.Process.Pid) + "/task/"
	tasks, err := os.ReadDir(dir)
	if err != nil || len(tasks) != 2 {
		t.Fatalf("threads: %v %v, want two", tasks, err)
	}
	status := readFile(t, dir+tasks[1].Name()+"/status")
	if !strings.HasPrefix(status, "Name:\tweir\n") || !strings.Contains(status, "SigBlk:\tfffffffc7ffbfeff\n") {
		t.Errorf("helper's status:\n%s", status)
	}
}

// Where no thread can be made, the agent counts as absent, and the program lives on.
func TestNoHelperThread(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	h := startHost(t, plain, a.path)
	h.want("ok 0", "nothreads")
	h.want("ok 0", "init")
	h.want("err 2", "alloc 512")
	h.want("ok 0", "errno")
	if threads := threadsOf(t, h); threads != 1 {
		t.Errorf("%d threads", threads)
	}
}

// More threads than there are places to wait in: the others wait for a place.
func TestCrowdOfThreads(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	h := startHost(t, plain, a.path)
	h.send("crowd 700")
	time.Sleep(300 * time.Millisecond)
	a.start()
	if line := h.answer(); line != "ok 0" {
		t.Errorf("threads without memory: %s", line)
	}
	if got := h.ok("books 0"); got[0] != 700*512 || got[2] != 700 {
		t.Errorf("books: %v", got)
	}
	a.balance(h, a.session(h, 1))
}

// A process that is stopped while it waits, for longer than it would wait, still takes the answer.
func TestStoppedWhileWaiting(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.waitMS = 2000
	a.start()
	h := startHost(t, plain, a.path)
	h.ok("alloc 512")
	a.mu.Lock() // the agent is busy
	h.send("alloc 512")
	time.Sleep(100 * time.Millisecond)
	h.cmd.Process.Signal(syscall.SIGSTOP)
	a.mu.Unlock()
	time.Sleep(3 * time.Second)
	h.cmd.Process.Signal(syscall.SIGCONT)
	if line := h.answer(); !strings.HasPrefix(line, "ok ") {
		t.Errorf("allocation of a process that was stopped: %s", line)
	}
}

func TestManyProcesses(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 64*mib)
	var hosts []*host
	for range 32 {
		hosts = append(hosts, startHost(t, plain, a.path))
	}
	for _, h := range hosts {
		h.send("alloc %d", 3*mib)
	}
	got := 0
	for _, h := range hosts {
		if strings.HasPrefix(h.answer(), "ok ") {
			got++
		}
	}
	if got != 21 { // what fits is given
		t.Errorf("%d of 32 allocations of 3 MiB under 64 MiB, want 21", got)
	}
	for _, h := range hosts {
		a.balance(h, a.session(h, 1))
	}
}

// Killed in the middle: the credit word never claims more than was granted.
func TestKilled(t *testing.T) {
	t.Parallel()
	a := startAgent(t, 256*mib, 256*mib)
	seed := newSeed(t)
	for i := range 20 {
		h := startHost(t, plain, a.path)
		h.send("stress 4 10000 %d 1", seed+uint64(i))
		s := a.session(h, 1)
		time.Sleep(time.Duration(seed%20+uint64(i)) * time.Millisecond)
		h.kill()
		<-h.ended
		h.ended <- nil
		a.mu.Lock()
		for gpu := range gpus {
			if unused := *s.usage.credit(gpu); unused > s.granted[gpu] {
				t.Errorf("killed: %d unused of %d granted", unused, s.granted[gpu])
			}
			s.granted[gpu] = 0
		}
		delete(a.sessions, s.pid)
		delete(a.conns, s.conn) // what it had sent is heard no more
		a.mu.Unlock()
	}
}
