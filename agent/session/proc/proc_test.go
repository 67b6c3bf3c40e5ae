package proc

// Tests on living processes: shells that fork, exec, end and are orphaned.

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// start runs a shell that prints its pid, then does script, reading lines of its input.
func start(t *testing.T, script string) (pid int, in func(string), out func() string) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	lines := bufio.NewReader(stdout)
	return cmd.Process.Pid, func(s string) { stdin.Write([]byte(s + "\n")) }, func() string {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(line)
	}
}

func read(t *testing.T, pid int) Stat {
	t.Helper()
	s, err := Read(pid)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParseStat(t *testing.T) {
	rest := " S 7 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 100 200 18446744073709551615 " +
		"94515 94516 140721 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 94517 94518 94519 1 2 3 4 0\n"
	got, err := parseStat(5, []byte("5 (a) b (c) Z 1)"+rest))
	if err != nil || got.Name != "a) b (c) Z 1" || got.Parent != 7 || got.Start != 4711 || got.Zombie {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"", "5", "5 (a", "5 )(", "5 (a) S 7", "5 (a)" + strings.Replace(rest,
		"4711", "x", 1)} {
		if got, err := parseStat(5, []byte(bad)); err == nil {
			t.Errorf("%q read as %+v", bad, got)
		}
	}
}

// TestAncestry: what is remembered does not outlive the one who was remembered.
func TestAncestry(t *testing.T) {
	parent, _, _ := start(t, "read line")
	self, err := OpenPID(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	child, err := OpenPID(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	a := NewAncestry(self.ID)
	for range 2 {
		if !a.Has(self) || !a.Has(child) {
			t.Error("root or its child does not descend from root")
		}
	}
	b := NewAncestry(child.ID)
	if b.Has(self) {
		t.Error("a parent descends from its child")
	}
	for i := range 2*ancestorsMax + 1 {
		a.remember([]ID{{PID: i, Start: 1}})
	}
	if len(a.known) > ancestorsMax {
		t.Errorf("%d ancestors are remembered", len(a.known))
	}
}

func TestDescends(t *testing.T) {
	self := read(t, os.Getpid())
	child, _, out := start(t, "sleep 100 & echo $!; wait")
	grandchild, err := strconv.Atoi(out())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Kill(grandchild, unix.SIGKILL)
	root := read(t, child).ID
	for _, c := range []struct {
		name string
		pid  int
		root ID
		want bool
	}{
		{"itself", child, root, true},
		{"child", child, self.ID, true},
		{"grandchild", grandchild, self.ID, true},
		{"parent", os.Getpid(), root, false},
		{"of a former process of that pid", grandchild, ID{PID: root.PID, Start: root.Start - 1}, false},
		{"no process", 1<<22 + 1, self.ID, false},
		{"init", 1, self.ID, false},
	} {
		if got := Descends(c.pid, c.root); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	found := Descendants(all, root)
	if len(found) != 2 || found[0].PID != child || found[1].PID != grandchild {
		t.Errorf("descendants of %d: %+v", child, found)
	}
}

// TestOrphan: a process whose parent has ended was handed to another and no longer descends.
func TestOrphan(t *testing.T) {
	child, in, out := start(t, "sleep 100 & echo $!; read line")
	grandchild, err := strconv.Atoi(out())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Kill(grandchild, unix.SIGKILL)
	root := read(t, child).ID
	handle, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	in("go")
	waitEnded(t, handle)
	for read(t, grandchild).Parent == child { // handed over a moment after
	}
	if Descends(grandchild, root) {
		t.Error("still counted as a descendant")
	}
}

func waitEnded(t *testing.T, h *Handle) {
	t.Helper()
	set := []unix.PollFd{{Fd: int32(h.FD()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(set, 10_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 || err != nil {
			t.Fatalf("the process has not ended: %v", err)
		}
		return
	}
}

func TestHandle(t *testing.T) {
	pid, in, _ := start(t, "read line")
	id := read(t, pid).ID
	h, err := Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	self, err := OpenPID(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	if h.Ended() || len(EndedAmong([]*Handle{self, h})) != 0 {
		t.Error("ended before its end")
	}
	if _, err := Open(ID{PID: pid, Start: id.Start + 1}); !errors.Is(err, ErrGone) {
		t.Errorf("another process of that pid: %v", err)
	}
	in("go")
	waitEnded(t, h) // it is a zombie now: nobody has waited for it
	if got := EndedAmong([]*Handle{self, h}); !h.Ended() || len(got) != 1 || got[0] != 1 {
		t.Errorf("not seen as ended: %v", got)
	}
	if _, err := Open(id); !errors.Is(err, ErrGone) {
		t.Errorf("a zombie could be opened: %v", err)
	}
	if !read(t, pid).Zombie {
		t.Error("not seen as a zombie")
	}
}

// TestImage: an exec changes the image, a fork does not.
func TestImage(t *testing.T) {
	pid, in, out := start(t, `exec 3<&0; (read a <&3; echo) & echo $!; read line; exec sleep 100`)
	child, err := strconv.Atoi(out())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Kill(child, unix.SIGKILL)
	before := read(t, pid)
	if before.Image == 0 {
		t.Fatal("the image cannot be told")
	}
	if got := read(t, child).Image; got != before.Image {
		t.Error("a fork has another image")
	}
	in("go")
	in("go")
	for read(t, pid).Name != "sleep" || read(t, pid).Image == 0 {
	}
	if got := read(t, pid); got.Image == before.Image || got.ID != before.ID {
		t.Errorf("after the exec: %+v, before: %+v", got, before)
	}
}

func TestPeer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unixpacket", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	h, uid, err := Peer(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if h.ID != read(t, os.Getpid()).ID || uid != uint32(os.Geteuid()) || h.Ended() {
		t.Errorf("peer %+v of user %d", h.ID, uid)
	}

	byNumber, err := peerByNumber(os.Getpid(), uint32(os.Geteuid()))
	if err != nil || byNumber.ID != h.ID {
		t.Fatalf("by number: %+v, %v", byNumber, err)
	}
	byNumber.Close()
	if _, err := peerByNumber(os.Getpid(), uint32(os.Geteuid())+1); !errors.Is(err, ErrGone) {
		t.Errorf("by number, of another user: %v", err)
	}
}

func TestMaps(t *testing.T) {
	if got, err := Maps(os.Getpid(), "/proc.test"); !got || err != nil {
		t.Errorf("own program: %v, %v", got, err)
	}
	if got, err := Maps(os.Getpid(), "/libweir.so"); got || err != nil {
		t.Errorf("a library that is not there: %v, %v", got, err)
	}
	if _, err := Maps(1<<22+1, "/x"); err == nil {
		t.Error("no error for a process that is not there")
	}
}

func TestOwnerAndBoot(t *testing.T) {
	if uid, err := Owner(os.Getpid()); uid != uint32(os.Geteuid()) || err != nil {
		t.Errorf("owner %d, %v", uid, err)
	}
	if id, err := BootID(); len(id) != 36 || err != nil {
		t.Errorf("boot id %q, %v", id, err)
	}
	if age := Age(read(t, os.Getpid()).Start); age < 0 || age.Minutes() > 60 {
		t.Errorf("this process is %v old", age)
	}
}
