package e2e

// `weir top` in a real terminal, which tmux is, over a program that swaps.

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/tests/e2e/node"
)

// terminal is tmux with a server of its own, 80 columns and 24 lines.
type terminal struct {
	t      *testing.T
	n      *node.Node
	socket string
}

func (m terminal) tmux(arguments ...string) string {
	m.t.Helper()
	command := exec.Command("tmux", append([]string{"-S", m.socket, "-f", "/dev/null"}, arguments...)...)
	command.Env = append(m.n.Env(), "TERM=xterm-256color", "LC_ALL=C.UTF-8", "SHELL=/bin/sh", "PATH="+os.Getenv("PATH"))
	out, err := command.CombinedOutput()
	if err != nil {
		m.t.Fatalf("tmux %v: %v: %s", arguments, err, out)
	}
	return string(out)
}

// shows waits until all of these are on the screen, and returns that.
func (m terminal) shows(words ...string) (screen string) {
	m.t.Helper()
	m.n.Eventually(func() string {
		screen = m.tmux("capture-pane", "-p", "-t", "top")
		for _, word := range words {
			if !strings.Contains(screen, word) {
				return "the screen is without " + word + ":\n" + screen
			}
		}
		return ""
	})
	return screen
}

func TestTopInATerminal(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("no tmux, in which top is looked at: tests/packages.sh installs it")
	}
	n := swapNode(t, "")
	p := swapper(t, n, "swapper", 12) // 96 MiB, of which 64 may lie on the card
	usePieces(p, 12, 1)
	m := terminal{t, n, filepath.Join(n.Dir, "tmux.sock")}
	m.tmux("new-session", "-d", "-s", "top", "-x", "80", "-y", "24",
		node.Build(t, "weir")+" top --interval 200ms; echo ended with $?; sleep 1000")
	t.Cleanup(func() { m.tmux("kill-server") })
	screen := m.shows("swapper", "CARD/CAP", "GPU 0", "/64M", " yes", "q quit")
	t.Logf("simulated:\n%s", screen)
	for _, line := range strings.Split(screen, "\n") {
		if strings.HasPrefix(line, "swapper ") && !strings.Contains(line, "|s") {
			t.Errorf("its bar does not show what is swapped: %s", line)
		}
	}
	m.tmux("send-keys", "-t", "top", "h")
	t.Logf("%s", m.shows("any key goes back"))
	m.tmux("send-keys", "-t", "top", "x")
	m.tmux("send-keys", "-t", "top", "s")
	m.shows("by swapped", "swapper")
	m.tmux("send-keys", "-t", "top", "Space")
	m.shows("FROZEN")
	m.tmux("send-keys", "-t", "top", "Space")
	m.tmux("resize-window", "-t", "top", "-x", "120", "-y", "12")
	m.shows("swapper", "[||||")
	n.StopAgent()
	m.shows("no agent answers", "swapper")
	n.StartAgent()
	m.shows("q quit", "swapper")
	m.tmux("send-keys", "-t", "top", "q")
	m.shows("ended with 0")
}
