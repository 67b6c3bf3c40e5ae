package turns

// What processes say that they have done, word by word, and how much of it can be.

import (
	"math"

	"weir/agent/session/page"
)

// staleMax is how far busy time may be ahead of time, in ns: words are not written at once, and what was
// launched before anything was known of it is made up for later.
const staleMax = 1_000_000_000

// said is what a process has said of a GPU. All zeros is one that has said nothing.
type said struct {
	known bool
	words page.Worked
	// Where counting began, which a lie begins anew: a process counts from its own beginning, whoever the
	// agent was.
	from  int64
	busy  uint64
	carry uint64 // busy time that came faster than time, ns
	lied  bool
	read  int64 // when the words were last read
	learning
}

// learning is the beginning of a process, when its library does not know yet what operations take and says
// guessNS for each. What was submitted then counts as what comes right afterwards, since a lease of which a
// part was guessed at would tell that the process gets more for its work than others.
type learning struct {
	held    uint64 // operations whose length was guessed
	knows   bool   // some of the last report's were not
	learned bool
	since   int64 // when the first were submitted
}

// guessNS is what the library says of an operation that it knows nothing of; learnMax is how long that may
// last, in ns: operations may be as short.
const (
	guessNS        = 1000
	learnMax int64 = 2_000_000_000
)

// work is what so many operations are worth, of which the library says that they take workNS.
func (l *learning) work(now int64, submitted, workNS uint64) uint64 {
	if l.learned || submitted == 0 {
		return worth(submitted, workNS)
	}
	if l.since == 0 {
		l.since = now
	}
	knew := l.knows
	l.knows = workNS/guessNS > submitted
	if !(knew && l.knows) && now-l.since < learnMax {
		l.held += submitted // the first report with any that are known has others, too
		return 0
	}
	l.learned = true
	all := min(l.held, math.MaxInt32) + submitted
	return worth(all, uint64(float64(workNS)*float64(all)/float64(submitted)))
}

// did is what a process has done since the last time, and whether threads wait at the gate, or have gone through
// though it was closed.
type did struct {
	busy, work     uint64
	waits, ungated bool
}

// take takes what a process says now, and returns what it has done since the last time: nothing, where that
// cannot be. lie tells so.
func (p *said) take(now int64, is page.Worked) (d did, lie bool) {
	was := p.words
	d.waits, d.ungated = is.Waiting > 0, p.known && is.Ungated > was.Ungated
	is.Waiting = 0
	first := !p.known
	if first && is == (page.Worked{}) {
		return d, false
	}
	p.known, p.words = true, is
	passed := uint64(max(0, now-p.from)) + staleMax
	switch {
	case first:
		p.begin(now, is)
		return d, false
	case is.Submitted < was.Submitted || is.Completed < was.Completed || is.WorkNS < was.WorkNS ||
		is.BusyNS < was.BusyNS || is.Ungated < was.Ungated || is.BusyNS-p.busy > passed:
		p.begin(now, is)
		return d, true
	}
	p.carry = min(p.carry+is.BusyNS-was.BusyNS, staleMax)
	d.work = p.work(now, is.Submitted-was.Submitted, is.WorkNS-was.WorkNS)
	return d, false
}

func (p *said) begin(now int64, is page.Worked) { p.from, p.busy, p.carry = now, is.BusyNS, 0 }

// spend takes as much of the busy time that was said as can have been in a time.
func (p *said) spend(passed int64) (busy uint64) {
	busy = min(p.carry, uint64(max(0, passed)))
	p.carry -= busy
	return busy
}

// words reads what a process says of a GPU.
func (m *Member) words(gpu int) did {
	p := &m.places[gpu].said
	d, lie := p.take(m.c.table.now, m.process.Worked(gpu))
	if lie && !p.lied {
		p.lied = true
		m.tellLie(gpu)
	}
	d.busy = p.spend(m.c.table.now - p.read)
	p.read = m.c.table.now
	return d
}
