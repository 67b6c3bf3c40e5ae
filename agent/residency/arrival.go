package residency

// In which order pieces have come to a card, which is the order in which the driver gives them up where it is full
// (decision 15): by a fault or a move of ours, whosever they are; uses change nothing. A piece is in the line while it is on
// the card, on its way to the host, too; it comes last each time that it has come.

// arrived is one piece's place in the line. Not in it, it has no neighbours.
type arrived struct {
	alloc         *alloc
	piece         int
	before, after *arrived
}

// arrivals is the line of one card, a ring.
type arrivals struct {
	head arrived // no piece
}

func (l *arrivals) begin() { l.head.before, l.head.after = &l.head, &l.head }

// first is the piece that came first, next the one after p; nil if there is none.
func (l *arrivals) first() *arrived { return l.next(&l.head) }

func (l *arrivals) next(p *arrived) *arrived {
	if p.after == &l.head {
		return nil
	}
	return p.after
}

func (p *arrived) leave() {
	if p.before != nil {
		p.before.after, p.after.before = p.after, p.before
		p.before, p.after = nil, nil
	}
}

// arrive puts p last, if it is not in the line.
func (l *arrivals) arrive(p *arrived) {
	if p.before == nil {
		p.before, p.after = l.head.before, &l.head
		p.before.after, p.after.before = p, p
	}
}

// follow takes a change of place. A piece that was to go, and stays, has kept its place in the line.
func (l *arrivals) follow(p *arrived, to place) {
	switch to {
	case going:
	case resident:
		l.arrive(p)
	default:
		p.leave()
	}
}

// meet: what is under way of a to the card has been used, so it is there.
func (g *gpu) meet(a *alloc) {
	if a.sum.coming == 0 {
		return
	}
	for _, m := range g.ins.moves {
		m.used = m.used || m.alloc == a
	}
	for i, at := range a.pieces {
		if at == coming || at == filling {
			g.arrivals.arrive(&a.line[i])
		}
	}
}

// arriving is what is under way to the card, and not there yet.
func (g *gpu) arriving() int64 {
	bytes := g.ins.bytes
	for _, m := range g.ins.moves {
		if m.used {
			bytes -= m.alloc.bytes(m.piece)
		}
	}
	return bytes
}

// displace takes p for displaced by the driver.
func (p *arrived) displace() {
	a := p.alloc
	a.flow.stats.displaced += a.bytes(p.piece)
	a.setPiece(p.piece, host)
}

// displace follows what the driver does where more comes than the card holds: what came first goes, without being asked.
// What is under way to the card takes its room when it comes; what is under way and first in the line is taken to have gone
// for now.
func (g *gpu) displace() {
	over := g.used - g.arriving() - g.config.Card
	for p := g.arrivals.first(); p != nil && over > 0; {
		next, a := g.arrivals.next(p), p.alloc
		over -= a.bytes(p.piece)
		if a.pieces[p.piece] == resident {
			p.displace()
		}
		p = next
	}
}
