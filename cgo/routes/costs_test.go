// costs_test.go: what the library costs where it has nothing to do. Benchmarks; nothing here fails by time.

package routes

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// What the library costs: a program that never uses CUDA at its start, and lookups. The programs measure with and
// without it in turn, within one run.
//
//	go test ./cgo/routes -run '^$' -bench Costs -benchtime 1x
func BenchmarkCosts(b *testing.B) {
	starts := host{program: "starts", args: []string{"1000", filepath.Join(realLibrary(b), "libweir.so"), "/bin/true"}}
	for _, plan := range []struct {
		name string
		host host
	}{{"start", starts}, {"lookups", host{program: "costs", preload: library}}} {
		b.Run(plan.name, func(b *testing.B) {
			for range b.N {
				for line := range strings.Lines(run(b, plan.host)) {
					name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
					ns, err := strconv.ParseFloat(text, 64)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(ns, name+"-ns")
				}
			}
		})
	}
}
