package proc

// Who descends from whom.

import "sync"

// ancestorsMax bounds what an Ancestry remembers; what it forgets it looks up anew.
const ancestorsMax = 4096

// Ancestry tells which processes descend from one. It remembers their parents: those of a crowd that
// comes at once are mostly the same, and a descendant of a process that adopts orphans stays one as
// long as that lives. The last parent it holds, so that to know it again takes no look into /proc.
// Its methods may be called at the same time.
type Ancestry struct {
	root ID

	mu     sync.Mutex
	known  map[ID]bool // descendants of root
	parent *Handle     // one of them, or root; nil after Close
	closed bool
}

// NewAncestry is that of one process.
func NewAncestry(root ID) *Ancestry { return &Ancestry{root: root, known: make(map[ID]bool)} }

// Has tells whether a process that is held is root or descends from it. A parent that ends in the
// midst of the walk hands its child to another; the walk then begins anew.
func (a *Ancestry) Has(h *Handle) bool {
	if a.holds(h.parent) {
		return true
	}
	at := Stat{ID: h.ID, Parent: h.parent}
	for range 8 {
		switch a.walk(at) {
		case yes:
			a.hold(at.Parent)
			return true
		case no:
			return false
		}
		var err error
		if at, err = Read(h.PID); err != nil {
			return false
		}
	}
	return false
}

// Descends tells whether a process is root or descends from it, without remembering anything.
func Descends(pid int, root ID) bool {
	a := NewAncestry(root)
	for range 8 {
		at, err := Read(pid)
		if err != nil {
			return false
		}
		switch a.walk(at) {
		case yes:
			return true
		case no:
			return false
		}
	}
	return false
}

type answer int

const (
	no answer = iota
	yes
	unclear
)

func (a *Ancestry) walk(at Stat) answer {
	var passed []ID
	for at.PID > 1 {
		if at.ID == a.root || a.knows(at.ID) {
			a.remember(passed)
			return yes
		}
		if at.Parent < 1 {
			return no
		}
		parent, err := Read(at.Parent)
		// A parent that began after its child is a stranger that was given its number.
		if err != nil || parent.Start > at.Start {
			return unclear
		}
		passed = append(passed, parent.ID)
		at = parent
	}
	return no
}

// Close lets go of the process that is held.
func (a *Ancestry) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parent.Close()
	a.parent, a.closed = nil, true
}

// holds tells whether the process with this pid is the one that is held, and lives: then it has been
// that since it was taken hold of.
func (a *Ancestry) holds(pid int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.parent != nil && a.parent.PID == pid && !a.parent.Ended()
}

// hold takes hold of the process with this pid, if it is one that is known.
func (a *Ancestry) hold(pid int) {
	h, err := OpenPID(pid)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || h.ID != a.root && !a.known[h.ID] {
		h.Close()
		return
	}
	a.parent.Close()
	a.parent = h
}

func (a *Ancestry) knows(id ID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known[id]
}

func (a *Ancestry) remember(ids []ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known)+len(ids) > ancestorsMax {
		clear(a.known)
	}
	for _, id := range ids {
		a.known[id] = true
	}
}
