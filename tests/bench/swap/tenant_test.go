package swap

// The programs of a stage: how each is started, and what is said to it (tests/bench/tenants/tenant.c).

import (
	"fmt"
	"strings"
	"time"

	"weir/tests/bench/figures"
	"weir/tests/e2e/node"
)

// tenant is one program on a stage.
type tenant struct {
	*node.Program
	pid int
	set int64
}

// start starts a program and waits until it has its memory.
func (s *stage) start(i int) *tenant {
	count, bytes := s.pieces(s.sets[i], 4)
	mark, parts := int64(mib), int64(1)
	if s.byPieces {
		count, bytes = s.pieces(s.sets[i], 24)
		parts = count
	}
	if s.mark != 0 {
		mark = s.mark
	}
	if s.memory > gib {
		mark /= 16
	}
	settings := []string{
		"name=" + tenantName(i), fmt.Sprint("set=", count*bytes), fmt.Sprint("pieces=", count),
		fmt.Sprint("cost=", s.cost().Nanoseconds()), fmt.Sprint("mark=", mark), fmt.Sprint("parts=", parts),
		fmt.Sprint("plain=", s.plain),
	}
	switch s.way {
	case unscheduled:
		settings = append(settings, "managed=1")
	case exclusively:
		settings = append(settings, "managed=1", "lock="+s.lockFile, fmt.Sprint("quantum=", s.quantum().Milliseconds()))
	}
	t := &tenant{set: count * bytes}
	program := node.Build(s.scope, "bench/tenant")
	if s.way < swapped {
		t.Program = s.node.Bare(program, settings...)
	} else {
		most := s.part(capPart)
		if s.caps != nil {
			most = s.part(s.caps[i])
		}
		s.limits = append(s.limits, []limit{{bytes: most}})
		options := node.RunOptions{Name: tenantName(i), Memory: fmt.Sprint(most)}
		if s.way == swapped {
			options.Flags = []string{"--swap", fmt.Sprint(s.part(swapPart))}
		}
		t.Program = s.node.Run(options, program, settings...)
	}
	if line := t.LineWithin(patient); !read(line, "ready %d", &t.pid) {
		s.scope.Fatalf("%s, %s: a program says %q: %s", s.card.name, s.way, line, t.Stderr())
	}
	s.tenants = append(s.tenants, t)
	return t
}

// tenantName is what a program is called, in the books too.
func tenantName(i int) string { return fmt.Sprintf("tenant-%d", i+1) }

// part is a part of the card in whole pages.
func (s *stage) part(of float64) int64 { return int64(of*float64(s.memory)) / (2 * mib) * (2 * mib) }

func read(line, form string, values ...any) bool {
	n, err := fmt.Sscanf(line, form, values...)
	return err == nil && n == len(values)
}

// order tells a program what to do in a round, from a moment on.
func (s *stage) order(i, round int, begin time.Duration) {
	t := s.tenants[i]
	if s.arrivals == nil {
		words := fmt.Sprintf("fixed %d %d %d", begin, s.kernels(), begin+s.limit)
		if s.window != nil {
			first, count := s.window(round, i)
			words += fmt.Sprintf(" %d %d", first, count)
		}
		t.Send(words)
		return
	}
	words := []string{fmt.Sprintf("bursts %d %d %d", s.kernels(), begin, s.limit.Nanoseconds())}
	for _, at := range s.arrivals[i] {
		words = append(words, fmt.Sprint(at.Nanoseconds()))
	}
	t.Send(strings.Join(words, " "))
}

// answer is when a program had done its work.
func (s *stage) answer(i int) (end time.Duration) {
	line := s.tenants[i].LineWithin(s.limit + patient)
	if s.arrivals == nil {
		var kernels int64
		if !read(line, "done %d %d", &kernels, &end) {
			s.scope.Fatalf("%s, %s: a program says %q: %s", s.card.name, s.way, line, s.tenants[i].Stderr())
		}
		s.done = append(s.done, kernels)
		return end
	}
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != "done" || len(words) != len(s.arrivals[i])+1 {
		s.scope.Fatalf("%s, %s: a program says %q: %s", s.card.name, s.way, line, s.tenants[i].Stderr())
	}
	var delays []time.Duration
	for _, word := range words[1:] {
		var ns int64
		_, _ = fmt.Sscan(word, &ns)
		delays = append(delays, time.Duration(ns))
	}
	s.delays = append(s.delays, delays)
	return figures.Monotonic()
}

// check has a program compare its data with what it wrote.
func (s *stage) check(t *tenant) {
	t.Send("check")
	var checked, wrong int64
	if line := t.LineWithin(patient); !read(line, "checked %d %d", &checked, &wrong) {
		s.scope.Fatalf("%s, %s: a program says %q: %s", s.card.name, s.way, line, t.Stderr())
	}
	s.checked += checked
	s.wrong += wrong
}
