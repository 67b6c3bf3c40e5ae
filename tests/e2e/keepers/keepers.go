// Package keepers plays programs that know what must be in each byte of their memory (clients/keeper.c) on one simulated
// card that is too small for all: leases go from one to the next, programs are killed, stopped and have other caps, the
// agent is killed, plans change and moves are cancelled. The machine moves data with its pages, between copies
// (tests/sim/driver/managed_data.c), so what a move loses shows. It belongs to tests.
package keepers

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/tests/e2e/node"
	"weir/tests/sim"
)

const (
	programs    = 4
	memoryMiB   = 28 // that each has, of a card of 64: 1.75 of it together
	restarts    = 10 * time.Second
	never       = 1<<32 - 1 // the number of a move that there will not be
	patience    = 20 * time.Second
	mistakesMax = 20 // moves that go wrong
)

// Counts are what has happened.
type Counts struct {
	Handovers int64 // leases that came after another container's
	Kills     int
	Restarts  int   // of the agent
	Cancelled int64 // moves that were taken back when their process had been told of them
	Undone    int64 // of these, that had not begun
	Moves     int64 // stretches of pages whose data were moved, by plan or by faults
	Compared  int64 // bytes
}

// Reaches tells whether all that has to happen has happened as often as in least.
func (c Counts) Reaches(least Counts) bool {
	return c.Handovers >= least.Handovers && c.Kills >= least.Kills && c.Cancelled >= least.Cancelled && c.Undone >= least.Undone
}

// Least says what has to happen at least.
func (c Counts) Least() string {
	return fmt.Sprintf("%d hand-overs, %d kills, %d moves cancelled, of which %d undone", c.Handovers, c.Kills, c.Cancelled, c.Undone)
}

func (c Counts) String() string {
	return fmt.Sprintf("%s, %d restarts of the agent; data moved %d times, %d MiB compared", c.Least(), c.Restarts, c.Moves,
		c.Compared>>20)
}

// seen is what an agent has said of a container last.
type seen struct{ handovers, cancelled, undone int64 }

// Play is the programs, their card and their agent.
type Play struct {
	t       testing.TB
	n       *node.Node
	random  *rand.Rand
	ones    []*keeper
	hired   int
	counts  Counts
	seen    map[string]seen // by agent and container
	counter int             // number of the fault that counts moves of data
	began   time.Time
	acts    []string
}

type keeper struct {
	*node.Puppet
	name string
}

// Start starts a machine, an agent and the programs.
func Start(t testing.TB, seed uint64) *Play {
	t.Helper()
	machine := strings.NewReplacer(`cuda = "12.2"`, "cuda = \"12.5\"\nmanaged_data = true", "12GB/s", "48GB/s").Replace(
		node.Machine("64MiB", "512B"))
	p := &Play{t: t, random: rand.New(rand.NewPCG(seed, 6)), seen: make(map[string]seen), n: node.Start(t, node.Options{
		Machine: machine,
		// Leases go on by the clock, whether anybody is owed time or not.
		Config: "contention = \"off\"\nthreshold = \"0s\"\nquantum = \"5ms\"\ndrain_timeout = \"300ms\"\n"})}
	p.counter = p.arm(fmt.Sprintf("move_lost:%d", never))
	for range programs {
		p.ones = append(p.ones, p.hire())
	}
	p.began = time.Now()
	return p
}

func (p *Play) log(format string, arguments ...any) {
	p.acts = append(p.acts, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, arguments...))
}

// Last is what happened last, with what weir says of it, for a test that has failed.
func (p *Play) Last() string {
	return strings.Join(p.acts[max(0, len(p.acts)-40):], "\n") + "\n" + p.n.MustWeir("queue", "-o", "wide") + p.n.MustWeir("events")
}

func (p *Play) hire() *keeper {
	p.t.Helper()
	p.hired++
	name := fmt.Sprintf("keeper-%d", p.hired)
	options := node.RunOptions{Name: name, Memory: "32MiB", Flags: []string{"--swap", "32MiB"}}
	program := p.n.Run(options, node.Build(p.t, "e2e/keeper"), fmt.Sprint(p.random.Uint32()), fmt.Sprint(memoryMiB))
	return &keeper{p.n.AsPuppet(program), name}
}

// Counts are those so far, those of containers and agents that are gone as they were last seen.
func (p *Play) Counts() Counts {
	p.t.Helper()
	agent := p.counts.Restarts
	for _, flow := range p.n.Queue() {
		key := fmt.Sprint(agent, flow.Container)
		s := p.seen[key]
		s.handovers = flow.Handovers
		p.seen[key] = s
	}
	for _, c := range p.n.Containers() {
		for _, use := range c.GPUs {
			if swap := use.Swap; swap != nil && swap.CancelledMoves != nil {
				key := fmt.Sprint(agent, c.Name)
				p.seen[key] = seen{p.seen[key].handovers, *swap.CancelledMoves, *swap.UndoneMoves}
			}
		}
	}
	all := p.counts
	for _, s := range p.seen {
		all.Handovers += s.handovers
		all.Cancelled += s.cancelled
		all.Undone += s.undone
	}
	return all
}

// Act does something at random, and at times has the agent die.
func (p *Play) Act() {
	p.t.Helper()
	i := p.random.IntN(len(p.ones))
	one := p.ones[i]
	switch p.random.IntN(10) {
	case 0, 1:
		p.counts.Compared += one.Numbers("count")[1]
		p.log("%s is killed", one.name)
		one.Kill()
		p.counts.Kills++
		p.ones[i] = p.hire()
	case 2:
		stopped := time.Duration(p.random.IntN(300)) * time.Millisecond
		p.log("%s is stopped for %s", one.name, stopped)
		one.Signal(syscall.SIGSTOP)
		time.Sleep(stopped)
		one.Signal(syscall.SIGCONT)
	case 3, 4:
		memory := fmt.Sprintf("%dMiB", []int{8, 16, 24, 32, 48}[p.random.IntN(5)])
		p.log("%s has a cap of %s", one.name, memory)
		p.n.MustWeir("caps", "set", one.name, "--memory", memory)
	case 5:
		swap := fmt.Sprintf("%dMiB", []int{32, 48, 64}[p.random.IntN(3)])
		p.log("%s has swap of %s", one.name, swap)
		p.n.Weir("caps", "set", one.name, "--swap", swap) // which is refused where more is in use
	case 6:
		p.log("%s rests", one.name)
		one.Numbers("hold")
		time.Sleep(time.Duration(p.random.IntN(200)) * time.Millisecond)
		one.Numbers("go")
	case 7:
		p.log("%s compares all", one.name)
		one.Numbers("whole")
	case 8:
		weight := fmt.Sprint(1 + p.random.IntN(8))
		p.log("%s has a weight of %s", one.name, weight)
		p.n.MustWeir("caps", "set", one.name, "--weight", weight)
	default:
		time.Sleep(time.Duration(p.random.IntN(200)) * time.Millisecond)
	}
	p.n.AgentAlive()
	if now := int(time.Since(p.began) / restarts); now > p.counts.Restarts {
		p.restart()
	}
}

func (p *Play) restart() {
	p.t.Helper()
	p.log("the agent is killed")
	p.Counts()
	p.counts.Restarts++
	p.n.KillAgent()
	time.Sleep(time.Duration(p.random.IntN(200)) * time.Millisecond)
	p.n.StartAgent()
}

// End has all programs stand still and compare all of their memory. They fail the test where a byte is not as written.
func (p *Play) End() Counts {
	p.t.Helper()
	p.counts = p.Counts()
	p.seen = make(map[string]seen)
	for _, one := range p.ones {
		one.Numbers("hold")
	}
	for _, one := range p.ones {
		p.counts.Compared += one.Numbers("whole")[1]
	}
	p.counts.Moves = p.used(p.counter)
	return p.counts
}

// Until plays until all has happened as often as in least, or so long, and ends.
func (p *Play) Until(least Counts, most time.Duration) Counts {
	p.t.Helper()
	for !p.Counts().Reaches(least) && time.Since(p.began) < most {
		p.Act()
	}
	return p.End()
}

// Sabotage has moves go wrong (move_lost, move_torn, move_twice), and returns what a program says of its data then, or
// nothing if all say for a while that they are right.
func (p *Play) Sabotage(mistake string) string {
	p.t.Helper()
	p.arm(fmt.Sprintf("%s:20*%d", mistake, mistakesMax))
	for _, one := range p.ones {
		one.Do("go")
	}
	for end := time.Now().Add(patience); time.Now().Before(end); {
		for _, one := range p.ones {
			if words := one.Do("whole"); len(words) > 0 && words[0] != "ok" {
				return strings.Join(words, " ")
			}
		}
	}
	return ""
}

// arm arms a fault of the machine and returns its number.
func (p *Play) arm(text string) int {
	p.t.Helper()
	machine, err := sim.Open(p.n.SimDir)
	if err != nil {
		p.t.Fatal(err)
	}
	defer machine.Close()
	fault, err := sim.ParseFault(text)
	if err != nil {
		p.t.Fatal(err)
	}
	id, err := machine.Arm(fault)
	if err != nil {
		p.t.Fatal(err)
	}
	return id
}

// used is how often a fault was met.
func (p *Play) used(id int) int64 {
	p.t.Helper()
	machine, err := sim.Open(p.n.SimDir)
	if err != nil {
		p.t.Fatal(err)
	}
	defer machine.Close()
	for _, fault := range machine.Faults() {
		if fault.ID == id {
			return fault.Used
		}
	}
	return 0
}
