package session

// What a container's sessions may allocate: grants, recalls, refusals, and requests that wait.

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/agent/config"
	"weir/agent/control"
	"weir/agent/ledger"
	"weir/agent/session/page"
	"weir/agent/session/proc"
	"weir/agent/session/wire"
	"weir/agent/store"
	"weir/cgo/abi"
)

// waiter is a request that does not fit now, but will once the memory of processes that have died
// is free again, or may once processes of an earlier agent's time have said what they hold. It is
// answered when that has happened, or refused after exitHold at the latest.
type waiter struct {
	s       *session
	out     outlet
	request abi.Request
	until   time.Time
	looked  bool   // it has waited for ends of processes that nobody had heard of yet
	spare   uint64 // what is granted with it, while it waits for room on the card
	ask     uint64 // its number there; 0: it does not wait for that
}

// request decides on a REQUEST. The answer is nil if it is given later; an error is what the tenant may not ask.
func (c *container) request(s *session, out outlet, m *abi.Request) (*abi.Verdict, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.connected(s) {
		return nil, nil // replaced or ended while the request lay in the socket: nobody waits for it
	}
	if int(m.Gpu) >= len(c.ledgers) {
		return &abi.Verdict{
			Header: abi.Header{Seq: m.Header.Seq}, Verdict: abi.NoSuchGPU, Gpu: m.Gpu,
		}, nil
	}
	if err := c.checkMovable(s, m); err != nil {
		return nil, err
	}
	w := &waiter{s: s, out: out, request: *m, until: time.Now().Add(exitHold + exitPoll)}
	verdict := c.decide(w)
	if verdict == nil && c.connected(s) {
		c.waiting = append(c.waiting, w)
	}
	return verdict, nil
}

// decide grants or refuses a request, or returns nil where it is to wait, or where nobody waits for an
// answer any more. Called under mu.
func (c *container) decide(w *waiter) *abi.Verdict {
	if w.ask != 0 { // it is granted, and waits for room on the card
		return nil
	}
	gpu := int(w.request.Gpu)
	l := c.ledgers[gpu]
	c.findPages()
	if w.request.Kind == abi.KindMovable {
		return c.decideMovable(w)
	}
	verdict := &abi.Verdict{
		Header:  abi.Header{Seq: w.request.Header.Seq},
		Verdict: abi.OverCap,
		Gpu:     w.request.Gpu,
	}
	outcome := l.Request(w.s.holder(), w.request.Bytes, c.recaller(gpu))
	switch {
	case outcome.Granted && w.s.usage == nil: // the recall found its page to be forged
		l.Lower(w.s.holder(), w.request.Bytes+outcome.Spare)
	case outcome.Granted:
		w.spare = outcome.Spare
		return c.grant(w)
	case c.mayWait(w, outcome.Missing):
		return nil
	case !c.connected(w.s) || w.s.handle.Ended():
		return nil // killed since it asked: what it thought to find others have by now
	default:
		c.refuse(w, "")
	}
	c.show(gpu)
	verdict.Charged_bytes, verdict.Cap_bytes = l.Charged(), wireCap(l)
	return verdict
}

// mayWait tells whether a request that lacks so many bytes is to wait for what is about to be given back. Called under
// mu.
func (c *container) mayWait(w *waiter, missing uint64) bool {
	return c.coming(int(w.request.Gpu), missing) >= missing && w.until.After(time.Now()) &&
		len(c.waiting)+int(c.unsent.Load()) <= waitersMax
}

// handOver records a grant and then gives its spare part to the session. On an error nothing has
// been granted. Called under mu.
func (c *container) handOver(s *session, gpu int, bytes, spare uint64) error {
	l := c.ledgers[gpu]
	granted := l.Granted(s.holder())
	before := granted - bytes - spare
	row := store.Row{Bytes: before + bytes, Moves: s.moves[gpu], Move: int64(spare)}
	if err := s.record.Set(gpu, row); err != nil {
		l.Lower(s.holder(), bytes+spare)
		return err
	}
	c.node.opts.step("granted")
	if spare == 0 {
		return nil
	}
	// The bytes asked for are outside the credit word from the start.
	given, err := s.usage.Give(gpu, s.moves[gpu], before, spare)
	if given {
		s.moves[gpu]++
		c.node.opts.step("spare given")
		return nil
	}
	l.Lower(s.holder(), spare)
	if err != nil {
		c.forged(s)
	}
	return nil
}

// recaller takes unused credit away from sessions of the container, for its ledger of a GPU.
func (c *container) recaller(gpu int) ledger.Recall {
	return func(h ledger.Holder, limit uint64) uint64 {
		return c.recall(c.holders[h], gpu, limit)
	}
}

// recall takes at most limit bytes of a session's unused credit. Called under mu.
func (c *container) recall(s *session, gpu int, limit uint64) uint64 {
	if s.usage == nil {
		return 0
	}
	granted := c.ledgers[gpu].Granted(s.holder())
	taken, err := s.usage.Take(gpu, s.moves[gpu], granted, limit, func(bytes uint64) error {
		row := store.Row{Bytes: granted, Moves: s.moves[gpu], Move: -int64(bytes)}
		if err := s.record.Set(gpu, row); err != nil {
			return err
		}
		c.node.opts.step("recall announced")
		return nil
	})
	switch {
	case errors.Is(err, page.ErrForged):
		c.forged(s)
	case err != nil:
		c.node.log.Error("unused credit cannot be recalled", "container", c.spec.Name, "error", err)
	case taken > 0:
		s.moves[gpu]++
		c.node.opts.step("recalled")
	}
	return taken
}

// coming is the charge that is about to be given back, or may be; what takes long to find out is
// left out where there is enough without it. Called under mu.
func (c *container) coming(gpu int, enough uint64) uint64 {
	sum := c.dying(gpu) + c.returning(gpu) + c.node.shares.coming(account{c, gpu})
	if sum < enough {
		sum += c.replaced(gpu)
	}
	return sum
}

// replaced looks for programs that another has just taken the place of by exec, which frees what
// they held, and tells their charges. It is heard of late where another process holds their
// connection open. Called under mu.
func (c *container) replaced(gpu int) (sum uint64) {
	for _, s := range c.sessions {
		granted := c.chargedTo(s, gpu)
		if granted == 0 || s.state == exiting {
			continue
		}
		if st, err := proc.Read(s.process.PID); err == nil && anotherImage(s, st) {
			sum += granted
			c.beginExit(s, byExec)
		}
	}
	return sum
}

// returning is the charge of processes that an earlier agent served and whose usage pages cannot be
// opened, as long as they may be about to connect again: the part that they do not use cannot be
// told or recalled before. Called under mu.
func (c *container) returning(gpu int) (sum uint64) {
	left := returnWait - time.Since(c.node.recovered)
	if left <= 0 {
		return 0
	}
	for s := range c.pageless {
		sum += c.ledgers[gpu].Granted(s.holder())
	}
	if sum > 0 && !c.retryTimed {
		c.retryTimed = true
		time.AfterFunc(left, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.retryWaiting()
		})
	}
	return sum
}

// dying looks for processes that have just died, and tells the charges of all dead ones, which are
// still held for their memory to be free. Called under mu.
func (c *container) dying(gpu int) (sum uint64) {
	var handles []*proc.Handle
	var sessions []*session
	for _, s := range c.sessions {
		granted := c.chargedTo(s, gpu)
		switch {
		case granted == 0 && !c.node.shares.has(c.sharer(s)):
		case s.state == exiting:
			sum += granted
		default:
			handles, sessions = append(handles, s.handle), append(sessions, s)
		}
	}
	for _, i := range proc.EndedAmong(handles) {
		sum += c.chargedTo(sessions[i], gpu)
		c.beginExit(sessions[i], "its process has ended")
	}
	return sum
}

// retryWaiting decides again on the requests that wait. Called under mu.
func (c *container) retryWaiting() {
	waiting := c.waiting
	c.waiting = nil
	for _, w := range waiting {
		if !c.connected(w.s) { // ended by what an earlier one of these turned up
			if w.ask != 0 {
				c.endWait(w, nil)
			}
			continue
		}
		if verdict := c.decide(w); verdict != nil {
			c.sendLater(w, verdict)
		} else if c.connected(w.s) {
			c.waiting = append(c.waiting, w)
		}
	}
}

// sendLater answers a request that has waited. Called under mu.
func (c *container) sendLater(w *waiter, verdict *abi.Verdict) {
	c.unsent.Add(1)
	c.node.tasks.Go(func() {
		defer c.unsent.Add(-1)
		w.out.send(wire.Encode(verdict))
	})
}

// dropWaiting forgets what a session has asked for: nobody waits for the answers. Called under mu.
func (c *container) dropWaiting(s *session) {
	for _, w := range c.waiting {
		if w.s == s && w.ask != 0 {
			c.endWait(w, nil)
		}
	}
	c.waiting = slices.DeleteFunc(c.waiting, func(w *waiter) bool { return w.s == s })
}

// query answers how much one allocation of a session could get. Called without mu.
func (c *container) query(m *abi.Query) (*abi.Answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if int(m.Gpu) >= len(c.ledgers) {
		return nil, fmt.Errorf("QUERY for GPU %d of %d", m.Gpu, len(c.ledgers))
	}
	l := c.ledgers[m.Gpu]
	answer := &abi.Answer{
		Header:    abi.Header{Seq: m.Header.Seq},
		Gpu:       m.Gpu,
		Cap_bytes: wireCap(l),
	}
	c.findPages()
	answer.Free_bytes = abi.Unlimited
	if l.Capped() {
		used, most := c.used(int(m.Gpu)), l.Cap()+l.Swap()
		plain := used - l.Movable()
		answer.Used_bytes = used
		answer.Free_bytes = min(l.Cap()-min(plain, l.Cap()), most-min(used, most))
	}
	return answer, nil
}

// refuse counts a refusal and writes its event. why is empty where the cap is the reason. Called
// under mu.
func (c *container) refuse(w *waiter, why string) {
	c.refused++
	gpu := int(w.request.Gpu)
	l := c.ledgers[gpu]
	asked, used := int64(w.request.Bytes), int64(c.used(gpu))
	e := control.Event{
		Type: "denied", Container: c.spec.Name, Namespace: c.spec.Namespace, PID: w.s.process.PID,
		GPUUUID: c.node.gpus[gpu].uuid, Asked: &asked, Used: &used,
	}
	var limit int64
	if l.Capped() {
		limit = int64(l.Cap())
		e.Cap = &limit
	}
	raise := fmt.Sprintf("raise the cap with `weir caps set %s --memory SIZE`", c.spec.Name)
	movable := w.request.Kind == abi.KindMovable
	switch {
	case why != "":
	case !l.Capped():
		why = "more than any machine has"
	case w.request.Kind == abi.KindContext && asked > limit:
		why = fmt.Sprintf("the cap of %s is smaller than one context, which takes %s there; %s, or have "+
			"contexts not counted (count_context = false in the agent's configuration)", size(limit),
			size(asked), raise)
	case movable && l.Swap() == 0:
		why = fmt.Sprintf("it has no swap there, and %s of %s are in use; %s, or give it swap with --swap SIZE", size(used),
			size(limit), raise)
	case movable || used > limit || l.Swap() > 0 && asked <= limit-used:
		why = fmt.Sprintf("%s of %s, and %s of swap, are in use; %s, or its swap with --swap SIZE", size(used), size(limit),
			size(int64(l.Swap())), raise)
	default:
		why = fmt.Sprintf("%s of %s are in use; %s", size(used), size(limit), raise)
	}
	e.Message = fmt.Sprintf("%s asked for %s more %s on GPU %s: %s", w.s.program, size(asked),
		kindText(w.request.Kind), c.node.gpus[gpu].name, why)
	c.node.events.Add(e)
}

// kindText says what a request is for.
func kindText(kind uint32) string {
	switch kind {
	case abi.KindPitched:
		return "of pitched memory"
	case abi.KindManaged:
		return "of managed memory"
	case abi.KindArray:
		return "for an array"
	case abi.KindPool:
		return "for a memory pool"
	case abi.KindCreated:
		return "of physical memory (cuMemCreate)"
	case abi.KindGraph:
		return "for the memory nodes of a graph"
	case abi.KindContext:
		return "for a context"
	case abi.KindCode:
		return "for code and its variables"
	case abi.KindLimit:
		return "for limits of a context (cuCtxSetLimit)"
	case abi.KindImported:
		return "for imported memory"
	case abi.KindMovable:
		return "of memory that can be swapped out"
	}
	return "of plain memory"
}

// forged ends a session whose usage page claims more than was granted. Its grant stays charged
// until its process ends, and the process is not admitted again. Called under mu.
func (c *container) forged(s *session) {
	if s.forged {
		return
	}
	s.forged = true
	s.dropUsage()
	text := page.ErrForged.Error()
	c.event("forged", s.process.PID, "%s: %s; its session has ended, and what it was granted "+
		"stays charged until the process ends", s.program, text)
	c.detach(s, &ending{abi.ClosePage, text})
}

// size is a number of bytes for people.
func size(bytes int64) string { return config.FormatSize(bytes) }
