package chaos

// What performers can do, and the most that each act may add to what is charged. The bounds are those
// of the documented units: a request is called fitting only if it fits at its most.

import (
	"fmt"
	"math/bits"
	"strconv"
)

func roundUp(bytes, unit int64) int64 { return (bytes + unit - 1) / unit * unit }

// size draws a number of bytes: mostly small, at times much, now and then odd.
func (s *sequence) size(most int64) int64 {
	magnitude := s.random.IntN(bits.Len64(uint64(most)) + 1)
	return min(most, 1+s.random.Int64N(int64(2)<<magnitude))
}

// draw chooses the next act of a performer.
func (s *sequence) draw(p *performer) *request {
	if !p.begun {
		if s.random.IntN(8) == 0 {
			return &request{text: "child " + fmt.Sprint(s.size(4*mib)), most: contextBytes + 4*mib, child: true}
		}
		p.used = true
		return &request{text: "init", most: contextBytes, done: func([]string) { p.begun = true }}
	}
	for {
		var r *request
		switch n := s.random.IntN(100); {
		case n < 30:
			r = s.giveBack(p)
		case n < 50:
			r = s.allocate(p)
		case n < 62:
			r = s.allocateAsync(p)
		case n < 70:
			r = s.graph(p)
		case n < 80:
			r = s.created(p)
		case n < 88:
			r = s.share(p)
		case n < 96:
			r = s.code(p)
		default:
			r = s.process(p)
		}
		if r != nil {
			return r
		}
	}
}

func (s *sequence) allocate(p *performer) *request {
	largest := s.stages[p.stage].cap
	switch s.random.IntN(6) {
	case 0, 1:
		bytes := s.size(largest)
		return &request{text: fmt.Sprint("plain ", bytes), most: roundUp(bytes, unitBytes),
			done: p.keeps(thing{kind: "plain", bytes: bytes})}
	case 2:
		width, height := s.size(10000), s.size(500)
		return &request{text: fmt.Sprintf("pitch %d %d", width, height),
			most: roundUp(roundUp(width, unitBytes)*height, unitBytes), done: p.keeps(thing{kind: "pitch"})}
	case 3:
		bytes := s.size(largest)
		return &request{text: fmt.Sprint("managed ", bytes), most: roundUp(bytes, unitBytes),
			done: p.keeps(thing{kind: "managed"})}
	case 4:
		width, height := s.size(1500), s.size(1000)
		if s.random.IntN(2) == 0 {
			return &request{text: fmt.Sprintf("array %d %d", width, height),
				most: roundUp(width*height*4, unitBytes), done: p.keeps(thing{kind: "array"})}
		}
		depth := s.size(8)
		return &request{text: fmt.Sprintf("array3d %d %d %d", width, height, depth),
			most: roundUp(width*height*depth*8, unitBytes), done: p.keeps(thing{kind: "array"})}
	}
	width, height := 16+s.size(1000), 16+s.size(1000)
	levels, most := 1+s.random.Int64N(4), int64(0)
	for level := range levels {
		most += max(width>>level, 1) * max(height>>level, 1) * 8
	}
	return &request{text: fmt.Sprintf("mipmap %d %d %d", width, height, levels),
		most: roundUp(most, unitBytes), done: p.keeps(thing{kind: "array"})}
}

func isPool(o *thing) bool { return o.kind == "pool" }

func (s *sequence) allocateAsync(p *performer) *request {
	bytes, stream := s.size(s.stages[p.stage].cap), s.random.IntN(2)
	pool := p.some(s.random, isPool)
	switch {
	case s.random.IntN(5) == 0:
		return &request{text: "sync"}
	case s.random.IntN(6) == 0:
		if pool != nil && s.random.IntN(2) == 0 {
			return &request{text: fmt.Sprint("trim ", pool.slot)}
		}
		return &request{text: "trim"}
	case pool == nil && s.random.IntN(3) == 0:
		threshold := s.random.Int64N(2) * s.size(8*mib)
		return &request{text: fmt.Sprint("pool ", threshold), done: p.keeps(thing{kind: "pool"})}
	case pool != nil && s.random.IntN(2) == 0:
		return &request{text: fmt.Sprintf("pool-alloc %d %d %d", pool.slot, bytes, stream),
			most: roundUp(bytes, poolChunk), pool: true,
			done: p.keeps(thing{kind: "async", of: pool})}
	}
	return &request{text: fmt.Sprintf("async %d %d", bytes, stream), most: roundUp(bytes, poolChunk), pool: true,
		done: p.keeps(thing{kind: "async"})}
}

func (s *sequence) graph(p *performer) *request {
	graph := p.some(s.random, func(o *thing) bool { return o.kind == "graph" })
	if graph == nil || s.random.IntN(3) == 0 {
		how := []string{"captured", "freed", "left"}[s.random.IntN(3)]
		bytes := s.size(s.stages[p.stage].cap / 2)
		return &request{text: fmt.Sprintf("graph %s %d", how, bytes),
			done: p.keeps(thing{kind: "graph", bytes: bytes})}
	}
	return &request{text: fmt.Sprintf("launch %d %d", graph.slot, s.random.IntN(2)),
		most: roundUp(graph.bytes, poolChunk), pool: true}
}

func isHandle(o *thing) bool { return o.kind == "handle" }

func (s *sequence) created(p *performer) *request {
	handle := p.some(s.random, isHandle)
	mapping := p.some(s.random, func(o *thing) bool { return o.kind == "mapping" })
	switch s.random.IntN(4) {
	case 0:
		if handle != nil {
			return &request{text: fmt.Sprint("map ", handle.slot),
				done: p.keeps(thing{kind: "mapping", bytes: handle.bytes})}
		}
	case 1:
		if mapping != nil {
			return &request{text: fmt.Sprint("retain ", mapping.slot),
				done: p.keeps(thing{kind: "handle", bytes: mapping.bytes})}
		}
	}
	bytes := roundUp(s.size(s.stages[p.stage].cap), pageBytes)
	return &request{text: fmt.Sprint("create ", bytes), most: bytes,
		done: p.keeps(thing{kind: "handle", bytes: bytes})}
}

// share exports, or imports what another performer has exported.
func (s *sequence) share(p *performer) *request {
	if s.random.IntN(2) == 0 {
		o := p.some(s.random, func(o *thing) bool {
			return o.kind == "handle" && o.fd == 0 || o.kind == "plain" && o.ipc == ""
		})
		switch {
		case o == nil:
			return nil
		case o.kind == "plain":
			return &request{text: fmt.Sprint("ipc ", o.slot), done: func(words []string) { o.ipc = words[1] }}
		}
		return &request{text: fmt.Sprint("fd ", o.slot),
			done: func(words []string) { o.fd, _ = strconv.Atoi(words[1]) }}
	}
	from := s.idle(p)
	if from == nil {
		return nil
	}
	o := from.some(s.random, func(o *thing) bool {
		return o.fd > 0 || o.kind == "plain" && o.ipc != "" && !p.opened[o.ipc]
	})
	switch {
	case o == nil:
		return nil
	case o.kind == "plain":
		return &request{text: "open " + o.ipc, also: from, done: func(words []string) {
			p.opened[o.ipc] = true
			p.keeps(thing{kind: "opened", ipc: o.ipc})(words)
		}}
	}
	return &request{text: fmt.Sprintf("import %d %d %d", from.pid, o.fd, o.bytes), also: from,
		done: p.keeps(thing{kind: "handle", bytes: o.bytes})}
}

func (s *sequence) code(p *performer) *request {
	which := s.random.IntN(len(s.modules))
	bytes := []int64{16, 300_000, 2 << 20}[which] + 2*unitBytes
	switch s.random.IntN(5) {
	case 0:
		return &request{text: "module " + s.modules[which], most: roundUp(bytes, unitBytes),
			done: p.keeps(thing{kind: "module"})}
	case 1:
		bytes = roundUp(bytes, unitBytes)
		return &request{text: "library " + s.modules[which], most: bytes * int64(1+p.extra),
			done: func(words []string) {
				p.library += bytes
				p.keeps(thing{kind: "library", bytes: bytes})(words)
			}}
	case 2:
		if p.extra >= 3 {
			return nil
		}
		return &request{text: "context", most: contextBytes + p.library, done: func(words []string) {
			p.extra++
			p.keeps(thing{kind: "context"})(words)
		}}
	case 3:
		heap := s.random.Int64N(12 * mib)
		return &request{text: fmt.Sprint("limit 2 ", heap), most: max(0, roundUp(heap-8*mib, unitBytes))}
	}
	if s.random.IntN(2) == 0 {
		fifo := 1024 + s.random.Int64N(3*mib)
		return &request{text: fmt.Sprint("limit 1 ", fifo), most: max(0, roundUp(fifo-mib, unitBytes))}
	}
	const threads = 56 * 2048
	stack := 1024 + 16*s.random.Int64N(4)
	return &request{text: fmt.Sprint("limit 0 ", stack), most: (stack - 1024) * threads}
}

// process forks, or ends the first context.
func (s *sequence) process(p *performer) *request {
	if s.random.IntN(2) == 0 {
		return &request{text: "hold", done: func(words []string) {
			pid, _ := strconv.Atoi(words[1])
			p.holders = append(p.holders, pid)
		}}
	}
	for _, o := range p.things {
		switch o.kind {
		case "plain", "pitch", "managed", "array", "module", "opened":
		default:
			return nil
		}
	}
	return &request{text: "leave", done: func([]string) {
		p.begun, p.things, p.opened, p.library = false, nil, map[string]bool{}, 0
	}}
}

func (s *sequence) giveBack(p *performer) *request {
	o := p.some(s.random, func(o *thing) bool { return o.uses == 0 })
	if o == nil {
		return nil
	}
	if o.fd > 0 {
		return &request{text: fmt.Sprint("close-fd ", o.fd), done: func([]string) { o.fd = 0 }}
	}
	return &request{text: fmt.Sprint("free ", o.slot), done: func([]string) {
		switch o.kind {
		case "context":
			p.extra--
		case "library":
			p.library -= o.bytes
		case "opened":
			delete(p.opened, o.ipc)
		}
		p.drops(o)
	}}
}
