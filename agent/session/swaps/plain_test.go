package swaps

// Plain memory in random schedules: who asks for room gets it only where it is, and nobody is above a cap without a reason.

import (
	"maps"
	"slices"
)

type seat struct {
	b   *box
	gpu int
}

// plains are what is known of plain memory.
type plains struct {
	asks    map[uint64]pending
	plain   map[seat]int64 // that was settled
	excused map[seat]bool  // above the cap for a reason, until it is below
}

func newPlains() plains {
	return plains{make(map[uint64]pending), make(map[seat]int64), make(map[seat]bool)}
}

// pending is an ask that was not settled yet.
type pending struct {
	b     *box
	gpu   int
	bytes int64
	there bool
}

// need has a container ask for plain memory, or settle what it has asked for. Who asks keeps to its cap.
func (c *chaos) need(b *box, gpu int) {
	for _, number := range slices.Sorted(maps.Keys(c.asks)) { // so that a seed repeats
		p := c.asks[number]
		if p.b == b && p.gpu == gpu && (p.there || c.r.IntN(3) == 0) {
			if delete(c.asks, number); p.there && c.r.IntN(3) > 0 {
				c.plain[seat{b, gpu}] += p.bytes
			}
			b.swap.Settle(c.now, gpu, number, c.plain[seat{b, gpu}])
			return
		}
	}
	if c.r.IntN(3) == 0 {
		c.plain[seat{b, gpu}] = 0
		b.swap.Plain(c.now, gpu, 0)
	}
	v, waits := b.swap.View(gpu), int64(0)
	for _, p := range c.asks {
		if p.b == b && p.gpu == gpu {
			waits += p.bytes
		}
	}
	bytes := unit * (1 + c.r.Int64N(8))
	if c.plain[seat{b, gpu}]+waits+bytes > v.Cap || v.Total+c.plain[seat{b, gpu}]+waits+bytes > v.Cap+v.Swap {
		return
	}
	number, there := b.swap.Need(c.now, gpu, bytes)
	if v = b.swap.View(gpu); there && v.Above > 0 {
		c.t.Fatalf("%s is let have %d more plain memory, %d above its cap", b.name, bytes, v.Above)
	}
	if number != 0 {
		c.asks[number] = pending{b, gpu, bytes, there}
	}
}

// admit is told that there is room for an ask.
func (c *chaos) admit(owner any, gpu int, number uint64) {
	p, there := c.asks[number]
	if !there || p.there || p.b != owner || p.gpu != gpu {
		c.t.Fatalf("ask %d on GPU %d has room, of which there is %+v", number, gpu, p)
	}
	p.there = true
	c.asks[number] = p
	if v := p.b.swap.View(gpu); v.Above > 0 {
		c.t.Fatalf("%s has room for %d bytes, and is %d above its cap", p.b.name, p.bytes, v.Above)
	}
}

// excuse: the cap may be exceeded there, for faults, a cap that is lowered, or what was there before.
func (c *chaos) excuse(b *box, gpu int) { c.excused[seat{b, gpu}] = true }

// checkCap checks that nobody is above its cap without a reason.
func (c *chaos) checkCap(b *box, gpu int) {
	v, at := b.swap.View(gpu), seat{b, gpu}
	switch {
	case v.Above <= 0:
		delete(c.excused, at)
	case !c.excused[at]:
		c.t.Fatalf("%s is %d above its cap on GPU %d: %+v", b.name, v.Above, gpu, v)
	}
	want := c.plain[at]
	for _, p := range c.asks {
		if p.b == b && p.gpu == gpu && p.there {
			want += p.bytes
		}
	}
	if v.Plain != want {
		c.t.Fatalf("%s has %d plain memory on GPU %d, not %d", b.name, v.Plain, gpu, want)
	}
}

// forgetPlain: the container is gone.
func (c *chaos) forgetPlain(b *box) {
	maps.DeleteFunc(c.asks, func(_ uint64, p pending) bool { return p.b == b })
}
