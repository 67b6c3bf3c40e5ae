package main

// Rounds of measurements, and what is said of them.

import (
	"fmt"
	"slices"
	"time"
)

// warmUp are rounds before the first that counts: files are read, and the agent learns what it has to learn once.
const warmUp = 2

// rounds measures every kind once a round. Who is first changes from round to round.
func rounds(kinds []*kind, count int) error {
	for round := range warmUp + count {
		for i := range kinds {
			k := kinds[(round+i)%len(kinds)]
			one, err := k.run(round)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			if round >= warmUp {
				k.costs = append(k.costs, one)
			}
		}
	}
	return nil
}

func wall(c cost) time.Duration      { return c.wall }
func processor(c cost) time.Duration { return c.processor }

// medianOf is the median of one part of the costs.
func medianOf(costs []cost, part func(cost) time.Duration) time.Duration {
	values := make([]time.Duration, len(costs))
	for i, c := range costs {
		values[i] = part(c)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// added is what one kind has more in its median than another.
func added(base, other []cost, part func(cost) time.Duration) time.Duration {
	return medianOf(other, part) - medianOf(base, part)
}

// table prints what each kind took, and what it added to the first.
func table(kinds []*kind) {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	fmt.Printf("%-30s %10s %10s %14s %10s\n", "", "start, ms", "added", "processor, ms", "added")
	for _, k := range kinds {
		fmt.Printf("%-30s %10.2f %10.2f %14.2f %10.2f\n", k.name, ms(medianOf(k.costs, wall)),
			ms(added(kinds[0].costs, k.costs, wall)), ms(medianOf(k.costs, processor)),
			ms(added(kinds[0].costs, k.costs, processor)))
	}
}

// promise prints a promise beside what was measured.
func promise(name, promised, got string, holds bool) bool {
	word := "no"
	if holds {
		word = "yes"
	}
	fmt.Printf("promise: %s, promised %s, got %s, holds %s\n", name, promised, got, word)
	return holds
}
