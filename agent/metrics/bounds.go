package metrics

// How many series there may be.

import (
	"slices"

	"weir/agent/control"
)

// reasons are what the label of that name may be, beside empty.
func reasons() []string { return slices.Sorted(slices.Values(control.ReasonKinds)) }

// seriesOfContainer is how many series one container has at most: alone, and for each GPU that it uses.
func seriesOfContainer() (alone, each int) {
	for _, f := range families {
		switch series := f.series(); {
		case slices.Contains(f.labels, "container") && slices.Contains(f.labels, "gpu_uuid"):
			each += series
		case slices.Contains(f.labels, "container"):
			alone += series
		}
	}
	return alone, each
}

// series is how many series a family has of one container, on one GPU.
func (f *family) series() int {
	series := 1
	if f.kind == summary {
		series = 2 // sum and count
	}
	for _, label := range f.labels {
		if label == "direction" || label == "cause" || label == "result" {
			series *= 2
		}
	}
	return series
}
