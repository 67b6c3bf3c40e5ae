package session

// Which processes have which pieces of shared memory.

import (
	"fmt"
	"sync"

	"weir/agent/session/proc"
	"weir/agent/store"
	"weir/cgo/abi"
)

// sharer is a process of a container that has shared memory.
type sharer struct {
	c       *container
	process proc.ID
}

// share is one piece of memory that several processes have, or may have. It is charged to one
// container, its home, from the moment that a process has exported it until nobody has it any more:
// its exporter's, or, while the agent knows of no exporter, that of whoever said that it had it. One of
// no bytes is a pool, which its exporter is charged for; when that has ended it has an estate (estate.go).
type share struct {
	key      abi.ShareKey
	gpu      int
	bytes    uint64
	home     *container
	exported bool // an exporter is known, or was
	holds    map[sharer]*hold
	exiting  int // of holds
	estate   *estate
}

// hold is one process's having of a share, however often it has imported it.
type hold struct {
	place    int // of its row in the file
	exporter bool
	// named: said to be had on the process's present connection. What is not named when a process
	// has declared everything anew is not had any more.
	named bool
	// exiting: the process has ended, and its memory may not be free yet.
	exiting bool
}

// account is a container's account on a GPU.
type account struct {
	c   *container
	gpu int
}

// ended is what nobody has any more, to be taken from its home's account.
type ended struct {
	account
	bytes uint64
}

// shares is the node's registry of shared memory. Its mutex is taken after those of containers. Every
// change is recorded before it is made.
type shares struct {
	mu       sync.Mutex
	file     *store.Shares
	byKey    map[abi.ShareKey]*share
	bySharer map[sharer]map[*share]*hold
	holds    map[*container]int // how many its processes have, of any home
	exiting  map[account]uint64 // bytes of shares that only exiting processes have
}

func newShares(file *store.Shares) *shares {
	return &shares{
		file: file, byKey: make(map[abi.ShareKey]*share),
		bySharer: make(map[sharer]map[*share]*hold), holds: make(map[*container]int),
		exiting: make(map[account]uint64),
	}
}

// describe is the row of a hold.
func (sh *share) describe(p sharer, exporter bool) store.Hold {
	return store.Hold{
		Key: sh.key.Bytes, Home: sh.home.spec.ID, UUID: sh.home.node.gpus[sh.gpu].id,
		Bytes: sh.bytes, Exported: sh.exported, Container: p.c.spec.ID, PID: p.process.PID,
		Start: p.process.Start, Exporter: exporter,
	}
}

// add makes p one of those that have sh, which is new if nobody has it yet. Called under mu.
func (r *shares) add(sh *share, p sharer, exporter bool) error {
	switch {
	case len(r.bySharer[p]) >= abi.SharesMax:
		return fmt.Errorf("the process shares %d pieces of memory, which is the most",
			abi.SharesMax)
	case r.holds[p.c] >= holdsMax:
		return fmt.Errorf("the container's processes share %d pieces of memory, which is the most",
			holdsMax)
	}
	place, err := r.file.Add(sh.describe(p, exporter))
	if err != nil {
		return err
	}
	r.enter(sh, p, &hold{place: place, exporter: exporter, named: true})
	return nil
}

// enter is add for a hold whose row is there. Called under mu.
func (r *shares) enter(sh *share, p sharer, h *hold) {
	r.byKey[sh.key] = sh
	r.weigh(sh, func() { sh.holds[p] = h })
	if r.bySharer[p] == nil {
		r.bySharer[p] = make(map[*share]*hold)
	}
	r.bySharer[p][sh] = h
	r.holds[p.c]++
}

// weigh makes a change to sh, and keeps count of what will end with exiting processes. Called under
// mu.
func (r *shares) weigh(sh *share, change func()) {
	count := func(sign uint64) {
		if len(sh.holds) == 0 || sh.exiting < len(sh.holds) {
			return
		}
		at := account{sh.home, sh.gpu}
		if r.exiting[at] += sign * sh.bytes; r.exiting[at] == 0 {
			delete(r.exiting, at)
		}
	}
	count(^uint64(0))
	change()
	count(1)
}

// adopt makes a container the home of a share whose exporter was not known: it has turned up there.
// Called under mu.
func (r *shares) adopt(sh *share, home *container) error {
	r.weigh(sh, func() { sh.home, sh.exported = home, true })
	for p, h := range sh.holds {
		if err := r.file.Set(h.place, sh.describe(p, h.exporter)); err != nil {
			return err
		}
	}
	return nil
}

// remove ends p's having of sh. Called under mu.
func (r *shares) remove(sh *share, p sharer) (over []ended) {
	h := sh.holds[p]
	if err := r.file.Remove(h.place); err != nil {
		p.c.node.log.Warn("a hold of shared memory is still recorded", "error", err)
	}
	r.weigh(sh, func() {
		delete(sh.holds, p)
		if h.exiting {
			sh.exiting--
		}
	})
	if delete(r.bySharer[p], sh); len(r.bySharer[p]) == 0 {
		delete(r.bySharer, p)
	}
	if r.holds[p.c]--; r.holds[p.c] == 0 {
		delete(r.holds, p.c)
	}
	if len(sh.holds) > 0 {
		return nil
	}
	delete(r.byKey, sh.key)
	if r.inherit(sh) {
		return nil
	}
	return []ended{{account{sh.home, sh.gpu}, sh.bytes}}
}

// drop ends p's having of what a key names; nothing where it has no such thing.
func (r *shares) drop(p sharer, key abi.ShareKey) (over []ended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sh := r.byKey[key]
	if sh == nil || sh.holds[p] == nil {
		return nil
	}
	return r.remove(sh, p)
}

// dropUnnamed ends p's having of everything that it has not named on its present connection.
func (r *shares) dropUnnamed(p sharer) (over []ended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sh, h := range r.bySharer[p] {
		if !h.named {
			over = append(over, r.remove(sh, p)...)
		}
	}
	return over
}

// dropAll ends p's having of everything.
func (r *shares) dropAll(p sharer) (over []ended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sh := range r.bySharer[p] {
		over = append(over, r.remove(sh, p)...)
	}
	return over
}

// reconnected: p has a new connection and is about to name what it has.
func (r *shares) reconnected(p sharer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.bySharer[p] {
		h.named = false
	}
}

// exits: p has ended, and what it has is about to be dropped.
func (r *shares) exits(p sharer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sh, h := range r.bySharer[p] {
		if !h.exiting {
			r.weigh(sh, func() { h.exiting, sh.exiting = true, sh.exiting+1 })
		}
	}
}

// coming is what will end of an account once exiting processes' memory is free, in bytes.
func (r *shares) coming(at account) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exiting[at]
}

// has tells whether p has anything shared.
func (r *shares) has(p sharer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.bySharer[p]) > 0
}

// exportedBy is what p has exported of the container's own charge on a GPU and still has, in bytes.
func (r *shares) exportedBy(p sharer, gpu int) (sum uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sh, h := range r.bySharer[p] {
		if h.exporter && sh.home == p.c && sh.gpu == gpu {
			sum += sh.bytes
		}
	}
	return sum
}

// importedBy is what p has on a GPU that others have exported, in bytes.
func (r *shares) importedBy(p sharer, gpu int) (sum uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sh, h := range r.bySharer[p] {
		if !h.exporter && sh.gpu == gpu {
			sum += sh.bytes
		}
	}
	return sum
}

// gpusOf lists the GPUs on which p has something shared.
func (r *shares) gpusOf(p sharer) map[int]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	gpus := make(map[int]bool)
	for sh := range r.bySharer[p] {
		gpus[sh.gpu] = true
	}
	return gpus
}
