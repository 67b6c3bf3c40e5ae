package model

// The gate's handshake holds in every order of its steps, and no part of it can be left out.

import (
	"os"
	"strings"
	"testing"
)

// What the agent does, ending with a grant each time.
var plans = map[string][]Act{
	"taken twice":        {Revoke, Grant, Revoke, Grant},
	"page while open":    {Swap, Grant, Revoke, Grant},
	"page while closed":  {Revoke, Swap, Grant},
	"page between grant": {Revoke, Grant, Swap, Grant},
}

// long says whether to explore what takes minutes and some gigabytes: threads and process stopped in the same run,
// and the whole of a plan with the process stopped.
var long = os.Getenv("LONG") != ""

// explore has each thread launch twice; where threads may be stopped at any step once, though they still enter
// more often.
func explore(t *testing.T, p Protocol, acts []Act) (broken string) {
	t.Helper()
	launches := 2
	if p.GivesUp || p.Impatient {
		launches = 1
	}
	if p.Impatient && !long && len(acts) > 3 {
		acts = acts[:2]
	}
	states, trace := Explore(p, acts, launches)
	t.Logf("%d states", states)
	if trace == nil {
		return ""
	}
	t.Logf("%s", strings.Join(trace, "\n"))
	return trace[len(trace)-1]
}

func TestGateHolds(t *testing.T) {
	for name, acts := range plans {
		t.Run(name, func(t *testing.T) {
			for variant, p := range map[string]Protocol{
				"membarrier":                         {},
				"locked":                             {Locked: true},
				"membarrier, a thread is stopped":    {GivesUp: true},
				"membarrier, the process is stopped": {Impatient: true},
				"locked, both are stopped":           {Locked: true, GivesUp: true, Impatient: true},
				"membarrier, both are stopped":       {GivesUp: true, Impatient: true},
			} {
				if p.GivesUp && p.Impatient && !long {
					continue
				}
				t.Run(variant, func(t *testing.T) {
					if broken := explore(t, p, acts); broken != "" {
						t.Error(broken)
					}
				})
			}
		})
	}
}

// Each part of the handshake is needed: without it the model finds what goes wrong.
func TestGateBroken(t *testing.T) {
	lost, stuck := "no launch was under way any more", "nobody can go on"
	for name, c := range map[string]struct {
		protocol Protocol
		plan     string
		want     string
	}{
		"no membarrier":                 {Protocol{NoBarrier: true}, "taken twice", lost},
		"membarrier on one thread":      {Protocol{NoSecondBuffer: true}, "taken twice", lost},
		"load before store":             {Protocol{LoadFirst: true}, "taken twice", lost},
		"load before store, locked":     {Protocol{LoadFirst: true, Locked: true}, "taken twice", lost},
		"words before the barrier":      {Protocol{WordsFirst: true}, "taken twice", lost},
		"no look after the wake-up":     {Protocol{NoRecheck: true}, "taken twice", lost},
		"a sleep that does not compare": {Protocol{BlindSleep: true}, "taken twice", stuck},
		"a wake-up before the grant":    {Protocol{WakesTooEarly: true}, "taken twice", stuck},
		"a page without a revocation":   {Protocol{SilentSwap: true}, "page while open", lost},
		"late launches not looked for":  {Protocol{Impatient: true, NoLateCheck: true}, "taken twice", "did not notice"},
		"a number that stays":           {Protocol{Impatient: true, SameNumber: true}, "taken twice", ""},
	} {
		t.Run(name, func(t *testing.T) {
			broken := explore(t, c.protocol, plans[c.plan])
			if broken == "" || !strings.Contains(broken, c.want) {
				t.Errorf("the model finds %q, want %q", broken, c.want)
			}
		})
	}
}
