package session

// What surveys cost, and for how long they hold what launches wait for.

import (
	"os"
	"testing"
	"time"

	"weir/agent/control"
)

// BenchmarkSurvey is a survey of 500 containers without processes. wait-ns is the longest that the timekeeper's mutex was
// not to be had for meanwhile.
func BenchmarkSurvey(b *testing.B) {
	devices := newDevices(2)
	dir := b.TempDir()
	n, err := New(Options{RunDir: dir + "/run", StateDir: dir + "/state", Devices: devices, Library: []byte("x"), Version: "test"})
	if err != nil {
		b.Fatal(err)
	}
	defer n.stop()
	for range 500 {
		request := control.RunRequest{Name: "box", Command: []string{"box"}}
		if _, err := n.StartRun(b.Context(), os.Getpid(), uint32(os.Geteuid()), request); err != nil {
			b.Fatal(err)
		}
	}
	stop, waits := make(chan struct{}), make(chan time.Duration)
	go func() {
		longest := time.Duration(0)
		for {
			select {
			case <-stop:
				waits <- longest
				return
			default:
			}
			begun := time.Now()
			n.time.do(func(int64) {})
			longest = max(longest, time.Since(begun))
			time.Sleep(20 * time.Microsecond)
		}
	}()
	for b.Loop() {
		if _, err := n.Survey(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	close(stop)
	b.ReportMetric(float64((<-waits).Nanoseconds()), "wait-ns")
}
