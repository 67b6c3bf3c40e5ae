package proc

// Pidfds: holding a process, and the process at the other end of a socket.

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Handle holds a process by a pidfd: as long as it is open, the process's pid means nobody else.
type Handle struct {
	ID
	// Image tells the program image that the process ran when it was taken hold of, as in Stat.
	Image  uint64
	fd     int
	parent int // at that time
}

// Open takes hold of the process id, or returns ErrGone if it has ended, whoever has its pid now.
func Open(id ID) (*Handle, error) {
	h, err := open(id.PID)
	if err != nil {
		return nil, err
	}
	if h.Start != id.Start {
		h.Close()
		return nil, ErrGone
	}
	return h, nil
}

// OpenPID takes hold of the process that has this pid now, or returns ErrGone.
func OpenPID(pid int) (*Handle, error) { return open(pid) }

func open(pid int) (*Handle, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("opening process %d: %w", pid, err)
	}
	return hold(pid, fd)
}

// hold makes a handle of a pidfd and the pid that belongs to it.
func hold(pid, fd int) (*Handle, error) {
	h := &Handle{ID: ID{PID: pid}, fd: fd}
	st, err := Read(pid)
	// The process was there when the pidfd was made. If it is there still, what was read is of it.
	if err == nil && h.Ended() {
		err = ErrGone
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	h.Start, h.Image, h.parent = st.Start, st.Image, st.Parent
	return h, nil
}

// FD is the pidfd; it becomes readable when the process ends.
func (h *Handle) FD() int { return h.fd }

// Ended tells whether the process has ended. It does not wait.
func (h *Handle) Ended() bool {
	set := []unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}
	n, err := pollNow(set)
	return err == nil && n > 0
}

// Close lets go of the process. There may be none to let go of.
func (h *Handle) Close() {
	if h != nil && h.fd >= 0 {
		unix.Close(h.fd)
		h.fd = -1
	}
}

// EndedAmong returns the places in handles of those whose processes have ended, with one system
// call for all of them.
func EndedAmong(handles []*Handle) []int {
	set := make([]unix.PollFd, len(handles))
	for i, h := range handles {
		set[i] = unix.PollFd{Fd: int32(h.fd), Events: unix.POLLIN}
	}
	if n, err := pollNow(set); err != nil || n == 0 {
		return nil
	}
	var ended []int
	for i := range set {
		if set[i].Revents != 0 {
			ended = append(ended, i)
		}
	}
	return ended
}

func pollNow(set []unix.PollFd) (int, error) {
	for {
		n, err := unix.Poll(set, 0)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// Peer takes hold of the process that connected a Unix socket, and returns the user it ran as then.
// The descriptor may have been inherited by others since: they count as the process that connected.
func Peer(conn *net.UnixConn) (h *Handle, uid uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, 0, err
	}
	controlErr := raw.Control(func(fd uintptr) { h, uid, err = peer(int(fd)) })
	if controlErr != nil {
		return nil, 0, controlErr
	}
	return h, uid, err
}

func peer(fd int) (*Handle, uint32, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, 0, fmt.Errorf("reading the peer's credentials: %w", err)
	}
	if cred.Pid <= 0 {
		return nil, 0, errors.New("the peer is not visible from the agent's pid namespace")
	}
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	switch {
	case err == nil:
		h, err := hold(int(cred.Pid), pidfd)
		return h, cred.Uid, err
	case errors.Is(err, unix.ENOPROTOOPT):
		h, err := peerByNumber(int(cred.Pid), cred.Uid)
		return h, cred.Uid, err
	default:
		return nil, 0, ErrGone
	}
}

// peerByNumber serves kernels before 6.5, which name a peer by number only. The number may have
// passed to another process since the peer connected; one of another user is recognised.
func peerByNumber(pid int, uid uint32) (*Handle, error) {
	before, err := Read(pid)
	if err != nil {
		return nil, err
	}
	h, err := Open(before.ID)
	if err != nil {
		return nil, err
	}
	if owner, err := Owner(pid); err != nil || owner != uid {
		h.Close()
		return nil, ErrGone
	}
	return h, nil
}
