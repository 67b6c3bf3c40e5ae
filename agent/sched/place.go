package sched

// Which GPU a container that may choose waits for.

// delay is when f would have had one turn of its own on this GPU, roughly, in ns: everybody else who is
// busy there has a turn first, on leases or beside it.
func (q *queue) delay(f *flow) int64 {
	others := int64(q.active.len())
	if f.in(inActive) {
		others--
	}
	return others * q.turn / int64(q.config.Slots)
}

// place chooses where c goes on: where it was, where its memory is, unless another GPU would serve it sooner
// by more than moving there takes. Waiting for the GPU where a flow is at home
// is what pays most on several GPUs. It moves only while it has nothing to do. Being ahead of others on the
// GPU that it leaves goes with it.
func (c *container) place() {
	home := c.flows[c.on]
	if home.wants > 0 || len(home.leases) > 0 || len(home.late) > 0 || home.coRun {
		return
	}
	best, least := c.on, home.on.delay(home)
	if !home.resident {
		least += home.move
	}
	for i, f := range c.flows {
		delay := f.on.delay(f)
		if !f.resident {
			delay += f.move
		}
		if delay < least {
			best, least = i, delay
		}
	}
	if best == c.on {
		return
	}
	f := c.flows[best]
	f.virtual = max(f.virtual, f.on.gvt+max(0, home.virtual-home.on.gvt))
	home.graceUntil = 0
	home.on.refile(home)
	c.on = best
}
