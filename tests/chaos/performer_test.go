package chaos

// A performer: one process of clients/acrobat.c, and what the test knows that it has.

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// thing is what a performer has in one of its slots.
type thing struct {
	kind  string
	gpu   int // where its memory is
	via   int // whose context it was made in, and is to be given back in
	slot  int
	bytes int64
	fd    int    // of a handle or pool: its descriptor, 0: none
	ipc   string // of memory: its handle for others, "": none
	uses  int    // of a pool: what else needs it
	of    *thing // the pool that this one comes from
	lent  int    // of memory out of a pool: how many others have imported it
	// Of a pool, or memory out of it, that was imported: what it is for its exporter.
	source *thing
	left   bool // its performer has ended
}

// amounts are bytes on each GPU.
type amounts [gpusMax]int64

// on is an amount on one GPU.
func on(gpu int, bytes int64) (a amounts) {
	a[gpu] = bytes
	return a
}

func (a *amounts) add(other amounts) {
	for gpu := range a {
		a[gpu] += other[gpu]
	}
}

// request is a command for a GPU, the most that it may add to the charges, and what becomes of it.
type request struct {
	gpu   int
	text  string
	most  amounts
	done  func(words []string) // when it was granted
	also  *performer           // who must stand still meanwhile
	child bool                 // a child does it
	pool  bool                 // it may be over the cap for the length of the call
	// The most that its container can have used at any moment since it was told: one that was stopped
	// amid its call may have been answered long before it says so.
	atMost amounts
}

type performer struct {
	stage   int
	conn    net.Conn
	lines   *bufio.Reader
	pid     int
	pidfd   int
	gpus    []int         // that it may use
	begun   [gpusMax]bool // has a context
	used    bool          // has used the driver
	stopped bool
	pending *request // its answer has not come yet
	things  []*thing
	opened  map[string]bool // IPC handles
	extra   [gpusMax]int    // contexts beside the first
	library int64           // bytes of code that each context of it has
	holders []int           // children that hold what they inherited
}

const patience = 60 * time.Second

func (s *sequence) newPerformer(stage int) *performer {
	s.t.Helper()
	conn, err := net.Dial("unix", s.stages[stage].socket)
	if err != nil {
		s.t.Fatal(err)
	}
	p := &performer{stage: stage, conn: conn, lines: bufio.NewReader(conn), gpus: s.gpus, opened: map[string]bool{}}
	if s.random.IntN(2) == 0 {
		one := s.random.IntN(len(s.gpus))
		p.gpus = s.gpus[one : one+1]
	}
	s.tell(p, &request{text: "pid"})
	words := s.answer(p)
	p.pending = nil
	if len(words) == 2 {
		p.pid, _ = strconv.Atoi(words[1])
	}
	if p.pid <= 1 {
		s.t.Fatalf("a performer says it is %v", words)
	}
	if p.pidfd, err = unix.PidfdOpen(p.pid, 0); err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *sequence) tell(p *performer, r *request) {
	s.t.Helper()
	text := fmt.Sprintf("@%d %s", r.gpu, r.text)
	s.note("%s%d: %s", s.stages[p.stage].name, p.pid, text)
	if r.pool {
		s.watch.allow(r.most, 1)
	}
	if _, err := fmt.Fprintln(p.conn, text); err != nil {
		s.fatal("telling performer %d: %v", p.pid, err)
	}
	p.pending = r
}

// settled ends what a performer was told to do.
func (s *sequence) settled(p *performer) {
	if p.pending != nil && p.pending.pool {
		s.watch.allow(p.pending.most, -1)
	}
	p.pending = nil
}

func (s *sequence) answer(p *performer) []string {
	s.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(patience))
	line, err := p.lines.ReadString('\n')
	if err != nil {
		s.fatal("performer %d, asked to %q, says nothing: %v", p.pid, p.pending.text, err)
	}
	s.note("%s%d= %s", s.stages[p.stage].name, p.pid, strings.TrimSpace(line))
	return strings.Fields(line)
}

func (s *sequence) signal(p *performer, signal syscall.Signal) {
	s.t.Helper()
	s.note("%s%d! %s", s.stages[p.stage].name, p.pid, signal)
	if err := unix.PidfdSendSignal(p.pidfd, signal, nil, 0); err != nil {
		s.fatal("signal %s to performer %d: %v", signal, p.pid, err)
	}
}

// gone waits for a performer's end and forgets it.
func (s *sequence) gone(p *performer) {
	s.t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if n != 1 {
			s.fatal("performer %d does not end: %v", p.pid, err)
		}
		break
	}
	s.settled(p)
	_ = unix.Close(p.pidfd)
	_ = p.conn.Close()
	for i, other := range s.cast {
		if other == p {
			s.cast = append(s.cast[:i], s.cast[i+1:]...)
			break
		}
	}
	for _, o := range p.things {
		o.returned()
		o.left = true
	}
	s.holders = append(s.holders, p.holders...)
}

// inherits tells whether p has a pool on the GPU, or memory out of it, of one who has ended. The agent
// charges all that such a pool had reserved, of which the card keeps what is imported.
func (p *performer) inherits(gpu int) bool {
	return slices.ContainsFunc(p.things, func(o *thing) bool {
		return o.gpu == gpu && o.source != nil && o.source.left
	})
}

// returned: what was imported is imported no more.
func (o *thing) returned() {
	if o.kind == "pooled" {
		o.source.lent--
	}
}

// everywhere is what the same in each context of p takes.
func (p *performer) everywhere(bytes int64) (a amounts) {
	for gpu := range a {
		a[gpu] = bytes * int64(p.extra[gpu])
		if p.begun[gpu] {
			a[gpu] += bytes
		}
	}
	return a
}

// onGPU chooses among the things on a GPU.
func (p *performer) onGPU(random *rand.Rand, gpu int, wanted func(*thing) bool) *thing {
	return p.some(random, func(o *thing) bool { return o.gpu == gpu && wanted(o) })
}

func (p *performer) some(random *rand.Rand, wanted func(*thing) bool) *thing {
	var found []*thing
	for _, o := range p.things {
		if wanted(o) {
			found = append(found, o)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found[random.IntN(len(found))]
}

// keeps returns what remembers a new thing on the GPU, whose slot is the answer.
func (p *performer) keeps(gpu int, o thing) func([]string) {
	o.gpu, o.via = gpu, gpu
	return p.keepsVia(gpu, o)
}

// keepsVia is keeps for a thing that was made in the context of another GPU than its own.
func (p *performer) keepsVia(via int, o thing) func([]string) {
	o.via = via
	return func(words []string) {
		o.slot, _ = strconv.Atoi(words[1])
		if o.of != nil {
			o.of.uses++
		}
		if o.kind == "pooled" {
			o.source.lent++
		}
		p.things = append(p.things, &o)
	}
}

func (p *performer) drops(o *thing) {
	for i, other := range p.things {
		if other == o {
			p.things = append(p.things[:i], p.things[i+1:]...)
			break
		}
	}
	if o.of != nil {
		o.of.uses--
	}
	o.returned()
}
