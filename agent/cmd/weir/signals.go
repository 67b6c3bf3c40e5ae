// Signals with their senders, for `weir run`.

package main

// #include "signals.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// forwarded are the signals that `weir run` passes to its program.
var forwarded = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
}

// caught is one signal that this process got. One from the kernel is a terminal's, and went to
// the whole foreground process group.
type caught struct {
	signal     syscall.Signal
	fromKernel bool
}

// catchSignals takes over the forwarded signals until the process ends. os/signal does not tell
// who sent one, hence the handler in C. What the caller had ignored stays ignored, for the
// program too: a job that a shell put into the background must not die of the terminal's ^C.
var catchSignals = sync.OnceValues(func() (<-chan caught, error) {
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("making a pipe for signals: %w", err)
	}
	C.weir_report_to(C.int(ends[1]))
	keepIgnored()
	for _, sig := range forwarded {
		if C.weir_ignored_at_start(C.int(sig)) != 0 {
			continue
		}
		if status := C.weir_catch(C.int(sig)); status != 0 {
			return nil, fmt.Errorf("catching %v: %w", sig, syscall.Errno(status))
		}
	}
	pipe, signals := os.NewFile(uintptr(ends[0]), "signals"), make(chan caught)
	go func() {
		var record [8]byte
		for {
			if _, err := pipe.Read(record[:]); err != nil {
				return
			}
			signals <- caught{
				syscall.Signal(binary.NativeEndian.Uint32(record[:4])),
				binary.NativeEndian.Uint32(record[4:]) != 0,
			}
		}
	}()
	return signals, nil
})

// signalLast is the highest number of a signal.
const signalLast = 64

// keepIgnored ignores again what the caller had ignored, which the program inherits: Go's runtime
// has put handlers of its own in the place of nearly all. Two it needs itself: SIGCHLD, without
// which no child's end could be told, and SIGURG, which is ignored by default.
func keepIgnored() {
	for sig := syscall.Signal(1); sig <= signalLast; sig++ {
		if C.weir_ignored_at_start(C.int(sig)) != 0 && sig != syscall.SIGCHLD && sig != syscall.SIGURG {
			signal.Ignore(sig)
		}
	}
}
