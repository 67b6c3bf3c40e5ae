//go:build amd64 || arm64

package sched

// Where there are many flows, a decision takes the time of the first touch of what no cache holds. Which flow is
// likely to be next is known a turn before, so what its turn touches is brought near then, which waits for nothing.

// near asks the processor for this many lines of 64 bytes from p on, at least one. It never faults, whatever lies there.
//
//go:noescape
func near(p uintptr, lines int)
