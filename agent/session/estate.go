package session

// What is left of pools whose exporter has ended. The driver keeps what importers have of them, in
// chunks of the pools; how much that is no call tells. So all that the process's shared pools had
// reserved when it ended stays charged to its container, together, until nobody has any of them.

// estate are the pools of one ended process on one GPU that others still have. One of them is charged
// for all. An agent that is restarted no longer knows that they belong together: then they are charged
// until nobody has that one.
type estate struct{ shares map[*share]bool }

// pooled is what a session's shared pools have reserved, by GPU. Where its page is not known that is
// all that it may hold. Called under mu.
func (c *container) pooled(s *session) []uint64 {
	bytes := make([]uint64, len(c.ledgers))
	for gpu, l := range c.ledgers {
		if bytes[gpu] = l.Granted(s.holder()); s.usage != nil {
			bytes[gpu] = s.usage.Pooled(gpu, bytes[gpu])
		}
	}
	return bytes
}

// bequeath leaves what an ended session's pools had reserved on a GPU to those who have imported them,
// charged to the container. A kill of the agent in between errs on the side of charging it twice, until
// the new agent has seen the session's end. Called under mu.
func (c *container) bequeath(s *session, gpu int) {
	if bytes := s.pooled[gpu]; bytes > 0 && c.node.shares.bequeath(c.sharer(s), gpu, bytes) {
		c.ledgers[gpu].Export(s.holder(), bytes)
	}
}

// bequeath makes an estate of the pools that p has exported on a GPU and that others have. It tells
// whether there are any.
func (r *shares) bequeath(p sharer, gpu int, bytes uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &estate{shares: make(map[*share]bool)}
	var first *share
	for sh, h := range r.bySharer[p] {
		if h.exporter && sh.home == p.c && sh.gpu == gpu && sh.bytes == 0 && len(sh.holds) > 1 {
			first, e.shares[sh], sh.estate = sh, true, e
		}
	}
	if first == nil {
		return false
	}
	r.assess(first, bytes)
	return true
}

// inherit passes what an estate is charged on from one of its pools, which nobody has any more, to
// another. It tells whether there was nothing to release. Called under mu.
func (r *shares) inherit(sh *share) bool {
	if sh.estate == nil {
		return false
	}
	delete(sh.estate.shares, sh)
	for heir := range sh.estate.shares {
		if sh.bytes > 0 {
			r.assess(heir, sh.bytes)
		}
		return true
	}
	return false
}

// assess gives a share another size. Called under mu.
func (r *shares) assess(sh *share, bytes uint64) {
	for p, h := range sh.holds {
		row := sh.describe(p, h.exporter)
		row.Bytes = bytes
		if err := r.file.Set(h.place, row); err != nil {
			p.c.node.log.Warn("what ended pools are charged is not recorded", "error", err)
		}
	}
	r.weigh(sh, func() { sh.bytes = bytes })
}
