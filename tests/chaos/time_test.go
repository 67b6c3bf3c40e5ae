package chaos

// GPU time under kills, stops, restarts of the agent, and weights that change, at random.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

const (
	timeFlows  = 6
	timeActs   = 50
	loadsOfOne = 2
)

// timeLoads are what flows do: hogs, short kernels that are each waited for, gaps, graphs, work that waits for
// later work.
var timeLoads = []string{
	node.Hog, "cost=200000 sync=1", "cost=2000000 sync=1 gap=3000", "cost=100000 graph=8 sync=1", "cost=20000 burst=64 sync=1",
	"cost=1000000 burst=8 stream=1 sync=1", "cost=500000 stream=2 sync=1", "knot=2 gap=500", "knot=3 gap=500", "knot=4 gap=500 mode=1",
}

// crew is flows on a machine with two GPUs.
type crew struct {
	t      *testing.T
	n      *node.Node
	random *rand.Rand
	flows  []*timed
	count  int      // of all that there were
	acts   []string // what has happened, for messages
}

// log keeps what happened, and when.
func (c *crew) log(format string, arguments ...any) {
	c.acts = append(c.acts, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, arguments...))
}

// tell says what happened last, where the test has failed.
func (c *crew) tell() {
	if c.t.Failed() {
		c.t.Logf("what happened last:\n%s\n%s%s", strings.Join(c.acts[max(0, len(c.acts)-40):], "\n"),
			c.n.MustWeir("queue", "-o", "wide"), c.n.MustWeir("events"))
	}
}

// timed is one of them: where it runs, and what.
type timed struct {
	*node.Flow
	gpus  []int
	loads []int
	plays []string // what the loads are, for messages
}

func (c *crew) weight() float64 { return []float64{0.5, 1, 1, 2, 3, 8}[c.random.IntN(6)] }

func (c *crew) hire() *timed {
	c.t.Helper()
	c.count++
	gpus := [][]int{{0}, {0}, {1}, {0, 1}, {1, 0}}[c.random.IntN(5)]
	flow := &timed{gpus: gpus, Flow: c.n.Flow(node.RunOptions{Name: fmt.Sprintf("flow-%d", c.count), Memory: "16MiB",
		Flags: []string{"--weight", fmt.Sprint(c.weight())}}, gpus...)}
	for range loadsOfOne {
		c.load(flow)
	}
	return flow
}

// load gives a flow something to do.
func (c *crew) load(f *timed) {
	c.t.Helper()
	settings := fmt.Sprintf("%s gpu=%d", timeLoads[c.random.IntN(len(timeLoads))], f.gpus[c.random.IntN(len(f.gpus))])
	if len(f.gpus) == 2 && c.random.IntN(3) == 0 {
		settings = "knot=1 gap=500"
	}
	f.loads, f.plays = append(f.loads, f.Play(settings)), append(f.plays, settings)
	c.log("%s plays %s", f.Name, settings)
}

// act does something at random.
func (c *crew) act() {
	c.t.Helper()
	i := c.random.IntN(len(c.flows))
	f := c.flows[i]
	switch c.random.IntN(8) {
	case 0:
		c.log("%s is killed", f.Name)
		f.Kill()
		c.flows[i] = c.hire()
	case 1:
		stopped := time.Duration(c.random.IntN(1500)) * time.Millisecond
		c.log("%s is stopped for %s", f.Name, stopped)
		f.Signal(syscall.SIGSTOP)
		time.Sleep(stopped)
		f.Signal(syscall.SIGCONT)
	case 2:
		c.log("the agent is killed")
		c.n.KillAgent()
		time.Sleep(time.Duration(c.random.IntN(300)) * time.Millisecond)
		c.n.StartAgent()
		c.back()
	case 3, 4:
		weight := fmt.Sprint(c.weight())
		c.log("%s has weight %s", f.Name, weight)
		c.n.MustWeir("caps", "set", f.Name, "--weight", weight)
	default:
		c.log("%s ends %s", f.Name, f.plays[0])
		f.OK("stop %d", f.loads[0]) // and its work is done
		f.loads, f.plays = f.loads[1:], f.plays[1:]
		c.load(f)
	}
}

// back waits until the agent knows all containers again.
func (c *crew) back() {
	c.t.Helper()
	c.n.Eventually(func() string {
		for _, f := range c.flows {
			for _, session := range c.n.Container(f.Name).Sessions {
				if session.State == "recovered" {
					return f.Name + " is not connected again"
				}
			}
		}
		return ""
	})
}

// goOn asserts that every load of every flow gets on.
func (c *crew) goOn() {
	c.t.Helper()
	for _, f := range c.flows {
		for i, load := range f.loads {
			before, began := f.Launches(load), time.Now()
			c.n.Eventually(func() string {
				if f.Launches(load) == before {
					return fmt.Sprintf("%s of %s stands still at %d launches", f.plays[i], f.Name, before)
				}
				return ""
			})
			if waited := time.Since(began); waited > 2*time.Second {
				c.log("%s of %s stood still for %s", f.plays[i], f.Name, waited)
			}
		}
	}
}

// Whatever happens to some, the others go on, all that was submitted is done in the end, and the shares are
// right afterwards.
func TestTimeUnderKillsStopsAndRestarts(t *testing.T) {
	machine := node.Machine("512MiB", "1MiB") + node.Card("512MiB", "1MiB")
	c := &crew{t: t, random: rand.New(rand.NewPCG(seed(t), 5)), n: node.Start(t, node.Options{Machine: machine,
		// Many are stopped for longer than their drains may take. The longest wait is longer than the test is patient: only
		// an opened gate lets a knot go on.
		Config: "drain_timeout = \"300ms\"\ngate_wait_max = \"60s\"\n"})}
	defer c.tell()
	for range timeFlows {
		c.flows = append(c.flows, c.hire())
	}
	for i := range scaled(t, timeActs) {
		c.act()
		if i%10 == 9 {
			c.goOn()
		}
		c.n.AgentAlive()
	}
	c.goOn()
	for _, f := range c.flows {
		for _, load := range f.loads {
			f.OK("stop %d", load)
		}
	}
	c.n.Eventually(func() string {
		for _, flow := range c.n.Queue() {
			if flow.State != "idle" && flow.State != "grace" {
				return fmt.Sprintf("all is done, and %s is %s on GPU %d", flow.Container, flow.State, flow.Index)
			}
		}
		return ""
	})
	c.shares()
}

// shares has two new flows beside those that are idle share a GPU.
func (c *crew) shares() {
	c.t.Helper()
	light, heavy := c.n.Weighted("light", 1), c.n.Weighted("heavy", 3)
	light.Play(node.Hog)
	heavy.Play(node.Hog)
	time.Sleep(time.Second)
	var share float64
	for range 3 {
		share = node.Shares(3*time.Second, 0, light, heavy)[0]
		c.t.Logf("simulated: weight 1 beside weight 3 has %.1f %% of the GPU's time", share)
		if math.Abs(share-25) <= 6 {
			return
		}
	}
	c.t.Errorf("weight 1 beside weight 3 has %.1f %% of the GPU's time", share)
}
