package session

// What GPU time costs the agent.

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/agent/session/page"
	"weir/agent/session/turns"
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
		c.Join(now, told{usage, &discard{}}, i, "resting").Ready(now)
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
