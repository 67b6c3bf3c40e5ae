package session

// A container's socket and its connections: everything between the kernel and a conversation.

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weir/agent/session/proc"
	"weir/cgo/abi"
)

// outlet is the agent's side of a connection.
type outlet interface {
	// send sends one message, with copies of descriptors; it may block while the tenant does not
	// read, which holds up nobody else.
	send(packet []byte, fds ...int) error
	// now sends one message if that is possible at once, and tells whether it was.
	now(packet []byte) bool
	close()
}

// socket is an outlet that is a connected socket.
type socket struct{ conn *net.UnixConn }

func (s socket) send(packet []byte, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := s.conn.WriteMsgUnix(packet, rights, nil)
	return err
}

func (s socket) now(packet []byte) (sent bool) {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return false
	}
	// Not through Write, which would wait for one that is blocked.
	raw.Control(func(fd uintptr) {
		_, err := unix.SendmsgN(int(fd), packet, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		sent = err == nil
	})
	return sent
}

func (s socket) close() { s.conn.Close() }

// listen opens the container's socket. One that an earlier agent has left is replaced in one step.
func (c *container) listen() error {
	id := c.spec.ID
	path := c.node.run.socket(id)
	temporary := path + ".new"
	// Whoever has to reach the socket owns it, and nobody else may connect.
	mode, foreign := os.FileMode(0o700), c.spec.OCI == nil && int(c.spec.UID) != os.Geteuid()
	if foreign || c.spec.OCI != nil {
		mode = 0o711
	}
	if err := ownDirectory(c.node.run.container(id), mode); err != nil {
		return fmt.Errorf("opening the socket of container %s: %w", c.spec.Name, err)
	}
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("opening the socket of container %s: %w", c.spec.Name, err)
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		controlErr := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(controlErr, err)
	}}
	l, err := config.Listen(c.node.ctx, "unixpacket", temporary)
	if err != nil {
		return fmt.Errorf("opening the socket of container %s: %w", c.spec.Name, err)
	}
	c.listener = l.(*net.UnixListener)
	c.listener.SetUnlinkOnClose(false) // who comes while no agent is there finds it closed
	if foreign {
		err = os.Lchown(temporary, int(c.spec.UID), -1)
	} else if c.spec.OCI != nil { // any user of the container; who is of it, its identity decides
		err = os.Chmod(temporary, 0o666)
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		c.listener.Close()
		return fmt.Errorf("opening the socket of container %s: %w", c.spec.Name, err)
	}
	c.node.tasks.Go(c.accept)
	return nil
}

// accept takes connections until the listener is closed.
//
// While as many connections as may be are silent, the others wait in the kernel: refusing them
// would hurt the honest ones of a crowd that comes at once, as after a restart of the agent.
func (c *container) accept() {
	buffer := make([]byte, abi.MsgBytesMax+1)
	for {
		c.silent <- struct{}{}
		conn, err := c.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors or memory, which may pass
			c.node.log.Error("a connection was lost", "container", c.spec.Name, "error", err)
			time.Sleep(50 * time.Millisecond)
			<-c.silent
			continue
		}
		if end := c.greet(conn); end != nil {
			socket{conn}.now(end.packet())
			conn.Close()
			<-c.silent
			continue
		}
		v, end := c.meet(conn, buffer)
		c.node.tasks.Go(func() {
			defer c.node.connections.Add(-1)
			c.serve(conn, v, end)
		})
	}
}

// meet looks who has connected. Who is none of the container's processes is sent away at once: it
// keeps no place from those that are. A library says HELLO as soon as it has connected, so mostly
// that is there and is answered here: a crowd need not wait for a goroutine each, and the process
// need be looked at once only. v is nil if nobody is there any more.
func (c *container) meet(conn *net.UnixConn, buffer []byte) (v *conversation, end *ending) {
	first := readNow(conn, buffer)
	peer, uid, err := proc.Peer(conn)
	if err != nil {
		return nil, nil
	}
	v = &conversation{c: c, out: socket{conn}, peer: peer, uid: uid}
	if end = c.admit(peer, uid); end == nil && first != nil && (len(first) > 0 || !hungUp(conn)) {
		v.image = peer.Image
		end = v.packet(first)
		c.greeted(conn)
	}
	return v, end
}

// readNow reads a packet that has come already; nil where none has, empty at the connection's end.
func readNow(conn *net.UnixConn, buffer []byte) (packet []byte) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT)
		if err == nil {
			packet = buffer[:n]
		}
	})
	return packet
}

// greet counts a connection that has yet to say HELLO.
func (c *container) greet(conn *net.UnixConn) *ending {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return &ending{abi.CloseShutdown, "the container has ended or the agent is stopping"}
	case c.node.connections.Load() >= c.node.connectionsMax:
		return c.tooMany(fmt.Sprintf("the agent has %d connections, as many as its limit of open "+
			"files (ulimit -n) allows", c.node.connectionsMax))
	}
	c.node.connections.Add(1)
	c.greeting[conn] = true
	return nil
}

// greeted counts a connection no longer among the silent ones.
func (c *container) greeted(conn *net.UnixConn) {
	c.mu.Lock()
	silent := c.greeting[conn]
	delete(c.greeting, conn)
	c.mu.Unlock()
	if silent {
		<-c.silent
	}
}

// serve is one connection from its beginning to its end.
func (c *container) serve(conn *net.UnixConn, v *conversation, end *ending) {
	defer conn.Close()
	if v != nil && end == nil {
		if v.s == nil {
			conn.SetReadDeadline(time.Now().Add(helloWait))
		}
		end = v.converse(conn)
	}
	if v != nil {
		v.over(end)
	}
	c.greeted(conn)
}

// converse reads packets until the connection ends. The result is nil if the tenant ended it.
func (v *conversation) converse(conn *net.UnixConn) *ending {
	buffer := make([]byte, abi.MsgBytesMax+1)
	for {
		n, err := conn.Read(buffer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return &ending{abi.CloseProtocol, fmt.Sprintf("no HELLO within %v", helloWait)}
		case err == io.EOF && !hungUp(conn):
			return &ending{abi.CloseProtocol, "message of 0 bytes, shorter than a header"}
		case err != nil:
			return nil
		}
		greeted := v.s != nil
		if end := v.packet(buffer[:n]); end != nil {
			return end
		}
		if !greeted {
			conn.SetReadDeadline(time.Time{})
			v.c.greeted(conn)
		}
	}
}

// hungUp tells the end of a connection from an empty message: both read as 0 bytes.
func hungUp(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	up := true
	raw.Control(func(fd uintptr) {
		set := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if _, err := unix.Poll(set, 0); err == nil {
			up = set[0].Revents != 0
		}
	})
	return up
}
