package session

// Random sequences of movable memory, with kills and restarts: every account is what the processes hold, at each step.

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"weir/agent/control"
	"weir/agent/session/sessiontest"
)

// mover is one process with movable memory, by number, on GPU 0.
type mover struct {
	*sessiontest.Process
	has  map[uint64]int64
	last uint64
}

func (m *mover) sum() (sum int64) {
	for _, bytes := range m.has {
		sum += bytes
	}
	return sum
}

// movers are processes of two containers, each of which has its cap and swap; the host has less than both.
type movers struct {
	*bench
	random *rand.Rand
	grants [2]control.RunGrant
	of     [2][]*mover
}

const (
	moversCap, moversSwap, moversHost = 8 * mib, 32 * mib, 60 * mib
	moversSteps                       = 300
)

// sums are what each container has.
func (m *movers) sums() (sums [2]int64) {
	for i, list := range m.of {
		for _, p := range list {
			sums[i] += p.sum()
		}
	}
	return sums
}

// check compares the agent's accounts with what there is, once what has ended is free.
func (m *movers) check(what string) {
	m.t.Helper()
	sums := m.sums()
	for i, sum := range sums {
		m.wantMovable(what, m.grants[i].ID, sum, sums[0]+sums[1])
	}
}

func (m *movers) alloc(i int, p *mover) {
	m.t.Helper()
	bytes := 2 * mib * (1 + m.random.Int64N(8))
	sums := m.sums()
	p.last++
	_, err := p.Do("movable 0 %d %d", bytes, p.last)
	var want error
	switch {
	case sums[i]+bytes > moversCap+moversSwap:
		want = sessiontest.ErrOverSwap
	case sums[0]+sums[1]+bytes > moversHost:
		want = sessiontest.ErrHostFull
	}
	if fmt.Sprint(err) != fmt.Sprint(want) {
		m.t.Fatalf("%d more beside %v: %v, want %v", bytes, sums, err, want)
	}
	if want == nil {
		p.has[p.last] = bytes
	}
}

func (m *movers) free(p *mover) {
	for id := range p.has {
		p.Must("freed 0 %d", id)
		delete(p.has, id)
		break
	}
	p.Must("query 0") // what is freed is known when that is answered
}

func (m *movers) step() {
	m.t.Helper()
	i := m.random.IntN(2)
	list := m.of[i]
	if len(list) == 0 || len(list) < 4 && m.random.IntN(6) == 0 {
		m.of[i] = append(list, &mover{Process: m.tenant(m.grants[i]), has: make(map[uint64]int64)})
		return
	}
	at := m.random.IntN(len(list))
	p := list[at]
	switch m.random.IntN(24) {
	case 0:
		p.Kill()
		m.of[i] = slices.Delete(list, at, at+1)
		m.eventually("what the killed had is free", func() bool {
			sums := m.sums()
			return m.info().SwapHostBytes == sums[0]+sums[1]
		})
	case 1:
		p.Must("again")
		p.Must("query 0")
	case 2:
		m.restart()
		m.check("after a restart")
		for _, list := range m.of {
			for _, p := range list {
				p.Must("again")
				p.Must("query 0")
			}
		}
	case 3, 4, 5, 6, 7, 8, 9:
		m.free(p)
	default:
		m.alloc(i, p)
	}
}

func TestMovableAtRandom(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv("WEIR_TEST_SEED"); text != "" {
		fmt.Sscan(text, &seed)
	}
	t.Logf("WEIR_TEST_SEED=%d", seed)
	m := &movers{bench: start(t, hostOf(moversHost)), random: rand.New(rand.NewPCG(seed, 0))}
	for i := range m.grants {
		m.grants[i] = m.swapping(moversCap, moversSwap, func(r *control.RunRequest) { r.Name = fmt.Sprint("box", i) })
	}
	for range moversSteps {
		m.step()
		m.check("after a step")
	}
	for i := range m.of {
		for _, p := range m.of[i] {
			p.Kill()
		}
		m.of[i] = nil
	}
	m.eventually("all is free", func() bool { return m.info().SwapHostBytes == 0 })
	m.check("in the end")
}

// TestCrashBetweenRecordAndVerdict: an agent that dies once movable memory is recorded has not granted it. Nothing of it
// is left when the process has declared itself, and what others have stays charged meanwhile.
func TestCrashBetweenRecordAndVerdict(t *testing.T) {
	for _, crash := range []string{"movable granted:1", "decided:1"} {
		t.Run(crash, func(t *testing.T) {
			dir := t.TempDir()
			agent := startAgent(t, dir, "")
			var grant control.RunGrant
			agent.ask(&grant, "run %d %d %d", os.Getpid(), 8*mib, 16*mib)
			one, two := sessiontest.Start(t), sessiontest.Start(t)
			one.Must("hello %s", grant.Socket)
			one.Must("movable 0 %d 1", 10*mib)
			two.Must("hello %s", grant.Socket)
			agent.kill()
			agent = startAgent(t, dir, crash)
			two.Must("again")
			if _, err := two.Do("movable 0 %d 1", 14*mib); err == nil {
				t.Fatal("granted by an agent that was to die")
			}
			agent.cmd.Wait()
			agent = startAgent(t, dir, "")
			agent.check(t, 24*mib)
			one.Must("again")
			two.Must("again")
			two.Must("query 0")
			agent.check(t, 10*mib)
			if _, err := two.Do("movable 0 %d 2", 16*mib); err == nil || err.Error() != sessiontest.ErrOverSwap.Error() {
				t.Errorf("over cap and swap: %v", err)
			}
			two.Must("movable 0 %d 3", 14*mib)
			agent.check(t, 24*mib)
		})
	}
}

// check compares what the container has of movable memory.
func (a *agentProcess) check(t *testing.T, want int64) {
	t.Helper()
	var list []control.Container
	a.ask(&list, "ps")
	if len(list) != 1 || list[0].GPUs[0].MovableBytes != want {
		t.Errorf("%d of movable memory, want %d", list[0].GPUs[0].MovableBytes, want)
	}
}
