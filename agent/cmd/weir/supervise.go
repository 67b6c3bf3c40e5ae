// How `weir run` keeps its program: in its process group, below its subreaper, no longer than
// itself.

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// leftoverGrace is how long processes that the program left behind may take to end before they
// are mentioned.
const leftoverGrace = 200 * time.Millisecond

// supervise runs a program as this process's child, in its process group and on its terminal, and
// returns its exit code: 128 and the signal's number if one ended it. As subreaper this process
// inherits what the program leaves behind, so that all of it descends from the run; leftovers
// says that some of it still lives. The program dies with this process, since nothing would keep
// account of it afterwards.
func supervise(path string, args, env []string) (code int, leftovers bool, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, false, fmt.Errorf("becoming the run's subreaper: %w", err)
	}
	signals, err := catchSignals()
	if err != nil {
		return 0, false, err
	}
	// The parent-death signal is sent when the *thread* that forked ends: keep it for good.
	runtime.LockOSThread()
	child, err := os.StartProcess(path, args, &os.ProcAttr{
		Env:   env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, false, err
	}
	ended := make(chan syscall.WaitStatus, 1)
	go func() { ended <- reapUntil(child.Pid) }()
	for {
		select {
		case got := <-signals:
			forward(child, got)
		case status := <-ended:
			return codeOf(status), reapLeftovers(time.Now().Add(leftoverGrace)), nil
		}
	}
}

// forward passes a signal on, unless the terminal has sent it to the child as well.
func forward(child *os.Process, got caught) {
	if got.fromKernel {
		group, err := syscall.Getpgid(child.Pid)
		if err == nil && group == syscall.Getpgrp() {
			return
		}
	}
	// It can only fail because the child has ended, which `ended` tells.
	_ = child.Signal(got.signal)
}

// reapUntil reaps every child, orphans included, until the one with this pid has ended.
func reapUntil(pid int) syscall.WaitStatus {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		if got == pid {
			return status
		}
		if err != nil && !errors.Is(err, syscall.EINTR) {
			// The child is gone though nobody told how it ended: that counts as a failure.
			return syscall.WaitStatus(exitFailed << 8)
		}
	}
}

// reapLeftovers reaps until no child is left or the deadline passes; then it returns true.
func reapLeftovers(deadline time.Time) bool {
	for {
		got, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.ECHILD):
			return false
		case got > 0 || errors.Is(err, syscall.EINTR):
		case !time.Now().Before(deadline):
			return true
		default:
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func codeOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
