package session

// What operators are told of GPU time.

import (
	"context"

	"weir/agent/control"
	"weir/agent/session/turns"
)

// Queue lists the flows, by GPU, and on one the oldest container first: containers on the GPUs that they use, or
// have used lately, and those that nothing schedules, on all GPUs on which they have something.
func (n *Node) Queue(context.Context) ([]control.Flow, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	flows := make(map[*container]map[int]control.Flow)
	if n.time != nil {
		n.time.do(func(now int64) {
			for _, f := range n.time.table.Flows(now) {
				c := f.Owner.(*container)
				if flows[c] == nil {
					flows[c] = make(map[int]control.Flow)
				}
				flows[c][f.GPU] = reportFlow(f)
			}
		})
	}
	list := make([]control.Flow, 0, len(n.containers))
	for gpu := range n.gpus {
		for _, c := range n.sorted() {
			if f, there := c.flow(gpu, flows[c]); there {
				list = append(list, f)
			}
		}
	}
	return list, nil
}

// flow is the container on a GPU, out of its flows there; there is none where it does not use the GPU. Called under
// node.mu.
func (c *container) flow(gpu int, flows map[int]control.Flow) (f control.Flow, there bool) {
	f, scheduled := flows[gpu]
	if !scheduled && !c.unscheduled(gpu) {
		return f, false
	}
	if !scheduled {
		f = control.Flow{Mode: control.ModeOff, Weight: weightOf(c.spec.Caps)}
	}
	g := c.node.gpus[gpu]
	f.ContainerID, f.Container, f.Namespace = c.spec.ID, c.spec.Name, c.spec.Namespace
	f.Index, f.MIG, f.UUID = g.index, g.known.MIG, g.uuid
	return f, true
}

// unscheduled tells whether the container uses a GPU and nothing schedules it there: GPU time is not shared out, or
// what uses the GPU has no library. Called under node.mu.
func (c *container) unscheduled(gpu int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turns == nil && c.ledgers[gpu].Charged() > 0 {
		return true
	}
	for h, u := range c.undeclared {
		if h.gpu == gpu && !u.session {
			return true
		}
	}
	return false
}

// reportFlow writes a flow as the API has it, but for its names.
func reportFlow(f turns.Flow) control.Flow {
	virtual, lag := int64(f.Virtual), int64(f.Lag)
	r := control.Flow{
		State: f.State, Mode: f.Mode, Weight: f.Weight, VirtualNS: &virtual, LagNS: &lag,
		Leases: int64(f.Leases), WaitedNS: f.Waited, Handovers: int64(f.Changes), GotNS: f.Got, ServedNS: f.Served,
		BusyNS:    count(f.Worked.BusyNS),
		Submitted: count(f.Worked.Submitted), Ungated: count(f.Worked.Ungated),
		Reopened: int64(f.Reopened), Expired: int64(f.Expired),
	}
	if f.State != "idle" {
		r.ShareAsked = &f.Asked
	}
	for i, to := range []**float64{&r.ShareGot1s, &r.ShareGot10s, &r.ShareGot60s} {
		if f.Known[i] {
			*to = &f.Share[i]
		}
	}
	if f.Leases > 0 {
		mean, worst := f.Waited/int64(f.Leases), f.Longest
		r.WaitMeanNS, r.WaitWorstNS = &mean, &worst
	}
	if f.Waits > 0 {
		r.WaitingNS = &f.Waits
	}
	return r
}

// count is a number of a tenant's, which may be any, as JSON readers take it.
func count(n uint64) int64 { return int64(min(n, 1<<53)) }
