package ledger

// Host is a node's account of host memory: all movable memory of all containers may have to lie there at once, so all
// of it is set aside when it is allocated. Then no swap-out fails for want of memory, and nobody is killed for it.
// Invariant: what is reserved is within the limit after every reservation; a limit lowered below it, or what is found
// to be held, only stops reservations. The zero value allows nothing.
type Host struct{ limit, reserved uint64 }

// NewHost makes an account with a limit in bytes.
func NewHost(limit uint64) *Host { return &Host{limit: min(limit, Unlimited)} }

// Limit is the most that may be set aside, in bytes.
func (h *Host) Limit() uint64 { return h.limit }

// Reserved is what is set aside, in bytes.
func (h *Host) Reserved() uint64 { return h.reserved }

// Reserve sets n bytes aside if they fit, and else changes nothing. It returns how much did not fit.
func (h *Host) Reserve(n uint64) (missing uint64) {
	left := h.limit - min(h.reserved, h.limit)
	if n > left {
		return n - left
	}
	h.reserved += n
	return 0
}

// Change takes note that what was found to be held has changed from one amount to another, whatever the limit.
func (h *Host) Change(from, to uint64) { h.reserved += to - from }

// Release gives back n bytes at most.
func (h *Host) Release(n uint64) { h.reserved -= min(n, h.reserved) }
