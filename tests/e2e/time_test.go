package e2e

// The simulated GPU by itself, without weir: its time and memory are shared as a real card's are.

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"weir/tests/e2e/node"
	"weir/tests/sim"
)

func number(n int64) string { return strconv.FormatInt(n, 10) }

func books(t *testing.T, n *node.Node) sim.GPUBooks {
	t.Helper()
	books, err := sim.Status(n.SimDir)
	if err != nil {
		t.Fatal(err)
	}
	return books.GPUs[0]
}

// Shares of GPU time while all of them have work, by the machine's own books. Long and short kernels
// get the same time, not the same number of launches.
func TestSharesOfTimeWithoutWeir(t *testing.T) {
	for _, costs := range [][]time.Duration{
		{time.Millisecond, 20 * time.Microsecond},
		{time.Millisecond, 20 * time.Microsecond, time.Millisecond, 20 * time.Microsecond},
	} {
		t.Run(fmt.Sprint(len(costs)), func(t *testing.T) {
			n := node.Start(t, node.Options{NoAgent: true})
			ptx := filepath.Join(node.Root(t), "tests/sim/kernels/spin.ptx")
			programs := make([]*node.Program, len(costs))
			for i, cost := range costs {
				programs[i] = n.Bare(node.Build(t, "e2e/spinner"), ptx, number(cost.Nanoseconds()))
				if line := programs[i].Line(); line != "ready" {
					t.Fatalf("spinner says %q", line)
				}
			}
			for _, p := range programs {
				p.Send("go")
			}
			time.Sleep(2 * time.Second)
			gpu := books(t, n)
			all := len(costs) - 1 // entry of the books for this many with work at once
			var sum int64
			for _, process := range gpu.Processes {
				sum += process.BusyByRivalsNS[all]
			}
			if wall := gpu.WallByRivalsNS[all]; wall < time.Second.Nanoseconds() {
				t.Fatalf("all had work at once for %s only: the machine is too busy to tell", time.Duration(wall))
			}
			want := 100 / float64(len(costs))
			for i, p := range programs {
				process, found := gpu.Process(p.PID())
				if !found {
					t.Fatalf("the books do not know pid %d", p.PID())
				}
				share := 100 * float64(process.BusyByRivalsNS[all]) / float64(sum)
				t.Logf("simulated: kernels of %s: %.2f %% of the time that was given (want %.0f +- 3)", costs[i], share, want)
				if share < want-3 || share > want+3 {
					t.Errorf("kernels of %s have %.2f %%, want %.0f +- 3", costs[i], share, want)
				}
			}
		})
	}
}

// Two that allocate until refusal get the whole card between them, contexts included.
func TestTwoFillTheCardWithoutWeir(t *testing.T) {
	n := node.Start(t, node.Options{NoAgent: true})
	a, b := n.BarePuppet(), n.BarePuppet()
	a.OK("init")
	b.OK("init")
	context := books(t, n).ContextBytes
	var got [2]int64 // by the programs' own count
	for _, bytes := range []int64{4 * mib, mib / 4, 16 << 10, 512} {
		a.Tell("hog %d", bytes)
		b.Tell("hog %d", bytes)
		for i, p := range []*node.Puppet{a, b} {
			answer := p.AnswerNumbers()
			if answer[1] != outOfMemory {
				t.Fatalf("hog: code %d", answer[1])
			}
			got[i] += answer[0] * bytes
		}
	}
	gpu := books(t, n)
	if got[0]+got[1]+context != gpu.MemoryBytes {
		t.Errorf("they got %d bytes, and with %d for contexts that is not the card's %d", got, context, gpu.MemoryBytes)
	}
	if gpu.AllocatedBytes != got[0]+got[1] || gpu.UsedBytes != gpu.MemoryBytes {
		t.Errorf("the books have %d allocated and %d used; they got %d", gpu.AllocatedBytes, gpu.UsedBytes, got)
	}
	if free := a.Numbers("info")[0]; free != 0 {
		t.Errorf("the card is full, and %d bytes are reported free", free)
	}
}
