package session

// What GPU time costs the agent.

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/agent/control"
	"weir/agent/session/page"
	"weir/agent/session/sessiontest"
	"weir/agent/session/turns"
	"weir/cgo/abi"
)

// BenchmarkResting is one look at a thousand resting sessions on eight GPUs, of which there are ten a second.
// core-% is what that is of one processor.
func BenchmarkResting(b *testing.B) {
	table, err := turns.New(turns.Config{GPUs: 8, Settings: turns.Default()})
	if err != nil {
		b.Fatal(err)
	}
	control, err := page.NewControl(1, make([][16]byte, 8))
	if err != nil {
		b.Fatal(err)
	}
	defer control.Close()
	now := int64(time.Hour)
	for i := range 1000 {
		usage, fd, err := page.NewUsage(uint64(i))
		if err != nil {
			b.Fatal(err)
		}
		unix.Close(fd)
		defer usage.Close()
		c, err := table.Add(now, nil, control, 1)
		if err != nil {
			b.Fatal(err)
		}
		c.Join(now, told{usage, &discard{}, 0}, i, "resting").Ready(now)
	}
	before := processor(b)
	b.ResetTimer()
	for range b.N {
		now += int64(100 * time.Millisecond)
		table.Tick(now)
	}
	spent := float64(processor(b)-before) / float64(b.N)
	b.ReportMetric(spent, "cpu-ns/look")
	b.ReportMetric(100*spent*10/1e9, "core-%")
}

// processor is the processor time of this process so far, in ns.
func processor(b *testing.B) int64 {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// BenchmarkHandOver is from a DRAINED, through the socket and the agent, until the other container's lease word is
// open and who slept there has woken up.
func BenchmarkHandOver(b *testing.B) {
	bench := newFuzzBenchWith(b, byTurns(time.Hour))
	var tenants [2]*sessiontest.Tenant
	for i := range tenants {
		grant, err := bench.node.StartRun(b.Context(), os.Getpid(), uint32(os.Geteuid()), control.RunRequest{})
		if err != nil {
			b.Fatal(err)
		}
		if tenants[i], err = sessiontest.Connect(grant.Socket, "bench"); err != nil {
			b.Fatal(err)
		}
		defer tenants[i].Close()
		tenants[i].Work(0, true, 1, 0, 0)
		tenants[i].SayTurn("want", 0, tenants[i].Lease(0)>>1, 0)
	}
	open := func(i int) bool { return tenants[i].Lease(0)&abi.LeaseClosed == 0 }
	holder := 0
	for !open(0) && !open(1) {
	}
	if open(1) {
		holder = 1
	}
	var sum, worst time.Duration
	for range b.N {
		for open(holder) { // until its quantum is over
			time.Sleep(50 * time.Microsecond)
		}
		tenants[holder].Looks()
		from := time.Now()
		tenants[holder].SayTurn("drained", 0, tenants[holder].Lease(0)>>1, 1)
		holder = 1 - holder
		tenants[holder].AwaitOpen(0)
		took := time.Since(from)
		sum += took
		worst = max(worst, took)
	}
	b.ReportMetric(float64(sum.Nanoseconds())/float64(b.N), "ns/hand-over")
	b.ReportMetric(float64(worst.Nanoseconds()), "ns-worst")
}
