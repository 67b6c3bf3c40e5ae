package chaos

// The agent is killed and restarted under tenants that work or stand still.

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"weir/tests/e2e/node"
	"weir/tests/sim"
)

const (
	containers = 4
	members    = 4 // processes of a container
	tries      = 50
)

// tenant is one of 16 processes, and what it holds.
type tenant struct {
	*node.Puppet
	container int
	held      int64
}

// stage is 16 tenants in four containers of 64 MiB each.
type stage struct {
	t       *testing.T
	n       *node.Node
	tenants []*tenant
	random  *rand.Rand
}

// The agent is killed and restarted 50 times under 16 tenants; in every other try 15 of them are
// stopped meanwhile. Nobody fails, caps hold to the byte, and what fits is given: also what lies
// unused with the stopped ones. An ordinary user's agent has fewer ways to find their pages again.
func TestAgentRestartsUnderStoppedTenants(t *testing.T) {
	for name, ordinary := range map[string]bool{"same-user": false, "ordinary-user": true} {
		t.Run(name, func(t *testing.T) { restarts(t, ordinary) })
	}
}

func restarts(t *testing.T, ordinary bool) {
	machine := node.Machine("512MiB", "512B")
	s := &stage{
		t:      t,
		n:      node.Start(t, node.Options{Machine: machine, OrdinaryUser: ordinary}),
		random: rand.New(rand.NewPCG(seed(t), 2)),
	}
	for c := range containers {
		for _, p := range s.n.Puppets(members, node.RunOptions{Name: "c" + string(rune('0'+c)), Memory: "64MiB"}) {
			p.OK("init")
			s.tenants = append(s.tenants, &tenant{Puppet: p, container: c})
		}
	}
	for try := range scaled(t, tries) {
		s.mixUp()
		s.restart(try%2 == 1)
		s.checkAll()
	}
}

func (s *stage) sum(container int) (sum int64) {
	for _, tenant := range s.tenants {
		if tenant.container == container {
			sum += tenant.held
		}
	}
	return sum
}

// mixUp gives every tenant another allocation, and unused credit by freeing what it had.
func (s *stage) mixUp() {
	for _, tenant := range s.tenants {
		tenant.OK("free-all")
		tenant.held = 0
	}
	for i, tenant := range s.tenants {
		left := cap64 - s.sum(tenant.container)
		tenant.OK("churn 3 %d", left)
		bytes := (s.random.Int64N(left/3)/512 + 1) * 512
		tenant.OK("alloc %d", bytes)
		tenant.OK("fill 0 %d", i)
		tenant.held = bytes
	}
}

// restart kills the agent and starts another, with 15 of the tenants stopped or none. The one that
// goes on allocates all that is left below its container's cap, sometimes before an agent is there.
func (s *stage) restart(stopped bool) {
	s.t.Helper()
	runner := s.tenants[s.random.IntN(len(s.tenants))]
	if stopped {
		s.signal(runner, syscall.SIGSTOP)
		defer s.signal(runner, syscall.SIGCONT)
	}
	s.n.KillAgent()
	left := cap64 - s.sum(runner.container)
	early := s.random.IntN(2) == 0
	if early {
		runner.Tell("alloc %d", left)
	}
	time.Sleep(time.Duration(s.random.IntN(50)) * time.Millisecond)
	s.n.StartAgent()
	if !early {
		runner.Tell("alloc %d", left)
	}
	if code := runner.Answer(); code != 0 {
		s.t.Errorf("after a restart (stopped: %v, asked early: %v) %d of %d bytes are free, and they are refused: code %d\n%+v",
			stopped, early, left, cap64, code, s.n.Container("c"+string(rune('0'+runner.container))))
		return
	}
	if code := runner.Code("alloc 1"); code != outOfMemory {
		s.t.Errorf("after a restart (stopped: %v) one byte over the cap: code %d", stopped, code)
	}
	s.checkBooks()
	runner.OK("free 1")
}

func (s *stage) signal(runner *tenant, signal syscall.Signal) {
	for _, tenant := range s.tenants {
		if tenant != runner {
			tenant.Signal(signal)
		}
	}
}

// checkBooks asks the simulated card what each container holds.
func (s *stage) checkBooks() {
	s.t.Helper()
	books, err := sim.Status(s.n.SimDir)
	if err != nil {
		s.t.Fatal(err)
	}
	var held [containers]int64
	for _, tenant := range s.tenants {
		process, _ := books.GPUs[0].Process(tenant.PID())
		held[tenant.container] += process.AllocatedBytes
	}
	for container, bytes := range held {
		if bytes > cap64 {
			s.t.Errorf("container %d holds %d bytes by the card's own books, its cap is %d", container, bytes, cap64)
		}
	}
}

// checkAll proves that everybody goes on with intact data.
func (s *stage) checkAll() {
	s.t.Helper()
	for i, tenant := range s.tenants {
		tenant.OK("check 0 %d", i)
		tenant.OK("churn 2 %d", (cap64-s.sum(tenant.container))/2)
	}
}
