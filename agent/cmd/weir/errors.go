// Errors and their exit codes. Invariant: a code means the same in every command but `run`.

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/urfave/cli/v2"

	"weir/agent/control"
)

// The exit codes of every command but `run`, which passes its child's.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitPermission  = 4
	exitUnreachable = 5
	exitUnsupported = 6
)

// codedError is an error with its exit code; with an empty text nothing is printed.
type codedError struct {
	code int
	text string
}

func (e *codedError) Error() string { return e.text }
func (e *codedError) ExitCode() int { return e.code }

// usageError is a mistake in what the user wrote: exit code 2.
func usageError(format string, args ...any) error {
	return &codedError{exitUsage, fmt.Sprintf(format, args...)}
}

// asRoot adds to an error of permission what a user who is not root can do about it.
func asRoot(err error, uid int) error {
	if uid != 0 && errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; run it as root", err)
	}
	return err
}

func exitCode(err error) int {
	var coded cli.ExitCoder
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.ExitCode()
	case errors.Is(err, control.ErrNotFound):
		return exitNotFound
	case errors.Is(err, control.ErrPermission), errors.Is(err, fs.ErrPermission):
		return exitPermission
	case errors.Is(err, control.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		return exitUnreachable
	case errors.Is(err, control.ErrInvalid):
		return exitUsage
	case errors.Is(err, control.ErrUnsupported):
		return exitUnsupported
	}
	return exitFailed
}
