package turns

// What a seat got in the last seconds.

// historySlot is how long what was got is taken together, in ns; historySlots is how many of these
// are kept: a minute, and the one that is not over yet.
const (
	historySlot  int64 = 100_000_000
	historySlots int64 = 601
)

// history is a minute of slot time, in tenths of seconds. All zeros is one that has not begun.
type history struct {
	got   []int64 // by slot, a ring; nil before it begins
	first int64   // the number of the slot since which there is a history
	last  int64   // the number of the slot that is not over
}

// add takes what was got up to now, in ns since the last call.
func (h *history) add(now, got int64) {
	slot := now / historySlot
	if h.got == nil {
		h.got, h.first, h.last = make([]int64, historySlots), slot, slot
	}
	for ; h.last < slot; h.last++ {
		if slot-h.last > historySlots {
			h.last = slot - historySlots
		}
		h.got[(h.last+1)%historySlots] = 0
	}
	h.got[slot%historySlots] += got
}

// share is the part of the last slots, those that are over, that was got; known is false where there
// was none yet.
func (h *history) share(now int64, slots int64) (part float64, known bool) {
	h.add(now, 0)
	if slots = min(slots, h.last-h.first, historySlots-1); slots <= 0 {
		return 0, false
	}
	sum := int64(0)
	for slot := h.last - slots; slot < h.last; slot++ {
		sum += h.got[slot%historySlots]
	}
	return float64(sum) / float64(slots*historySlot), true
}
