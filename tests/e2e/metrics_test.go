package e2e

// The metrics of an agent whose containers swap and take turns: they say what `weir ps -o json` and `weir queue -o json`
// say, and what the simulated machine's own books say.

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/agent/control"
	"weir/tests/e2e/node"
)

// figure is what a scrape says of a container on the first card.
func figure(t *testing.T, n *node.Node, f node.Figures, name, container string, more ...string) float64 {
	t.Helper()
	labels := []string{"container=" + container, "gpu_uuid=" + n.Card(0).UUID}
	for _, l := range more { // in the order of their names
		at := 0
		for at < len(labels) && labels[at] < l {
			at++
		}
		labels = append(labels[:at:at], append([]string{l}, labels[at:]...)...)
	}
	value, there := f.Of(name, labels...)
	if !there {
		t.Errorf("there is no %s of %s %v", name, container, more)
	}
	return value
}

func TestMetricsOfSwapAndTime(t *testing.T) {
	t.Parallel()
	n := swapNode(t, "metrics_listen = \"127.0.0.1:0\"\n")
	names := []string{"a", "b"}
	var programs []*node.Puppet
	for _, name := range names { // 96 MiB each, on a card of 128
		options := node.RunOptions{Name: name, Memory: "112MiB", Flags: []string{"--swap", "64MiB"}}
		p := n.AsPuppet(n.Run(options, node.Build(t, "e2e/prober")))
		p.OK("init 0")
		for i := range 12 {
			p.OK("alloc %d", 8*swapMiB)
			p.OK("fill %d %d", i, i)
		}
		programs = append(programs, p)
	}
	if code := programs[0].Code("alloc %d", 96*swapMiB); code != outOfMemory {
		t.Fatalf("beyond cap and swap: code %d", code)
	}
	for turn := range 6 {
		for range 3 {
			usePieces(programs[turn%2], 12, 2)
		}
		n.Scrape() // while all of it goes on
	}
	var f node.Figures
	var list []control.Container
	n.Eventually(func() string { // until nothing moves any more
		before := n.Containers()
		f = n.Scrape()
		list = n.Containers()
		return cmp.Diff(before, list)
	})
	for i, c := range list {
		compareWithPs(t, n, f, c)
		compareWithBooks(t, n, f, names[i], programs[i])
	}
	compareWithQueue(t, n, f)
	if got, _ := f.Of("weir_events_total", "type=denied"); got != float64(len(n.EventsOf("denied", "a"))) || got == 0 {
		t.Errorf("%v events of a refusal", got)
	}
	host, _ := f.Of("weir_swap_host_reserved_bytes")
	if sum := figure(t, n, f, "weir_container_memory_movable_bytes", "a") + figure(t, n, f, "weir_container_memory_movable_bytes", "b"); host != sum || host != 192*swapMiB {
		t.Errorf("%v bytes of the host are set aside, and %v are movable", host, sum)
	}
	comparePlanWithBooks(t, n, "b", programs[1])
	programs[0].Kill()
	n.Eventually(func() string {
		for name := range n.Scrape() {
			if strings.Contains(name, "container=a ") {
				return "the series of a container that is gone are there: " + name
			}
		}
		return ""
	})
}

// compareWithPs: the same figures are in `weir ps -o json`.
func compareWithPs(t *testing.T, n *node.Node, f node.Figures, c control.Container) {
	t.Helper()
	u := c.GPUs[0]
	for name, want := range map[string]int64{
		"weir_container_memory_cap_bytes": *u.CapBytes, "weir_container_memory_used_bytes": u.UsedBytes,
		"weir_container_memory_charged_bytes": u.ChargedBytes, "weir_container_memory_plain_bytes": u.UsedBytes - u.MovableBytes,
		"weir_container_memory_movable_bytes": u.MovableBytes, "weir_container_memory_resident_bytes": u.OnCard(),
		"weir_container_swap_limit_bytes": u.Swap.LimitBytes, "weir_container_swap_resident_bytes": *u.Swap.ResidentBytes,
		"weir_container_swap_swapped_bytes": *u.Swap.SwappedBytes,
	} {
		if got := figure(t, n, f, name, c.Name); got != float64(want) {
			t.Errorf("%s of %s: %v, and ps says %d", name, c.Name, got, want)
		}
	}
	for _, m := range []struct {
		direction, cause string
		want             int64
	}{
		{"in", "plan", *u.Swap.MovedInBytes}, {"out", "plan", *u.Swap.MovedOutBytes},
		{"in", "fault", *u.Swap.FaultedBytes}, {"out", "fault", *u.Swap.DisplacedBytes},
	} {
		got := figure(t, n, f, "weir_container_swap_moved_bytes_total", c.Name, "direction="+m.direction, "cause="+m.cause)
		if got != float64(m.want) {
			t.Errorf("moved %s by %s of %s: %v, and ps says %d", m.direction, m.cause, c.Name, got, m.want)
		}
	}
	if got, _ := f.Of("weir_container_denials_total", "container="+c.Name); got != float64(c.Refused) {
		t.Errorf("%v refusals of %s, and ps says %d", got, c.Name, c.Refused)
	}
	if got, there := f.Of("weir_container_enforced", "by=library", "container="+c.Name); got != 1 || !there {
		t.Errorf("%s is not enforced: %v, %v", c.Name, got, there)
	}
}

// compareWithBooks: and they are what has happened on the simulated card.
func compareWithBooks(t *testing.T, n *node.Node, f node.Figures, name string, p *node.Puppet) {
	t.Helper()
	process, _ := n.Card(0).Process(p.PID())
	in := figure(t, n, f, "weir_container_swap_moved_bytes_total", name, "direction=in", "cause=plan")
	out := figure(t, n, f, "weir_container_swap_moved_bytes_total", name, "direction=out", "cause=plan")
	// The driver makes room by itself where the agent had not yet, and a move may find done what it was to do.
	books := []int64{process.Managed.PrefetchInBytes, process.Managed.PrefetchOutBytes}
	if in < float64(books[0])/2 || in > float64(books[0])*2 || out < float64(books[1])/2 || out > float64(books[1])*2 || in == 0 || out == 0 {
		t.Errorf("%s: moved in %v and out %v by plan; by the simulated machine's books %d and %d", name, in, out, books[0], books[1])
	}
	here := figure(t, n, f, "weir_container_swap_resident_bytes", name)
	if here != float64(process.Managed.ResidentBytes) {
		t.Errorf("%s: %v bytes on the card, and by the simulated machine's books %d", name, here, process.Managed.ResidentBytes)
	}
	got := figure(t, n, f, "weir_container_gpu_time_seconds_total", name)
	want := time.Duration(process.BusyNS).Seconds()
	t.Logf("simulated: %s had %.3f s of GPU time, by the books %.3f", name, got, want)
	if got < want*0.9 || got > want+1.5 { // leases are charged with the time that memory takes to come
		t.Errorf("%s had %.3f s of GPU time, by the simulated machine's books %.3f", name, got, want)
	}
}

// comparePlanWithBooks: where nobody else is in the way, what goes by plan is to the byte what the simulated card has given.
func comparePlanWithBooks(t *testing.T, n *node.Node, name string, p *node.Puppet) {
	t.Helper()
	wentOut := func() (told, books float64) {
		process, _ := n.Card(0).Process(p.PID())
		return figure(t, n, n.Scrape(), "weir_container_swap_moved_bytes_total", name, "direction=out", "cause=plan"),
			float64(process.Managed.PrefetchOutBytes)
	}
	told, books := wentOut()
	n.SetCap(name, "24MiB")
	n.Eventually(func() string {
		nowTold, nowBooks := wentOut()
		if onCard(n, p) > 24*swapMiB || nowTold-told != nowBooks-books || nowTold == told {
			return fmt.Sprintf("by plan %v bytes have gone out, and by the simulated machine's books %v", nowTold-told, nowBooks-books)
		}
		return ""
	})
}

// compareWithQueue: and of GPU time what `weir queue -o json` says.
func compareWithQueue(t *testing.T, n *node.Node, f node.Figures) {
	t.Helper()
	flows := n.Queue()
	if len(flows) != 2 {
		t.Fatalf("%d flows", len(flows))
	}
	for _, q := range flows {
		for name, want := range map[string]float64{
			"weir_container_gpu_time_seconds_total":         float64(q.GotNS) / 1e9,
			"weir_container_gpu_time_charged_seconds_total": float64(q.ServedNS) / 1e9,
			"weir_container_leases_total":                   float64(q.Leases),
			"weir_container_lease_wait_seconds_count":       float64(q.Leases),
			"weir_container_lease_wait_seconds_sum":         float64(q.WaitedNS) / 1e9,
		} {
			if got := figure(t, n, f, name, q.Container); math.Abs(got-want) > 1e-6 {
				t.Errorf("%s of %s: %v, and queue says %v", name, q.Container, got, want)
			}
		}
	}
}

// Nothing is served unless it is asked for; an agent that is to serve at an address that is taken does not start.
func TestMetricsAreOff(t *testing.T) {
	t.Parallel()
	n := swapNode(t, "")
	if out := n.Weir("agent", "--run-dir", n.Dir+"/other", "--state-dir", n.Dir+"/state-2", "--metrics-listen", "nowhere:1"); out.Code != 2 ||
		!strings.Contains(out.Stderr, "--metrics-listen") {
		t.Errorf("exit %d: %s", out.Code, out.Stderr)
	}
	other := swapNode(t, "metrics_listen = \"127.0.0.1:0\"\n")
	taken := other.MetricsAddress()
	out := n.Weir("agent", "--run-dir", n.Dir+"/other", "--state-dir", n.Dir+"/state-2", "--metrics-listen", taken)
	if out.Code != 1 || !strings.Contains(out.Stderr, "metrics_listen") || !strings.Contains(out.Stderr, "another port") {
		t.Errorf("exit %d: %s", out.Code, out.Stderr)
	}
	response, err := http.Post("http://"+taken+"/metrics", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a POST: status %d", response.StatusCode)
	}
}
