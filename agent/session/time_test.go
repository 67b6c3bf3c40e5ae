package session

// Tests of GPU time between real processes and an agent with its own clock: that what is said arrives, that
// words and messages go out, and that nobody waits for a tenant that says nothing. Who gets how much is tested in
// package turns, in model time.

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/agent/control"
	"weir/agent/session/sessiontest"
	"weir/agent/session/turns"
	"weir/agent/store"
	"weir/cgo/abi"
)

// byTurns has every launch need a lease, and drains wait for so long.
func byTurns(drain time.Duration) func(*Options) {
	return func(o *Options) {
		s := turns.Default()
		s.AlwaysGate, s.Quantum, s.Threshold, s.DrainTimeout = true, int64(time.Millisecond), 0, int64(drain)
		o.Time = &s
	}
}

// taker is a process that takes turns on GPU 0.
type taker struct {
	*sessiontest.Process
	b    *bench
	name string
}

// taker starts a container with one process.
func (b *bench) taker() taker {
	b.t.Helper()
	grant := b.run(0)
	return taker{b.tenant(grant), b, grant.Name}
}

func (p taker) number(format string, args ...any) (n uint32) {
	p.b.t.Helper()
	if _, err := fmt.Sscan(p.Must(format, args...), &n); err != nil {
		p.b.t.Fatal(err)
	}
	return n
}

func (p taker) word() uint32     { return p.number("lease 0") }
func (p taker) open() bool       { return p.word()&abi.LeaseClosed == 0 }
func (p taker) say(words string) { p.Must("%s 0 %d 0", words, p.word()>>1) }

// want has the process want the GPU and wait until it has it.
func (p taker) want() {
	p.b.t.Helper()
	p.Must("work 0 1 0")
	p.say("want")
	p.b.eventually(p.name+" has the GPU", p.open)
}

// rest has it say that it has nothing more to do.
func (p taker) rest() {
	p.Must("work 0 0 0")
	p.say("idle")
}

// closed waits until its turn is over.
func (p taker) closed() {
	p.b.t.Helper()
	p.b.eventually(p.name+"'s turn is over", func() bool { return !p.open() })
}

func TestTurnsAreTaken(t *testing.T) {
	// A drain that stands still would open the gate again on a machine that is busy, and what is said of it then counts
	// for nothing: a library says it again when it is told to look, this tenant does not.
	b := start(t, byTurns(time.Hour), func(o *Options) { o.Time.DrainStall = int64(time.Hour) })
	one, two := b.taker(), b.taker()
	if one.open() || two.open() {
		t.Error("a gate is open before anybody wants anything")
	}
	for range 3 {
		one.want()
		var count, gpu, lease uint32
		fmt.Sscan(one.Must("looks"), &count, &gpu, &lease)
		if count == 0 || gpu != 0 || lease != one.word()>>1 {
			t.Errorf("%d looks, the latest at GPU %d, lease %d of %d", count, gpu, lease, one.word()>>1)
		}
		two.Must("work 0 1 0")
		two.say("want")
		one.closed()
		number := one.word() >> 1
		if two.open() {
			t.Fatal("the other has the GPU before it is drained")
		}
		one.Must("drained 0 %d 0", number-1) // of an earlier lease
		one.Must("progress 0 %d 1", number)
		if two.open() {
			t.Fatal("a message of an earlier lease has ended this one")
		}
		one.say("drained")
		b.eventually("the other has the GPU", two.open)
		if one.open() || one.word()>>1 == number {
			t.Errorf("after its drain: %d, before %d", one.word()>>1, number)
		}
		one.rest()
		two.rest()
		two.closed()
	}
	if got := one.Must("window 0"); got != "4000 30000 1" {
		t.Errorf("window, longest wait and rivals: %s", got)
	}
}

// TestStoppedHolder and TestKilledHolder: the next one goes on, and an event names who held the GPU.
func TestStoppedHolder(t *testing.T) {
	b := start(t, byTurns(50*time.Millisecond))
	one, two := b.taker(), b.taker()
	one.want()
	one.Signal(unix.SIGSTOP)
	two.want()
	two.rest()
	if !b.hasEvent("drain-long", fmt.Sprint(one.PID()), "(tenant)", "stopped") {
		b.wantEvent("drain-long", fmt.Sprint(one.PID()))
	}
	one.Signal(unix.SIGCONT)
	one.say("drained")
	one.want()
}

func TestKilledHolder(t *testing.T) {
	b := start(t, byTurns(time.Hour))
	one, two := b.taker(), b.taker()
	one.want()
	two.Must("work 0 1 0")
	two.say("want")
	b.eventually("the other waits", func() bool {
		flows, err := b.Queue(b.t.Context())
		return err == nil && slices.ContainsFunc(flows, func(f control.Flow) bool {
			return f.Container == two.name && f.State == "waiting"
		})
	})
	one.Kill()
	b.eventually(two.name+" has the GPU", two.open)
	b.wantEvent("holder-gone", "tenant ended, or was killed")
	if b.hasEvent("drain-long") {
		t.Error("the end of a process was waited for like a drain")
	}
}

// TestHungUpHolder: a connection that ends is no drain; the process's end is, and so is its word when it is back.
func TestHungUpHolder(t *testing.T) {
	for _, back := range []bool{false, true} {
		b := start(t, byTurns(time.Hour))
		one, two := b.taker(), b.taker()
		one.want()
		if two.Must("work 0 1 0"); back {
			one.Must("again")
		} else {
			one.Must("closefrom")
			b.eventually("the connection has ended", func() bool { return b.state(one.name, one.PID()) == "detached" })
		}
		two.say("want")
		if back {
			one.closed()
			one.say("drained")
		} else {
			one.closed() // it has the page still
			if two.open() {
				t.Error("its turn has ended with its connection")
			}
			one.Kill()
		}
		b.eventually("the other has the GPU", two.open)
		b.end()
	}
}

// TestContainerEndsWhileItHolds, and another is there later whose words are its own.
func TestContainerEndsWhileItHolds(t *testing.T) {
	b := start(t, byTurns(time.Hour))
	two := b.taker()
	root := sessiontest.Start(t)
	grant := b.runAs(root.PID(), 0)
	one := taker{root, b, grant.Name}
	one.Must("hello %s", grant.Socket)
	one.want()
	two.Must("work 0 1 0")
	two.say("want")
	one.Kill()
	b.eventually("the other has the GPU", two.open)
	b.eventually("the container has ended", func() bool {
		list, err := b.Containers(t.Context())
		return err == nil && len(list) == 1
	})
	if flows, err := b.Queue(t.Context()); err != nil || len(flows) != 1 || flows[0].Container != two.name {
		t.Errorf("flows %+v, %v", flows, err)
	}
}

// TestTurnsAfterARestart: the new agent knows nothing of leases, and goes on with who wants one.
func TestTurnsAfterARestart(t *testing.T) {
	b := start(t, byTurns(time.Hour))
	one, two := b.taker(), b.taker()
	one.want()
	two.Must("work 0 1 0")
	two.say("want")
	b.restart()
	for _, p := range []taker{one, two} {
		p.Must("again")
		if p.open() {
			t.Errorf("%s's gate is open", p.name)
		}
	}
	one.want()
	two.Must("work 0 1 0")
	two.say("want")
	one.closed()
	one.say("drained")
	b.eventually("the other has the GPU", two.open)
}

// TestFloodOfTurns: a tenant that says everything all the time, with any number, keeps nobody from the GPU.
func TestFloodOfTurns(t *testing.T) {
	b := start(t, byTurns(10*time.Millisecond))
	flood, err := sessiontest.Connect(b.run(0).Socket, "flood")
	if err != nil {
		t.Fatal(err)
	}
	defer flood.Close()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := uint32(0); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			kind := []string{"want", "drained", "progress", "idle"}[i%4]
			if err := flood.SayTurn(kind, i/4%2, []uint32{flood.Lease(0) >> 1, i & 0xffff}[i/8%2], 0); err != nil {
				return
			}
			if i%64 == 0 {
				flood.Work(int(i/64%2), i&1 == 0, uint64(i)*uint64(i), uint64(i), uint64(i)<<20)
			}
		}
	}()
	// What it says of a lease counts for nothing where that has just ended: it says it again, as a library does that is told
	// to look.
	one := b.taker()
	for range 5 {
		b.eventually(one.name+" has the GPU", func() bool {
			one.Must("work 0 1 0")
			one.say("want")
			return one.open()
		})
		b.eventually(one.name+" has rested", func() bool {
			one.say("drained")
			one.rest()
			return b.flow(one.name).State == "idle"
		})
	}
	close(stop)
	<-done
}

// TestWeightOfAFlow: caps, a change of them, and one that an earlier version has kept.
func TestWeightOfAFlow(t *testing.T) {
	b := start(t, byTurns(time.Hour))
	one := b.taker()
	one.want()
	if f := b.flow(one.name); f.Weight != 1 || f.Mode != control.ModeLeased || f.State != "leased" || f.Leases != 1 {
		t.Errorf("at first: %+v", f)
	}
	set := control.CapsChange{Set: control.Caps{Weight: pointer(3.0)}}
	if _, err := b.ChangeCaps(t.Context(), one.name, set); err != nil {
		t.Fatal(err)
	}
	if f := b.flow(one.name); f.Weight != 3 {
		t.Errorf("weight 3 is %g", f.Weight)
	}
	set.DryRun, set.Set.Weight = true, pointer(5.0)
	if _, err := b.ChangeCaps(t.Context(), one.name, set); err != nil {
		t.Fatal(err)
	}
	if f := b.flow(one.name); f.Weight != 3 {
		t.Errorf("a dry run has made it %g", f.Weight)
	}
	if w := weightOf(store.Caps{Weight: pointer(1e6)}); w != 1 {
		t.Errorf("one that is not accepted any more is %g", w)
	}
}

// flow is what the agent says of a container on GPU 0.
func (b *bench) flow(name string) control.Flow {
	b.t.Helper()
	flows, err := b.Queue(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range flows {
		if f.Container == name && f.Index == 0 {
			return f
		}
	}
	b.t.Fatalf("no flow of %s among %+v", name, flows)
	return control.Flow{}
}

// TestTimeOff: no gate closes, and who has something on a GPU is shown as not scheduled.
func TestTimeOff(t *testing.T) {
	b := start(t, func(o *Options) { o.TimeOff = true })
	one := b.taker()
	one.Must("alloc 0 %d", mib)
	one.Must("work 0 1 0")
	one.Must("want 0 0 0")
	if word := one.word(); word != 0 {
		t.Errorf("lease %d", word)
	}
	if f := b.flow(one.name); f.Mode != control.ModeOff || f.VirtualNS != nil || f.State != "" {
		t.Errorf("%+v", f)
	}
}

// TestTurnOnNoGPU: a GPU that is not there is a breach, like any field out of range.
func TestTurnOnNoGPU(t *testing.T) {
	b := start(t)
	one := b.taker()
	one.Must("want 2 0 0")
	_, err := one.Do("query 0")
	if err == nil || !strings.Contains(err.Error(), "GPU time on GPU 2, of 2") {
		t.Errorf("got %v", err)
	}
}

// TestPace: a burst is taken at once, more than that waits, and time makes room again.
func TestPace(t *testing.T) {
	var p pace
	now := time.Unix(1, 0)
	for i := range paceRate / paceEighth {
		if wait := p.take(now, paceRate); wait != 0 {
			t.Fatalf("message %d waits %v", i, wait)
		}
	}
	if wait := p.take(now, paceRate); wait <= 0 || wait > time.Second/paceRate {
		t.Errorf("one more waits %v", wait)
	}
	if wait := p.take(now.Add(time.Second), paceRate); wait != 0 {
		t.Errorf("a second later: %v", wait)
	}
}
