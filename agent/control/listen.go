// The control socket. Invariants: it appears with its final mode, the number of connections is
// bounded, and who made one is known from the kernel alone.

package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Listen makes the control socket, in place of one that a dead agent left; the caller has the run
// directory to itself. It appears with its final mode: 0600, or 0660 for root's, whose group is
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
