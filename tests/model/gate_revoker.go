package model

// The other side of the gate's handshake: the helper thread that revokes, and the agent.

// helperMoves adds the helper's next steps.
func (p Protocol) helperMoves(moves []move, s *state) []move {
	take := func(name string, change func(*state)) {
		moves = append(moves, move{who: "helper: ", name: name, to: *s})
		change(&moves[len(moves)-1].to)
	}
	switch s.helper {
	case idle:
		if s.swapping {
			take("puts the page in its place", p.swapPage)
		} else if s.asked != s.took {
			take("R1", p.readLease)
		}
	case atR1:
		take("R1", p.readLease)
	case atR2:
		take("R2, thread 0", func(s *state) { p.barrier(s, 0); s.helper = atR2Second })
	case atR2Second:
		take("R2, thread 1", func(s *state) { p.barrier(s, 1); s.helper = p.afterBarrier() })
	case atR3:
		take("R3, thread 0", func(s *state) { s.seen[0] = s.threads[0].word; s.helper = p.afterFirstWord() })
	case atR3Second:
		take("R3, thread 1", func(s *state) { s.seen[1] = s.threads[1].word; s.helper = p.afterSecondWord() })
	case atR4:
		p.await(s, 0, take)
	case atR4Second:
		p.await(s, 1, take)
	case atR5:
		take("R5", func(s *state) { s.helper = idle; s.sayDrained() })
	}
	return moves
}

func (p Protocol) swapPage(s *state) {
	s.page, s.swapping = 1, false
	s.helper = atR1
	if p.SilentSwap {
		s.helper, s.took = atR5, s.asked
	}
}

func (p Protocol) readLease(s *state) {
	s.took = s.asked
	switch {
	case s.lease[s.page]&1 == 0: // granted again meanwhile
		s.helper = idle
	case p.WordsFirst:
		s.helper = atR3
	default:
		s.helper = atR2
	}
}

// barrier has what a thread stored seen. With locked entries there is nothing to be done.
func (p Protocol) barrier(s *state, i int) {
	if p.NoBarrier || p.Locked || (p.NoSecondBuffer && i == 1) {
		return
	}
	s.threads[i].flush()
}

func (p Protocol) afterBarrier() uint8 {
	if p.WordsFirst {
		return atR4
	}
	return atR3
}

func (p Protocol) afterFirstWord() uint8 {
	if p.WordsFirst {
		return atR3Second
	}
	return atR4
}

func (p Protocol) afterSecondWord() uint8 {
	if p.WordsFirst {
		return atR2
	}
	return atR4Second
}

// await is R4 for one thread.
func (p Protocol) await(s *state, i int, take func(string, func(*state))) {
	next := uint8(atR5)
	if i == 0 {
		next = atR3Second
		if p.WordsFirst {
			next = atR4Second
		}
	}
	if s.seen[i]&1 == 0 || s.threads[i].word != s.seen[i] {
		take("R4, goes on", func(s *state) { s.helper, s.seen[i] = next, 0 })
	} else if p.GivesUp {
		take("R4, gives it up", func(s *state) {
			s.threads[i].excused = max(s.threads[i].excused, s.seen[i]>>1)
			s.helper, s.seen[i] = next, 0
		})
	}
}

// sayDrained is what the agent hears, if it still waits for that.
func (s *state) sayDrained() {
	if s.took == s.asked && s.step == actWait {
		s.drained, s.step = s.asked, actEnd
	}
}

// agentMoves adds the agent's next steps in an act.
func (p Protocol) agentMoves(moves []move, s *state, act Act) []move {
	take := func(name string, change func(*state)) {
		moves = append(moves, move{who: "agent: ", name: name, to: *s})
		change(&moves[len(moves)-1].to)
	}
	switch {
	case act == Grant && s.step == actBegin:
		take("writes the grant", func(s *state) {
			if p.WakesTooEarly {
				p.wake(s)
			}
			s.stored, s.store, s.step = true, open(s.number), actSay
		})
	case act == Grant:
		take("wakes", func(s *state) {
			s.flushAgent()
			if !p.WakesTooEarly {
				p.wake(s)
			}
			s.nextAct()
		})
	case act == Revoke && s.step == actBegin:
		take("closes the lease", func(s *state) { s.stored, s.store, s.step = true, closed(s.number), actSay })
	case act == Revoke && s.step == actSay:
		take("says so", func(s *state) { s.flushAgent(); s.asked, s.step = s.number, actWait })
	case act == Swap && s.step == actBegin:
		take("is a new one, with a page of its own", func(s *state) {
			s.flushAgent()
			s.agentPage, s.lease[1] = 1, closed(s.number+1)
			s.asked, s.swapping, s.step = s.number, true, actWait
			s.took = 0
		})
	case s.step == actWait:
		if p.Impatient && !s.swapping {
			take("waits no longer", excuseAll)
		}
	case s.step == actEnd:
		take("ends the drain", func(s *state) {
			if !p.SameNumber {
				s.number++
			}
			s.lease[s.agentPage] = closed(s.number)
			s.ended = s.drained
			s.nextAct()
		})
	}
	return moves
}

// excuseAll has the agent go on without an answer: whoever is past its check may launch once, and so may who
// is about to look at a page that was replaced.
func excuseAll(s *state) {
	s.step, s.drained = actEnd, s.asked
	for i := range s.threads {
		t := &s.threads[i]
		if (t.at == atE3 && t.lease>>1 <= s.drained) || (t.at == atE2 && t.page != s.page) {
			t.excused = t.entry
		}
	}
}

func (p Protocol) wake(s *state) {
	for i := range s.threads {
		if t := &s.threads[i]; t.at == asleep && t.sleepsOn == s.agentPage {
			p.awake(s, t)
		}
	}
}

func (s *state) nextAct() { s.act, s.step = s.act+1, actBegin }
