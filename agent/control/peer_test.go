// Tests of whom the two ends trust. They need root, to become another user.

package control_test

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"weir/agent/control"
)

// nobody is some user other than root.
const nobody = 65534

// asNobody calls f on a thread that has become another user, and that ends afterwards. The kernel
// notes a socket's credentials at connect and at listen.
func asNobody(t *testing.T, f func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread cannot go back
		// Package syscall would change all threads.
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody)
		if errno != 0 {
			done <- errno
			return
		}
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// openDir makes a directory that all users can write to, with no closed one above it.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The server trusts the kernel, not the socket's mode: another user is refused even where the
// socket is open to all.
func TestOtherUsersAreRefused(t *testing.T) {
	socket := serveIn(t, openDir(t), sample())
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	asNobody(t, func() (err error) {
		conn, err = net.Dial("unix", socket)
		return err
	})
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /v1/info HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusForbidden ||
		!strings.Contains(string(body), "answers uid 0 and root only") {
		t.Errorf("another user got %s, %s", response.Status, body)
	}
}

// Root may look at a user's agent, but loads no library that such an agent names.
func TestRootLoadsNothingFromAUsersAgent(t *testing.T) {
	socket := filepath.Join(openDir(t), "control.sock")
	var listener net.Listener
	asNobody(t, func() (err error) {
		listener, err = control.Listen(socket)
		return err
	})
	node := sample()
	serveOn(t, listener, control.NewServer(node, slog.New(slog.DiscardHandler)))
	client := control.NewClient(socket)
	if info, err := client.Info(t.Context()); err != nil || info.Version != "9" {
		t.Errorf("Info: %+v, %v", info, err)
	}
	grant, err := client.StartRun(t.Context(), control.RunRequest{})
	if !errors.Is(err, control.ErrPermission) || grant.Library != "" || len(node.Runs) != 0 {
		t.Errorf("StartRun: %+v, %v; want ErrPermission", grant, err)
	}
}
