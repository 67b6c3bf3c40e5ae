// Package ledger keeps the memory charges of one container on one GPU: what each holder was
// granted, and whether one more request fits under the cap. It is pure: no clock, no I/O, no lock.
//
// A holder (a session) has a grant G. The part of G that it does not use, its unused credit, lies
// outside the ledger, in a page that the holder shares; the ledger gets at it through a Recall
// function. Invariants:
//   - charged is the sum of all grants, of what is shared and of what is shelved;
//   - charged <= cap after every grant, and with movable memory it is within cap and swap together; a
//     cap or swap lowered below that only stops grants;
//   - a request is refused only after all unused credit of all holders was recalled, so one that
//     fits beside what is in use is always granted;
//   - without holders, and with nothing shared or shelved, the charge is exactly 0.
//
// Movable memory has no credit and is in movable.go.
//
// Shared memory. What a holder exports to other processes is no longer its own: it may outlive the
// holder, for as long as anybody has it. It is then part of the charge and of no grant.
//
// Spare credit. A grant adds some credit that was not asked for, so that the next allocations of a
// growing program need no round trip. It never makes another's request fail, since it can be
// recalled without the holder's help; all it may cost is that recall. Under a cap it is a sixteenth
// of what is still free, so it fades as the cap comes near and no number of holders exhausts the
// cap with it; without a cap there is nobody to recall it for, and one batch serves most programs.
package ledger

import (
	"cmp"
	"slices"
)

const (
	// Unlimited is the cap of a container without one, in bytes. It is finite so that sums of
	// charges cannot overflow, whatever is asked for or declared.
	Unlimited uint64 = 1 << 62
	// RequestMax is the most that one request may ask for or one holder may declare, in bytes.
	RequestMax uint64 = 1 << 50

	// spareUnlimited is the spare credit of a grant without a cap, in bytes.
	spareUnlimited uint64 = 16 << 30
	// spareMax is the most spare credit that one grant adds under a cap, in bytes.
	spareMax uint64 = 256 << 20
	// spareShare: one part in so many of what is free under the cap is given as spare credit.
	spareShare = 16
	// spareShareSwap is the same with swap, where room on the card that nobody uses is others' memory on the host.
	spareShareSwap = 512
	// spareUnit: spare credit is a multiple of the smallest charge, in bytes.
	spareUnit uint64 = 512

	// recallPasses bounds how often one request goes round all holders. A holder that was found
	// without unused credit may free while the others are looked at, and one looked at later may
	// take again what it had freed: a single round could miss both, and under a load of many such
	// holders so could a few. So many rounds in a row that find nothing are taken as proof.
	recallPasses = 64
	emptyPasses  = 4
)

// Holder names one holder of a grant.
type Holder uint64

// Recall takes at most limit bytes of h's unused credit away from it, and returns how many it took.
// It must not call back into the ledger.
type Recall func(h Holder, limit uint64) uint64

// Outcome is the answer to a request.
type Outcome struct {
	Granted bool
	// Spare is the credit granted beyond what was asked for, in bytes.
	Spare uint64
	// Missing is what the charges exceed the cap by, were the request granted, in bytes; 0 if it
	// was.
	Missing uint64
}

// Ledger is one container's account on one GPU. The zero value is not usable; call New.
type Ledger struct {
	limit   uint64
	charged uint64
	shared  uint64 // of charged
	shelved uint64 // of charged
	grants  map[Holder]uint64

	swap    uint64
	movable uint64 // beside charged
	moving  map[Holder]uint64
}

// New makes an empty ledger with a cap in bytes; Unlimited or more is no cap.
func New(limit uint64) *Ledger {
	l := &Ledger{grants: make(map[Holder]uint64), moving: make(map[Holder]uint64)}
	l.SetCap(limit)
	return l
}

// SetCap changes the cap, in bytes. Grants above it stay; Shrink recalls what of them is unused.
func (l *Ledger) SetCap(limit uint64) { l.limit = min(limit, Unlimited) }

// Cap returns the cap in bytes, Unlimited where there is none.
func (l *Ledger) Cap() uint64 { return l.limit }

// Capped tells whether there is a cap.
func (l *Ledger) Capped() bool { return l.limit < Unlimited }

// Charged returns the sum of all grants and of what is shared, in bytes.
func (l *Ledger) Charged() uint64 { return l.charged }

// Shared returns what of the charge is shared, in bytes.
func (l *Ledger) Shared() uint64 { return l.shared }

// Granted returns h's grant in bytes, 0 for an unknown holder.
func (l *Ledger) Granted(h Holder) uint64 { return l.grants[h] }

// Holders returns the number of holders with a grant.
func (l *Ledger) Holders() int { return len(l.grants) }

// Request asks for n bytes more for h. Where they do not fit, unused credit is recalled: h's own
// first, then that of the others. If granted, h's grant has grown by n and the outcome's spare.
func (l *Ledger) Request(h Holder, n uint64, recall Recall) Outcome {
	if n > l.limit {
		return Outcome{Missing: n - l.limit + l.charged}
	}
	excess := func() uint64 { return l.excess(n) }
	if excess() > 0 {
		l.recall(h, excess, recall)
	}
	if missing := excess(); missing > 0 {
		return Outcome{Missing: missing}
	}
	spare := l.spare(l.room() - n)
	l.set(h, l.grants[h]+n+spare)
	return Outcome{Granted: true, Spare: spare}
}

// Offer grants h what a request for n bytes would grant it, spare credit included, if that fits as
// things are: nothing is recalled for it. It returns how much that is, 0 if it does not fit.
func (l *Ledger) Offer(h Holder, n uint64) uint64 {
	if n > l.limit || l.excess(n) > 0 {
		return 0
	}
	n += l.spare(l.room() - n)
	l.set(h, l.grants[h]+n)
	return n
}

// Shrink recalls unused credit until the charges are within cap and swap or no more is found, and
// returns what they still exceed them by, in bytes.
func (l *Ledger) Shrink(recall Recall) uint64 {
	excess := func() uint64 { return l.excess(0) }
	if excess() > 0 {
		l.recall(0, excess, recall)
	}
	return excess()
}

// Lower takes at most n bytes from h's grant, because they were recalled or never handed over.
func (l *Ledger) Lower(h Holder, n uint64) {
	g := l.grants[h]
	l.set(h, g-min(g, n))
}

// Declare makes h's grant exactly n bytes (at most RequestMax): what a process says that it holds.
func (l *Ledger) Declare(h Holder, n uint64) { l.set(h, min(n, RequestMax)) }

// Release ends h's grant and all that it has of movable memory. It returns how large the grant was, in bytes.
func (l *Ledger) Release(h Holder) uint64 {
	g := l.grants[h]
	l.set(h, 0)
	l.setMovable(h, 0)
	return g
}

// Export moves n bytes of h's grant to what is shared, so that the charge stays what it is. It tells
// whether the grant was that large; if not, nothing has changed.
func (l *Ledger) Export(h Holder, n uint64) bool {
	g := l.grants[h]
	if n > g {
		return false
	}
	l.set(h, g-n)
	l.charged += n
	l.shared += n
	return true
}

// Share adds n bytes to what is shared, because it is found to be held: like Declare, whatever the
// cap. It tells whether the sum can be kept; if not, nothing has changed.
func (l *Ledger) Share(n uint64) bool {
	if n > Unlimited-min(l.shared, Unlimited) {
		return false
	}
	l.charged += n
	l.shared += n
	return true
}

// Unshare takes at most n bytes from what is shared: nobody has them any more.
func (l *Ledger) Unshare(n uint64) {
	n = min(n, l.shared)
	l.charged -= n
	l.shared -= n
}

// Shelve takes n bytes of h's grant for what is to be handed over later: they stay charged, and are h's no more. It tells
// whether the grant was that large; if not, nothing has changed.
func (l *Ledger) Shelve(h Holder, n uint64) bool {
	g := l.grants[h]
	if n > g {
		return false
	}
	l.set(h, g-n)
	l.charged += n
	l.shelved += n
	return true
}

// Unshelve adds at most n bytes of what is shelved to h's grant; h of 0 is nobody, and they are charged no more.
func (l *Ledger) Unshelve(h Holder, n uint64) {
	n = min(n, l.shelved)
	l.charged -= n
	l.shelved -= n
	if h != 0 {
		l.set(h, l.grants[h]+n)
	}
}

// Shelved returns what of the charge is shelved, in bytes.
func (l *Ledger) Shelved() uint64 { return l.shelved }

// excess is what the charges would exceed the cap by, or with movable memory cap and swap together, if n bytes were
// added.
func (l *Ledger) excess(n uint64) uint64 {
	want := l.charged + n
	return max(want-min(want, l.limit), l.excessOfAll(n))
}

// room is what may be granted as things are.
func (l *Ledger) room() uint64 {
	return min(l.limit-min(l.charged, l.limit), l.roomForAll())
}

func (l *Ledger) set(h Holder, n uint64) {
	l.charged += n - l.grants[h]
	if n == 0 {
		delete(l.grants, h)
		return
	}
	l.grants[h] = n
}

func (l *Ledger) spare(free uint64) uint64 {
	if !l.Capped() {
		return min(free, spareUnlimited)
	}
	share := uint64(spareShare)
	if l.swap > 0 {
		share = spareShareSwap
	}
	s := min(free/share, spareMax)
	return s - s%spareUnit
}

// recall goes round the holders until there is no excess or nothing is left to recall.
func (l *Ledger) recall(h Holder, excess func() uint64, recall Recall) {
	order := l.candidates(h)
	empty := 0
	for pass := 0; pass < recallPasses && empty < emptyPasses; pass++ {
		found := uint64(0)
		for _, c := range order {
			missing := excess()
			if missing == 0 {
				return
			}
			got := recall(c.holder, min(missing, l.grants[c.holder]))
			l.Lower(c.holder, got)
			found += got
		}
		empty++
		if found > 0 {
			empty = 0
		}
	}
}

// grant is one holder with the size of its grant when the recall began.
type grant struct {
	holder Holder
	bytes  uint64 // all ones for the asking holder, so that it comes first
}

// candidates lists the holders to recall from: h itself, which is about to get it back, then the
// largest grants, which most likely have credit to spare. The order is the same in every run.
func (l *Ledger) candidates(h Holder) []grant {
	order := make([]grant, 0, len(l.grants))
	for c, g := range l.grants {
		if c == h {
			g = ^uint64(0)
		}
		order = append(order, grant{c, g})
	}
	slices.SortFunc(order, func(a, b grant) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.holder, b.holder))
	})
	return order
}
