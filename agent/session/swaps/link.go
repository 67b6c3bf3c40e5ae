package swaps

// What the link to a GPU carries, by what moves were seen to take.
//
// The times are what processes say, and quanta of all follow from them. So each container's are kept apart, and the link
// is taken to carry the median of what containers saw and of what it was taken for at first, of two the greater: one
// container alone makes nobody's quantum longer than the first guess and what another saw.

import (
	"slices"

	"weir/agent/residency"
)

const (
	// linkMoves is over how many moves, about, the mean is taken; before linkSure of them it says nothing.
	linkMoves = 32
	linkSure  = 8
	// linkLeast: no link is believed to carry less than one part in so many of what it was taken for at first.
	linkLeast = 16
)

// link is one direction, as one container's moves saw it. Its sums fade.
type link struct {
	bytes, ns float64
	moves     int
	counted   int64 // bytes a second, as last taken into account; 0: not yet
}

// take takes one move.
func (l *link) take(bytes, ns int64) {
	const keep = 1 - 1.0/linkMoves
	l.bytes, l.ns = l.bytes*keep+float64(bytes), l.ns*keep+float64(ns)
	l.moves++
}

// changed tells whether it is known, and another than was taken into account, and takes it into account.
func (l *link) changed() bool {
	if l.moves < linkSure {
		return false
	}
	rate := int64(min(l.bytes/l.ns*1e9, float64(residency.SizeMax)))
	if rate <= l.counted+l.counted/8 && rate >= l.counted-l.counted/8 {
		return false
	}
	l.counted = max(1, rate)
	return true
}

// carries is what containers saw one way, 0 to the card.
func (t *Table) carries(gpu, way int) int64 {
	first := [2]int64{t.config.GPUs[gpu].In, t.config.GPUs[gpu].Out}[way]
	rates := []int64{first}
	for _, c := range t.containers {
		seen := &c.flows[gpu].links
		rate := seen[way].counted
		if rate == 0 {
			rate = seen[1-way].counted // as far as is known, it carries as much
		}
		if rate > 0 {
			rates = append(rates, rate)
		}
	}
	slices.Sort(rates)
	return max(first/linkLeast, rates[len(rates)/2])
}

// Link is what the link to a GPU is taken to carry by what moves have shown, in bytes a second to the card and from it;
// seen is false where there were too few to tell.
func (t *Table) Link(gpu int) (in, out int64, seen bool) {
	told, first := t.gpus[gpu].told, [2]int64{t.config.GPUs[gpu].In, t.config.GPUs[gpu].Out}
	seen = told != first || slices.ContainsFunc(t.containers, func(c *Container) bool {
		links := &c.flows[gpu].links
		return links[0].counted > 0 || links[1].counted > 0
	})
	return told[0], told[1], seen
}

// sample takes the time of a move of data. What cannot be is no sample: no link carries a byte in less than a hundredth of
// a ns, no move takes longer than since it was decided, and what takes ten seconds has been held up by something else.
func (t *Table) sample(f *flight, took int64) {
	if took <= f.bytes/100 || took > min(t.now-f.at, 10_000*ms) {
		return
	}
	way := 0
	if f.out {
		way = 1
	}
	l := &f.member.c.flows[f.gpu].links[way]
	if l.take(f.bytes, took); !l.changed() {
		return
	}
	told := [2]int64{t.carries(f.gpu, 0), t.carries(f.gpu, 1)}
	if told != t.gpus[f.gpu].told {
		t.gpus[f.gpu].told = told
		t.carry(t.node.Link(t.now, f.gpu, told[0], told[1]))
	}
}
