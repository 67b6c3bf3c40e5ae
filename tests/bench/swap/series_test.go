package swap

// What happened on a machine, from rows that its books were copied into each millisecond (watch.c).

import (
	"strings"
	"time"
)

const (
	numbers = 12                    // of a program in a row
	turn    = 30 * time.Millisecond // the shortest stretch of one program's work that counts as a lease
	period  = 10 * time.Millisecond // of sampling: for so long a container may be above its cap
)

// sample is what the books said of one program at a moment.
type sample struct {
	busy, fault                 time.Duration
	launches                    int64
	resident, faulted, fetched  int64
	populated, swappedOut, gone int64
	plain                       int64 // on the card, too, and does not move; contexts included
}

// row is what they said of all.
type row struct {
	at time.Duration
	of []sample
}

// stretch is time in which the compute engine worked for one program alone.
type stretch struct {
	of         int
	from, to   time.Duration // the beginning and the end of its work there
	first, end int           // rows around
}

// series are the rows of a run.
type series struct {
	sets []int64 // bytes
	rows []row
}

// newSeries reads what watch.c has written, as far as it is about these programs.
func newSeries(tenants []*tenant, text string) *series {
	s := &series{}
	pids := make([]int64, len(tenants))
	for i, t := range tenants {
		pids[i] = int64(t.pid)
		s.sets = append(s.sets, t.set)
	}
	for line := range strings.Lines(text) {
		if r, whole := readRow(line, pids); whole {
			s.rows = append(s.rows, r)
		}
	}
	return s
}

func readRow(line string, pids []int64) (r row, whole bool) {
	var fields []int64
	for _, word := range strings.Fields(line) {
		var n int64
		for _, digit := range word {
			if digit < '0' || digit > '9' {
				return r, false
			}
			n = 10*n + int64(digit-'0')
		}
		fields = append(fields, n)
	}
	if len(fields)%numbers != 1 {
		return r, false
	}
	r = row{at: time.Duration(fields[0]), of: make([]sample, len(pids))}
	for f := fields[1:]; len(f) > 0; f = f[numbers:] {
		for i, pid := range pids {
			if f[0] == pid {
				r.of[i] = sample{
					busy: time.Duration(f[2]), launches: f[3], fault: time.Duration(f[4]), resident: f[5], faulted: f[6],
					populated: f[7], fetched: f[8], swappedOut: f[9], gone: f[10], plain: f[11],
				}
			}
		}
	}
	return r, true
}

// stretches are the times of one program's work alone. Where it ends within a row's time, it ended as long after the
// row before as the engine had worked for it since then; so with its beginning.
func (s *series) stretches() (all []stretch) {
	for i := 1; i < len(s.rows); i++ {
		before, now := s.rows[i-1], s.rows[i]
		for p := range now.of {
			worked := now.of[p].busy - before.of[p].busy
			if worked == 0 {
				continue
			}
			if n := len(all); n > 0 && all[n-1].of == p {
				all[n-1].to, all[n-1].end = before.at+worked, i
			} else {
				all = append(all, stretch{of: p, from: now.at - worked, to: before.at + worked, first: i, end: i})
			}
		}
	}
	return all
}

// change is one hand-over, between two leases.
type change struct {
	from, to int           // programs
	stood    time.Duration // that the GPU stood still: between them, and for pages in the second one
	lacked   int64         // bytes of the second one's set, at most, since it ran last
	lacking  int64         // of them, when the first one ended
}

// most is how long the GPU may stand still: for 1.15 of what had to move, less what moved before.
func (c change) most(card card) time.Duration {
	return time.Duration(1.15*float64(card.takes(c.lacked))) - card.takes(c.lacked-c.lacking)
}

// changes are all hand-overs between stretches that are long enough to be leases.
func (s *series) changes() (all []change) {
	leases := s.stretches()
	for i := 1; i < len(leases); i++ {
		a, b := leases[i-1], leases[i]
		if a.to-a.from < turn || b.to-b.from < turn {
			continue
		}
		c := change{from: a.of, to: b.of, stood: b.from - a.to}
		c.stood += s.rows[b.end].of[b.of].fault - s.rows[b.first-1].of[b.of].fault
		c.lacking = s.sets[b.of] - s.rows[a.end].of[b.of].resident
		for at := b.first; at > 0 && s.rows[at-1].of[b.of].busy == s.rows[b.first-1].of[b.of].busy; at-- {
			c.lacked = max(c.lacked, s.sets[b.of]-s.rows[at].of[b.of].resident)
		}
		c.lacked = max(c.lacked, c.lacking)
		all = append(all, c)
	}
	return all
}
