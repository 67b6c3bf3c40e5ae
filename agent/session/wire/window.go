package wire

// The window of question numbers.

// windowSize is how many of the latest numbers are remembered, a multiple of 64.
const windowSize = 4096

// Window recognises questions that are sent a second time, by their numbers. Threads take numbers
// and send independently, so they may arrive in any order; one that arrives later than the window
// reaches is let pass, because it may be honest. The zero value has seen nothing.
type Window struct {
	newest uint32
	began  bool
	seen   [windowSize / 64]uint64
}

// Fresh notes a number and tells whether it is new.
func (w *Window) Fresh(seq uint32) bool {
	ahead := int32(seq - w.newest) // numbers wrap
	if !w.began {
		w.began, w.newest, ahead = true, seq, 0
	}
	switch {
	case ahead > 0:
		for i := range min(uint32(ahead), windowSize) {
			w.clear(seq - i)
		}
		w.newest = seq
	case ahead <= -windowSize:
		return true
	}
	word, bit := &w.seen[seq%windowSize/64], uint64(1)<<(seq%64)
	fresh := *word&bit == 0
	*word |= bit
	return fresh
}

func (w *Window) clear(seq uint32) { w.seen[seq%windowSize/64] &^= 1 << (seq % 64) }
