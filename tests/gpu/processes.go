package main

// Several processes of one container, and processes that begin and end.

import (
	"context"
	"fmt"
	"time"
)

// notSupported is CUDA_ERROR_NOT_SUPPORTED.
const notSupported = "[error 801]"

// firstWord is what the puppet's "fill SLOT SEED" writes first.
func firstWord(seed uint64) uint64 {
	word := seed<<32 | 1
	word ^= word >> 29
	return word * 0xbf58476d1ce4e5b9
}

// ipc: memory that one process hands to another is charged once, as long as either has it.
func (r *run) ipc(t *trial) {
	const name, seed = "ipc", 5
	pair := r.pair(t, name)
	start := r.use(t, name)
	bytes := (r.capBytes - start) / 4 / (2 * mib) * (2 * mib)
	slot := pair[0].Number("alloc %d", bytes)
	pair[0].OK("fill %d %d", slot, seed)
	words := pair[0].Do("ipc %d", slot)
	if fmt.Sprint(words) == notSupported {
		t.skip("this driver has no IPC memory here")
	}
	if len(words) != 2 {
		t.Fatalf("exporting: %v", words)
	}
	place := pair[1].Number("open %s", words[1])
	r.uses(t, name, "opened by another", start+bytes)
	if got := pair[1].OK("peek %d", place); got[0] != fmt.Sprint(firstWord(seed)) {
		t.Errorf("the other reads %s, not %d", got[0], firstWord(seed))
	}
	if code := pair[1].Code("alloc %d", r.room(t, name)+granule); code != outOfMemory {
		t.Errorf("past the cap: code %d", code)
	}
	pair[1].OK("close %d", place)
	r.uses(t, name, "closed", start+bytes)
	pair[0].OK("free %d", slot)
	r.uses(t, name, "freed", start)
	t.figure("%s charged once", size(bytes))
}

// descriptors: the same by descriptors of created memory. Where those are of a device node, nobody can
// tell whose memory comes in, and it is charged to the importer as well.
func (r *run) descriptors(t *trial) {
	const name = "descriptors"
	pair := r.pair(t, name)
	start := r.use(t, name)
	unit := pair[0].Number("granularity")
	bytes := (r.capBytes - start) / 4 / unit * unit
	handle := pair[0].Number("create %d", bytes)
	mine := pair[0].Number("map %d %d", handle, bytes)
	pair[0].OK("poke %d 4711", mine)
	words := pair[0].Do("fd %d", handle)
	if fmt.Sprint(words) == notSupported {
		t.skip("this driver exports no descriptors here")
	}
	theirs := pair[1].Number("import-fd %d %s", pair[0].PID(), words[1])
	place := pair[1].Number("map %d %d", theirs, bytes)
	if got := pair[1].Number("peek %d", place); got != 4711 {
		t.Errorf("what was written as 4711 the other reads as %d", got)
	}
	times := (r.use(t, name) - start) / bytes
	if grown := r.use(t, name) - start; grown != bytes && grown != 2*bytes {
		t.Errorf("%d bytes, mapped by two, are charged by %d", bytes, grown)
	}
	refused(t, pair[1], "alloc %d", r.room(t, name)+granule)
	pair[1].OK("unmap %d", place)
	pair[1].OK("unhandle %d", theirs)
	pair[0].OK("unmap %d", mine)
	pair[0].OK("unhandle %d", handle)
	pair[0].OK("close-fd %s", words[1])
	r.uses(t, name, "given back by both", start)
	t.figure("%s charged %d times", size(bytes), times)
}

// fork: a child uses CUDA under its parent's cap.
func (r *run) fork(t *trial) {
	p := r.node.For(t).Puppet(r.capped("fork"))
	if code := p.Code("child %d", mib); code != 0 {
		t.Errorf("a child is refused %s: code %d", size(mib), code)
	}
	refused(t, p, "child %d", r.capBytes)
	// The children have ended, and what they had is given back.
	took := eventually(t, 5*time.Second, "nothing is used", func() bool { return r.use(t, "fork") == 0 })
	t.figure("nothing left %d ms after the last child", took.Milliseconds())
}

// exec: the new program in the same process has the whole cap for itself, and no more.
func (r *run) exec(t *trial) {
	const name = "exec"
	p := r.puppet(t, name)
	start := r.use(t, name)
	p.OK("alloc %d", r.room(t, name)/2/granule*granule)
	p.Tell("exec")
	p.OK("init")
	eventually(t, 5*time.Second, "what the old program had is given back", func() bool {
		return r.use(t, name) == start
	})
	p.OK("alloc %d", r.room(t, name))
	refused(t, p, "alloc %d", granule)
	t.figure("%s for the new program", size(r.capBytes-start))
}

// twoProcesses share one cap.
func (r *run) twoProcesses(t *trial) {
	const name = "two"
	pair := r.pair(t, name)
	first := pair[0].Number("alloc %d", r.room(t, name)/2/granule*granule)
	refused(t, pair[1], "alloc %d", r.room(t, name)+granule)
	rest := r.room(t, name)
	second := pair[1].Number("alloc %d", rest)
	for _, p := range pair {
		refused(t, p, "alloc %d", granule)
		if free := p.Numbers("info")[0]; free != 0 {
			t.Errorf("at the cap %d bytes are free", free)
		}
	}
	pair[0].OK("free %d", first)
	pair[1].OK("alloc %d", r.room(t, name))
	pair[1].OK("free %d", second)
	t.figure("the second got the %s that the first had left", size(rest))
}

// atOnce: of two that each want more than half at the same time, exactly one gets it.
func (r *run) atOnce(t *trial) {
	const name, times = "at-once", 100
	pair := r.pair(t, name)
	bytes := r.room(t, name) / 5 * 3 / granule * granule
	for round := range times {
		pair[0].Tell("alloc %d", bytes)
		pair[1].Tell("alloc %d", bytes)
		codes := [2]int{pair[0].Answer(), pair[1].Answer()}
		if codes != [2]int{0, outOfMemory} && codes != [2]int{outOfMemory, 0} {
			t.Fatalf("round %d: codes %v", round, codes)
		}
		for _, p := range pair {
			p.OK("free-all")
		}
	}
	t.figure("%d times", times)
}

// kill: what a killed process had can be had by another soon after.
func (r *run) kill(t *trial) {
	const name = "killed"
	pair := r.pair(t, name)
	bytes := r.room(t, name) / 4 * 3 / granule * granule
	pair[0].OK("alloc %d", bytes)
	refused(t, pair[1], "alloc %d", bytes)
	if t.Failed() {
		return
	}
	pair[0].Kill()
	took := eventually(t, 10*time.Second, "its memory can be had", func() bool {
		return pair[1].Code("alloc %d", bytes) == 0
	})
	eventually(t, 5*time.Second, "only the other's is charged", func() bool {
		gpu := containerGPU(r, t, name)
		return gpu.UsedBytes == bytes+gpu.ContextBytes+gpu.CodeBytes
	})
	t.figure("%s had again after %d ms", size(bytes), took.Milliseconds())
}

// reconciliation: the agent, which compares what programs say with what NVML says, finds nothing of a
// program that holds plain memory all the time.
func (r *run) reconciliation(t *trial) {
	const name = "watched"
	n := r.node.For(t)
	p := n.Puppet(r.cappedAt(name, r.capBytes/2/mib*mib))
	p.OK("init")
	p.OK("alloc %d", r.capBytes/8)
	start := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), r.options.ends.Add(-2*time.Second))
	defer cancel()
	select {
	case <-r.othersDone:
	case <-ctx.Done():
	}
	select {
	case <-time.After(r.options.watch - time.Since(start)):
	case <-ctx.Done():
	}
	if found := n.EventsOf("undeclared", name); len(found) > 0 {
		t.Fatalf("%s", found[0].Message)
	}
	if time.Since(start) < r.options.watch {
		t.skip("no time was left to watch for %s", r.options.watch)
	}
	t.figure("nothing undeclared in %.0f s", time.Since(start).Seconds())
}
