package cases

// U1 to U4: memory that was made managed in place of plain memory answers as plain memory does, and works as it; what
// it cannot do fails as the driver says, once, with a word about what to do.

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/tests/e2e/node"
)

// A card of 128 MiB, of which a container has 32 and may have 64 more on the host.
const (
	swapCard = 128 * mib
	swapCap  = 32 * mib
	swapMore = 64 * mib
)

// swapNode is a node with such a card.
func swapNode(t *testing.T, config string) *node.Node {
	t.Helper()
	return node.Start(t, node.Options{Machine: node.Machine("128MiB", "512B"), Config: config})
}

// prober starts a program that asks about its memory (clients/prober.c), in a container with swap.
func prober(n *node.Node, t *testing.T, name string, flags ...string) *node.Puppet {
	t.Helper()
	return proberOf(n, t, node.Build(t, "e2e/prober"), name, flags...)
}

func proberOf(n *node.Node, t *testing.T, program, name string, flags ...string) *node.Puppet {
	t.Helper()
	options := node.RunOptions{Name: name, Memory: "32MiB", Flags: append([]string{"--swap", "64MiB"}, flags...)}
	return n.AsPuppet(n.Run(options, program))
}

// bareProber is one on the same machine without weir.
func bareProber(n *node.Node, t *testing.T) *node.Puppet {
	t.Helper()
	return n.AsPuppet(n.Bare(node.Build(t, "e2e/prober")))
}

// managedBytes is how much managed memory a program has, by the machine's books.
func managedBytes(t *testing.T, n *node.Node, p *node.Puppet) int64 {
	t.Helper()
	process, there := books(t, n).GPUs[0].Process(p.PID())
	if !there {
		t.Fatalf("the machine knows no process %d", p.PID())
	}
	return process.Managed.AllocatedBytes
}

// converted fails the test unless a program has managed memory, and no plain memory of a mebibyte or more.
func converted(t *testing.T, n *node.Node, p *node.Puppet) {
	t.Helper()
	process, _ := books(t, n).GPUs[0].Process(p.PID())
	if process.Managed.AllocatedBytes == 0 || process.AllocatedBytes >= mib {
		t.Fatalf("of its memory %d bytes are managed and %d plain", process.Managed.AllocatedBytes, process.AllocatedBytes)
	}
}

// U1: all attributes, sizes and ranges of a converted pointer are answered as for plain memory, also where its data are
// on the host; and what only managed memory can is refused as for plain memory.
func TestU1AnswersAsForPlainMemory(t *testing.T) {
	n := swapNode(t, "")
	plain, ours := bareProber(n, t), prober(n, t, "swapper")
	for _, p := range []*node.Puppet{plain, ours} {
		p.OK("init 0")
		for i, allocation := range []string{"alloc 16777216", "alloc 2097152", "alloc 3145729", "pitch 3000 1000", "alloc 4096"} {
			if number := p.Number("%s", allocation); number != int64(i) {
				t.Fatalf("%s is number %d", allocation, number)
			}
		}
	}
	converted(t, n, ours)
	compare := func(when string) {
		for i := range 5 {
			for _, ask := range []string{"attributes", "range", "managed"} {
				theirs, got := strings.Join(plain.OK("%s %d", ask, i), " "), strings.Join(ours.OK("%s %d", ask, i), " ")
				if theirs != got {
					t.Errorf("%s, %s of allocation %d:\nplain     %s\nconverted %s", when, ask, i, theirs, got)
				}
			}
		}
	}
	compare("new")
	for i := range 5 {
		ours.OK("fill %d %d", i, i)
		ours.OK("use %d 3", i)
	}
	// More than the cap: some of it lies on the host now.
	for range 3 {
		more := ours.Number("alloc %d", 16*mib)
		ours.OK("fill %d 7", more)
		ours.OK("use %d 3", more)
	}
	compare("used")
	for i := range 5 {
		if wrong := ours.Number("check %d %d", i, i); wrong != 0 {
			t.Errorf("%d bytes of allocation %d are wrong", wrong, i)
		}
	}
	if words := ours.OK("legacy 0"); words[0] != "0" || words[1] != "0" {
		t.Errorf("whether it can be exported by IPC: %v, want that it cannot", words)
	}
}

// notConverted fails the test unless a program of a container gets plain memory up to its cap, and no more.
func notConverted(t *testing.T, n *node.Node, p *node.Puppet) {
	t.Helper()
	p.OK("alloc %d", 16*mib)
	p.OK("alloc %d", 16*mib)
	if code := p.Code("alloc %d", 16*mib); code != 2 {
		t.Errorf("plain memory beyond the cap: code %d, want out of memory", code)
	}
	if managed := managedBytes(t, n, p); managed != 0 {
		t.Errorf("%d bytes are managed", managed)
	}
}

// surprise has a program try what managed memory cannot, twice: the driver's error each time, one event that says what
// to do, and the executable gets plain memory from its next process on, for which that works.
func surprise(t *testing.T, ask string, code int) {
	t.Helper()
	n := swapNode(t, "")
	program := filepath.Join(n.Dir, "exporter")
	copyFile(t, node.Build(t, "e2e/prober"), program)
	first := proberOf(n, t, program, "first")
	first.OK("init 0")
	first.OK("alloc %d", 16*mib)
	converted(t, n, first)
	first.OK("fill 0 5")
	for range 2 {
		if got := first.Code("%s 0", ask); got != code {
			t.Errorf("%s: code %d, want the driver's %d", ask, got, code)
		}
	}
	if wrong := first.Number("check 0 5"); wrong != 0 {
		t.Errorf("%d bytes are wrong", wrong)
	}
	n.Eventually(func() string {
		if said := n.MustWeir("events"); !strings.Contains(said, "weir/swap=off") {
			return "no event names weir/swap=off: " + said
		}
		return ""
	})
	if said := n.MustWeir("events"); strings.Count(said, "weir/swap=off") != 1 {
		t.Errorf("it is not said once: %s", said)
	}
	next := proberOf(n, t, program, "next")
	next.OK("init 0")
	notConverted(t, n, next)
	if code := next.Code("%s 0", ask); code != 0 && ask != "handle" {
		t.Errorf("%s of plain memory: code %d", ask, code)
	}
	other := prober(n, t, "other")
	other.OK("init 0")
	other.OK("alloc %d", 16*mib)
	converted(t, n, other)
	n.StopAgent()
	n.StartAgent()
	later := proberOf(n, t, program, "later")
	later.OK("init 0")
	notConverted(t, n, later)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestU2ExportByIPC(t *testing.T)             { t.Parallel(); surprise(t, "ipc", 1) }
func TestU2HandleForAddressRange(t *testing.T)   { t.Parallel(); surprise(t, "handle", 801) }
func TestU3WaitForValueInMemory(t *testing.T)    { t.Parallel(); surprise(t, "wait-value", 1) }
func TestU3WriteOfValueToMemory(t *testing.T)    { t.Parallel(); surprise(t, "write-value", 1) }
func TestU3BatchOfMemoryOperations(t *testing.T) { t.Parallel(); surprise(t, "batch", 1) }

// U2: a program into which a library is loaded that exports memory is not converted from the beginning, and an event
// says why.
func TestU2ExporterIsForeseen(t *testing.T) {
	t.Parallel()
	n := swapNode(t, "")
	for _, library := range []string{"libucp.so.0", "libnvshmem_host.so.3"} {
		file := filepath.Join(n.Dir, library)
		copyFile(t, node.Build(t, "e2e/libnext.so"), file)
		p := prober(n, t, strings.TrimSuffix(library, filepath.Ext(library)))
		p.OK("open %s", file)
		p.OK("init 0")
		notConverted(t, n, p)
		if code := p.Code("ipc 0"); code != 0 {
			t.Errorf("with %s: an export has code %d", library, code)
		}
	}
	n.Eventually(func() string {
		for _, library := range []string{"ucp", "nvshmem"} {
			if said := n.MustWeir("events"); !strings.Contains(strings.ToLower(said), library) {
				return "no event names " + library + ": " + said
			}
		}
		return ""
	})
}

// U4: nodes of graphs and captured copies work over converted memory, wherever it lies.
func TestU4CopiesInGraphs(t *testing.T) {
	t.Parallel()
	n := swapNode(t, "")
	p := prober(n, t, "copier")
	p.OK("init 0")
	for range 5 { // 80 MiB, of which 32 can lie on the card
		p.OK("alloc %d", 16*mib)
	}
	converted(t, n, p)
	p.OK("fill 0 1")
	for i, way := range []string{"plain", "node", "captured"} {
		p.OK("copy %s %d %d", way, i+1, i)
		p.OK("use 4 2")
	}
	for i := range 4 {
		if wrong := p.Number("check %d 1", i); wrong != 0 {
			t.Errorf("%d bytes of allocation %d are wrong", wrong, i)
		}
	}
}
