package residency

// One allocation and where its pieces are. A piece changes place in setPiece only, which keeps all sums.

// place of a piece.
type place uint8

const (
	nowhere  place = iota // never touched: it has no data
	host                  // swapped out
	resident              // on the card
	coming                // under way to the card, from the host
	filling               // under way to the card, from nowhere
	going                 // under way to the host
)

// sums are bytes by place.
type sums struct {
	fresh, host, resident, coming, going int64
}

func (s *sums) add(at place, bytes int64) {
	switch at {
	case nowhere:
		s.fresh += bytes
	case host:
		s.host += bytes
	case resident:
		s.resident += bytes
	case coming, filling:
		s.coming += bytes
	case going:
		s.going += bytes
	}
}

// here is what takes room on the card.
func (s *sums) here() int64 { return s.resident + s.coming + s.going }

// lack is what is not on the card nor under way.
func (s *sums) lack() int64 { return s.fresh + s.host }

func (s *sums) total() int64 { return s.here() + s.lack() }

type alloc struct {
	id        AllocID
	session   Session
	flow      *flow
	process   *process
	size      int64
	stamp     int64  // of its last use; no two are equal on a GPU
	usedIn    uint64 // the flow's lease in which that was
	sum       sums
	pieces    []place
	one       [1]place
	line      []arrived // of each piece
	oneLine   [1]arrived
	undone    int        // moves that were not to be had, in a row
	restUntil int64      // 0: it does not rest by itself
	low       int        // no piece before it lacks
	high      int        // no piece behind it is resident
	at        [heaps]int // places in heaps; 0: in none
	before    *alloc     // in its session's list
	after     *alloc
}

// bytes is the size of piece i.
func (a *alloc) bytes(i int) int64 {
	piece := a.flow.on.config.Piece
	return min(piece, a.size-int64(i)*piece)
}

// lacking is the first piece that is not on the card nor under way; there must be one.
func (a *alloc) lacking() int {
	for a.pieces[a.low] != nowhere && a.pieces[a.low] != host {
		a.low++
	}
	return a.low
}

// leaving is the last piece that is on the card; there must be one. Programs mostly begin at the front, so that stays.
func (a *alloc) leaving() int {
	for a.pieces[a.high] != resident {
		a.high--
	}
	return a.high
}

// setPiece moves piece i in all books.
func (a *alloc) setPiece(i int, to place) {
	from, bytes, f := a.pieces[i], a.bytes(i), a.flow
	f.untally(a)
	a.pieces[i] = to
	a.sum.add(from, -bytes)
	a.sum.add(to, bytes)
	f.tally(a)
	switch to {
	case nowhere, host:
		a.low = min(a.low, i)
	case resident:
		a.high = max(a.high, i)
	}
	f.on.arrivals.follow(&a.line[i], to)
	f.file(a)
}

// list makes a one of its session's allocations.
func (n *Node) list(a *alloc) {
	if first := n.sessions[a.session]; first != nil {
		a.after, first.before = first, a
	}
	n.sessions[a.session] = a
}

// forget takes a out of everything; its moves are answered by nobody any more.
func (n *Node) forget(a *alloc) {
	f := a.flow
	a.wake()
	for _, lane := range []*lane{&f.on.ins, &f.on.outs} {
		if a.sum.coming == 0 && a.sum.going == 0 {
			break
		}
		for i := len(lane.moves) - 1; i >= 0; i-- {
			if m := lane.moves[i]; m.alloc == a {
				n.drop(m)
			}
		}
	}
	for i := range a.line {
		a.line[i].leave()
	}
	f.untally(a)
	a.sum = sums{}
	f.file(a)
	a.process.left()
	n.reserved -= a.size
	delete(n.allocs, a.id)
	if a.after != nil {
		a.after.before = a.before
	}
	switch {
	case a.before != nil:
		a.before.after = a.after
	case a.after != nil:
		n.sessions[a.session] = a.after
	default:
		delete(n.sessions, a.session)
	}
}
