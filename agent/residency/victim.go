package residency

// Whose memory goes. In this order: of flows that have been idle for longer than usual, the longest idle first; of
// the others that do not hold the GPU, of which it will be needed last; and of who is next, where a holder or plain
// memory has no room else. Within a flow it is the least recently used.
//
// Least recently used across flows would be the wrong way round where flows take turns: who has just had its lease is
// the last to have the next one, and who has waited longest is next. The scheduler knows that order.

// class of a flow as a victim: the lower, the sooner.
type class uint8

const (
	expired class = iota
	waits
	prepared
	safe
)

func (g *gpu) classOf(f, asker *flow, why Why) class {
	switch {
	case f == asker || f.state == Holder || !f.movable() || f.leaver() == nil:
		return safe
	case f.expired():
		return expired
	case why == ForIdle:
		return safe
	case f != g.next || !f.recent(f.leaver()):
		return waits
	case why == ForHolder || why == ForPlain:
		return prepared
	}
	return safe
}

// victim is what goes for asker, nil if nothing may.
func (g *gpu) victim(asker *flow, why Why) *alloc {
	var found *flow
	least := safe
	for _, f := range g.flows {
		c := g.classOf(f, asker, why)
		if c > least || c == safe {
			continue
		}
		if c < least || sooner(f, found, c) {
			found, least = f, c
		}
	}
	if found == nil {
		return nil
	}
	return found.leaver()
}

// sooner: of two flows of one class, f goes before other.
func sooner(f, other *flow, c class) bool {
	if c == expired {
		return f.idleSince < other.idleSince
	}
	return f.due() > other.due()
}
