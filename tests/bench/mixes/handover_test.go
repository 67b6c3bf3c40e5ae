package mixes

// Hand-overs: from the true end of the holder's last kernel to the first launch of the next holder, beside a bare
// chain of the same wake-ups (a timer's, a message's, a futex's) in the same seconds, and the messages meanwhile.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/tests/bench/figures"
	"weir/tests/e2e/node"
)

const (
	handoversFor   = 3500 * time.Millisecond
	tracedFor      = 800 * time.Millisecond
	handoversLeast = 50 // fewer tell nothing
	middleMost     = 3  // times the chain's
	highMost       = 2
	messagesMost   = 2
)

// span is from one moment to another, of the monotonic clock.
type span struct{ from, to time.Duration }

func (s span) takes() time.Duration { return s.to - s.from }

// spans are what tests/bench/time/handover.c has seen, by kind.
type spans map[string][]span

// turns has the slot go to the other with each quantum, whether anybody is owed time or not, and often.
const turns = "contention = \"off\"\nthreshold = \"0s\"\nquantum = \"8ms\"\n"

// BenchmarkHandover has two busy programs that take turns. As other promises these are tried again if they do not hold.
func BenchmarkHandover(b *testing.B) {
	var verdicts []verdict
	for n := 1; n <= tries && (n == 1 || figures.MayTake(handoversFor+tracedFor+settle+around+timeFirst)); n++ {
		verdicts = handOver(b)
		for i := range verdicts {
			verdicts[i].tries = n
		}
		if !slices.ContainsFunc(verdicts, func(v verdict) bool { return !v.holds }) {
			break
		}
	}
	for _, v := range verdicts {
		v.print(b)
	}
}

func handOver(b *testing.B) []verdict {
	first, second := window(handoversFor), tracedFor
	r := &run{
		mix: mix{"hand-overs", of(hog, hog)}, how: underWeir, config: turns, phases: []time.Duration{first, second},
		scope: &figures.Scope{TB: b},
	}
	defer r.scope.End()
	r.prepare()
	begin := figures.Monotonic() + startUp
	measured := make(chan struct{})
	go func() {
		defer close(measured)
		r.measure(begin)
	}()
	time.Sleep(begin + settle - figures.Monotonic())
	verdicts := judgeHandovers(r.watch(begin + settle + first))
	verdicts = append(verdicts, countMessages(b, r, begin+settle+first+second)...)
	<-measured
	return verdicts
}

// watch gives what happens on the run's machine until a moment.
func (r *run) watch(until time.Duration) spans {
	machine := filepath.Join(r.node.SimDir, "machine")
	program := r.node.Bare(node.Build(r.scope, "bench/handover"), machine, fmt.Sprint(until.Nanoseconds()))
	seen := spans{}
	for {
		line := program.LineWithin(until - figures.Monotonic() + 10*time.Second)
		var kind string
		var from, to int64
		if n, _ := fmt.Sscan(line, &kind, &from, &to); n < 3 {
			return seen
		}
		seen[kind] = append(seen[kind], span{time.Duration(from), time.Duration(to)})
	}
}

func judgeHandovers(seen spans) (verdicts []verdict) {
	const name = "hand-over beyond the drain"
	ours, chain := durations(seen["handover"]), durations(seen["chain"])
	fmt.Printf("%d hand-overs, %d where kernels overlapped, %d rounds of the bare chain\n", len(ours), len(seen["overlap"]),
		len(chain))
	if len(ours) < handoversLeast || len(chain) == 0 {
		return []verdict{{name: name, promised: "to be measured", got: "too few"}}
	}
	for _, p := range []struct {
		name string
		part float64
		most float64
	}{{"p50", 0.5, middleMost}, {"p99", 0.99, highMost}} {
		mine, bare := at(ours, p.part), at(chain, p.part)
		times := float64(mine) / float64(bare)
		verdicts = append(verdicts, verdict{
			name: name + ", " + p.name, promised: fmt.Sprintf("at most %.0f times a bare chain's", p.most),
			got: fmt.Sprintf("%.2f (%s; chain %s)", times, micro(mine), micro(bare)), holds: times <= p.most,
		})
	}
	return verdicts
}

// countMessages counts, at the agent, what is sent and received while the slot goes from one program to the other. Now
// and then something else falls into that time, so nine of ten are to keep the promise.
func countMessages(b *testing.B, r *run, until time.Duration) []verdict {
	const name = "messages in a hand-over beyond the drain"
	path, err := exec.LookPath("strace")
	if err != nil {
		fmt.Println("skipped: no strace to count messages")
		return nil
	}
	file := filepath.Join(r.node.Dir, "messages")
	trace := r.node.Bare(path, "-f", "-qq", "-ttt", "-o", file, "-e", "trace=sendmsg,recvmsg,sendto,recvfrom,read,write", "-y",
		"-p", fmt.Sprint(r.node.Agent()))
	seen := r.watch(until)
	_ = syscall.Kill(trace.PID(), syscall.SIGINT)
	trace.Wait(10 * time.Second)
	messages, err := readMessages(file)
	if err != nil {
		b.Fatal(err)
	}
	var counts []int
	for _, h := range seen["handover"] {
		if len(messages) == 0 || h.from < messages[0] || h.to > messages[len(messages)-1] {
			continue
		}
		count := 0
		for _, at := range messages {
			if at >= h.from && at <= h.to {
				count++
			}
		}
		counts = append(counts, count)
	}
	if len(counts) == 0 {
		return []verdict{{name: name, promised: "to be counted", got: "no hand-overs"}}
	}
	slices.Sort(counts)
	many := counts[len(counts)*9/10]
	return []verdict{{
		name: name, promised: fmt.Sprint("at most ", messagesMost), holds: many <= messagesMost,
		got: fmt.Sprintf("%d in nine of ten of %d", many, len(counts)),
	}}
}

// durations of spans, the shortest first.
func durations(spans []span) (all []time.Duration) {
	for _, s := range spans {
		all = append(all, s.takes())
	}
	slices.Sort(all)
	return all
}

func at(sorted []time.Duration, part float64) time.Duration {
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)]
}

func micro(d time.Duration) string { return fmt.Sprintf("%.1f us", float64(d.Nanoseconds())/1000) }

// message is a call on a socket as strace writes it: thread, seconds, microseconds, and what it returned if it has by
// then; the second form is for the end of one that strace saw begin before.
var (
	message  = regexp.MustCompile(`^(\d+) +(\d+)\.(\d{6}) \w+\(\d+<(?:socket|UNIX)[^>]*>.*?(?:= (-?\d+).*|unfinished \.\.\.>)$`)
	finished = regexp.MustCompile(`^(\d+) .*resumed>.*= (-?\d+)`)
)

// readMessages is when each message of a trace was read or written, the first first.
func readMessages(file string) (times []time.Duration, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	// strace has the clock of the day.
	offset := time.Duration(time.Now().UnixNano()) - figures.Monotonic()
	begun := make(map[string]time.Duration)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if m := message.FindStringSubmatch(line); m != nil {
			whole, _ := strconv.ParseInt(m[2], 10, 64)
			micros, _ := strconv.ParseInt(m[3], 10, 64)
			at := time.Duration(whole)*time.Second + time.Duration(micros)*time.Microsecond - offset
			if m[4] == "" {
				begun[m[1]] = at
			} else if m[4] > "0" {
				times = append(times, at)
			}
		} else if m := finished.FindStringSubmatch(line); m != nil {
			if at, known := begun[m[1]]; known && m[2] > "0" {
				times = append(times, at)
			}
			delete(begun, m[1])
		}
	}
	slices.Sort(times)
	return times, nil
}
