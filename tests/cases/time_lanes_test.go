package cases

// T2 for programs with more threads and streams than most have: what one has in flight in all of them together is
// bounded, whatever their number. So its drains are short, and its share is its own.

import (
	"testing"
	"time"

	"weir/tests/e2e/node"
)

func TestT2ManyStreams(t *testing.T) {
	for _, row := range []struct {
		name     string
		threads  int
		settings string
	}{
		{"64 streams in turn", 1, "cost=1000000 streams=64"},
		{"1,100 streams in turn", 1, "cost=1000000 streams=1100"},
		{"40 threads of 32 streams", 40, "cost=1000000 streams=32"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{})
			many, hog := n.Weighted("many", 1), n.Weighted("hog", 3)
			hog.Play(node.Hog)
			first := begin(many, "cost=1000000 sync=1") // what is submitted before rivals are known is not bounded
			time.Sleep(settle)
			for range row.threads {
				many.Play(row.settings)
			}
			first.end()
			time.Sleep(settle)
			expectShares(t, 4*time.Second, []float64{25, 75}, many, hog)
		})
	}
}
