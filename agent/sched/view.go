package sched

// What can be seen from outside.

// View is one flow's state, for people. Times are in ns.
type View struct {
	GPU   int
	State string // idle, grace, waiting, throttled, reserved, leased, draining, open, late
	Mode  string // open, leased, co-run: what opens its gate
	// Virtual is C. Lag is what the flow is owed against the one at which GVT stands, in service of its own:
	// 0 for that one, negative for all others, which are ahead of it.
	Virtual float64
	Lag     float64
	Weight  float64
	// Asked is the part of the GPU that its weight asks for: of the weights of all that count for GVT now, and of
	// its own. (An idle flow's is what it would be owed.)
	Asked   float64
	Served  int64 // slot time charged so far
	Got     int64 // slot time had: what is not charged, since nobody else wanted it, included
	Leases  uint64
	Changes uint64 // of these, that came after another flow's
	Waited  int64  // for all of them together, so that the mean is Waited / Leases
	Longest int64  // wait for one
	// WaitsFrom is since when it waits for a lease now, by the caller's clock; 0: it does not.
	WaitsFrom int64
	Reopened  uint64 // drains that stood still, so that the gate was opened again
	Expired   uint64 // drains that took longer than the drain timeout
	Lifts     uint64
}

// View returns the state of a container's flows, nil if there is none of that id.
func (n *Node) View(id FlowID) (views []View) {
	c := n.containers[id]
	if c == nil {
		return nil
	}
	for _, f := range c.flows {
		views = append(views, f.view())
	}
	return views
}

// ViewOn returns the state of a container on one of its GPUs, and whether it uses that. It makes no garbage.
func (n *Node) ViewOn(id FlowID, gpu int) (View, bool) {
	if c := n.containers[id]; c != nil {
		if f, uses := c.flow(gpu); uses {
			return f.view(), true
		}
	}
	return View{}, false
}

// Wants tells whether a container wants leases, as far as it has said, or is taken to want them because it works.
func (n *Node) Wants(id FlowID) bool {
	c := n.containers[id]
	if c == nil {
		return false
	}
	wants, _ := c.wants()
	return wants
}

func (f *flow) view() View {
	return View{
		GPU: f.on.gpu, State: f.state(), Mode: f.mode(), Virtual: f.virtual,
		Lag: (f.on.gvt - f.virtual) * f.weight, Weight: f.weight, Asked: f.asked(),
		Served: f.stats.served, Got: f.stats.got,
		Leases: f.stats.leases, Changes: f.stats.changes, Waited: f.stats.waited, Longest: f.stats.longest,
		WaitsFrom: f.waitsFrom(), Reopened: uint64(f.stats.reopened), Expired: uint64(f.stats.expired),
		Lifts: uint64(f.stats.lifts),
	}
}

// asked is f's part of the weights that count now.
func (f *flow) asked() float64 {
	weights := f.on.mode.weights
	if !f.in(inActive) {
		weights += f.weight
	}
	return min(1, f.weight/weights)
}

func (f *flow) waitsFrom() int64 {
	if !f.counted || !f.on.mode.gated {
		return 0
	}
	return max(f.waitFrom, f.on.mode.since)
}

func (f *flow) mode() string {
	switch {
	case f.coRun:
		return "co-run"
	case f.on.mode.gated:
		return "leased"
	}
	return "open"
}

func (f *flow) state() string {
	if len(f.leases) > 0 {
		switch f.leases[0].state {
		case leaseReserved:
			return "reserved"
		case leaseGranted:
			return "leased"
		case leaseDraining:
			return "draining"
		}
		return "open"
	}
	switch {
	case len(f.late) > 0:
		return "late"
	case f.wants > 0 && (f.coRun || !f.on.mode.gated):
		return "open"
	case f.waits() && !f.blocked && f.tag(nil) > f.on.gvt:
		return "throttled"
	case f.waits():
		return "waiting"
	case f.active():
		return "grace"
	}
	return "idle"
}
