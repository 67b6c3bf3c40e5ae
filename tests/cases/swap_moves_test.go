package cases

// When memory moves: both ways at once, while another program still has the GPU, and not at all for who comes back in
// time. All by the simulated machine's books.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/node"
	"weir/tests/sim"
)

// slowNode is swapNode with a link of 1 GB/s each way, so that what moves takes long enough to be watched.
func slowNode(t *testing.T) *node.Node {
	t.Helper()
	return node.Start(t, node.Options{Machine: strings.ReplaceAll(node.Machine("128MiB", "512B"), `"12GB/s"`, `"1GB/s"`)})
}

// large starts a program with so many filled allocations of 8 MiB, under a cap of 112 MiB and swap of as much.
func large(t *testing.T, n *node.Node, name string, count int) *node.Puppet {
	t.Helper()
	options := node.RunOptions{Name: name, Memory: "112MiB", Flags: []string{"--swap", "112MiB"}}
	p := n.AsPuppet(n.Run(options, node.Build(t, "e2e/prober")))
	set(p, count)
	return p
}

// managedOf is what the books say of a program's managed memory.
func managedOf(t *testing.T, n *node.Node, p *node.Puppet) sim.ManagedBooks {
	t.Helper()
	process, there := n.Card(0).Process(p.PID())
	if !there {
		t.Fatalf("the machine knows no process %d", p.PID())
	}
	return process.Managed
}

// TestSwapBothWaysAtOnce: at a change of holders one's memory goes while the other's comes: the two engines that copy
// together work for longer than the change takes.
func TestSwapBothWaysAtOnce(t *testing.T) {
	t.Parallel()
	const count = 13 // 104 MiB each of 128: 80 MiB and more must go for what comes
	n := slowNode(t)
	a, b := large(t, n, "a", count), large(t, n, "b", count)
	pass(a, count, 2)
	pass(b, count, 2)
	attempt(t, func() string {
		a, b = b, a // a is who ran before last, and lacks most of its set
		before := n.Card(0)
		a.Tell("use 0 2")
		var began, ended sim.GPUBooks
		for last, end := before, time.Now().Add(5*time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			now := n.Card(0)
			moves := now.HostToDeviceNS+now.DeviceToHostNS > last.HostToDeviceNS+last.DeviceToHostNS
			if moves && began.NowNS == 0 {
				began = last
			}
			if moves {
				ended = now
			}
			if last = now; began.NowNS > 0 && now.NowNS-ended.NowNS > 200*time.Millisecond.Nanoseconds() {
				break
			}
		}
		if code := a.Answer(); code != 0 {
			t.Fatalf("its kernels have failed with %d", code)
		}
		pass(a, count, 2)
		in, out := ended.HostToDeviceNS-began.HostToDeviceNS, ended.DeviceToHostNS-began.DeviceToHostNS
		took := ended.NowNS - began.NowNS
		line := fmt.Sprintf("simulated: memory moved for %s; the link worked for %s to the card and %s from it", time.Duration(took),
			time.Duration(in), time.Duration(out))
		if most := max(in, out); min(in, out) < 20*time.Millisecond.Nanoseconds() || in+out < took*5/4 || most > took {
			return line
		}
		t.Log(line)
		return ""
	})
	whole(t, a, count)
	whole(t, b, count)
}

// busyGain is for how long a program's work runs in a window.
func busyGain(t *testing.T, n *node.Node, p *node.Puppet, window time.Duration) time.Duration {
	t.Helper()
	before, _ := n.Card(0).Process(p.PID())
	time.Sleep(window)
	after, _ := n.Card(0).Process(p.PID())
	return time.Duration(after.BusyNS - before.BusyNS)
}

// TestSwapComesWhileAnotherRuns: what there is room for comes for the one who is next while the holder is at work, so
// that it lacks no more than the two sets exceed the card by when its turn comes.
func TestSwapComesWhileAnotherRuns(t *testing.T) {
	t.Parallel()
	const count, few = 12, 8 // 96 and 64 MiB, of 128
	n := slowNode(t)
	a, b := large(t, n, "a", count), large(t, n, "b", few)
	pass(b, few, 2)
	pass(a, count, 2) // 32 MiB of b's are there now, and of its 64 it could have no more
	a.OK("free %d", count-1)
	a.OK("free %d", count-2)
	a.OK("free %d", count-3) // 24 MiB more are free
	b0 := managedOf(t, n, b)
	lacks := few*8*mib - b0.ResidentBytes
	if lacks < 8*mib {
		t.Fatalf("b lacks %d bytes only", lacks)
	}
	a.Tell("use 0 1500") // a second and a half of one of its pieces
	time.Sleep(100 * time.Millisecond)
	b.Tell("use 0 2")
	came := func() int64 { return managedOf(t, n, b).PrefetchInBytes - b0.PrefetchInBytes }
	for end := time.Now().Add(time.Second); came() < min(lacks, 16*mib) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	there := came()
	if gain := busyGain(t, n, a, 20*time.Millisecond); there < min(lacks, 16*mib) || gain < 5*time.Millisecond {
		t.Errorf("for b came %d bytes, of %d that it lacks, and then a ran for %s in 20 ms", there, lacks, gain)
	}
	if code := a.Answer(); code != 0 {
		t.Errorf("a's kernels: %d", code)
	}
	if code := b.Answer(); code != 0 {
		t.Errorf("b's kernels: %d", code)
	}
	whole(t, b, few)
}

// TestSwapKeepsMemoryForAReturn: a program that comes back now and then finds its memory in place beside one that is
// always busy, though the card is used above the threshold of pressure; once it has been away for far longer than
// usual, some of it goes, until there is no pressure.
func TestSwapKeepsMemoryForAReturn(t *testing.T) {
	t.Parallel()
	const (
		count, others = 8, 6 // 64 and 48 MiB: 0.875 of the card
		away          = 150 * time.Millisecond
		pressure      = swapCard * 8 / 10
	)
	n := swapNode(t, "")
	comes, stays := large(t, n, "comes", count), large(t, n, "stays", others)
	pass(comes, count, 1)
	pass(stays, others, 1)
	stays.Tell("use 0 20000") // beyond the end of this test
	gone := func() int64 { m := managedOf(t, n, comes); return m.PrefetchOutBytes + m.EvictedBytes }
	before, _ := movedIn(t, n, comes)
	var left time.Time
	for range 20 {
		time.Sleep(away)
		pass(comes, count, 1)
		left = time.Now()
	}
	if now, _ := movedIn(t, n, comes); now != before || gone() != 0 {
		t.Errorf("%d bytes went and %d came of a program that is back each %s", gone(), now-before, away)
	}
	time.Sleep(2 * away)
	if went := gone(); went != 0 && time.Since(left) < 3*away {
		t.Errorf("%d bytes went within twice the usual time", went)
	}
	n.Eventually(func() string {
		if resident := n.Card(0).ResidentBytes; resident > pressure {
			return fmt.Sprintf("%s after it was last there %d bytes lie on the card, which is above %d", time.Since(left), resident,
				int64(pressure))
		}
		return ""
	})
	if went := gone(); went < 112*mib-pressure || went > 112*mib-pressure+8*mib {
		t.Errorf("%d bytes went for a pressure of %d bytes too much", went, 112*mib-int64(pressure))
	}
	if m := managedOf(t, n, stays); m.PrefetchOutBytes+m.EvictedBytes != 0 {
		t.Errorf("%d bytes went of the one that is at work", m.PrefetchOutBytes+m.EvictedBytes)
	}
	pass(comes, count, 1)
	whole(t, comes, count)
}
