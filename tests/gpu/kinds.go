package main

// Kinds of memory beside plain: each is charged at least what it takes, refused past the cap, and given
// back.

import (
	"fmt"

	"weir/tests/e2e/node"
)

// kind is a way to take memory: about so many bytes, and never less.
type kind struct {
	name string
	// take is the acrobat's command.
	take func(bytes int64) string
	// use is what takes the memory of what was made, where that is another command; %v is its slot.
	use string
	// reuses: what one piece of it has can be another's at the same time.
	reuses bool
	// settle are commands after which nothing is kept of what was freed.
	settle []string
}

// holds checks a kind with one process: half of what is left fits, more than what is left does not.
func (r *run) holds(t *trial, name string, p *node.Puppet, k kind) {
	start := r.use(t, name)
	half := (r.capBytes - start) / 2 / (2 * mib) * (2 * mib)
	slot := p.Number("%s", k.take(half))
	if k.use != "" {
		p.OK(k.use, slot)
		p.OK("sync")
	}
	if grown := r.use(t, name) - start; grown < half {
		t.Errorf("%s of %d bytes are charged by %d", k.name, half, grown)
	}
	over := r.room(t, name) + 2*mib
	if k.reuses {
		over = r.capBytes - start + 2*mib
	}
	refuses(t, p, k, over)
	p.OK("free %d", slot)
	for _, command := range k.settle {
		p.OK("%s", command)
	}
	r.uses(t, name, k.name+", given back", start)
}

func refuses(t *trial, p *node.Puppet, k kind, bytes int64) {
	words := p.Do("%s", k.take(bytes))
	answer := fmt.Sprint(words)
	if k.use != "" && len(words) == 2 && words[0] == "ok" {
		slot := words[1]
		answer = fmt.Sprint(p.Do(k.use, slot))
		p.OK("free %s", slot)
	}
	if answer != "[error 2]" {
		t.Errorf("%s past the cap: %s, not error 2", k.name, answer)
	}
}

func (r *run) holdsAll(t *trial, name string, kinds ...kind) {
	p := r.acrobat(t, name)
	for _, k := range kinds {
		r.holds(t, name, p, k)
	}
	t.figure("half of what is left of %s is given, more than the rest refused", size(r.capBytes))
}

// rows is how many rows of so many bytes are at least so many bytes.
func rows(bytes, row int64) int64 { return (bytes + row - 1) / row }

func (r *run) arrays(t *trial) {
	// Shapes that every GPU allows, whatever the cap.
	r.holdsAll(t, "arrays",
		kind{name: "2D array", take: func(bytes int64) string {
			return fmt.Sprintf("array 16384 %d", rows(bytes, 16384*4))
		}},
		kind{name: "3D array", take: func(bytes int64) string {
			return fmt.Sprintf("array3d 1024 128 %d", rows(bytes, 1024*128*8))
		}},
		kind{name: "mipmapped array", take: func(bytes int64) string {
			return fmt.Sprintf("mipmap 16384 %d 3", rows(bytes, 16384*8))
		}},
	)
}

// Pools may keep what was freed until they are trimmed.
var trimmed = []string{"sync", "trim"}

func (r *run) defaultPool(t *trial) {
	r.holdsAll(t, "default-pool", kind{
		name: "the default pool", settle: trimmed,
		take: func(bytes int64) string { return fmt.Sprintf("async %d 1", bytes) },
	})
}

func (r *run) ownPool(t *trial) {
	const name = "own-pool"
	p := r.acrobat(t, name)
	pool := p.Number("pool %d", 1<<40)
	r.holds(t, name, p, kind{name: "a pool", settle: []string{"sync", fmt.Sprintf("trim %d", pool)},
		take: func(bytes int64) string { return fmt.Sprintf("pool-alloc %d %d 1", pool, bytes) }})
	t.figure("kept until it is trimmed")
}

// poolLoop: nothing drifts when much is taken and given in stream order.
func (r *run) poolLoop(t *trial) {
	const name, times = "pool-loop", 1000
	p := r.acrobat(t, name)
	start := r.use(t, name)
	bytes := r.room(t, name) / 3
	for range times {
		slot := p.Number("async %d 1", bytes)
		p.OK("free %d", slot)
	}
	slot := p.Number("async %d 1", bytes)
	if grown := r.use(t, name) - start; grown < bytes {
		t.Errorf("%d bytes in stream order are charged by %d", bytes, grown)
	}
	p.OK("free %d", slot)
	p.OK("sync")
	p.OK("trim")
	r.uses(t, name, "after all", start)
	t.figure("%d times %s", times, size(bytes))
}

// created: memory that a program creates and maps by itself, by the driver's granularity.
func (r *run) created(t *trial) {
	const name = "created"
	p := r.puppet(t, name)
	start := r.use(t, name)
	unit := p.Number("granularity")
	bytes := (r.capBytes - start) / unit * unit
	handle := p.Number("create %d", bytes)
	r.uses(t, name, "created", start+bytes)
	refused(t, p, "create %d", unit)
	place := p.Number("map %d %d", handle, bytes)
	p.OK("poke %d 77", place)
	p.OK("unhandle %d", handle)
	r.uses(t, name, "released, but mapped", start+bytes)
	if got := p.Number("peek %d", place); got != 77 {
		t.Errorf("what was written as 77 is read as %d", got)
	}
	p.OK("unmap %d", place)
	r.uses(t, name, "unmapped", start)
	p.OK("unhandle %d", p.Number("thread-create %d", unit))
	t.figure("%s by %s, then refused", size(bytes), size(unit))
}

// graphs that give their memory back within them share it; one that leaves it allocated does not.
func graphs(how string) kind {
	return kind{
		name: "graphs " + how, use: "launch %v 1", reuses: how != "left", settle: trimmed,
		take: func(bytes int64) string { return fmt.Sprintf("graph %s %d", how, bytes) },
	}
}

func (r *run) graphsBuilt(t *trial) {
	r.holdsAll(t, "graphs-built", graphs("freed"), graphs("left"))
}

func (r *run) graphsCaptured(t *trial) { r.holdsAll(t, "graphs-captured", graphs("captured")) }
