package residency

// Whether the flows that are active fit the card together, and what a change of holders costs if not.

// hint is what was last said.
type hint struct {
	apart   bool
	quantum int64
}

// guarded is the quantum of flows that fit together beside one that would not: as short as the scheduler likes.
const guarded = 1

// demand is what the active flows would have on the card.
type demand struct {
	all, first, second int64 // together, and the two largest
	flows              int
	ever               int64 // with those that have been idle for longer
	away               bool  // one of these has not all of its set there
}

func (g *gpu) demand() (d demand) {
	for _, f := range g.flows {
		if f.sum.total() == 0 {
			continue
		}
		set := f.mayHave()
		d.ever += set
		if f.state == Idle && f.lingers <= g.now {
			d.away = d.away || f.lackOfSet() > 0
			continue
		}
		d.flows++
		d.all += set
		switch {
		case set > d.first:
			d.first, d.second = set, d.first
		case set > d.second:
			d.second = set
		}
	}
	return d
}

// hint says what has changed, beyond small changes.
func (g *gpu) hint() {
	d := g.demand()
	room := g.config.room() - g.others - g.fixed
	active, ever := room, room
	switch less := room / 32; { // what fits by little comes and goes
	case g.hinted.quantum > guarded:
		active -= less
	case g.hinted.apart:
		ever -= less
	}
	now := hint{apart: d.flows > 1 && d.all > active}
	if now.apart {
		now.quantum = g.quantum(d, active)
	} else if d.away && d.ever > ever {
		// Through an open gate it would fault its memory in, instead of having it brought first.
		now = hint{apart: true, quantum: guarded}
	}
	change := now.quantum - g.hinted.quantum
	if now.apart == g.hinted.apart && max(change, -change) <= g.hinted.quantum/8 {
		return
	}
	g.hinted = now
	kind := Together
	if now.apart {
		kind = Apart
	}
	g.node.say(Decision{Kind: kind, GPU: g.index, Quantum: now.quantum})
}

// quantum is how long a holder has to run so that moving takes its part of the time at most. At a change of holders
// no more moves than the larger set, nor than what all sets exceed the room by. While a holder runs, what fits beside
// it comes for the next one; what of two sets together exceeds the room can move between the two only, and the GPU
// stands still for it. So the first is to take no longer than the quantum, and the second its part, with a piece that
// goes before one may come, and one that is not needed as a whole.
func (g *gpu) quantum(d demand, room int64) int64 {
	moved := min(d.first, d.all-room)
	still := min(moved, max(0, d.first+d.second-room))
	if still > 0 {
		still += 2 * g.config.Piece
	}
	quantum := float64(g.takes(still)) / g.config.Part
	return int64(min(max(quantum, float64(g.takes(moved)), 1), float64(timeMax)))
}

// takes is how long so many bytes need on the link, with as many the other way at once.
func (g *gpu) takes(bytes int64) int64 {
	return int64(float64(bytes) / float64(min(g.config.In, g.config.Out)) * float64(sec))
}
