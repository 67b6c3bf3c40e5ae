package sched

// Whether the gate is closed at all. It closes only under contention: a GPU that slices time among programs
// that fill each other's gaps gets more done than leases would, as long as nobody is worse off for it.
//
// What a flow gets with the gate open is measured in what it would have got on leases: its rate is the
// slot time that one of its operations cost on its last leases, so work x rate is the slot time that
// its work is worth. (Its busy time would not do: beside a hog, a program that waits for each of its
// launches is busy all the time and gets nothing.) Leases would give each flow its share by weight, so
// there is a fair clock, in virtual time: it runs by 1 / (sum of the active flows' weights), and a flow
// whose C falls behind it by more than T is owed that much. Then
//   - the gate closes;
//   - it closes for one round when a flow has no rate yet, and when rates are old;
//   - it opens when the flows have been measured, or there are no rivals. If it then has to close again
//     soon, it stays closed for four times as long each time, up to GatedMax.
//
// What flows get beyond their shares is charged as far as it is missing elsewhere. The rest is spare: time
// that leases would not have used, for which nobody is to be kept from the GPU later. A flow that reports
// less work than it does only brings about leases, which do not depend on reports.

// openMax: where rates are found good again and again, they are trusted for so many times OpenFor.
const openMax = 4

// mode is the state of a GPU's gates.
type mode struct {
	gated   bool
	rivals  bool // as last said with Open
	tripped bool // somebody is owed more than T

	since int64 // of the gate's opening, or of the rivals' coming; or of its closing
	until int64 // it stays closed that long among rivals
	stay  int64
	hold  int64 // how long the gate stays open until rates are measured anew

	fair    float64 // the fair clock, while the gate is open
	fairAt  int64   // up to when
	weights float64 // of active flows

	over  float64 // the sum of what flows have had beyond their shares since the opening, ns
	under float64 // and of what others have had too little

	paying bool    // it is closed only until nobody is owed anything
	heavy  bool    // what was submitted before the last closing took longer than a drain may stand still
	rated  int64   // the end of the last measuring
	opened int64   // for how long the gate has been open since, up to the last closing, ns
	won    float64 // what flows have had in sum in that time, ns

	phase   uint64 // counts closings
	left    int    // active flows with work from before the last closing that may not be done
	stale   int    // active flows that have not been measured in this phase
	unknown int    // active flows that have never been measured
}

// count keeps the sums over active flows as f becomes active or idle.
func (m *mode) count(f *flow, active bool) {
	change := 1
	if !active {
		change = -1
	}
	if f.rate.phase != m.phase {
		m.stale += change
	}
	if !f.rate.known {
		m.unknown += change
	}
}

// weigh lets the fair clock run on, and then by other weights.
func (m *mode) weigh(q *queue, weight float64, active bool) {
	q.runFair()
	if active {
		m.weights += weight
	} else {
		m.weights -= weight
	}
	if q.active.len() == 0 {
		m.weights = 0 // whatever was lost in the sums
	}
}

func (q *queue) runFair() {
	m := &q.mode
	if m.weights > 0 {
		m.fair += float64(q.now-m.fairAt) / m.weights
	}
	m.fairAt = q.now
}

// level is where a flow that returns from idle comes in.
func (q *queue) level() float64 {
	if q.mode.gated && !q.mode.paying || q.active.len() < 2 {
		return q.gvt
	}
	q.runFair()
	return max(q.gvt, q.mode.fair)
}

// rivals: several flows use the GPU. One that is late still has work there, and comes back with more: would the
// other one submit meanwhile as if it were alone, that would run beside it then for as long as it takes. So the gate
// stays closed, and the other one has lease after lease.
func (q *queue) rivals() bool { return q.active.len() > 1 || q.late > 0 }

// review opens or closes the gates.
func (q *queue) review() {
	m := &q.mode
	rivals, several := q.rivals(), q.active.len() > 1
	switch {
	case q.config.AlwaysGate:
	case m.paying && several:
		q.payBack()
	case m.gated:
		if m.paying && rivals {
			q.stopPaying()
		}
		if !rivals || several && q.now >= m.until && m.stale == 0 {
			q.openGates(rivals)
		}
	case rivals != m.rivals:
		q.say(Decision{Kind: Open, GPU: q.gpu, Rivals: rivals})
		m.rivals, m.since, m.rated, m.opened, m.won = rivals, q.now, q.now, 0, 0
		m.fair, m.fairAt = q.gvt, q.now // whoever was alone is owed nothing
		if rivals && (q.now < m.until || m.unknown > 0 || !several) {
			q.closeGates()
		}
	case rivals && (m.tripped || q.wasteful() || m.unknown > 0 || q.now >= m.rated+m.hold):
		q.closeGates()
	}
	m.tripped = false
}

// Leases are also better where programs that could use the GPU all the time take turns by its slices: each change of
// programs costs. wasteMax of the time is lost to that without leases at most, once wasteSlack ns more are.
const (
	wasteMax   = 0.02
	wasteSlack = float64(20 * ms)
)

// wasteful: with the gate open all flows together get less than the time that has passed, in what leases would
// give them. (Those that fill each other's gaps get more.)
func (q *queue) wasteful() bool {
	m := &q.mode
	return !m.gated && m.rivals && m.won < (1-wasteMax)*q.open()-wasteSlack
}

// open is for how long the gate has been open with rivals since rates were measured, ns; it is open.
func (q *queue) open() float64 { return float64(q.mode.opened + q.now - q.mode.since) }

// payable: somebody is owed time, and all together get more with the gate open than leases would give them: so
// the gate closes only until that is paid. (Gangs cannot be paid one by one.)
func (q *queue) payable() bool {
	m := &q.mode
	return m.tripped && !m.heavy && m.unknown == 0 && len(q.gangs) == 0 && q.now < m.rated+m.hold &&
		q.config.Threshold >= q.config.Quantum && m.won > (1+wasteMax)*q.open()+wasteSlack
}

// settling: what was submitted before the gate closed still runs. Who is owed time would pay for it beside
// that, so leases begin when it is done, or after the time that a drain may stand still.
func (q *queue) settling() bool {
	m := &q.mode
	return m.paying && m.left > 0 && q.now < m.since+q.config.DrainStall
}

// payBack opens the gate once nobody is owed more than half a quantum. What takes longer than the gate would
// otherwise stay closed, or has to be measured, is no such case, nor are long kernels: who is owed time would pay for
// what it has beside them, and at each opening there are more.
func (q *queue) payBack() {
	m := &q.mode
	q.runFair()
	switch {
	case q.gvt >= m.fair-float64(q.config.Quantum)/2:
		q.openGates(true)
	case m.left > 0 && q.now >= m.since+q.config.DrainStall:
		m.heavy = true
		q.stopPaying()
	case m.unknown > 0 || q.now >= m.since+q.config.GatedFor || q.now >= m.rated+m.hold:
		q.stopPaying()
	}
}

// stopPaying leaves the gates closed until all flows have been measured.
func (q *queue) stopPaying() {
	q.mode.paying, q.mode.until = false, q.now
	q.remeasure()
}

// reviewDue is when review has something to do without an event.
func (q *queue) reviewDue() int64 {
	switch m := &q.mode; {
	case q.config.AlwaysGate:
	case q.settling():
		return m.since + q.config.DrainStall
	case m.paying:
		return min(m.since+q.config.GatedFor, m.rated+m.hold)
	case m.gated && m.stale == 0 && q.active.len() > 1:
		return m.until
	case !m.gated && m.rivals:
		return m.rated + m.hold
	}
	return Never
}

func (q *queue) closeGates() {
	m, c := &q.mode, &q.config
	switch {
	case q.payable():
		m.paying = true
		m.opened += q.now - m.since
	case q.wasteful():
		m.stay = min(max(4*m.stay, 4*c.GatedFor), c.GatedMax)
		m.until, m.hold = q.now+m.stay, c.OpenFor
	case m.tripped:
		if m.stay *= 4; q.now-m.since > c.OpenFor/2 {
			m.stay = 0
		}
		m.stay = min(max(m.stay, c.GatedFor), c.GatedMax)
		m.until, m.hold = q.now+m.stay, c.OpenFor
	case q.now >= m.until: // only to measure: all went well
		m.stay, m.hold = 0, min(2*m.hold, openMax*c.OpenFor)
	}
	if m.gated, m.since = true, q.now; !m.paying {
		q.remeasure()
	}
	q.mark()
	q.say(Decision{Kind: Gate, GPU: q.gpu})
	q.switched = append(q.switched, q)
}

// remeasure: the gate opens once the rates of all active flows have been measured.
func (q *queue) remeasure() {
	q.mode.phase++
	q.mode.stale = q.active.len()
}

func (q *queue) openGates(rivals bool) {
	for len(q.leases) > 0 {
		q.end(q.leases[0])
	}
	m := &q.mode
	if !m.paying || !rivals {
		m.fair, m.fairAt = q.gvt, q.now
		m.over, m.under, m.won, m.opened, m.rated = 0, 0, 0, 0, q.now
	}
	m.gated, m.paying, m.rivals, m.since = false, false, rivals, q.now
	q.say(Decision{Kind: Open, GPU: q.gpu, Rivals: rivals})
	q.switched = append(q.switched, q)
}

// used takes f's report: of its lease if it has one, else of what it did without.
func (q *queue) used(f *flow, use Use) {
	passed := max(0, q.now-f.reported)
	if !f.active() {
		passed = min(passed, q.config.Quantum) // it was idle for most of the time
	}
	f.reported = q.now
	busy := min(max(0, use.Busy), passed)
	if n := len(f.leases); n > 0 {
		for _, l := range f.leases {
			q.report(l, Use{Busy: busy, Work: use.Work / int64(n)})
		}
		return
	}
	got := q.gotFreely(f, use.Work, busy, passed)
	f.stats.got += int64(got)
	open := !q.mode.gated && !f.coRun
	if open {
		for _, peer := range f.peers {
			peer.begin()
		}
		q.runFair()
		if q.mode.rivals {
			q.mode.won += got
			got = q.mode.fairly(f, got, float64(passed))
		}
	}
	q.charge(f, int64(got))
	q.refile(f)
	if open && q.mode.rivals && q.mode.fair-f.virtual > f.threshold() {
		q.mode.tripped = true
	}
}

// begin: f is at work, as is all of its gang.
func (f *flow) begin() {
	if f.on.join(f); f.wants == 0 {
		f.wants = 1
	}
	f.on.refile(f)
}

// unclaimedMax is how long the time of one kernel may be that is reported when it is done, in ns.
const unclaimedMax = sec

// gotFreely is what f has had without a lease, in slot time: what its work is worth, or else its busy time; and
// no more than the time that has passed, over some reports.
func (q *queue) gotFreely(f *flow, work, busy, passed int64) float64 {
	f.rate.unclaimed = min(f.rate.unclaimed+float64(passed), float64(unclaimedMax))
	got := f.rate.worth(work)
	if f.rate.work == 0 {
		got = float64(busy)
	}
	got = min(got, f.rate.unclaimed)
	f.rate.unclaimed -= got
	return got
}

// fairly is what is charged of what f got in a time with rivals, all in ns. Since the opening that is, in
// sum, its share, less what it has had too little, or with as much of what it has had too much as others
// have had too little.
func (m *mode) fairly(f *flow, got, passed float64) float64 {
	r := &f.rate
	if r.opening != m.phase {
		r.opening, r.share, r.surplus, r.charged = m.phase, 0, 0, 0
	}
	share := passed * f.weight / m.weights
	m.over -= max(0, r.surplus)
	m.under -= max(0, -r.surplus)
	r.share += share
	r.surplus += got - share
	m.over += max(0, r.surplus)
	m.under += max(0, -r.surplus)
	due := r.share + r.surplus
	if r.surplus > 0 && m.over > m.under {
		due -= r.surplus * (1 - max(0, m.under)/m.over)
	}
	charge := max(0, due-r.charged)
	r.charged += charge
	return charge
}

// forget what f has had since the opening: it has been idle since, and is owed nothing of then.
func (m *mode) forget(f *flow) {
	if r := &f.rate; r.opening == m.phase {
		m.over -= max(0, r.surplus)
		m.under -= max(0, -r.surplus)
		r.share, r.surplus, r.charged = 0, 0, 0
	}
}
