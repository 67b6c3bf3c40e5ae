package residency

// A card as the driver keeps it, beside the books: what is used comes, what has come first goes where it is full. It hears
// of uses and of moves that are done, and of no decision.

import "slices"

// onCard is one piece that is there.
type onCard struct {
	memory *memory
	piece  int
}

// card is one with its pieces in the order in which they came.
type card struct {
	line    []onCard
	blurred bool // the books cannot have followed: what is there may be more than they say
}

func newCard() *card { return &card{} }

func (c *card) find(m *memory, piece int) int { return slices.Index(c.line, onCard{m, piece}) }

// bring has a piece there, as the newest.
func (c *card) bring(m *memory, piece int) {
	if i := c.find(m, piece); i >= 0 {
		c.line = slices.Delete(c.line, i, i+1)
	}
	c.line = append(c.line, onCard{m, piece})
}

// use has all of m there. What is under way and has been displaced, as met tells, comes to another place in the line.
func (c *card) use(m *memory, met map[int]bool) {
	for _, comes := range []bool{true, false} {
		for i, at := range m.pieces {
			if (at == coming || at == filling) == comes && c.find(m, i) < 0 {
				c.blurred = c.blurred || met[i]
				c.bring(m, i)
			}
		}
	}
}

// answer takes what has become of a move. The piece of one that was not done may have been displaced meanwhile, which nobody
// hears of.
func (c *card) answer(m *memory, piece int, out bool, result Result) {
	i := c.find(m, piece)
	switch {
	case result != Done && i < 0 && m.pieces[piece] == resident:
		c.blurred = true
	case result != Done:
	case !out:
		c.bring(m, piece)
	case i >= 0:
		c.line = slices.Delete(c.line, i, i+1)
	}
}

func (c *card) lose(m *memory) {
	c.line = slices.DeleteFunc(c.line, func(p onCard) bool { return p.memory == m })
}

// displace has so much of one flow go, by the driver's own choice.
func (c *card) displace(o *owner, bytes int64) {
	c.line = slices.DeleteFunc(c.line, func(p onCard) bool {
		if bytes <= 0 || o.find(p.memory.id) == nil || p.memory.pieces[p.piece] != resident {
			return false
		}
		bytes -= p.memory.sizes[p.piece]
		return true
	})
}

// fit has what came first go where there is more than the card holds.
func (c *card) fit(room int64) {
	for _, p := range c.line {
		room -= p.memory.sizes[p.piece]
	}
	for len(c.line) > 0 && room < 0 {
		p := c.line[0]
		room += p.memory.sizes[p.piece]
		c.line = c.line[1:]
	}
}

// fitCards has the cards give up what they do not hold.
func (w *world) fitCards() {
	for gpu, c := range w.cards {
		room := w.configs[gpu].Card - w.others[gpu]
		for _, o := range w.owners {
			if o.gpu == gpu {
				room -= o.plain
			}
		}
		c.fit(room)
	}
}

// checkCards checks that no flow has anything on a card that is in no book: so it is within its cap but for what is said.
func (w *world) checkCards() {
	for gpu, c := range w.cards {
		if c.blurred || len(c.line) == 0 {
			continue
		}
		w.looks++
		for _, o := range w.owners {
			if o.gpu != gpu {
				continue
			}
			there := o.plain
			for _, p := range c.line {
				if o.find(p.memory.id) == nil {
					continue
				}
				there += p.memory.sizes[p.piece]
				if at := p.memory.pieces[p.piece]; at == host || at == nowhere {
					w.fatalf("piece %d of %d of flow %d is on the card, and the books have it in place %d", p.piece, p.memory.id, o.id, at)
				}
			}
			v, _ := w.node.View(o.id, gpu)
			if there > o.limit+v.Above || v.Above > 0 && !o.excused {
				w.fatalf("flow %d has %d on the card, cap %d, %d above by the books", o.id, there, o.limit, v.Above)
			}
		}
	}
}
