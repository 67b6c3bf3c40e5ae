// Package sessiontest is a stand-in for the library: it speaks to an agent as libweir.so does, and
// also as libweir.so never would. Tests use it in their own process or in processes of their own
// (Main, Start), which they then stop, kill or let misbehave.
package sessiontest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"weir/cgo/abi"
)

// Conn is a bare connection to a container's socket. It uses blocking system calls only.
type Conn struct{ FD int }

// Dial connects to a container's socket.
func Dial(path string) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("dialing: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("dialing %s: %w", path, err)
	}
	return &Conn{FD: fd}, nil
}

// Close closes the connection.
func (c *Conn) Close() { unix.Close(c.FD) }

// Send sends one packet, with copies of descriptors.
func (c *Conn) Send(packet []byte, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	for {
		_, err := unix.SendmsgN(c.FD, packet, rights, nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Receive waits for one packet; io.EOF where the agent has closed the connection.
func (c *Conn) Receive() (packet []byte, fds []int, err error) {
	packet = make([]byte, abi.MsgBytesMax)
	rights := make([]byte, unix.CmsgSpace(2*4))
	var n, rn int
	for {
		n, rn, _, _, err = unix.Recvmsg(c.FD, packet, rights, unix.MSG_CMSG_CLOEXEC)
		// A reset is told once, before what was sent ahead of it.
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ECONNRESET) {
			break
		}
	}
	if err == nil && n == 0 {
		return nil, nil, io.EOF
	}
	if err != nil {
		return nil, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rn])
	if err != nil {
		return nil, nil, err
	}
	for _, m := range messages {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, nil, err
		}
		fds = append(fds, got...)
	}
	return packet[:n], fds, nil
}

// ReceiveWithin is Receive with a deadline; the error is then os.ErrDeadlineExceeded.
func (c *Conn) ReceiveWithin(d time.Duration) ([]byte, []int, error) {
	set := []unix.PollFd{{Fd: int32(c.FD), Events: unix.POLLIN}}
	for until := time.Now().Add(d); ; {
		left := max(int(time.Until(until).Milliseconds()), 0)
		n, err := unix.Poll(set, left)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, nil, err
		case n == 0:
			return nil, nil, os.ErrDeadlineExceeded
		}
		return c.Receive()
	}
}

// Packet writes a message: m is one of the ABI's structs, whose header is filled in.
func Packet(kind uint16, seq uint32, m any) []byte {
	p, err := binary.Append(nil, binary.LittleEndian, m)
	if err != nil {
		panic(err) // m is no message
	}
	binary.LittleEndian.PutUint16(p, kind)
	binary.LittleEndian.PutUint16(p[2:], uint16(len(p)))
	binary.LittleEndian.PutUint32(p[4:], seq)
	return p
}

// Hello is a HELLO of a program that holds what held says.
func Hello(program string, held ...abi.Held) []byte { return HelloAgain(0, program, held...) }

// HelloAgain is a HELLO of a program that had a session before.
func HelloAgain(session uint64, program string, held ...abi.Held) []byte {
	m := &abi.Hello{
		Magic: abi.HelloMagic, Abi_oldest: abi.Oldest, Abi_newest: abi.Version,
		Pid: uint32(os.Getpid()), Session: session, Held_count: uint32(len(held)),
	}
	copyText(m.Program[:], program)
	copyText(m.Library[:], "sessiontest")
	copy(m.Held[:], held)
	return Packet(abi.MsgHello, 1, m)
}

// Request is a REQUEST for plain memory.
func Request(seq, gpu uint32, n uint64) []byte {
	return Packet(abi.MsgRequest, seq, &abi.Request{Gpu: gpu, Kind: abi.KindPlain, Bytes: n})
}

// Key is a key for shared memory, one for each number.
func Key(number uint64) (key abi.ShareKey) {
	binary.LittleEndian.PutUint64(key.Bytes[8:], number)
	key.Bytes[0] = 1
	return key
}

// Share is an EXPORT, IMPORT or DROP, by kind.
func Share(kind uint16, seq, gpu uint32, n uint64, key abi.ShareKey, flags uint32) []byte {
	return Packet(kind, seq, &abi.Share{Gpu: gpu, Flags: flags, Bytes: n, Key: key})
}

// Type is the type of a packet, 0 where it has none.
func Type(packet []byte) uint16 {
	if len(packet) < 2 {
		return 0
	}
	return binary.LittleEndian.Uint16(packet)
}

// Decode reads a packet into one of the ABI's structs.
func Decode(packet []byte, m any) error {
	if want := binary.Size(m); len(packet) != want {
		return fmt.Errorf("message of %d bytes, where %T has %d", len(packet), m, want)
	}
	_, err := binary.Decode(packet, binary.LittleEndian, m)
	return err
}

// Closed is the error of a connection that the agent has closed with a reason.
type Closed struct {
	Reason uint32
	Flags  uint32
	Text   string
}

func (c *Closed) Error() string {
	return fmt.Sprintf("closed by the agent (%d): %s", c.Reason, c.Text)
}

// AsClosed reads a CLOSE: a *Closed, or what is wrong with it.
func AsClosed(packet []byte) error {
	var m abi.Close
	if err := Decode(packet, &m); err != nil {
		return err
	}
	text := make([]byte, len(m.Text))
	for i, c := range m.Text {
		text[i] = byte(c)
	}
	before, _, _ := bytes.Cut(text, []byte{0})
	return &Closed{Reason: m.Reason, Flags: m.Flags, Text: string(before)}
}

func copyText(field []int8, s string) {
	for i := range min(len(s), len(field)-1) {
		field[i] = int8(s[i])
	}
}
