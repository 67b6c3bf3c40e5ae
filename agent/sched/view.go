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
	Served  int64 // slot time charged so far
	Leases  uint64
	Waited  int64 // for all of them together
	Longest int64 // wait for one
	Lifts   uint64
}

// View returns the state of a container's flows, nil if there is none of that id.
func (n *Node) View(id FlowID) (views []View) {
	c := n.containers[id]
	if c == nil {
		return nil
	}
	for _, f := range c.flows {
		views = append(views, View{
			GPU: f.on.gpu, State: f.state(), Mode: f.mode(), Virtual: f.virtual,
			Lag: (f.on.gvt - f.virtual) * f.weight, Served: f.stats.served,
			Leases: f.stats.leases, Waited: f.stats.waited, Longest: f.stats.longest,
			Lifts: f.stats.lifts,
		})
	}
	return views
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
	case f.waits() && !f.on.mode.gated:
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
