package sched

// How the model of model_test.go goes on.

import "slices"

// take carries out decisions.
func (m *model) take(decisions []Decision) {
	for _, d := range slices.Clone(decisions) {
		m.counts[d.Kind]++
		switch d.Kind {
		case Open, Gate:
			m.switched(d)
			continue
		case Grant, Revoke, Reopen, CoRun, Leased:
		default:
			continue
		}
		p := m.program(d.Flow)
		switch d.Kind {
		case Grant:
			if p.leased != d.Lease {
				p.waits = append(p.waits, m.now-p.asked)
				p.idleFrom = m.now
				p.busy, p.told = 0, p.done
			}
			p.leased, p.draining, p.reopened, p.wanted = d.Lease, false, false, false
		case Revoke:
			if !p.draining && !p.reopened {
				p.revoked = m.now
			}
			p.draining, p.reopened, p.progressed = true, false, m.now
		case Reopen:
			p.draining, p.reopened, p.progressed = false, true, 0
		case CoRun:
			p.leased, p.draining, p.reopened, p.wanted = 0, false, false, false
		}
		m.regate(p)
	}
}

func (m *model) switched(d Decision) {
	g := m.gpus[d.GPU]
	if d.Flow != 0 {
		m.program(d.Flow).wanted = false
		return
	}
	g.gated, g.rivals = d.Kind == Gate, d.Rivals
	for _, p := range m.programs {
		if !slices.Contains(p.gpus, g) {
			continue
		}
		if g.gated = d.Kind == Gate; len(p.gpus) == 1 {
			// With the gate just closed, who is in its launches waits from now on.
			p.leased, p.draining, p.reopened, p.wanted, p.asked = 0, false, false, g.gated, m.now
		}
		p.before = g.gated
		m.regate(p)
	}
}

// regate opens or closes p's gate, and lets a launch that was held back go on.
func (m *model) regate(p *program) {
	if p.gone {
		return
	}
	gated := slices.ContainsFunc(p.gpus, func(g *modelGPU) bool { return g.gated })
	coRun := m.node.View(p.id)[0].Mode == "co-run"
	was := p.open
	if p.open = m.free || coRun || !gated || p.leased != 0 && !p.draining; p.open && !was {
		p.opened = m.now
	}
	if p.open && p.held {
		p.held, p.next = false, m.now
	}
}

// busyState: the node takes p to have work.
func (m *model) busyState(p *program) bool {
	state := m.node.View(p.id)[0].State
	return state != "idle" && state != "grace"
}

// launch is what a program does at p.next.
func (m *model) launch(p *program) {
	p.next = Never
	if p.stopped {
		return
	}
	if !m.free && p.leased == 0 && !m.busyState(p) {
		p.wanted, p.asked = true, m.now
		m.take(m.node.Want(m.now, p.id, 1))
	}
	if !p.open {
		p.held = true
		return
	}
	i, last := p.step%len(p.queued), len(p.queued)-1
	if i == 0 && p.queued[last] >= m.ahead(p) {
		return
	}
	p.step++
	p.queued[i]++
	switch {
	case last > 0 && i < last:
		p.next = m.now + p.pair
	case last > 0:
		p.next = m.now
	case !p.wait:
		p.queued[0] = m.ahead(p)
	}
}

// runs: p's kernel goes on now. Those of a gang need all their GPUs.
func (m *model) runs(p *program) bool {
	if p.endless || p.gone || p.blocks && (!p.open || p.stopped || m.now < p.opened+p.wake) {
		return false
	}
	for i, g := range p.gpus {
		if p.queued[i] == 0 || g.turn != p || m.now < g.ready {
			return false
		}
	}
	return true
}

// until is when something happens by itself.
func (m *model) until(end int64) int64 {
	at := min(end, m.reportAt)
	if !m.free {
		at = min(at, m.node.Next())
	}
	for _, p := range m.programs {
		at = min(at, p.next)
		if m.now < p.opened+p.wake {
			at = min(at, p.opened+p.wake)
		}
		if m.runs(p) {
			ahead := int64(0)
			if !p.wait && len(p.gpus) == 1 && !p.reopened {
				ahead = int64(p.queued[0]) / 2
			}
			at = min(at, m.now+p.left+ahead*p.kernel)
		}
		if !p.outstanding() && m.now < p.idleFrom+modelGap {
			at = min(at, p.idleFrom+modelGap)
		}
	}
	for _, g := range m.gpus {
		if g.turn != nil && m.rival(g) != nil {
			at = min(at, g.until)
		}
		if m.now < g.ready {
			at = min(at, g.ready)
		}
	}
	return max(at, m.now)
}

// rival is the next program after g.turn with work there, nil if there is no other.
func (m *model) rival(g *modelGPU) *program {
	start := 0
	if g.turn != nil {
		start = int(g.turn.id)
	}
	for i := range m.programs {
		p := m.programs[(start+i)%len(m.programs)]
		if at := slices.Index(p.gpus, g); at >= 0 && p.queued[at] > 0 && p != g.turn && !p.gone {
			return p
		}
	}
	return nil
}

// pass lets the GPUs work until t.
func (m *model) pass(t int64) {
	passed := t - m.now
	for _, p := range m.programs {
		if p.outstanding() {
			p.busy += passed
		}
		if !m.runs(p) {
			continue
		}
		p.left -= passed
		for p.left <= 0 && p.queued[0] > 0 {
			p.left += p.kernel
			p.done++
			p.worth += p.alone()
			for i := range p.queued {
				p.queued[i]--
			}
			if p.next == Never && !p.held && !p.stopped {
				p.next = t
				if p.wait {
					p.next += p.gap
				}
				if p.sleep != nil {
					p.next += p.sleep(p.done)
				}
			}
		}
		if !p.outstanding() {
			p.left, p.idleFrom = p.kernel, t
		}
	}
	m.now = t
}

func (m *model) slice() {
	for _, g := range m.gpus {
		has := false
		if g.turn != nil {
			has = g.turn.queued[slices.Index(g.turn.gpus, g)] > 0
		}
		if other := m.rival(g); other != nil && (!has || m.now >= g.until) {
			if g.turn != nil {
				g.ready = m.now + modelSwitch
			}
			g.turn, g.until = other, m.now+modelSlice
		} else if m.now >= g.until {
			g.until = m.now + modelSlice
		}
	}
}

func (m *model) report(p *program) {
	if p.gone {
		return
	}
	for _, g := range p.gpus {
		m.take(m.node.Used(m.now, p.id, g.number, Use{Busy: p.busy, Work: p.done - p.told}))
	}
	p.busy, p.told = 0, p.done
}

// answer is what the library and the agent's shell do for p.
func (m *model) answer(p *program) {
	if p.leased != 0 && (p.draining || p.reopened) && p.done > p.told && m.now-p.progressed >= ms {
		p.progressed = m.now
		m.report(p)
		m.take(m.node.Progress(m.now, p.id))
	}
	if p.outstanding() || p.stopped || p.gone {
		return
	}
	if p.before {
		p.before = false
		for _, g := range p.gpus {
			m.take(m.node.Drained(m.now, p.id, g.number))
		}
	}
	idle := m.now-p.idleFrom >= modelGap && !p.held
	switch {
	case p.leased != 0 && (p.draining || p.reopened || idle):
		m.report(p)
		if p.leased == 0 {
			return
		}
		lease := p.leased
		if p.draining || p.reopened {
			p.drains = append(p.drains, m.now-p.revoked)
		}
		p.leased, p.draining, p.reopened, p.asked = 0, false, false, m.now
		p.wanted = p.held
		m.regate(p)
		m.take(m.node.Close(m.now, p.id, lease, p.held || !idle && p.next <= m.now+50_000))
	case p.leased == 0 && idle && m.busyState(p):
		m.report(p)
		p.wanted = false
		m.take(m.node.Idle(m.now, p.id))
	}
}

// run lets the model go on for ns.
func (m *model) run(ns int64) {
	end := m.now + ns
	for m.now < end {
		m.pass(m.until(end))
		m.slice()
		for _, p := range m.programs {
			for p.next <= m.now {
				m.launch(p)
			}
		}
		m.slice()
		if m.free {
			m.reportAt = Never
			continue
		}
		for _, p := range m.programs {
			m.answer(p)
		}
		if m.now >= m.node.Next() {
			m.take(m.node.Tick(m.now))
		}
		if m.now >= m.reportAt {
			m.reportAt = m.now + modelReport
			for _, p := range m.programs {
				if p.busy > 0 || p.done > p.told {
					m.report(p)
				}
			}
		}
	}
}
