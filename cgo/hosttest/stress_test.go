// Threads that allocate and free at random under an agent that fails at random.

package hosttest

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/cgo/abi"
)

// tooLong is longer than an allocation waits under the trouble of TestStress.
const tooLong = 80 * time.Millisecond

// trouble lets an agent lose, delay and forget messages at random.
func trouble(a *agent, random *rand.Rand) {
	a.waitMS = 40
	a.meddle = func(s *session, message any, fds []int) (any, []int, bool) {
		conn := s.conn
		switch random.IntN(40) {
		case 0: // dies before it has said it
			conn.Close()
			return nil, nil, false
		case 1: // says it and dies
			a.write(conn, message, fds)
			conn.Close()
			return nil, nil, false
		case 2: // says it late, perhaps too late
			time.AfterFunc(time.Duration(random.Int64N(int64(tooLong))), func() { a.write(conn, message, fds) })
			return nil, nil, false
		}
		if _, ok := message.(abi.Welcome); ok && random.IntN(2) == 0 {
			time.AfterFunc(time.Duration(random.Int64N(int64(tooLong/4))), func() { a.write(conn, message, fds) })
			return nil, nil, false
		}
		return message, fds, true
	}
}

// Threads allocate and free at random while the agent dies, restarts, loses and delays messages. At no
// moment may the driver have more in use than the cap, and at rest G - U = owned.
func TestStress(t *testing.T) {
	for _, b := range []*build{plain, address, threads} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			seed := newSeed(t)
			random := rand.New(rand.NewPCG(seed, 1))
			const limit = 20 * mib
			a := newAgent(t, limit, limit)
			trouble(a, random)
			a.start()
			h := startHost(t, b, a.path)
			h.ok("limit 0 %d", limit)
			h.ok("limit 1 %d", limit)
			h.ok("dawdle 30")
			for round := range 4 {
				release := round % 2
				h.send("stress %d 600 %d %d", 2+random.IntN(12), seed+uint64(round)*1000, release)
				line := bother(t, h, a, random)
				if line != "ok 0" {
					t.Fatalf("stress: %s", line)
				}
				settle(t, h, a)
			}
		})
	}
}

// bother restarts the agent at random until the program has answered.
func bother(t *testing.T, h *host, a *agent, random *rand.Rand) string {
	t.Helper()
	for {
		select {
		case line, ok := <-h.lines:
			if !ok {
				t.Fatalf("test program ended: %s", h.errs)
			}
			return line
		case <-time.After(time.Duration(5+random.IntN(60)) * time.Millisecond):
		}
		switch random.IntN(3) {
		case 0:
			a.drop()
		case 1:
			a.stop()
			time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
			a.start()
		}
	}
}

// settle waits until the last late message has arrived and the connection is up, and looks at the books.
func settle(t *testing.T, h *host, a *agent) {
	t.Helper()
	a.mu.Lock()
	meddle := a.meddle
	a.meddle = nil
	a.mu.Unlock()
	time.Sleep(2 * tooLong)
	s := a.session(h, 1)
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(h.do("books 0"), "up 1"); {
		if time.Now().After(deadline) {
			t.Fatal("no connection at rest")
		}
		time.Sleep(tooLong / 4)
	}
	a.balance(h, s)
	for gpu := range gpus {
		books, driver := h.ok("books %d", gpu), h.ok("driver")
		if books[0] != driver[gpu] || driver[2] != 0 {
			t.Errorf("GPU %d: owns %d, the driver has %d; %d times over the cap", gpu, books[0], driver[gpu], driver[2])
		}
	}
	a.mu.Lock()
	a.meddle = meddle
	a.mu.Unlock()
	t.Logf("%d connections, %d requests", s.hellos, len(a.requests))
}
