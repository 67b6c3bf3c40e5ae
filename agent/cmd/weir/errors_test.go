// What errors tell a user to do.

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/agent/config"
	"weir/agent/control"
)

func TestAsRoot(t *testing.T) {
	denied := fmt.Errorf("keeping what is there: %w; nothing is written", fs.ErrPermission)
	other := errors.New("full")
	for _, test := range []struct {
		err  error
		uid  int
		says string
	}{
		{denied, 1000, denied.Error() + "; run it as root"}, {denied, 0, denied.Error()}, {other, 1000, "full"},
	} {
		if got := asRoot(test.err, test.uid); got.Error() != test.says || !errors.Is(got, test.err) {
			t.Errorf("%v as %d: %v", test.err, test.uid, got)
		}
	}
	if asRoot(nil, 1000) != nil {
		t.Error("no error has become one")
	}
}

// The usual place needs no flag, however it was named.
func TestExplainNamesAPlaceOnlyIfUnusual(t *testing.T) {
	usual := config.CurrentUser().RunDir()
	for dir, start := range map[string]string{"": "weir agent", usual: "weir agent", "/else": "weir agent --run-dir /else"} {
		c := connection{tried: []string{"S"}, given: dir}
		err := c.explain(&control.UnreachableError{Err: errors.New("gone")})
		if want := "no agent answers at S: gone; start one with: " + start; err.Error() != want {
			t.Errorf("%q: %v", dir, err)
		}
	}
}

// Who may not read what configure has kept is told that in one line, not that it is damaged.
func TestStatusWithoutPermission(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/rollback", 0); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // this thread asks for files as an ordinary user does
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer unix.Setfsuid(0)
	}
	err := newApp(io.Discard, io.Discard).Run([]string{"weir", "runtime", "status", "--state-dir", dir})
	if exitCode(err) != exitPermission || strings.ContainsAny(err.Error(), "\n;") {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
}
