// What errors tell a user to do.

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

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
