package session

// The ends of processes, by pidfd.

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"weir/agent/session/proc"
)

// watcher tells when processes end: one epoll set, one goroutine, any number of pidfds.
type watcher struct {
	epoll int
	stop  int // an eventfd
	done  chan struct{}

	mu      sync.Mutex
	last    int32
	watched map[int32]watch
}

type watch struct {
	fd    int
	ended func()
}

// stopMark stands for the eventfd among the marks of watches.
const stopMark = 0

func newWatcher() (*watcher, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watching processes: %w", err)
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err == nil {
		event := &unix.EpollEvent{Events: unix.EPOLLIN, Fd: stopMark}
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, stop, event)
	}
	if err != nil {
		unix.Close(epoll)
		return nil, fmt.Errorf("watching processes: %w", err)
	}
	w := &watcher{
		epoll: epoll, stop: stop, done: make(chan struct{}), watched: make(map[int32]watch),
	}
	go w.run()
	return w, nil
}

// add has ended called once, from the watcher's goroutine, when the process has ended; at once if
// it has already. The handle must stay open until then or until remove.
func (w *watcher) add(h *proc.Handle, ended func()) (mark int32, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for mark = w.last + 1; ; mark++ {
		if _, taken := w.watched[mark]; !taken && mark != stopMark {
			break
		}
	}
	event := &unix.EpollEvent{Events: unix.EPOLLIN, Fd: mark}
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, h.FD(), event); err != nil {
		return 0, fmt.Errorf("watching process %d: %w", h.PID, err)
	}
	w.last = mark
	w.watched[mark] = watch{fd: h.FD(), ended: ended}
	return mark, nil
}

// remove takes a process off the watch, whether or not it was told of already. A call of ended that
// has begun may still be running.
func (w *watcher) remove(mark int32) { w.take(mark) }

func (w *watcher) take(mark int32) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	one, there := w.watched[mark]
	if !there {
		return nil
	}
	delete(w.watched, mark)
	unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, one.fd, nil)
	return one.ended
}

func (w *watcher) run() {
	defer close(w.done)
	var events [64]unix.EpollEvent
	for {
		n, err := unix.EpollWait(w.epoll, events[:], -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		for _, e := range events[:max(n, 0)] {
			if e.Fd == stopMark {
				return
			}
			if ended := w.take(e.Fd); ended != nil {
				ended()
			}
		}
	}
}

// close stops the goroutine and waits for it.
func (w *watcher) close() {
	unix.Write(w.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-w.done
	unix.Close(w.stop)
	unix.Close(w.epoll)
}
