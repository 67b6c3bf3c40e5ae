package chaos

// What performers can do, and the most that each act may add to what is charged. The bounds are those
// of the documented units: a request is called fitting only if it fits at its most.

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
)

func roundUp(bytes, unit int64) int64 { return (bytes + unit - 1) / unit * unit }

// size draws a number of bytes: mostly small, at times much, now and then odd.
func (s *sequence) size(most int64) int64 {
	magnitude := s.random.IntN(bits.Len64(uint64(most)) + 1)
	return min(most, 1+s.random.Int64N(int64(2)<<magnitude))
}

// draw chooses the next act of a performer, on one of its GPUs.
func (s *sequence) draw(p *performer) *request {
	gpu := p.gpus[s.random.IntN(len(p.gpus))]
	if !p.begun[gpu] {
		if !p.used && s.random.IntN(8) == 0 {
			return &request{gpu: gpu, text: "child " + fmt.Sprint(s.size(4*mib)),
				most: on(gpu, contextBytes+4*mib), child: true}
		}
		p.used = true
		return &request{gpu: gpu, text: "init", most: on(gpu, contextBytes+p.library),
			done: func([]string) { p.begun[gpu] = true }}
	}
	for {
		var r *request
		n := s.random.IntN(105)
		if s.pools && s.random.IntN(4) > 0 {
			n = 100
		}
		switch {
		case n < 30:
			r = s.giveBack(p)
		case n < 50:
			r = s.allocate(p, gpu)
		case n < 62:
			r = s.allocateAsync(p, gpu)
		case n < 70:
			r = s.graph(p, gpu)
		case n < 80:
			r = s.created(p, gpu)
		case n < 88:
			r = s.share(p, gpu)
		case n < 96:
			r = s.code(p, gpu)
		case n < 100:
			r = s.process(p, gpu)
		default:
			r = s.sharePool(p, gpu)
		}
		if r != nil {
			return r
		}
	}
}

func (s *sequence) allocate(p *performer, gpu int) *request {
	largest := s.stages[p.stage].caps[gpu]
	switch s.random.IntN(6) {
	case 0, 1:
		bytes := s.size(largest)
		return &request{gpu: gpu, text: fmt.Sprint("plain ", bytes), most: on(gpu, roundUp(bytes, unitBytes)),
			done: p.keeps(gpu, thing{kind: "plain", bytes: bytes})}
	case 2:
		width, height := s.size(10000), s.size(500)
		return &request{gpu: gpu, text: fmt.Sprintf("pitch %d %d", width, height),
			most: on(gpu, roundUp(roundUp(width, unitBytes)*height, unitBytes)), done: p.keeps(gpu, thing{kind: "pitch"})}
	case 3:
		bytes := s.size(largest)
		return &request{gpu: gpu, text: fmt.Sprint("managed ", bytes), most: on(gpu, roundUp(bytes, unitBytes)),
			done: p.keeps(gpu, thing{kind: "managed"})}
	case 4:
		width, height := s.size(1500), s.size(1000)
		if s.random.IntN(2) == 0 {
			return &request{gpu: gpu, text: fmt.Sprintf("array %d %d", width, height),
				most: on(gpu, roundUp(width*height*4, unitBytes)), done: p.keeps(gpu, thing{kind: "array"})}
		}
		depth := s.size(8)
		return &request{gpu: gpu, text: fmt.Sprintf("array3d %d %d %d", width, height, depth),
			most: on(gpu, roundUp(width*height*depth*8, unitBytes)), done: p.keeps(gpu, thing{kind: "array"})}
	}
	width, height := 16+s.size(1000), 16+s.size(1000)
	levels, most := 1+s.random.Int64N(4), int64(0)
	for level := range levels {
		most += max(width>>level, 1) * max(height>>level, 1) * 8
	}
	return &request{gpu: gpu, text: fmt.Sprintf("mipmap %d %d %d", width, height, levels),
		most: on(gpu, roundUp(most, unitBytes)), done: p.keeps(gpu, thing{kind: "array"})}
}

func isPool(o *thing) bool { return o.kind == "pool" }

// withContext is mostly the GPU itself, at times another one that p has a context on.
func (s *sequence) withContext(p *performer, gpu int) int {
	other := p.gpus[s.random.IntN(len(p.gpus))]
	if p.begun[other] && s.random.IntN(3) == 0 {
		return other
	}
	return gpu
}

func (s *sequence) allocateAsync(p *performer, gpu int) *request {
	bytes, stream := s.size(s.stages[p.stage].caps[gpu]), s.random.IntN(2)
	switch {
	case s.random.IntN(5) == 0:
		return &request{gpu: gpu, text: "sync"}
	case s.random.IntN(6) == 0:
		if pool := p.onGPU(s.random, gpu, isPool); pool != nil && s.random.IntN(2) == 0 {
			return &request{gpu: gpu, text: fmt.Sprint("trim ", pool.slot)}
		}
		return &request{gpu: gpu, text: "trim"}
	case s.random.IntN(3) == 0:
		return s.fromPool(p, gpu)
	}
	return &request{gpu: gpu, text: fmt.Sprintf("async %d %d", bytes, stream),
		most: on(gpu, roundUp(bytes, poolChunk)), pool: true, done: p.keeps(gpu, thing{kind: "async"})}
}

// fromPool allocates from a pool that the performer made, or makes one.
func (s *sequence) fromPool(p *performer, gpu int) *request {
	pool := p.onGPU(s.random, gpu, isPool)
	if pool == nil || s.random.IntN(6) == 0 {
		threshold := s.random.Int64N(2) * s.size(8*mib)
		return &request{gpu: gpu, text: fmt.Sprint("pool ", threshold), done: p.keeps(gpu, thing{kind: "pool"})}
	}
	via, bytes := s.withContext(p, gpu), s.size(s.stages[p.stage].caps[gpu])
	return &request{gpu: via, text: fmt.Sprintf("pool-alloc %d %d %d", pool.slot, bytes, s.random.IntN(2)),
		most: on(gpu, roundUp(bytes, poolChunk)), pool: true,
		done: p.keepsVia(via, thing{kind: "async", gpu: gpu, of: pool})}
}

func (s *sequence) graph(p *performer, gpu int) *request {
	graph := p.onGPU(s.random, gpu, func(o *thing) bool { return o.kind == "graph" })
	if graph == nil || s.random.IntN(3) == 0 {
		how := []string{"captured", "freed", "left"}[s.random.IntN(3)]
		bytes := s.size(s.stages[p.stage].caps[gpu] / 2)
		return &request{gpu: gpu, text: fmt.Sprintf("graph %s %d", how, bytes),
			done: p.keeps(gpu, thing{kind: "graph", bytes: bytes})}
	}
	return &request{gpu: gpu, text: fmt.Sprintf("launch %d %d", graph.slot, s.random.IntN(2)),
		most: on(gpu, roundUp(graph.bytes, poolChunk)), pool: true}
}

func isHandle(o *thing) bool { return o.kind == "handle" }

func (s *sequence) created(p *performer, gpu int) *request {
	handle := p.onGPU(s.random, gpu, isHandle)
	mapping := p.onGPU(s.random, gpu, func(o *thing) bool { return o.kind == "mapping" })
	switch s.random.IntN(4) {
	case 0:
		if handle != nil {
			return &request{gpu: gpu, text: fmt.Sprint("map ", handle.slot),
				done: p.keeps(gpu, thing{kind: "mapping", bytes: handle.bytes})}
		}
	case 1:
		if mapping != nil {
			return &request{gpu: gpu, text: fmt.Sprint("retain ", mapping.slot),
				done: p.keeps(gpu, thing{kind: "handle", bytes: mapping.bytes})}
		}
	}
	bytes := roundUp(s.size(s.stages[p.stage].caps[gpu]), pageBytes)
	return &request{gpu: gpu, text: fmt.Sprint("create ", bytes), most: on(gpu, bytes),
		done: p.keeps(gpu, thing{kind: "handle", bytes: bytes})}
}

func (s *sequence) code(p *performer, gpu int) *request {
	which := s.random.IntN(len(s.modules))
	bytes := []int64{16, 300_000, 2 << 20}[which] + 2*unitBytes
	switch s.random.IntN(5) {
	case 0:
		return &request{gpu: gpu, text: "module " + s.modules[which], most: on(gpu, roundUp(bytes, unitBytes)),
			done: p.keeps(gpu, thing{kind: "module"})}
	case 1:
		bytes = roundUp(bytes, unitBytes)
		return &request{gpu: gpu, text: "library " + s.modules[which], most: p.everywhere(bytes),
			done: func(words []string) {
				p.library += bytes
				p.keeps(gpu, thing{kind: "library", bytes: bytes})(words)
			}}
	case 2:
		if p.extra[gpu] >= 3 {
			return nil
		}
		return &request{gpu: gpu, text: "context", most: on(gpu, contextBytes+p.library), done: func(words []string) {
			p.extra[gpu]++
			p.keeps(gpu, thing{kind: "context"})(words)
		}}
	case 3:
		heap := s.random.Int64N(12 * mib)
		return &request{gpu: gpu, text: fmt.Sprint("limit 2 ", heap), most: on(gpu, max(0, roundUp(heap-8*mib, unitBytes)))}
	}
	if s.random.IntN(2) == 0 {
		fifo := 1024 + s.random.Int64N(3*mib)
		return &request{gpu: gpu, text: fmt.Sprint("limit 1 ", fifo), most: on(gpu, max(0, roundUp(fifo-mib, unitBytes)))}
	}
	const threads = 56 * 2048
	stack := 1024 + 16*s.random.Int64N(4)
	return &request{gpu: gpu, text: fmt.Sprint("limit 0 ", stack), most: on(gpu, (stack-1024)*threads)}
}

// process forks, or ends the first context on a GPU.
func (s *sequence) process(p *performer, gpu int) *request {
	if s.random.IntN(2) == 0 {
		return &request{gpu: gpu, text: "hold", done: func(words []string) {
			pid, _ := strconv.Atoi(words[1])
			p.holders = append(p.holders, pid)
		}}
	}
	for _, o := range p.things {
		switch o.kind {
		case "plain", "pitch", "managed", "array", "module", "opened":
		default:
			if o.gpu == gpu || o.via == gpu || o.kind == "library" {
				return nil
			}
		}
	}
	return &request{gpu: gpu, text: "leave", done: func([]string) {
		p.begun[gpu] = false
		p.things = slices.DeleteFunc(p.things, func(o *thing) bool {
			if o.gpu == gpu && o.kind == "opened" {
				delete(p.opened, o.ipc)
			}
			return o.gpu == gpu
		})
	}}
}

// giveBack frees something. A pool may go before what came out of it.
func (s *sequence) giveBack(p *performer) *request {
	o := p.some(s.random, func(o *thing) bool {
		return o.lent == 0 && (o.uses == 0 || s.random.IntN(20) == 0)
	})
	if o == nil {
		return nil
	}
	if o.fd > 0 {
		return &request{gpu: o.via, text: fmt.Sprint("close-fd ", o.fd), done: func([]string) { o.fd = 0 }}
	}
	return &request{gpu: o.via, text: fmt.Sprint("free ", o.slot), done: func([]string) {
		switch o.kind {
		case "context":
			p.extra[o.gpu]--
		case "library":
			p.library -= o.bytes
		case "opened":
			delete(p.opened, o.ipc)
		}
		p.drops(o)
	}}
}
