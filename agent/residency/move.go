package residency

// Pieces under way, and how they end.

// Result is how a move has ended.
type Result uint8

const (
	// Done: the bytes are where they were to go.
	Done Result = iota + 1
	// Undone: the move was cancelled before it began, or its allocation is not to be had now: then that rests.
	Undone
	// Failed: the driver refused it. Nothing of this process moves for a while.
	Failed
)

type move struct {
	number    uint64
	alloc     *alloc
	piece     int
	out       bool
	fresh     bool
	why       Why
	asker     *flow // for whom; nil: nobody's
	cancelled bool
	used      bool // what is to come has been used meanwhile, so it is there in any case
}

// lane is one direction of the link.
type lane struct {
	moves []*move
	bytes int64
}

func (l *lane) full(c *Config) bool { return len(l.moves) >= MovesMax || l.bytes >= c.Ahead }

func (l *lane) drop(m *move) {
	for i, other := range l.moves {
		if other == m {
			last := len(l.moves) - 1
			l.moves[i], l.moves[last] = l.moves[last], nil
			l.moves = l.moves[:last]
			l.bytes -= m.alloc.bytes(m.piece)
			return
		}
	}
}

// start puts piece i of a under way.
func (g *gpu) start(a *alloc, i int, why Why, asker *flow) {
	n := g.node
	n.number++
	m := n.newMove()
	*m = move{number: n.number, alloc: a, piece: i, why: why, asker: asker}
	lane, kind := &g.ins, In
	switch a.pieces[i] {
	case nowhere:
		m.fresh = true
		a.setPiece(i, filling)
	case host:
		a.setPiece(i, coming)
	case resident:
		m.out = true
		lane, kind = &g.outs, Out
		a.setPiece(i, going)
	}
	n.moves[m.number] = m
	lane.moves = append(lane.moves, m)
	lane.bytes += a.bytes(i)
	n.say(g.about(m, kind))
}

// newMove takes one that has ended, if there is any: a policy at work makes no garbage.
func (n *Node) newMove() *move {
	if last := len(n.spare) - 1; last >= 0 {
		m := n.spare[last]
		n.spare = n.spare[:last]
		return m
	}
	return &move{}
}

// drop ends m's being under way.
func (n *Node) drop(m *move) {
	g := m.alloc.flow.on
	if delete(n.moves, m.number); m.out {
		g.outs.drop(m)
	} else {
		g.ins.drop(m)
	}
	n.spare = append(n.spare, m)
}

func (g *gpu) about(m *move, kind Kind) Decision {
	a := m.alloc
	return Decision{Kind: kind, Why: m.why, Fresh: m.fresh, GPU: g.index, Flow: a.flow.id, Session: a.session,
		Alloc: a.id, Offset: int64(m.piece) * g.config.Piece, Bytes: a.bytes(m.piece), Move: m.number}
}

// Moved: a move has ended. One whose allocation is gone is ignored.
func (n *Node) Moved(now int64, number uint64, result Result) []Decision {
	n.begin()
	m := n.moves[number]
	if m == nil {
		return nil
	}
	a := m.alloc
	f, g, bytes := a.flow, a.flow.on, a.bytes(m.piece)
	g.now = max(g.now, now)
	from, to := host, resident
	switch {
	case m.out:
		from, to = resident, host
	case m.used:
		from = resident
	case m.fresh:
		from = nowhere
	}
	cancelled := m.cancelled
	n.drop(m)
	switch result {
	case Done:
		a.undone = 0
		a.line[m.piece].leave() // it comes last, whether it was there before or not
		a.setPiece(m.piece, to)
		switch {
		case m.out:
			f.stats.out += bytes
		case m.fresh:
			f.stats.filled += bytes
		default:
			f.stats.in += bytes
		}
	case Failed:
		a.setPiece(m.piece, from)
		f.stats.failed++
		a.process.rest(max(a.process.restUntil, g.now+g.config.Retry))
	default:
		a.setPiece(m.piece, from)
		if f.stats.cancelled++; !cancelled {
			a.rest()
		}
	}
	return g.finish()
}

// retract cancels what is under way and not wanted any more.
func (g *gpu) retract() {
	for _, lane := range []*lane{&g.ins, &g.outs} {
		for _, m := range lane.moves {
			if !m.cancelled && !g.stands(m) {
				m.cancelled = true
				g.node.say(g.about(m, Cancel))
			}
		}
	}
}

// stands: the reason for m is still there.
func (g *gpu) stands(m *move) bool {
	f := m.alloc.flow
	if !m.out {
		return (f.state == Holder || f == g.next || f.drain) && f.headroom() >= 0
	}
	if m.why == ForCap {
		return !f.drain
	}
	if f.state == Holder || f.drain {
		return false
	}
	switch m.why {
	case ForRoom:
		return f != g.next
	case ForIdle:
		return f.state == Idle
	case ForPlain:
		return m.asker.asked > 0
	case ForDrain:
		return m.asker.drain
	case ForNext:
		if f == g.next && f.recent(m.alloc) {
			return false
		}
		return m.asker == g.next || m.asker.state == Holder
	}
	return m.asker.state == Holder
}
