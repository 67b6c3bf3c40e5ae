package session

// One connection as a state machine: packets in, messages out.

import (
	"errors"
	"fmt"

	"weir/agent/session/proc"
	"weir/agent/session/turns"
	"weir/agent/session/wire"
	"weir/cgo/abi"
)

// conversation is one connection without its socket: packets go in, messages come out of the
// outlet. First comes HELLO, once; then questions and notes. Anything else ends it. Not for
// concurrent use.
type conversation struct {
	c    *container
	out  outlet
	peer *proc.Handle // belongs to the session after HELLO
	uid  uint32
	// image is of the program that says HELLO, if that was there before the peer was looked at; else
	// 0: the peer is looked at again.
	image uint64

	s      *session
	window wire.Window
	pace   pace // of what it says of GPU time
}

// packet takes one packet of the tenant, which may be anything. A result ends the conversation.
func (v *conversation) packet(p []byte) *ending {
	m, err := wire.Decode(p)
	switch {
	case errors.Is(err, wire.ErrVersion) && v.s == nil:
		v.unfit(err.Error(), "start the program again, so that it loads this agent's library, or bring "+
			"the agent to the library's version")
		return &ending{abi.CloseVersion, ""}
	case err != nil:
		return &ending{abi.CloseProtocol, err.Error()}
	}
	hello, isHello := m.(*abi.Hello)
	switch {
	case isHello && v.s != nil:
		return &ending{abi.CloseProtocol, "a second HELLO"}
	case isHello:
		return v.hello(hello)
	case v.s == nil:
		return &ending{abi.CloseProtocol, "a message before HELLO"}
	}
	switch m := m.(type) {
	case *abi.Request:
		return v.request(m)
	case *abi.Query:
		return v.ask(m.Header, func() (any, error) { return v.c.query(m) })
	case *wire.Export:
		if m.Flags&abi.ShareAgain != 0 {
			return breach(v.c.declareShare(v.s, &m.Share, true))
		}
		return v.askShared(m.Header, func() (*abi.Shared, error) { return v.c.export(v.s, &m.Share) })
	case *wire.Import:
		if m.Flags&abi.ShareAgain != 0 {
			return breach(v.c.declareShare(v.s, &m.Share, false))
		}
		return v.askShared(m.Header, func() (*abi.Shared, error) {
			return v.c.importing(v.s, &m.Share), nil
		})
	case *wire.Drop:
		if m.Flags&abi.ShareAgain != 0 {
			v.c.allDeclared(v.s)
			return nil
		}
		return v.askShared(m.Header, func() (*abi.Shared, error) { return v.c.drop(v.s, &m.Share), nil })
	case *abi.Measure:
		if !v.window.Fresh(m.Header.Seq) {
			return &ending{abi.CloseProtocol, fmt.Sprintf("question %d was asked before", m.Header.Seq)}
		}
		return v.c.measure(v.s, v.out, m)
	case *wire.Want:
		return v.turn((*turns.Member).Want, &m.Turn)
	case *wire.Drained:
		return v.turn((*turns.Member).Drained, &m.Turn)
	case *wire.Progress:
		return v.turn((*turns.Member).Progress, &m.Turn)
	case *wire.Idle:
		return v.turn((*turns.Member).Idle, &m.Turn)
	case *wire.Freed, *abi.Moved, *wire.Used:
		return v.movable(m)
	case *abi.Note:
		v.c.note(v.s, m)
	}
	return nil
}

// request takes a question for memory, or a declaration of some that there was before.
func (v *conversation) request(m *abi.Request) *ending {
	if m.Flags&abi.RequestAgain != 0 {
		return breach(v.c.declareMovable(v.s, m))
	}
	return v.ask(m.Header, func() (any, error) {
		verdict, err := v.c.request(v.s, v.out, m)
		if verdict == nil {
			return nil, err
		}
		return verdict, nil
	})
}

// movable takes what a tenant says of its movable memory.
func (v *conversation) movable(m any) *ending {
	switch m := m.(type) {
	case *wire.Freed:
		v.wait()
		return breach(v.c.freed(v.s, m))
	case *abi.Moved:
		return v.moved(m)
	case *wire.Used:
		return v.used(m)
	}
	return nil
}

func (v *conversation) hello(m *abi.Hello) *ending {
	if text, remedy, old := oldDriver(m.Driver_version); old {
		v.unfit(text, remedy)
		return &ending{abi.CloseVersion, ""}
	}
	s, pages, end := v.c.attach(v, m)
	if end != nil {
		return end
	}
	defer pages.close()
	v.s, v.peer = s, nil
	v.c.keepLimits(false)
	welcome := wire.Encode(&abi.Welcome{
		Header:        abi.Header{Seq: m.Header.Seq},
		Abi:           wire.Negotiated(m),
		Gpu_count:     uint16(len(v.c.node.gpus)),
		Agent_wait_ms: uint32(v.c.node.opts.AgentWait.Milliseconds()),
		Session:       s.id,
		Page_bytes:    abi.PageBytes,
		Flags:         v.c.node.welcomeFlags() | v.c.plainFlag(s),
	})
	if err := v.out.send(welcome, pages.control, pages.usage); err != nil {
		return &ending{abi.CloseProtocol, fmt.Sprintf("WELCOME could not be sent: %v", err)}
	}
	v.c.node.opts.step("welcomed")
	s.turns.ready()
	return nil
}

// ask answers a question, unless it was asked before. An answer of nil comes later.
func (v *conversation) ask(h abi.Header, decide func() (any, error)) *ending {
	if !v.window.Fresh(h.Seq) {
		return &ending{abi.CloseProtocol, fmt.Sprintf("question %d was asked before", h.Seq)}
	}
	answer, err := decide()
	if err != nil {
		return &ending{abi.CloseProtocol, err.Error()}
	}
	if answer == nil {
		return nil
	}
	v.c.node.opts.step("decided")
	v.out.send(wire.Encode(answer)) // an error shows at the next read
	return nil
}

// askShared is ask where the answer is a SHARED, or nil for none.
func (v *conversation) askShared(h abi.Header, decide func() (*abi.Shared, error)) *ending {
	return v.ask(h, func() (any, error) {
		if answer, err := decide(); answer != nil || err != nil {
			return answer, err
		}
		return nil, nil
	})
}

// breach ends a connection for what a tenant said, if that is wrong.
func breach(err error) *ending {
	if err == nil {
		return nil
	}
	return &ending{abi.CloseProtocol, err.Error()}
}

// over ends the conversation; end is nil if the tenant ended it.
func (v *conversation) over(end *ending) {
	if v.s != nil {
		v.c.hungUp(v.s, v.out, end)
		return
	}
	v.peer.Close()
	if end == nil || end.reason == abi.CloseVersion { // that was said already
		return
	}
	v.out.now(end.packet())
	if end.reason == abi.CloseProtocol {
		v.c.event("refused", v.peer.PID, "a connection was refused: %s", end.text)
	}
}

// note shows operators what the library has to say.
func (c *container) note(s *session, m *abi.Note) {
	gpu := fmt.Sprintf("GPU %d", m.A)
	if int(m.A) < len(c.node.gpus) {
		gpu = "GPU " + c.node.gpus[m.A].name
	}
	switch m.Code {
	case abi.NoteRefused:
		c.event("denied", s.process.PID, "%s was refused %s on %s while the agent was away",
			s.program, size(int64(m.B)), gpu)
	case abi.NoteDriverOOM:
		c.mu.Lock()
		full := "the card is full"
		if c.heldByDriver() {
			full = "the card is full, or the driver's own limit of the container is"
		}
		c.mu.Unlock()
		c.event("driver-oom", s.process.PID, "%s: the driver had no %s left on %s, though the cap "+
			"allows it; %s", s.program, size(int64(m.B)), gpu, full)
	case abi.NoteUnknownGPU:
		c.event("denied", s.process.PID, "%s was refused memory on a GPU (number %d of its own) that "+
			"the agent does not know; restart the agent, which finds the GPUs when it starts",
			s.program, m.A)
	case abi.NoteBadPage:
		c.unfitted(s.process, fmt.Sprintf("%s (library %s) cannot use the page that this agent (%s) gave "+
			"it: %s; bring agent and library to one version", s.program, s.library,
			c.node.opts.Version, badPage(m)))
	case abi.NoteBound:
		c.event("denied", s.process.PID, "%s was refused: %s", s.program, bound(m))
	case abi.NoteUnconverted:
		c.event("unconverted", s.process.PID, "%s", unconverted(s, m))
	case abi.NoteExported:
		c.triedToExport(s, m)
	case abi.NoteForked:
		c.event("forked", s.process.PID, "%s is a fork of a process that used CUDA", s.program)
	}
}

// bounds are the library's own, with what can be done; of each the note has the number.
var bounds = map[uint32]string{
	abi.BoundPools: "it has %d memory pools, and the library keeps account of no more; destroy some, or use " +
		"them again",
	abi.BoundContexts: "it has %d contexts, and the library keeps account of no more; destroy some, or spread " +
		"the work over more processes",
	abi.BoundHandles: "it has %d handles or mappings of cuMemCreate's memory, and the library keeps account " +
		"of no more; release some, or use larger ones",
	abi.BoundShares: "it shares %d pieces of memory with other processes, and the library keeps account of no " +
		"more; close some, or share larger ones",
	abi.BoundNesting: "its graphs are nested deeper than the %d levels that the library looks into; nest them " +
		"less deeply",
	abi.BoundGraphs: "it has %d executable graphs with memory nodes, and the library keeps account of no " +
		"more; destroy some",
}

// bound says which bound of the library's own refused something, and what can be done.
func bound(m *abi.Note) string {
	if m.A == abi.BoundBytes {
		return fmt.Sprintf("it asked for more than %s at once, which no GPU has", size(int64(min(m.B, 1<<62))))
	}
	if text, known := bounds[m.A]; known {
		return fmt.Sprintf(text, m.B)
	}
	return fmt.Sprintf("a bound of its library, number %d of %d, which this agent does not know", m.A, m.B)
}
