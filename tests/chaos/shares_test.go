package chaos

// What performers hand to each other.

import (
	"fmt"
	"slices"
	"strconv"
)

// share exports, or imports what another performer has exported.
func (s *sequence) share(p *performer, gpu int) *request {
	if s.random.IntN(2) == 0 {
		o := p.onGPU(s.random, gpu, func(o *thing) bool {
			return o.kind == "handle" && o.fd == 0 || o.kind == "plain" && o.ipc == ""
		})
		switch {
		case o == nil:
			return nil
		case o.kind == "plain":
			return &request{gpu: gpu, text: fmt.Sprint("ipc ", o.slot), done: func(words []string) { o.ipc = words[1] }}
		}
		return &request{gpu: gpu, text: fmt.Sprint("fd ", o.slot),
			done: func(words []string) { o.fd, _ = strconv.Atoi(words[1]) }}
	}
	from := s.idle(p)
	if from == nil {
		return nil
	}
	o := from.onGPU(s.random, gpu, func(o *thing) bool {
		return o.kind == "handle" && o.fd > 0 || o.kind == "plain" && o.ipc != "" && !p.opened[o.ipc]
	})
	switch {
	case o == nil:
		return nil
	case o.kind == "plain":
		return &request{gpu: gpu, text: "open " + o.ipc, also: from, done: func(words []string) {
			p.opened[o.ipc] = true
			p.keeps(gpu, thing{kind: "opened", ipc: o.ipc})(words)
		}}
	}
	return &request{gpu: gpu, text: fmt.Sprintf("import %d %d %d", from.pid, o.fd, o.bytes), also: from,
		done: p.keeps(gpu, thing{kind: "handle", bytes: o.bytes})}
}

// sharePool hands pools and what comes out of them to other performers: the step that is due. What was
// handed out is freed by all importers before its exporter frees it, as the driver wants it.
func (s *sequence) sharePool(p *performer, gpu int) *request {
	steps := []func(p *performer, gpu int) *request{s.openPooled, s.importPool, s.exportPooled, s.exportPool}
	for _, step := range steps {
		if r := step(p, gpu); r != nil && s.random.IntN(4) > 0 {
			return r
		}
	}
	return s.fromPool(p, gpu)
}

func (s *sequence) exportPool(p *performer, gpu int) *request {
	pool := p.onGPU(s.random, gpu, func(o *thing) bool { return isPool(o) && o.fd == 0 })
	if pool == nil {
		return nil
	}
	return &request{gpu: gpu, text: fmt.Sprint("pool-fd ", pool.slot),
		done: func(words []string) { pool.fd, _ = strconv.Atoi(words[1]) }}
}

// exportPooled gives memory out of a pool a name for others.
func (s *sequence) exportPooled(p *performer, gpu int) *request {
	o := p.onGPU(s.random, gpu, func(o *thing) bool { return o.kind == "async" && o.of != nil && o.ipc == "" })
	if o == nil {
		return nil
	}
	return &request{gpu: o.via, text: fmt.Sprint("pool-ipc ", o.slot),
		done: func(words []string) { o.ipc = words[1] }}
}

func (s *sequence) importPool(p *performer, gpu int) *request {
	exported := func(o *thing) bool { return o.gpu == gpu && isPool(o) && o.fd > 0 }
	from := s.idleThat(p, func(other *performer) bool { return slices.ContainsFunc(other.things, exported) })
	if from == nil {
		return nil
	}
	pool := from.some(s.random, exported)
	return &request{gpu: gpu, text: fmt.Sprintf("pool-import %d %d", from.pid, pool.fd), also: from,
		done: p.keeps(gpu, thing{kind: "imported pool", source: pool})}
}

// openPooled imports memory out of a pool that was imported.
func (s *sequence) openPooled(p *performer, gpu int) *request {
	pool := p.onGPU(s.random, gpu, func(o *thing) bool { return o.kind == "imported pool" })
	if pool == nil {
		return nil
	}
	exported := func(o *thing) bool { return o.ipc != "" && o.of == pool.source }
	from := s.idleThat(p, func(other *performer) bool { return slices.ContainsFunc(other.things, exported) })
	if from == nil {
		return nil
	}
	o := from.some(s.random, exported)
	return &request{gpu: gpu, text: fmt.Sprintf("pool-open %d %s %d", pool.slot, o.ipc, s.random.IntN(3)),
		also: from, done: func(words []string) {
			s.totals["imported out of a pool"]++
			p.keeps(gpu, thing{kind: "pooled", of: pool, source: o})(words)
		}}
}
