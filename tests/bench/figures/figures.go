// Package figures is what benchmarks of whole systems have in common: what they start ends before the test does, their
// clock is the programs' and the books', and each promise is a line. It belongs to tests.
package figures

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Scope is a testing.TB whose cleanups run when it ends.
type Scope struct {
	testing.TB
	cleanups []func()
}

// Cleanup keeps f for the end.
func (s *Scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// End runs the cleanups, the last first.
func (s *Scope) End() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
	s.cleanups = nil
}

// Monotonic is the clock of programs and books.
func Monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// MayTake tells whether something may take so long: run.sh says in WEIR_BENCH_UNTIL (seconds since 1970) until when the
// quick form is to be done.
func MayTake(d time.Duration) bool {
	until, err := strconv.ParseInt(os.Getenv("WEIR_BENCH_UNTIL"), 10, 64)
	return err != nil || time.Now().Add(d).Unix() < until
}

// Promise prints what was promised beside what was got. A promise that does not hold fails the benchmark.
func Promise(t testing.TB, name, promised, got string, holds bool) {
	word := "yes"
	if !holds {
		word = "no"
		t.Fail()
	}
	fmt.Printf("promise: %s, promised %s, got %s, holds %s\n", name, promised, got, word)
}

// Processors are the ticks that the machine's processors have spent: in all, idle, and taken away.
type Processors struct{ all, idle, stolen float64 }

// ReadProcessors are those spent so far.
func ReadProcessors() (p Processors) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return p
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line) {
		var ticks float64
		if _, err := fmt.Sscan(field, &ticks); err != nil || i > 8 {
			continue
		}
		p.all += ticks
		switch i {
		case 4, 5:
			p.idle += ticks
		case 8:
			p.stolen += ticks
		}
	}
	return p
}

// Since says, as words, what has been spent since then.
func (p Processors) Since(before Processors) string {
	all := max(1, p.all-before.all)
	return fmt.Sprintf("%.0f %% busy, of it %.0f %% taken by other guests of this host",
		100*(1-(p.idle-before.idle)/all), 100*(p.stolen-before.stolen)/all)
}
