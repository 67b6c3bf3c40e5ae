package main

// One check as it runs: what it says of itself, what it leaves to clean up, and its time limit.

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// How a check has ended.
const (
	pass    = "pass"
	fail    = "FAIL"
	skipped = "skipped"
)

// result is one row of the table.
type result struct {
	check   string
	outcome string
	text    string // the figure; of a failure or a skip, the reason
	took    time.Duration
}

// trial stands for a check where package node wants a test. It has what that package uses of a
// testing.TB; the rest would be called through nil.
type trial struct {
	testing.TB
	name string

	mu       sync.Mutex
	outcome  string
	text     string
	cleanups []func()
	over     bool // cleaned up: what comes after that is undone at once
	log      strings.Builder
}

func newTrial(name string) *trial { return &trial{name: name, outcome: pass} }

// set keeps the first failure; a failure outdoes a skip.
func (t *trial) set(outcome, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.outcome != fail {
		t.outcome, t.text = outcome, text
	}
	fmt.Fprintf(&t.log, "%s: %s\n", outcome, text)
}

// figure is what the row shows if the check passes.
func (t *trial) figure(format string, arguments ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.outcome == pass {
		t.text = fmt.Sprintf(format, arguments...)
	}
}

func (t *trial) Helper()      {}
func (t *trial) Name() string { return t.name }

func (t *trial) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outcome == fail
}

func (t *trial) Logf(format string, arguments ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(&t.log, format+"\n", arguments...)
}

func (t *trial) Error(arguments ...any) { t.set(fail, strings.TrimSpace(fmt.Sprintln(arguments...))) }

func (t *trial) Errorf(format string, arguments ...any) {
	t.set(fail, fmt.Sprintf(format, arguments...))
}

func (t *trial) Fatal(arguments ...any) {
	t.Error(arguments...)
	runtime.Goexit()
}

func (t *trial) Fatalf(format string, arguments ...any) {
	t.Errorf(format, arguments...)
	runtime.Goexit()
}

// skip ends a check that cannot be made here.
func (t *trial) skip(format string, arguments ...any) {
	t.set(skipped, fmt.Sprintf(format, arguments...))
	runtime.Goexit()
}

// Skipf is for package node, which skips a test where something is not built. Here nothing may be missing.
func (t *trial) Skipf(format string, arguments ...any) { t.Fatalf(format, arguments...) }

func (t *trial) Cleanup(function func()) {
	t.mu.Lock()
	over := t.over
	if !over {
		t.cleanups = append(t.cleanups, function)
	}
	t.mu.Unlock()
	if over {
		function()
	}
}

// cleanUp calls what is left to clean up, the last first. Several may call it: each function is called
// once.
func (t *trial) cleanUp() {
	for {
		t.mu.Lock()
		t.over = true
		count := len(t.cleanups)
		if count == 0 {
			t.mu.Unlock()
			return
		}
		last := t.cleanups[count-1]
		t.cleanups = t.cleanups[:count-1]
		t.mu.Unlock()
		last()
	}
}

// within runs a check. When its time is over, its programs are ended, which ends it as well; a check
// that goes on nevertheless is left behind.
func (t *trial) within(limit time.Duration, check func(*trial)) result {
	start := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.cleanUp()
		check(t)
	}()
	select {
	case <-done:
	case <-time.After(limit):
		t.Errorf("not done after %s", limit)
		t.cleanUp()
		select {
		case <-done:
		case <-time.After(lastPatience):
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return result{t.name, t.outcome, t.text, time.Since(start)}
}

// lastPatience is how long a check whose programs were ended may take to notice.
const lastPatience = 5 * time.Second

// attempt calls a function that may end its goroutine, as a trial's Fatalf does, and returns.
func attempt(function func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		function()
	}()
	<-done
}
