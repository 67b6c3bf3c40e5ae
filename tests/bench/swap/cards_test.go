package swap

// Simulated cards for programs whose sets exceed them. The quick ones have a part of the real cards' memory behind the
// real cards' links, so that moving all of it takes a tenth of a second. Scales are such that what the real card moves
// in 1.5 ms is 2 MiB here: less than that no allocation is moved by.

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

const (
	mib     = 1 << 20
	gib     = 1 << 30
	epsilon = 0.05 // of the time, moving may take
)

// card is one of them; sizes and rates are the simulated machine's.
type card struct {
	name    string
	memory  int64
	link    int64  // bytes a second, each way
	machine string // the text of its file
}

func swapCards(t testing.TB) []card {
	if os.Getenv("LONG") != "" {
		return []card{newCard(t, "a30", 24*gib, 320*mib, 24e9, 16), newCard(t, "h200", 141*gib, 512*mib, 50e9, 32)}
	}
	return []card{newCard(t, "a30", 3*gib, 40*mib, 24e9, 16), newCard(t, "h200", 6*gib, 40*mib, 50e9, 32)}
}

// newCard is a ready-made machine with so much memory, of which a context takes so much.
func newCard(t testing.TB, name string, memory, context, link, scale int64) card {
	text, err := os.ReadFile(filepath.Join(node.Root(t), "tests/sim/machines", name+".toml"))
	if err != nil {
		t.Fatal(err)
	}
	machine := string(text)
	for key, value := range map[string]string{
		"scale": fmt.Sprintf("1/%d", scale), "memory": fmt.Sprint(memory), "context_memory": fmt.Sprint(context),
		"cuda": "12.5", // whose driver tells the parameters of a kernel
	} {
		line := regexp.MustCompile(`(?m)^` + key + ` += ".*?"`)
		if !line.MatchString(machine) {
			t.Fatalf("machine %s has no %s", name, key)
		}
		machine = line.ReplaceAllString(machine, fmt.Sprintf("%s = %q", key, value))
	}
	machine = regexp.MustCompile(`(?m)^mig .*$`).ReplaceAllString(machine, "")
	return card{name: name, memory: memory / scale, link: link / scale, machine: machine}
}

// takes is how long so many bytes take over the link.
func (c card) takes(bytes int64) time.Duration {
	return time.Duration(float64(bytes) / float64(c.link) * float64(time.Second))
}

// quantum is how long leases last when half of the card changes with each and that is to take ε of the time.
func (c card) quantum() time.Duration {
	return time.Duration(float64(c.takes(c.memory/2)) / epsilon).Round(time.Millisecond)
}

// pieces cuts a part of the card into about so many allocations of whole 2 MiB.
func (c card) pieces(part float64, about int64) (count, bytes int64) {
	set := part * float64(c.memory)
	bytes = max(int64(set/float64(about*2*mib)+0.5), 1) * 2 * mib
	return int64(set/float64(bytes) + 0.5), bytes
}
