// What the library adds to calls of a driver that returns at once.

package hosttest

import (
	"fmt"
	"testing"
)

// BenchmarkAdded reports what the library adds to calls of a driver that returns at once, in
// nanoseconds: an allocation and its free, the free of any live allocation and a new one in its place, and
// a memory report, at 1, 1,000 and 100,000 live allocations. The bare driver is timed in the same run.
func BenchmarkAdded(b *testing.B) {
	a := startAgent(b, unlimited/4)
	h := startHost(b, plain, a.path)
	h.ok("alloc 512")
	for b.Loop() {
		h.send("bench")
		for range 3 {
			var live int
			var pair, replace, info float64
			line := h.answer()
			if _, err := fmt.Sscanf(line, "live %d: pair %f replace %f info %f", &live, &pair, &replace, &info); err != nil {
				b.Fatalf("%q: %v", line, err)
			}
			b.ReportMetric(pair, fmt.Sprintf("ns/pair@%d", live))
			b.ReportMetric(replace, fmt.Sprintf("ns/replace@%d", live))
			b.ReportMetric(info, fmt.Sprintf("ns/info@%d", live))
		}
		if line := h.answer(); line != "ok 0" {
			b.Fatal(line)
		}
	}
}
