package swaps

// What the link to a GPU carries, by what moves were seen to take.

import "weir/agent/residency"

const (
	// linkMoves is over how many moves, about, the mean is taken; before linkSure of them nothing is told.
	linkMoves = 32
	linkSure  = 8
)

// link is one direction. Its sums fade.
type link struct {
	bytes, ns float64
	moves     int
	told      int64 // bytes a second, as the policy has it
}

// take takes one move.
func (l *link) take(bytes, ns int64) {
	const keep = 1 - 1.0/linkMoves
	l.bytes, l.ns = l.bytes*keep+float64(bytes), l.ns*keep+float64(ns)
	l.moves++
}

// changed is what the direction carries, where that is known and another than was told.
func (l *link) changed() (rate int64, changed bool) {
	if l.moves < linkSure {
		return l.told, false
	}
	rate = int64(min(l.bytes/l.ns*1e9, float64(residency.SizeMax)))
	return rate, rate > l.told+l.told/8 || rate < l.told-l.told/8
}

// sample takes the time of a move of data. What cannot be is no sample: no link carries a byte in less than a hundredth of
// a ns, and what takes ten seconds has been held up by something else.
func (t *Table) sample(f *flight, took int64) {
	if took <= f.bytes/100 || took > 10_000*ms {
		return
	}
	links := &t.gpus[f.gpu].links
	l, other := &links[0], &links[1]
	if f.out {
		l, other = other, l
	}
	l.take(f.bytes, took)
	rate, changed := l.changed()
	if !changed {
		return
	}
	if l.told = rate; other.moves < linkSure {
		other.told = rate // as far as is known, it carries as much
	}
	t.carry(t.node.Link(t.now, f.gpu, links[0].told, links[1].told))
}
