package cases

// T6 where the stream's context is not the current one.

import (
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// T6: a stream is its device's whatever context is current, and a thread that has none may use its stream: what goes
// into it is held back by that device's gate, and by no other's.
func TestT6StreamsOfOtherContexts(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Config: always, Machine: node.Machine("256MiB", "2MiB") + node.Card("256MiB", "2MiB")})
	holder := n.Flow(node.RunOptions{Name: "holder", Flags: []string{"--weight", "1000"}}, 1)
	holder.Play("gpu=1 " + node.Hog)
	for _, c := range []struct {
		name  string
		first []string // contexts 0 and 1 are on the GPUs of these numbers, and the last one made is current
		fill  string   // memory of a context, in the stream that was made
		held  bool
	}{
		{"own", []string{"context 0", "context 1", "stream"}, "fill 1 0", true},
		{"another", []string{"context 0", "context 1", "stream", "use 0"}, "fill 1 0", true},
		{"none", []string{"context 0", "context 1", "stream", "use -1", "use -1"}, "fill 1 0", true},
		{"beside", []string{"context 0", "stream", "context 1"}, "fill 0 0", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := n.Run(node.RunOptions{Name: c.name, Flags: []string{"--weight", "0.001"}}, node.Build(t, "e2e/streamer"))
			said := []string{p.LineWithin(time.Minute)}
			for _, command := range c.first {
				p.Send(command)
				said = append(said, p.LineWithin(time.Minute))
			}
			if all := strings.Join(said, " "); strings.Count(all, "ok") != len(c.first) {
				t.Fatal(all)
			}
			held := false
			for begin := time.Now(); !held && time.Since(begin) < 5*time.Second; {
				p.Send(c.fill)
				line := p.LineWithin(4 * time.Second)
				held = strings.HasPrefix(line, "(nothing")
				if !held && line != "ok" {
					t.Fatal(line)
				}
			}
			if held != c.held {
				t.Errorf("what goes into the stream is held back: %v", held)
			}
		})
	}
}
