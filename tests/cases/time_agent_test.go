package cases

// Rows C5 and C8 of GPU time: the agent dies while launches wait, stands still, comes back; weights change live; and
// what a weight cannot be.

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/tests/e2e/node"
)

// monotonic is the clock that flows tell their times by.
func monotonic(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// C5: the agent is killed while a launch waits: within 100 ms nobody waits on it. Once it is back, it is as before,
// without a restart of anyone.
func TestC5AgentDiesUnderWaiters(t *testing.T) {
	t.Parallel()
	const most, margin = 100 * time.Millisecond, 50 * time.Millisecond
	h := hold(t, "")
	attempt(t, func() string {
		before := h.back.Launches(h.load)
		killed := monotonic(t)
		h.n.KillAgent()
		var last time.Duration
		h.n.Eventually(func() string {
			launches, now := h.back.Passed(h.load)
			if last = now; launches == before {
				return "the agent is dead, and a launch still waits"
			}
			return ""
		})
		// The last that was seen is not the first that came through, and no later than it was looked for.
		line := fmt.Sprintf("a launch came through %s after the agent's death, wanted %s", last-killed, most)
		h.n.StartAgent()
		h.waits() // the same container is held back as before, by its weight
		if last-killed > most+margin {
			return line
		}
		t.Log(line)
		return ""
	})
}

// An agent that stands still holds nobody back for longer than the configured time, and what comes through then is
// counted.
func TestC5AgentStandsStillUnderWaiters(t *testing.T) {
	t.Parallel()
	h := hold(t, "gate_wait_max = \"2s\"\n")
	agent := h.n.Agent()
	if agent <= 0 {
		t.Fatal("no agent")
	}
	before, ungated := h.back.Launches(h.load), h.back.Queue(0).Ungated
	h.back.Worst(h.load)
	if err := syscall.Kill(agent, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	launches, worst := h.back.Launches(h.load), h.back.Worst(h.load)
	if err := syscall.Kill(agent, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if launches == before || worst > 3*time.Second {
		t.Errorf("the agent stood still for 3 s: %d launches came through, the longest wait was %s", launches-before, worst)
	}
	h.n.Eventually(func() string {
		if flow := h.back.Queue(0); flow.Ungated == ungated {
			return fmt.Sprintf("no launch is counted as ungated: %+v", flow)
		}
		return ""
	})
}

// A weight changes live: the shares follow.
func TestWeightsChangeLive(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{})
	a, b := n.Weighted("a", 1), n.Weighted("b", 3)
	a.Play(node.Hog)
	b.Play(node.Hog)
	time.Sleep(settle)
	expectShares(t, 3*time.Second, []float64{25, 75}, a, b)
	n.MustWeir("caps", "set", "a", "--weight", "3")
	time.Sleep(settle)
	expectShares(t, 3*time.Second, []float64{50, 50}, a, b)
	n.MustWeir("caps", "set", "b", "--weight", "1")
	time.Sleep(settle)
	expectShares(t, 3*time.Second, []float64{75, 25}, a, b)
}

// What is no weight is refused, in one line that names the flag and what is accepted, and nothing is started or
// changed by it.
func TestBadWeightsAreRefused(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{})
	a := n.Weighted("a", 2)
	a.Play(node.Hog)
	for _, weight := range []string{"0", "-1", "NaN", "1e30", "inf", "-0", "0.0009", "1000.1", "1,5", "2x"} {
		for _, arguments := range [][]string{
			{"run", "--weight=" + weight, "--", "/bin/echo", "started"},
			{"caps", "set", "a", "--weight=" + weight},
		} {
			out := n.Weir(arguments...)
			line := strings.TrimSuffix(out.Stderr, "\n")
			if out.Code != 2 || strings.Contains(line, "\n") || !strings.Contains(line, "weight") ||
				!strings.Contains(line, "0.001") || !strings.Contains(line, "1000") || out.Stdout != "" {
				t.Errorf("weir %s: exit %d, %q on stdout, %q on stderr; want 2 and one line that names the weight and 0.001 to 1000",
					strings.Join(arguments, " "), out.Code, out.Stdout, out.Stderr)
			}
		}
	}
	n.Eventually(func() string {
		if weight := a.Queue(0).Weight; weight != 2 {
			return fmt.Sprintf("the weight is %g now", weight)
		}
		return ""
	})
	for _, flag := range []string{"--quantum=0", "--quantum=-1s", "--threshold=-1ms", "--quantum=NaN"} {
		name, _, _ := strings.Cut(flag, "=")
		out := n.Weir("agent", flag, "--run-dir", n.Dir+"/bad")
		if line := strings.TrimSuffix(out.Stderr, "\n"); out.Code != 2 || strings.Contains(line, "\n") || !strings.Contains(line, name) {
			t.Errorf("weir agent %s: exit %d, %q; want 2 and one line that names %s", flag, out.Code, out.Stderr, name)
		}
	}
}
