package ctrd

// The processes that daemons and the plugin are: each ends with the test's own, whatever becomes of that.

import (
	"os/exec"
	"syscall"
	"testing"

	"weir/tests/e2e/node"
)

// running is the present process, one for all views of a daemon.
type running struct {
	process *exec.Cmd
	ended   chan struct{} // closed when it has
}

// launch starts a program that writes to a log.
func launch(t testing.TB, command *exec.Cmd, log *node.SyncBuffer) running {
	t.Helper()
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := node.StartLocked(command); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	return running{command, ended}
}

// serves returns when a daemon answers what it is asked, and fails the test where it has ended before.
func (r *running) serves(s *scene, name string, log *node.SyncBuffer, ask func() node.Output) {
	s.t.Helper()
	s.Node.Eventually(func() string {
		select {
		case <-r.ended:
			s.t.Fatalf("%s has ended:\n%s", name, log)
		default:
		}
		if out := ask(); out.Code != 0 {
			return name + " does not serve: " + out.Stderr
		}
		return ""
	})
}
