package e2e

// What weir adds to the start of a container of containerd: `make bench SECTION=containers` runs this for both
// generations, beside tests/bench/containers, which measures with runc alone.

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/tests/e2e/ctrd"
	"weir/tests/e2e/node"
)

const (
	startsAddedMax = 10 * time.Millisecond
	startsWarmUp   = 2
)

// BenchmarkContainerStart starts containers by ctr, with runc and with weir-runtime and a cap, in turns. A start is
// over when the container's program has written a line. The promise is judged by the medians.
func BenchmarkContainerStart(b *testing.B) {
	node.NeedRunc(b)
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("STARTS"), "50"))
	if err != nil || rounds < 1 {
		b.Fatalf("STARTS=%q: want how often each kind is started", os.Getenv("STARTS"))
	}
	for _, g := range ctrd.Generations() {
		b.Run("containerd-"+g.Name, func(b *testing.B) {
			d := ctrd.Start(b, g, node.Start(b, node.Options{}), ctrd.Options{Mode: "runtime"})
			kinds := []struct {
				starter node.Starter
				wish    node.Wish
				took    []time.Duration
			}{
				{starter: ctrd.Ctr{Daemon: d, Runtime: "runc"}, wish: node.Wish{Name: "bare"}},
				{starter: ctrd.Ctr{Daemon: d}, wish: node.Wish{Name: "capped", Annotations: memory("32MiB")}},
			}
			for round := range startsWarmUp + rounds {
				for i := range kinds {
					k := &kinds[(round+i)%len(kinds)]
					wish := k.wish
					wish.Name, wish.Args = fmt.Sprintf("%s-%d", wish.Name, round), []string{"/bin/sh", "-c", "echo started"}
					container := k.starter.Container(wish)
					begin := time.Now()
					program := container.Start()
					program.Line()
					took := time.Since(begin)
					if code, _ := program.Wait(time.Minute); code != 0 {
						b.Fatalf("%s ended with code %d: %s", wish.Name, code, program.Stderr())
					}
					if round >= startsWarmUp {
						k.took = append(k.took, took)
					}
				}
			}
			bare, capped := median(kinds[0].took), median(kinds[1].took)
			b.ReportMetric(0, "ns/op")
			holds := "yes"
			if capped-bare > startsAddedMax {
				holds = "no"
			}
			fmt.Printf("promise: container start by ctr of containerd %s, promised at most %v added, got %v (%v without), holds %s\n",
				g.Name, startsAddedMax, (capped - bare).Round(100*time.Microsecond), bare.Round(100*time.Microsecond), holds)
		})
	}
}

func median(values []time.Duration) time.Duration {
	slices.Sort(values)
	return values[len(values)/2]
}
