// Package chaos tests weir while processes and the agent are killed and stopped at random moments.
//
// The numbers of kills and tries are those that weir promises. WEIR_TEST_SCALE multiplies them: a
// whole number or a fraction. Every test prints its seed; WEIR_TEST_SEED repeats one.
package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

const (
	mib         = int64(1) << 20
	outOfMemory = 2 // CUDA_ERROR_OUT_OF_MEMORY
	racers      = 64
	cap64       = 64 * mib
)

// scaled is how many times something is done.
func scaled(t *testing.T, count int) int {
	t.Helper()
	text := os.Getenv("WEIR_TEST_SCALE")
	if text == "" {
		return count
	}
	scale, err := strconv.ParseFloat(text, 64)
	if err != nil || scale <= 0 {
		t.Fatalf("WEIR_TEST_SCALE=%q: want a number above 0", text)
	}
	return max(1, int(float64(count)*scale))
}

func seed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("WEIR_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("WEIR_TEST_SEED=%q: %v", text, err)
		}
	}
	t.Logf("WEIR_TEST_SEED=%d", seed)
	return seed
}

// crowd is the end of a run of clients/crowd.c, where all stand still.
type crowd struct {
	*node.Program
	values map[string]int64
}

func crowdArguments(t *testing.T, kills int, mode string, seed uint64) []string {
	return []string{node.Build(t, "e2e/crowd"), strconv.Itoa(racers), strconv.Itoa(kills),
		strconv.FormatInt(cap64, 10), mode, strconv.FormatUint(seed, 10)}
}

// watch waits for the crowd's verdict; while is called meanwhile, again and again.
func watch(t *testing.T, p *node.Program, while func()) crowd {
	t.Helper()
	lines := make(chan string, 1)
	go func() { lines <- p.LineWithin(5 * time.Minute) }()
	for {
		select {
		case line := <-lines:
			if !strings.HasPrefix(line, "sum ") {
				t.Fatalf("the crowd says %q\n%s", line, p.Stderr())
			}
			t.Log(line)
			words := strings.Fields(line)
			c := crowd{Program: p, values: map[string]int64{}}
			for i := 0; i+1 < len(words); i += 2 {
				c.values[words[i]], _ = strconv.ParseInt(words[i+1], 10, 64)
			}
			return c
		default:
			while()
		}
	}
}

func idle() { time.Sleep(10 * time.Millisecond) }

// 64 processes of one container race for the last bytes, and are killed at random: the card's own
// books, looked into after every allocation, are never above the cap; what fits is given; what the
// dead held is free at once. In "fair" mode no refusal is ever right, and none may happen.
func TestRaceForTheLastBytes(t *testing.T) {
	for mode, kills := range map[string]int{"greedy": 700, "fair": 300} {
		t.Run(mode, func(t *testing.T) {
			n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "512B")})
			arguments := crowdArguments(t, scaled(t, kills), mode, seed(t))
			p := n.Run(node.RunOptions{Name: "crowd", Memory: "64MiB"}, arguments[0], arguments[1:]...)
			c := watch(t, p, idle)
			if mode == "greedy" && (c.values["peak"] != cap64 || c.values["refusals"] == 0) {
				t.Errorf("the race was none: peak %d of %d, %d refusals", c.values["peak"], cap64, c.values["refusals"])
			}
			checkSum(t, n, c)
			endCrowd(t, n, c)
		})
	}
}

// endCrowd lets the crowd end and checks that nothing of it is left.
func endCrowd(t *testing.T, n *node.Node, c crowd) {
	t.Helper()
	if code, rest := c.Wait(time.Minute); code != 0 || len(rest) != 0 {
		t.Errorf("the crowd ends with %d and says %q", code, rest)
	}
	n.Eventually(func() string {
		if left := n.Containers(); len(left) != 0 {
			return fmt.Sprintf("%d containers are left: %+v", len(left), left)
		}
		return ""
	})
	n.AgentAlive()
}

// The same race while the agent is killed and restarted again and again.
func TestRaceWhileTheAgentRestarts(t *testing.T) {
	for _, mode := range []string{"greedy", "fair"} {
		t.Run(mode, func(t *testing.T) {
			n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "512B")})
			random := rand.New(rand.NewPCG(seed(t), 1))
			arguments := crowdArguments(t, scaled(t, 200), mode, random.Uint64())
			p := n.Run(node.RunOptions{Name: "crowd", Memory: "64MiB"}, arguments[0], arguments[1:]...)
			n.Eventually(func() string { return registered(n) })
			restarts := 0
			c := watch(t, p, func() {
				if restarts%3 == 2 {
					n.Eventually(func() string { return serves(n) })
				}
				time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
				n.KillAgent()
				time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
				n.StartAgent()
				restarts++
			})
			t.Logf("%d restarts of the agent meanwhile", restarts)
			checkSum(t, n, c)
			endCrowd(t, n, c)
		})
	}
}

func registered(n *node.Node) string {
	if len(n.Containers()) == 0 {
		return "no container is registered"
	}
	return ""
}

// serves says whether the agent has all tenants back. Those that meet only agents which die before
// they answer anybody give up after agent_wait, as they should: so every third agent must have
// served, and when the others die is chance.
func serves(n *node.Node) string {
	for _, session := range n.Container("crowd").Sessions {
		if session.State == "recovered" {
			return "a tenant is not connected again"
		}
	}
	return ""
}

// checkSum compares what the agent says with what the living hold.
func checkSum(t *testing.T, n *node.Node, c crowd) {
	t.Helper()
	if used, charged := n.Use("crowd"); used != c.values["sum"] || charged > cap64 {
		t.Errorf("the living hold %d bytes; inspect says %d used, %d charged", c.values["sum"], used, charged)
	}
}

// 1,000 SIGKILLs of clients of the simulated GPU, without weir: what the dead held is free within
// 100 ms, nobody hangs, the data of the living are intact (each racer checks its own). Whoever looks
// may be off the processor for longer where the machine is busy: one of three tries has to do.
func TestKilledClientsOfTheSimulatedGPU(t *testing.T) {
	for range 3 {
		took := killClients(t)
		if took <= 100*time.Millisecond {
			return
		}
		t.Logf("the memory of a killed process was free only after %s", took)
	}
	t.Error("three times the memory of a killed process was free too late")
}

// killClients returns the longest time that the memory of a killed client took to be free.
func killClients(t *testing.T) time.Duration {
	// One granule of 128 KiB more than the crowd's cap, for the contexts and the code in them.
	n := node.Start(t, node.Options{NoAgent: true, Machine: node.Machine("65664KiB", "512B")})
	ptx := filepath.Join(node.Root(t), "tests/sim/kernels/spin.ptx")
	arguments := crowdArguments(t, scaled(t, 1000), "bare", seed(t))
	p := n.Bare("/usr/bin/env", append([]string{"CROWD_PTX=" + ptx}, arguments...)...)
	c := watch(t, p, idle)
	if c.values["launches"] == 0 || c.values["refusals"] == 0 {
		t.Errorf("no kernel was launched, or the card was never full: %v", c.values)
	}
	if code, rest := c.Wait(time.Minute); code != 0 || len(rest) != 0 {
		t.Errorf("the crowd ends with %d and says %q", code, rest)
	}
	return time.Duration(c.values["death-us-max"]) * time.Microsecond
}
