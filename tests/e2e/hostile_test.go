package e2e

// A tenant may attack what it shares with the agent. Its session ends; nobody else notices.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// bystander is a program in another container that must go on as if nothing happened.
func bystander(n *node.Node) *node.Puppet {
	p := n.Puppet(node.RunOptions{Name: "bystander", Memory: "64MiB"})
	p.OK("init")
	p.OK("alloc %d", mib)
	p.OK("fill 0 9")
	return p
}

func checkBystander(t *testing.T, n *node.Node, p *node.Puppet) {
	t.Helper()
	n.AgentAlive()
	p.OK("check 0 9")
	p.OK("churn 100 %d", 30*mib)
	if code := p.Code("alloc %d", 64*mib); code != outOfMemory {
		t.Errorf("the bystander past its cap: code %d", code)
	}
	if used, _ := n.Use("bystander"); used != mib {
		t.Errorf("the bystander uses %d bytes, inspect says", used)
	}
}

func TestForgedPages(t *testing.T) {
	for _, attack := range []struct {
		name string
		says string // by the forger: whether anything could be changed
		ends bool   // the forger's session
	}{
		{"usage-fill", "done", true},
		{"usage-credit", "done", true},
		{"usage-header", "done", true},
		{"usage-unmap", "done", false}, // it only hurts itself
		{"usage-shrink", "held", false},
		{"control-write", "held", false},
		{"control-shrink", "held", false},
	} {
		t.Run(attack.name, func(t *testing.T) {
			n := node.Start(t, node.Options{})
			witness := bystander(n)
			forger := n.Run(node.RunOptions{Name: "forger", Memory: "64MiB"}, node.Build(t, "e2e/forger"), attack.name)
			if says := forger.Line(); says != attack.says {
				t.Errorf("the forger says %q, want %q", says, attack.says)
			}
			ended := func() string {
				if len(n.EventsOf("forged", "forger")) > 0 {
					return ""
				}
				return "no event tells that the forger's session was ended for its page"
			}
			if attack.ends {
				n.Eventually(ended)
			} else {
				time.Sleep(500 * time.Millisecond)
				if ended() == "" {
					t.Errorf("the session was ended: %+v", n.EventsOf("forged", "forger"))
				}
			}
			checkBystander(t, n, witness)
			_, charged := n.Use("forger")
			if charged > 64*mib {
				t.Errorf("the forger is charged %d bytes, above its cap", charged)
			}
			// A new session in that container works, if it is another process.
			if forger.Kill(); !strings.Contains(n.MustWeir("ps"), "bystander") {
				t.Error("ps does not list the bystander")
			}
			checkBystander(t, n, witness)
		})
	}
}

// A program that is started without its container's socket passes its calls through; that is said.
func TestSocketTakenAway(t *testing.T) {
	n := node.Start(t, node.Options{})
	n.Run(node.RunOptions{Name: "deaf", Memory: "64MiB"}, "env", "-u", "WEIR_SOCKET", "sleep", "60")
	n.Eventually(func() string {
		for _, c := range n.Containers() {
			if !c.Enforced && strings.Contains(c.Reason, "WEIR_SOCKET") {
				return ""
			}
		}
		return fmt.Sprintf("nothing is said of it: %+v", n.Containers())
	})
}

func TestNonsenseOnTheTenantSocket(t *testing.T) {
	n := node.Start(t, node.Options{})
	witness := bystander(n)
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	babbler := n.Run(node.RunOptions{Name: "babbler", Memory: "64MiB"}, node.Build(t, "e2e/babbler"), number(seed), "300")
	reasons := map[string]int{}
	for {
		line := babbler.Line()
		if line == "done" {
			break
		}
		reason, ok := strings.CutPrefix(line, "closed ")
		if !ok {
			t.Fatalf("the babbler says %q", line)
		}
		reasons[reason]++
		if reasons[reason]%50 == 0 {
			witness.OK("churn 10 %d", 30*mib)
		}
	}
	t.Logf("connections by the reason of their end: %v", reasons)
	if reasons["1"] == 0 || reasons["2"] == 0 {
		t.Errorf("no connection was closed for the protocol, or none for its version: %v", reasons)
	}
	if reasons["0"] > 0 {
		t.Errorf("connections were ended without a reason: %v", reasons)
	}
	checkBystander(t, n, witness)
	// Nothing of all that is left.
	babbler.Wait(30 * time.Second)
	n.Eventually(func() string {
		if left := n.Containers(); len(left) != 1 {
			return fmt.Sprintf("containers %+v", left)
		}
		return ""
	})
}

// A process outside a container finds its socket and may not join it.
func TestStrangerIsRefused(t *testing.T) {
	n := node.Start(t, node.Options{})
	p := n.Run(node.RunOptions{Name: "home", Memory: "64MiB"}, "/bin/sh", "-c", `echo "$WEIR_SOCKET"; read x`)
	socket := p.Line()
	stranger := n.Command("/usr/bin/env", "WEIR_SOCKET="+socket, node.Build(t, "e2e/babbler"), "hello")
	if stranger.Stdout != "closed 3\n" {
		t.Errorf("a stranger at the container's socket is told %q, want its identity refused (3)", stranger.Stdout)
	}
	events := n.EventsOf("refused", "home")
	if len(events) == 0 {
		t.Errorf("no event tells of the stranger: %+v", n.Events())
	}
	if sessions := n.Container("home").Sessions; len(sessions) != 0 {
		t.Errorf("the stranger has a session: %+v", sessions)
	}
}

// What contexts take is for the agent to find out: a tenant that says it has a million of them, or
// holds memory that it does not declare, changes nothing for the others.
func TestLiesAboutContexts(t *testing.T) {
	const context = 4 * mib
	for _, lie := range []struct {
		name     string
		contexts string
		bytes    int64
		noDriver bool // for the agent
		answer   string
	}{
		{"many", "512", 0, false, fmt.Sprint("measured ", context)},
		{"undeclared", "1", 20 * mib, false, fmt.Sprint("measured ", context)},
		{"too many", "1000000", 0, false, "closed"},
		{"many, no driver", "512", 0, true, fmt.Sprint("measured ", context/512)},
		{"undeclared, no driver", "1", 20 * mib, true, fmt.Sprint("measured ", context+20*mib)},
	} {
		t.Run(lie.name, func(t *testing.T) {
			n := node.Start(t, node.Options{
				Machine: node.Machine("256MiB", "4MiB"), CountContext: true, NoDriver: lie.noDriver,
			})
			liar := n.Run(node.RunOptions{Name: "liar", Memory: "64MiB"}, "env", "-u", "LD_PRELOAD",
				node.Build(t, "e2e/surveyor"), lie.contexts, fmt.Sprint(lie.bytes))
			if says := liar.Line(); says != lie.answer {
				t.Errorf("the liar was told %q, want %q", says, lie.answer)
			}
			// Twice the context and a little more: enough for two contexts, not for three.
			p := n.Puppet(node.RunOptions{Name: "victim", Memory: "9MiB"})
			p.OK("init")
			p.OK("context 0")
			if code := p.Code("context 0"); code != outOfMemory {
				t.Errorf("a third context of 4 MiB under a cap of 9: code %d", code)
			}
			if used, _ := n.Use("victim"); used != 2*context {
				t.Errorf("%d bytes are used for two contexts", used)
			}
			n.AgentAlive()
		})
	}
}
