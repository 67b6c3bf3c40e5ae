// What the API says of GPU time. Times are nanoseconds, shares parts of one.

package control

// Flow is a container on one GPU: the unit that gets a share of its time.
type Flow struct {
	ContainerID string `json:"container_id"`
	Container   string `json:"container"` // its name
	Namespace   string `json:"namespace"`
	Index       int    `json:"gpu_index"`
	MIG         *int   `json:"gpu_mig"` // as of a GPU
	UUID        string `json:"gpu_uuid"`
	// State is idle, grace, waiting, throttled, reserved, leased, draining, open or late, as package
	// sched calls them; empty: there is none, since the mode is ModeOff.
	State  string  `json:"state"`
	Mode   string  `json:"mode"` // what opens its gate: ModeOpen, ModeLeased, ModeCoRun, ModeOff
	Weight float64 `json:"weight"`
	// VirtualNS is its virtual time; LagNS what it is owed against the one that is furthest behind, in
	// time of its own: 0 for that one, and below 0 for those ahead of it. nil: it is not scheduled.
	VirtualNS *int64 `json:"virtual_ns"`
	LagNS     *int64 `json:"lag_ns"`
	// ShareAsked is its weight by the sum of the weights of the flows that are active on the GPU, itself
	// among them; nil: it is idle. The shares that it got are of the last 1, 10 and 60 s, or since it came
	// where that is less; nil: there is nothing to say yet.
	ShareAsked  *float64 `json:"share_asked"`
	ShareGot1s  *float64 `json:"share_got_1s"`
	ShareGot10s *float64 `json:"share_got_10s"`
	ShareGot60s *float64 `json:"share_got_60s"`
	Leases      int64    `json:"leases"`        // granted so far
	Handovers   int64    `json:"handovers"`     // of these, that came after another container's
	WaitMeanNS  *int64   `json:"wait_mean_ns"`  // for a lease; nil: it has not waited for one
	WaitWorstNS *int64   `json:"wait_worst_ns"` // so far
	WaitedNS    int64    `json:"waited_ns"`     // for all of its leases together
	WaitingNS   *int64   `json:"waiting_ns"`    // how long it has waited for one by now; nil: it does not wait
	GotNS       int64    `json:"got_ns"`        // slot time had so far, with what nobody else wanted and is not charged
	ServedNS    int64    `json:"served_ns"`     // slot time charged so far
	BusyNS      int64    `json:"busy_ns"`       // with something of it outstanding, as its live processes say
	Submitted   int64    `json:"submitted"`     // operations, as its live processes say
	Ungated     int64    `json:"ungated"`       // of these, past a closed gate: waited too long, or no agent
	Reopened    int64    `json:"reopened"`      // drains that stood still, so the gate opened again
	Expired     int64    `json:"expired"`       // drains that took too long, so the slot went to others
}

// What opens a flow's gate.
const (
	ModeOpen   = "open"   // all flows of the GPU run as the hardware lets them: nobody is owed time
	ModeLeased = "leased" // leases, one after the other
	ModeCoRun  = "co-run" // it runs beside the others' leases: its work waits for work behind the gate
	ModeOff    = "off"    // nothing closes it: the agent, or this container, is without scheduling of time
)
