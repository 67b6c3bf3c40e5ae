package session

// Kills at random: of the agent under its tenants, and of tenants under the agent.

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/agent/control"
	"weir/agent/session/sessiontest"
)

// long tells whether the full numbers are asked for.
func long() bool { return os.Getenv("LONG") != "" }

// churn is a set of tenants that allocate and free at random, never more in all than the cap: so
// none of them may ever be refused, and the book never goes above the cap.
type churn struct {
	t       *testing.T
	book    *sessiontest.Book
	socket  string
	limit   uint64
	seed    uint64
	random  *rand.Rand
	tenants []*sessiontest.Process
}

func startChurn(t *testing.T, socket string, tenants int, limit uint64) *churn {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	book, err := sessiontest.NewBook(filepath.Join(t.TempDir(), "book"))
	if err != nil {
		t.Fatal(err)
	}
	c := &churn{
		t: t, book: book, socket: socket, limit: limit, seed: seed,
		random: rand.New(rand.NewPCG(seed, 0)),
	}
	for i := range tenants {
		c.tenants = append(c.tenants, nil)
		c.begin(i)
	}
	return c
}

// begin starts a tenant.
func (c *churn) begin(i int) {
	c.seed++
	c.tenants[i] = sessiontest.Start(c.t)
	c.tenants[i].Say("%s", c.book.ChurnCommand(c.socket, i, c.seed, c.limit, c.limit/8))
}

// kill ends a tenant by SIGKILL, wherever it is.
func (c *churn) kill(i int) {
	c.tenants[i].Kill()
	c.book.Bury(i)
}

func (c *churn) signal(tenants []int, s unix.Signal) {
	for _, i := range tenants {
		c.tenants[i].Signal(s)
	}
}

// progress waits until a tenant has made some more allocations.
func (c *churn) progress(i int) {
	c.t.Helper()
	from := c.book.Turns(i)
	until := time.Now().Add(20 * time.Second)
	for c.book.Turns(i) < from+20 {
		if time.Now().After(until) {
			all := c.limit - c.room(i) + c.book.Reserved(i)
			said := make(chan error, 1)
			go func() {
				_, err := c.tenants[i].Answer()
				said <- err
			}()
			var err error
			select {
			case err = <-said:
			case <-time.After(time.Second):
			}
			c.t.Fatalf("tenant %d makes no progress: it holds %d, all %d of %d; it said %v", i,
				c.book.Reserved(i), all, c.limit, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// room is what the others leave a tenant of the cap.
func (c *churn) room(i int) uint64 {
	room := c.limit
	for other := range c.tenants {
		if other != i {
			room -= c.book.Reserved(other)
		}
	}
	return room
}

// end stops all tenants and returns what each holds.
func (c *churn) end() (held uint64) {
	c.t.Helper()
	c.book.Stop()
	for i, p := range c.tenants {
		if _, err := p.Answer(); err != nil {
			c.t.Errorf("tenant %d failed: %v", i, err)
			continue
		}
		n, err := strconv.ParseUint(p.Must("held 0"), 10, 64)
		if err != nil {
			c.t.Fatal(err)
		}
		held += n
	}
	return held
}

// TestAgentKilledAgainAndAgain, under tenants of which most are stopped half of the times: nobody
// fails and the cap holds.
func TestAgentKilledAgainAndAgain(t *testing.T) {
	kills := 12
	if long() {
		kills = 50
	}
	const tenants, limit = 16, 64 * mib
	dir := t.TempDir()
	agent := startAgent(t, dir, "")
	var grant control.RunGrant
	agent.ask(&grant, "run %d %d", os.Getpid(), limit)
	c := startChurn(t, grant.Socket, tenants, limit)
	for i := range tenants {
		c.progress(i)
	}
	for round := range kills {
		var stopped []int
		runner := c.random.IntN(tenants)
		if round%2 == 0 {
			for i := range tenants {
				if i != runner {
					stopped = append(stopped, i)
				}
			}
		}
		c.signal(stopped, unix.SIGSTOP)
		time.Sleep(time.Duration(c.random.IntN(20_000)) * time.Microsecond)
		agent.kill()
		time.Sleep(time.Duration(c.random.IntN(20_000)) * time.Microsecond)
		agent = startAgent(t, dir, "")
		// Those that are stopped may have been holding all that there is, or so nearly that the
		// runner rarely draws a size that fits.
		if len(stopped) == 0 || c.room(runner) >= limit/64 {
			c.progress(runner)
		}
		c.signal(stopped, unix.SIGCONT)
	}
	held := c.end()
	var list []control.Container
	agent.ask(&list, "ps")
	g, refused := list[0].GPUs[0], list[0].Refused
	if uint64(g.UsedBytes) != held || g.ChargedBytes > limit || refused != 0 {
		t.Errorf("in the end %+v, %d refused; the tenants hold %d", g, refused, held)
	}
}

// TestTenantsKilledAtRandom: many processes race for the last bytes while others are killed among
// them. Never a byte over, never refused while it fits, the exact sum of the living afterwards.
func TestTenantsKilledAtRandom(t *testing.T) {
	tenants, kills := 24, 100
	if long() {
		tenants, kills = 64, 1000
	}
	const limit = 64 * mib
	b := start(t)
	grant := b.run(limit)
	c := startChurn(t, grant.Socket, tenants, limit)
	for range kills {
		i := c.random.IntN(tenants)
		if c.random.IntN(4) == 0 {
			c.tenants[i].Signal(unix.SIGSTOP)
		}
		c.kill(i)
		c.begin(i)
	}
	held := c.end()
	b.eventually(fmt.Sprintf("%d are used", held), func() bool {
		g := b.container(grant.ID).GPUs[0]
		return uint64(g.UsedBytes) == held && g.ChargedBytes <= limit
	})
	if got := b.container(grant.ID).Refused; got != 0 {
		t.Errorf("%d allocations were refused though they fit", got)
	}
	for _, p := range c.tenants {
		p.Kill()
	}
	b.eventually("nothing is charged", func() bool {
		return b.container(grant.ID).GPUs[0].ChargedBytes == 0
	})
}
