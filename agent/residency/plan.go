package residency

// What moves next: each event ends with plan, which fills the two directions of the link as far as pieces may be
// under way. What is not under way yet is not decided, so it can change with each event.

func (g *gpu) free() int64 { return g.config.room() - g.used }

func (g *gpu) plan() {
	g.retract()
	g.owed = 0
	for _, f := range g.flows {
		f.owed = 0
		g.holdCap(f)
		if g.yield(f); len(f.asks) > 0 {
			g.admit(f)
			g.owed += f.asked
		}
	}
	for _, f := range g.flows {
		if f.state == Holder {
			g.bring(f, ForHolder)
		}
	}
	if g.next != nil {
		g.bring(g.next, ForNext)
	}
	for _, f := range g.flows {
		if f.drain {
			g.bring(f, ForDrain)
			g.drained(f)
		}
	}
	if g.next != nil {
		g.fill(g.next)
	}
	g.relieve()
	g.settle()
}

// bring has what f lacks come in, and others go where there is no room for it. What it then still lacks is owed to
// it: nobody after it takes that room, else it would go to and fro.
func (g *gpu) bring(f *flow, why Why) {
	g.owed -= f.owed // of an earlier reason
	if g.fetch(f, why) {
		for f.wanted(why)+g.owed > g.free()+g.going && g.evict(f, why) {
		}
	}
	f.owed = f.wanted(why)
	g.owed += f.owed
}

// fetch has pieces come in, and tells whether more would if there were room.
func (g *gpu) fetch(f *flow, why Why) bool {
	for !g.ins.full(&g.config) {
		a := f.comer()
		if a == nil || why != ForDrain && !f.recent(a) {
			return false
		}
		i := a.lacking()
		if f.headroom() < a.bytes(i) {
			g.exchange(f, a, a.bytes(i))
			return false
		}
		if g.free()-g.owed < a.bytes(i) {
			return true
		}
		g.start(a, i, why, f)
	}
	return true
}

// fill has more than the recent set of who is next come in, where there is room that nobody is owed.
func (g *gpu) fill(f *flow) {
	most := int64(g.config.Recent * float64(f.set()))
	for !g.ins.full(&g.config) && f.lackOfSet() == 0 {
		a := f.comer()
		if a == nil {
			return
		}
		i := a.lacking()
		bytes := a.bytes(i)
		if f.sum.resident+f.sum.coming+bytes > most || min(f.headroom(), g.free()-g.owed) < bytes {
			return
		}
		g.start(a, i, ForNext, f)
	}
}

// exchange has older memory of f go where its cap leaves no room for newer.
func (g *gpu) exchange(f *flow, a *alloc, bytes int64) {
	for !f.pauses() && f.movable() && f.headroom()+f.sum.going < bytes && !g.outs.full(&g.config) {
		v := f.leaver()
		if v == nil || v.stamp >= a.stamp {
			return
		}
		f.goes(v.bytes(v.leaving()))
		g.start(v, v.leaving(), ForCap, f)
	}
}

// evict has one piece go, and tells whether there was one that may.
func (g *gpu) evict(asker *flow, why Why) bool {
	if g.outs.full(&g.config) {
		return false
	}
	v := g.victim(asker, why)
	if v == nil {
		return false
	}
	g.start(v, v.leaving(), why, asker)
	return true
}

// holdCap has f's own memory go where it is above its cap, even while it runs: a cap that was lowered, plain memory that
// is to come, and what kernels have faulted in (excess.go).
func (g *gpu) holdCap(f *flow) {
	for !f.pauses() && f.movable() && f.headroom()+f.sum.going < 0 && !g.outs.full(&g.config) {
		v := f.leaver()
		if v == nil {
			break
		}
		f.goes(v.bytes(v.leaving()))
		g.start(v, v.leaving(), ForCap, f)
	}
	f.within()
}

// yield has f's own memory go where its copies, without a lease, have filled the card: else the next piece that comes for
// anybody would displace memory of those who have a lease.
func (g *gpu) yield(f *flow) {
	if f.state == Holder || f == g.next || g.used-g.going <= g.config.room() {
		f.brought = 0
		return
	}
	for f.brought > 0 && f.movable() && g.used-g.going > g.config.room() && !g.outs.full(&g.config) {
		v := f.leaver()
		if v == nil {
			return
		}
		f.brought -= v.bytes(v.leaving())
		g.start(v, v.leaving(), ForRoom, f)
	}
}

// admit lets in the plain memory that was asked for, in order, once there is room for it, or no more to be made.
func (g *gpu) admit(f *flow) {
	for len(f.asks) > 0 {
		a := f.asks[0]
		if f.sum.here()+f.plain+a.bytes > f.limit {
			return
		}
		for a.bytes > g.free()+g.going && g.evict(f, ForPlain) {
		}
		if a.bytes > g.free() && g.going > 0 {
			return
		}
		f.asks = f.asks[1:]
		f.asked -= a.bytes
		g.plain(f, a.bytes)
		g.displace() // holders alone may be left
		g.node.say(Decision{Kind: Admit, GPU: g.index, Flow: f.id, Ask: a.number, Bytes: a.bytes})
	}
}

// relieve has memory go that is not expected to be used soon, until the pressure is gone.
func (g *gpu) relieve() {
	for g.used-g.going > g.config.pressed() && g.evict(nil, ForIdle) {
	}
}

// settle tells which holders have their memory in place, as far as it can be: where a holder lacks what cannot come,
// nothing is under way in the end, since it is owed what room there is.
func (g *gpu) settle() {
	for _, f := range g.flows {
		if f.state != Holder || f.ready {
			continue
		}
		complete := f.sum.coming == 0 && f.sum.going == 0 && f.wanted(ForHolder) == 0
		if complete || len(g.ins.moves)+len(g.outs.moves) == 0 {
			f.ready = true
			g.node.say(Decision{Kind: Ready, GPU: g.index, Flow: f.id})
		}
	}
}

// drained tells that f's swap is off, once it is.
func (g *gpu) drained(f *flow) {
	if f.sum.host == 0 && f.sum.coming == 0 && f.sum.going == 0 {
		f.drain = false
		g.node.say(Decision{Kind: Drained, GPU: g.index, Flow: f.id})
	}
}
