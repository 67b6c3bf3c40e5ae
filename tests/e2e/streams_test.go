package e2e

// Streams as allocations and graphs meet them: of other contexts, of none that is current, and with
// handles that another stream had before.

import (
	"testing"

	"weir/tests/e2e/node"
	"weir/tests/sim"
)

// streams is a program that allocates in streams, and the books by which it is judged.
type streams struct {
	*node.Puppet
	n       *node.Node
	t       *testing.T
	machine *sim.Running
}

func startStreams(t *testing.T, memory string) *streams {
	t.Helper()
	card := node.Machine("512MiB", "1MiB") + "pool_chunk = \"1MiB\"\n"
	n := node.Start(t, node.Options{Machine: card})
	machine, err := sim.Open(n.SimDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(machine.Close)
	p := n.Run(node.RunOptions{Name: "streams", Memory: memory}, node.Build(t, "e2e/streamer"))
	if line := p.Line(); line != "ready" {
		t.Fatalf("the program says %q", line)
	}
	return &streams{Puppet: n.AsPuppet(p), n: n, t: t, machine: machine}
}

// agree compares the container's charge with what its processes have on the simulated GPU, contexts
// apart, which are not counted here.
func (s *streams) agree(when string) {
	s.t.Helper()
	books, err := s.machine.Books()
	if err != nil {
		s.t.Fatal(err)
	}
	gpu := books.GPUs[0]
	has := int64(gpu.UsedBytes) - int64(gpu.ContextBytes)
	if used, _ := s.n.Use("streams"); used != has {
		s.t.Errorf("%s: %d bytes are charged, %d are in use", when, used, has)
	}
}

// A thread without a current context may allocate in a stream, as in that of another context: the
// stream tells the device.
func TestStreamOrderedMemoryWithoutCurrentContext(t *testing.T) {
	s := startStreams(t, "16MiB")
	s.OK("context")
	s.OK("stream")
	s.OK("use -1")
	s.OK("async %d 0", 4*mib)
	s.agree("allocated without a current context")
	s.OK("async %d 0", 4*mib)
	s.agree("allocated again")
	if code := s.Code("async %d 0", 12*mib); code != outOfMemory {
		t.Errorf("over the cap: code %d", code)
	}
	s.agree("refused")
	s.OK("context")
	s.OK("async %d 0", 4*mib)
	s.agree("allocated in another context's stream")
}

// A graph has its memory in the stream that it was launched in. Another stream that is given the
// handle of one that has ended, and the default streams of another context, are not that stream.
func TestGraphInAnotherStreamOfTheSameHandle(t *testing.T) {
	streams := map[string]int{"handle given again": 0, "legacy stream": -1, "per-thread stream": -2}
	for name, stream := range streams {
		t.Run(name, func(t *testing.T) {
			s := startStreams(t, "10MiB")
			s.OK("context")
			s.OK("graph %d", 6*mib)
			s.OK("graph %d", 6*mib)
			if stream >= 0 {
				s.OK("stream")
			}
			s.OK("launch 0 %d", stream)
			s.OK("launch 1 %d", stream)
			s.OK("sync")
			s.OK("hold %d", stream)
			s.OK("launch 1 %d", stream) // its memory, which is the first one's too, stays in use
			if stream >= 0 {
				s.OK("unstream 0")
				stream = int(s.Number("stream"))
			} else {
				s.OK("context")
			}
			s.agree("one graph is held up")
			if code := s.Code("launch 0 %d", stream); code != outOfMemory {
				t.Errorf("the other does not fit beside it: code %d", code)
			}
			s.agree("the other is refused")
			s.OK("go")
			s.OK("use 0")
			s.OK("sync")
			s.OK("launch 0 %d", stream)
			s.agree("the other is launched")
		})
	}
}
