//go:build !amd64 && !arm64

package sched

// Processors for which near.go has no instruction.

func near(uintptr, int) {}
