package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// RunDirLock is the right to serve a run directory. It ends with Unlock or with the process.
type RunDirLock struct{ file *os.File }

// LockRunDir takes a run directory for this process. If an agent already serves it, the error
// wraps ErrConflict and names that agent's pid.
func LockRunDir(dir string) (*RunDirLock, error) {
	path := filepath.Join(dir, "agent.lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the run directory: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer file.Close()
		return nil, fmt.Errorf("%w: %s serves %s already; stop it or give --run-dir",
			ErrConflict, holder(file), dir)
	}
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return &RunDirLock{file}, nil
}

// Unlock gives the directory up. The file stays: removing it would let two agents hold two files.
func (l *RunDirLock) Unlock() error { return l.file.Close() }

// holder names the agent that has the lock; it may not have written its pid yet.
func holder(file *os.File) string {
	text, _ := io.ReadAll(io.LimitReader(file, 32))
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return "another agent"
	}
	return fmt.Sprintf("the agent with pid %d", pid)
}

// Listen makes the control socket, in place of one that a dead agent left; the caller holds the
// run directory's lock. It appears with its final mode: 0600, or 0660 for root's, whose group is
// root too. Peer credentials decide in any case.
func Listen(path string) (net.Listener, error) {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("making the control socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("making the control socket: %w", err)
	}
	listener.SetUnlinkOnClose(false)
	mode := os.FileMode(0o600)
	if os.Geteuid() == 0 {
		mode = 0o660
	}
	err = os.Chmod(fresh, mode)
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		listener.Close()
		return nil, fmt.Errorf("making the control socket: %w", err)
	}
	return &boundedListener{listener, path, make(chan struct{}, connectionsMax)}, nil
}

// boundedListener accepts at most connectionsMax connections at a time; others wait in the
// kernel's queue. It removes the socket when it is closed.
type boundedListener struct {
	*net.UnixListener
	path  string
	slots chan struct{}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	conn, err := l.AcceptUnix()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &boundedConn{conn, sync.OnceFunc(func() { <-l.slots })}, nil
}

func (l *boundedListener) Close() error {
	os.Remove(l.path)
	return l.UnixListener.Close()
}

type boundedConn struct {
	*net.UnixConn
	release func()
}

func (c *boundedConn) Close() error {
	defer c.release()
	return c.UnixConn.Close()
}

// peer is who made a connection, as the kernel noted it at connect.
type peer struct {
	pid int
	uid uint32
}

type peerKey struct{}

// withPeer is http.Server.ConnContext: it keeps the connection's peer for the handlers.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	if bounded, ok := conn.(*boundedConn); ok {
		if p, err := peerOf(bounded.UnixConn); err == nil {
			return context.WithValue(ctx, peerKey{}, p)
		}
	}
	return ctx
}

func peerOf(conn *net.UnixConn) (peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, credErr); err != nil {
		return peer{}, err
	}
	return peer{int(cred.Pid), cred.Uid}, nil
}
