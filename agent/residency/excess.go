package residency

// Flows above their cap by faults. What copies without a lease have brought goes at once, each time: they move the same bytes
// over the link themselves, so what goes for them takes no more of it than they do. Kernels that use more than the cap have
// all of it on the card while they run, whatever is decided. It goes again, but not at once each time: a holder whose kernels
// fetch again what has just gone would move the same memory to and fro for ever. After as many bytes have gone as were above,
// the next ones wait until that took its part of the time at most. Until then the flow is above its cap, which Over has said.
// Who does not hold the GPU, and who has asked for plain memory, does not wait.

// excess is how that stands for one flow.
type excess struct {
	over       bool  // it is above its cap by faults; Over was said
	byCopies   bool  // that came while it held no lease
	went       int64 // what has gone for that since the last pause, in bytes
	round      int64 // what was above when that began
	pauseUntil int64 // no more goes until then, while it holds
}

// above is what f has on the card beyond its cap; what goes counts until it has gone.
func (f *flow) above() int64 { return max(0, f.sum.here()+f.plain-f.limit) }

// exceeds has it said that faults have brought f above its cap.
func (f *flow) exceeds() {
	above := f.above()
	f.stats.above = max(f.stats.above, above)
	f.byCopies = f.state != Holder && (f.byCopies || !f.over)
	if above > 0 && !f.over {
		f.over = true
		f.on.node.say(Decision{Kind: Over, GPU: f.on.index, Flow: f.id, Bytes: above})
	}
}

// pauses: what f has above its cap stays for now.
func (f *flow) pauses() bool {
	return f.over && f.state == Holder && len(f.asks) == 0 && f.on.now < f.pauseUntil
}

// goes takes that so much of f goes for its cap.
func (f *flow) goes(bytes int64) {
	if !f.over || f.byCopies {
		return
	}
	if f.went == 0 {
		f.round = f.above()
	}
	if f.went += bytes; f.went >= f.round {
		f.pause()
	}
}

// pause has the next round wait as long as the last one took beside the part of the time that it may.
func (f *flow) pause() {
	if f.went > 0 {
		c := &f.on.config
		f.pauseUntil = f.on.now + min(int64(float64(f.on.takes(f.went))/c.Part), c.Round)
		f.went = 0
	}
}

// within ends f's being above its cap, if it is not any more.
func (f *flow) within() {
	if f.over && f.above() == 0 {
		f.over = false
		f.pause()
	}
}

// mayHave is how much of its recent set f has on the card while it runs: within its cap, unless it is known to use more.
func (f *flow) mayHave() int64 {
	if f.over && !f.byCopies || f.on.now < f.pauseUntil {
		return f.set()
	}
	return max(0, min(f.set(), f.limit-f.plain))
}
