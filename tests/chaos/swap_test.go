package chaos

// Data of programs whose memory is swapped, while leases go from one to the next: kills, restarts of the agent, caps
// and swap that change, and with all of these plans that change and moves that are cancelled.

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

const (
	handovers   = 1000 // at least
	keepers     = 4
	keeperMiB   = 28 // that each has, of a card of 64: 1.75 of it together
	keeperLimit = 5 * time.Minute
)

// keeping is programs that know what must be in each byte of their memory (clients/keeper.c).
type keeping struct {
	t      *testing.T
	n      *node.Node
	random *rand.Rand
	ones   []*keeper
	count  int // of all that there were
	killed int
	leases map[string]int64 // as last seen, by agent and container
	agents int
	bytes  int64 // compared by programs that are gone
	acts   []string
}

type keeper struct {
	*node.Puppet
	name string
}

func (k *keeping) log(format string, arguments ...any) {
	k.acts = append(k.acts, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, arguments...))
}

func (k *keeping) hire() *keeper {
	k.t.Helper()
	k.count++
	name := fmt.Sprintf("keeper-%d", k.count)
	options := node.RunOptions{Name: name, Memory: "32MiB", Flags: []string{"--swap", "32MiB"}}
	program := k.n.Run(options, node.Build(k.t, "e2e/keeper"), fmt.Sprint(k.random.Uint32()), fmt.Sprint(keeperMiB))
	return &keeper{k.n.AsPuppet(program), name}
}

// leasesSoFar is how many leases there were, those of containers and agents that are gone as they were last seen.
func (k *keeping) leasesSoFar() (all int64) {
	k.t.Helper()
	for _, flow := range k.n.Queue() {
		k.leases[fmt.Sprint(k.agents, flow.Container)] = flow.Leases
	}
	for _, leases := range k.leases {
		all += leases
	}
	return all
}

// act does something at random.
func (k *keeping) act() {
	k.t.Helper()
	i := k.random.IntN(len(k.ones))
	one := k.ones[i]
	switch k.random.IntN(10) {
	case 0, 1:
		k.bytes += one.Numbers("count")[1]
		k.log("%s is killed", one.name)
		one.Kill()
		k.killed++
		k.ones[i] = k.hire()
	case 2:
		stopped := time.Duration(k.random.IntN(300)) * time.Millisecond
		k.log("%s is stopped for %s", one.name, stopped)
		one.Signal(syscall.SIGSTOP)
		time.Sleep(stopped)
		one.Signal(syscall.SIGCONT)
	case 3, 4:
		memory := fmt.Sprintf("%dMiB", []int{8, 16, 24, 32, 48}[k.random.IntN(5)])
		k.log("%s has a cap of %s", one.name, memory)
		k.n.MustWeir("caps", "set", one.name, "--memory", memory)
	case 5:
		swap := fmt.Sprintf("%dMiB", []int{32, 48, 64}[k.random.IntN(3)])
		k.log("%s has swap of %s", one.name, swap)
		k.n.Weir("caps", "set", one.name, "--swap", swap) // which is refused where more is in use
	case 6:
		k.log("%s rests", one.name)
		one.Numbers("hold")
		time.Sleep(time.Duration(k.random.IntN(200)) * time.Millisecond)
		one.Numbers("go")
	case 7:
		k.log("%s compares all", one.name)
		one.Numbers("whole")
	default:
		time.Sleep(time.Duration(k.random.IntN(200)) * time.Millisecond)
	}
}

// restart has the agent killed and started again.
func (k *keeping) restart() {
	k.t.Helper()
	k.log("the agent is killed")
	k.leasesSoFar()
	k.agents++
	k.n.KillAgent()
	time.Sleep(time.Duration(k.random.IntN(200)) * time.Millisecond)
	k.n.StartAgent()
}

// Whatever happens to others and to the agent, every byte of every program is what it wrote, after a thousand
// hand-overs between programs that together need far more than the card.
func TestSwapKeepsEveryByte(t *testing.T) {
	machine := strings.NewReplacer("12.2", "12.5", "12GB/s", "48GB/s").Replace(node.Machine("64MiB", "512B"))
	k := &keeping{t: t, leases: make(map[string]int64), random: rand.New(rand.NewPCG(seed(t), 6)), n: node.Start(t, node.Options{Machine: machine,
		// Leases go on by the clock, whether anybody is owed time or not.
		Config: "contention = \"off\"\nthreshold = \"0s\"\nquantum = \"10ms\"\ndrain_timeout = \"300ms\"\n"})}
	defer func() {
		if t.Failed() {
			t.Logf("what happened last:\n%s\n%s%s", strings.Join(k.acts[max(0, len(k.acts)-40):], "\n"),
				k.n.MustWeir("queue", "-o", "wide"), k.n.MustWeir("events"))
		}
	}()
	for range keepers {
		k.ones = append(k.ones, k.hire())
	}
	want, began, restarts := int64(scaled(t, handovers)), time.Now(), 0
	var moved, faulted int64
	for k.leasesSoFar() < want || k.killed < 20 {
		if time.Since(began) > keeperLimit {
			t.Fatalf("%d leases and %d kills in %s", k.leasesSoFar(), k.killed, keeperLimit)
		}
		k.act()
		k.n.AgentAlive()
		if now := int(time.Since(began) / (10 * time.Second)); now > restarts {
			restarts = now
			k.restart()
		}
	}
	leases := k.leasesSoFar()
	for _, one := range k.ones {
		one.Numbers("hold")
	}
	for _, one := range k.ones {
		k.bytes += one.Numbers("whole")[1]
	}
	for _, process := range k.n.Card(0).Processes {
		m := process.Managed
		moved += m.PrefetchInBytes + m.PrefetchOutBytes
		faulted += m.FaultInBytes + m.EvictedBytes
	}
	t.Logf("simulated: %d leases, %d kills, %d restarts of the agent in %s; compared %d MiB; moved %d MiB by plan and %d by "+
		"faults (of the processes that the books still have)", leases, k.killed, restarts, time.Since(began).Round(time.Second),
		k.bytes>>20, moved>>20, faulted>>20)
	if moved == 0 {
		t.Error("nothing was moved by plan")
	}
}
