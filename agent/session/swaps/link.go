package swaps

// What the link to a GPU carries, by what moves were seen to take.

import "weir/agent/residency"

const (
	// linkMoves is over how many moves, about, the mean is taken; before linkSure of them nothing is told.
	linkMoves = 32
	linkSure  = 8
	// linkLeast: no link is believed to carry less than one part in so many of what it was taken for at first: the times
	// are what processes say, and quanta of all follow from them.
	linkLeast = 16
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

// changed is what the direction carries, least at least, where that is known and another than was told.
func (l *link) changed(least int64) (rate int64, changed bool) {
	if l.moves < linkSure {
		return l.told, false
	}
	rate = max(least, int64(min(l.bytes/l.ns*1e9, float64(residency.SizeMax))))
	return rate, rate > l.told+l.told/8 || rate < l.told-l.told/8
}

// sample takes the time of a move of data. What cannot be is no sample: no link carries a byte in less than a hundredth of
// a ns, no move takes longer than since it was decided, and what takes ten seconds has been held up by something else.
func (t *Table) sample(f *flight, took int64) {
	if took <= f.bytes/100 || took > min(t.now-f.at, 10_000*ms) {
		return
	}
	links := &t.gpus[f.gpu].links
	l, other := &links[0], &links[1]
	if f.out {
		l, other = other, l
	}
	l.take(f.bytes, took)
	rate, changed := l.changed(t.config.GPUs[f.gpu].In / linkLeast)
	if !changed {
		return
	}
	if l.told = rate; other.moves < linkSure {
		other.told = rate // as far as is known, it carries as much
	}
	t.carry(t.node.Link(t.now, f.gpu, links[0].told, links[1].told))
}
