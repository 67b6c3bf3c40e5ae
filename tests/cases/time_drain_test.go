package cases

// T4, T7, T9 and T11: what holds the GPU and does not let go of it by itself, and what asking for it must not
// disturb.

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// drainTimeout is the default, and drainOff what a busy machine may add until others are seen to go on.
const (
	drainTimeout = time.Second
	drainOff     = 700 * time.Millisecond
)

// holding is a machine on which a container holds the GPU beside another that has work, too.
func holding(t *testing.T) (n *node.Node, holder, other *node.Flow) {
	t.Helper()
	n = node.Start(t, node.Options{Config: always})
	holder, other = n.Weighted("holder", 1), n.Weighted("other", 1)
	holder.Play(node.Hog)
	other.Play(node.Hog)
	time.Sleep(settle)
	return n, holder, other
}

// goesOn asserts that a flow is not kept from the GPU for longer than the drain's timeout, and that it gets more than
// the given part of it in the end.
func goesOn(t *testing.T, other *node.Flow, part float64) {
	t.Helper()
	if stall := other.Stall(2*drainTimeout+drainOff, 0); stall > drainTimeout+drainOff {
		t.Errorf("the other container got nothing for %s", stall)
	}
	const window = 2 * time.Second
	if gain := node.Gains(window, 0, other)[0]; gain < time.Duration(part*float64(window)) {
		t.Errorf("then the other container got %s in %s", gain, window)
	}
}

// named waits for an event of one type about a container.
func named(n *node.Node, kind, container string) {
	n.Eventually(func() string {
		if len(n.EventsOf(kind, container)) == 0 {
			return fmt.Sprintf("no event %s of %s among %+v", kind, container, n.Events())
		}
		return ""
	})
}

// T4: the holder is stopped. The others go on within the drain's timeout, and are not held up again by it;
// it goes on itself once it may.
func TestT4HolderStopped(t *testing.T) {
	t.Parallel()
	n, holder, other := holding(t)
	holder.Holds(0, other)
	holder.Signal(syscall.SIGSTOP)
	goesOn(t, other, 0.8)
	named(n, "drain-long", "holder")
	holder.Signal(syscall.SIGCONT)
	n.Eventually(func() string {
		if gains := node.Gains(200*time.Millisecond, 0, holder, other); gains[0] == 0 || gains[1] == 0 {
			return fmt.Sprintf("after the holder goes on, both get %s in 200 ms", gains)
		}
		return ""
	})
}

// T4: the holder is killed. That is told where it had work under way: on a busy machine it may have had none just then, as
// far as it had said, or the other's turn may have come between, so that it is tried again.
func TestT4HolderKilled(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Config: always})
	other := n.Weighted("other", 1)
	other.Play(node.Hog)
	attempt(t, func() string {
		holder := n.Weighted("holder", 100) // so that it is the holder, whenever that is
		holder.Play(node.Hog)
		time.Sleep(settle)
		holder.Holds(0, other)
		holder.Kill()
		goesOn(t, other, 0.9)
		n.Eventually(func() string {
			for _, flow := range n.Queue() {
				if flow.Container == "holder" {
					return "the queue has the container of who was killed"
				}
			}
			return ""
		})
		if len(n.EventsOf("holder-gone", "holder")) == 0 {
			return fmt.Sprintf("no event holder-gone among %+v", n.Events())
		}
		return ""
	})
}

// T4: the holder's kernel never ends. The simulated card gives both a slice in turn then.
func TestT4HolderHangs(t *testing.T) {
	t.Parallel()
	n, holder, other := holding(t)
	holder.Play("cost=3600000000000 times=1")
	goesOn(t, other, 0.3)
	named(n, "drain-long", "holder")
}

// knotted asserts that a load whose submitted work waits for what it submits later gets on beside another, and that
// no drain is left to its timeout, which is so long here that it would be seen in how long launches take.
func knotted(t *testing.T, machine, settings string, gpus ...int) {
	t.Helper()
	const timeout, window = 10 * time.Second, 4 * time.Second
	// With T = 0, the other's turn of Q, and then 2 Q until it is handed over; a busy machine takes longer at times.
	const waitMost = 160 * time.Millisecond
	n := node.Start(t, node.Options{Machine: machine, Config: always + "threshold = \"0s\"\ndrain_timeout = \"10s\"\n"})
	knot := n.Flow(node.RunOptions{Name: "knot"}, gpus...)
	beside := n.Flow(node.RunOptions{Name: "beside"}, gpus...)
	tied := begin(knot, settings)
	var loads []playing
	for _, gpu := range gpus {
		loads = append(loads, begin(beside, fmt.Sprintf("gpu=%d cost=1000000 burst=4 streams=2 sync=1", gpu)))
	}
	time.Sleep(settle)
	attempt(t, func() string {
		for _, p := range loads {
			p.Worst(p.load) // from now on
		}
		rounds := rates(window, append(loads, tied)...)
		if rounds[len(loads)] < 10 {
			return fmt.Sprintf("the knotted load gets on by %.1f rounds a second, those beside by %.1f launches\n%s",
				rounds[len(loads)], rounds[:len(loads)], n.MustWeir("queue", "-o", "wide"))
		}
		for i, p := range loads {
			worst := p.Worst(p.load)
			t.Logf("simulated: rounds of the knot %.0f a second; on GPU %d: %.0f launches a second, the longest took %s",
				rounds[len(loads)], gpus[i], rounds[i], worst)
			if worst > timeout/2 {
				t.Fatalf("a launch on GPU %d took %s: a hand-over by the drain's timeout", gpus[i], worst)
			}
			if worst > waitMost {
				return fmt.Sprintf("a launch on GPU %d took %s, wanted %s at most", gpus[i], worst, waitMost)
			}
			if rounds[i] < 200 {
				return fmt.Sprintf("the other container has %.0f launches of 1 ms a second on GPU %d", rounds[i], gpus[i])
			}
		}
		return ""
	})
	for _, flow := range n.Queue() {
		if flow.Expired != 0 {
			t.Errorf("%s on GPU %d: %d drains were ended by the timeout", flow.Container, flow.Index, flow.Expired)
		}
		mean := time.Duration(0)
		if flow.WaitMeanNS != nil {
			mean = time.Duration(*flow.WaitMeanNS)
		}
		t.Logf("%s on GPU %d: mode %s, %d leases, waits of %s in the mean, %d drains reopened", flow.Container, flow.Index,
			flow.Mode, flow.Leases, mean, flow.Reopened)
	}
}

// T7: kernels on two GPUs that wait for each other, with a gap between the two launches in which a lease may
// be taken away.
func TestT7KernelsOfTwoGPUsWaitForEachOther(t *testing.T) {
	t.Parallel()
	knotted(t, "a100x4", "knot=1 cost=1000000 gap=2000", 0, 1)
}

// T9: a kernel waits for a write of memory that the same program will only submit later.
func TestT9KernelWaitsForLaterWrite(t *testing.T) {
	t.Parallel()
	knotted(t, "", "knot=2 cost=1000000 gap=2000", 0)
}

// T9: a host function in a stream needs a lock that a thread holds while the gate holds it back.
func TestT9HostFunctionNeedsLockOfGatedThread(t *testing.T) {
	t.Parallel()
	knotted(t, "", "knot=3 cost=1000000 gap=300", 0)
}

// T11: while a thread captures a graph, another one queries events and launches, and leases come and go: each capture
// stays valid. A capture of the whole process forbids such queries, to the library as well.
func TestT11CapturesStayValid(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Config: always})
	hog := n.Weighted("hog", 1)
	hog.Play(node.Hog)
	var captures []playing
	for _, mode := range []string{"0", "1"} {
		captures = append(captures, begin(n.Weighted("capture-"+mode, 1), "knot=4 cost=500000 gap=3000 mode="+mode))
	}
	for _, p := range captures {
		n.Eventually(func() string {
			if rounds := p.Launches(p.load); rounds < 60 { // an error of the driver ends the test
				return fmt.Sprintf("%s has made %d graphs", p.Name, rounds)
			}
			return ""
		})
	}
	for _, p := range captures {
		if flow := p.Queue(0); flow.Leases < 2 {
			t.Errorf("nothing was taken away from %s: %d leases", p.Name, flow.Leases)
		}
	}
}

// T9: a thread that has to launch what other work waits for gets through, though another thread of its process always
// has work in the window.
func TestT9LaterWriteBesideOtherWork(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Config: always + "gate_wait_max = \"60s\"\n"})
	both, hog := n.Weighted("both", 1), n.Weighted("hog", 1)
	hog.Play(node.Hog)
	knot := both.Play("cost=20000000 knot=2 gap=500")
	both.Play("cost=1000000 sync=1")
	for range 3 {
		before := both.Launches(knot)
		time.Sleep(settle)
		n.Eventually(func() string {
			if now := both.Launches(knot); now < before+2 {
				return fmt.Sprintf("the knot has come from round %d to %d", before, now)
			}
			return ""
		})
	}
}
