package ledger

// Movable memory: what a container has of it may lie on the host. It is allowed up to cap and swap together, less all
// that is charged under the cap, unused credit included, which is recalled for it as for any request. It draws on no
// credit: each allocation is asked for. How much of it is on the card is for package residency.

// SetSwap changes what the container may have beyond its cap, in bytes. What it has stays.
func (l *Ledger) SetSwap(bytes uint64) { l.swap = min(bytes, Unlimited) }

// Swap returns what the container may have beyond its cap, in bytes.
func (l *Ledger) Swap() uint64 { return l.swap }

// Movable returns the movable memory of all holders, in bytes. It is in no other sum.
func (l *Ledger) Movable() uint64 { return l.movable }

// MovableOf returns h's movable memory in bytes.
func (l *Ledger) MovableOf(h Holder) uint64 { return l.moving[h] }

// RequestMovable asks for n bytes of movable memory for h. Where they do not fit, unused credit is recalled.
func (l *Ledger) RequestMovable(h Holder, n uint64, recall Recall) Outcome {
	excess := func() uint64 { return l.excessOfAll(n) }
	if n > RequestMax {
		return Outcome{Missing: n}
	}
	if excess() > 0 {
		l.recall(h, excess, recall)
	}
	if missing := excess(); missing > 0 {
		return Outcome{Missing: missing}
	}
	l.setMovable(h, l.moving[h]+n)
	return Outcome{Granted: true}
}

// DeclareMovable makes h's movable memory exactly n bytes (at most RequestMax): what a process says that it holds.
func (l *Ledger) DeclareMovable(h Holder, n uint64) { l.setMovable(h, min(n, RequestMax)) }

// FreeMovable takes at most n bytes from h's movable memory.
func (l *Ledger) FreeMovable(h Holder, n uint64) {
	m := l.moving[h]
	l.setMovable(h, m-min(n, m))
}

// Beyond is what the charges, with movable memory and without unused credit, exceed the cap by: the least swap that
// allows them.
func (l *Ledger) Beyond(unused uint64) uint64 {
	all := l.charged - min(unused, l.charged) + l.movable
	return all - min(all, l.limit)
}

func (l *Ledger) excessOfAll(n uint64) uint64 {
	want := l.charged + l.movable + n
	return want - min(want, l.limit+l.swap)
}

func (l *Ledger) roomForAll() uint64 {
	all := l.charged + l.movable
	return l.limit + l.swap - min(all, l.limit+l.swap)
}

func (l *Ledger) setMovable(h Holder, n uint64) {
	l.movable += n - l.moving[h]
	if n == 0 {
		delete(l.moving, h)
		return
	}
	l.moving[h] = n
}
