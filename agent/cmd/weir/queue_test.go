// Tests of how GPU time is shown, and watched over restarts of the agent.

package main

import (
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/agent/control"
	"weir/agent/control/controltest"
)

func TestSpans(t *testing.T) {
	for want, ns := range map[string]int64{
		"0s": 0, "7ns": 7, "-999ns": -999, "1.23µs": 1234, "12.3µs": 12_345, "123µs": 123_456, "1.24ms": 1_235_000,
		"-20ms": -20_000_000, "1s": 999_600_000, "12.3s": 12_345_678_901, "1m15.3s": 75_260_000_000,
		"34h17m36s": 123_456_000_000_000,
	} {
		if got := spanOr(&ns); got != want {
			t.Errorf("%d ns is %q, want %q", ns, got, want)
		}
	}
	if got := spanOr(nil); got != "-" {
		t.Errorf("unknown is %q", got)
	}
}

func TestShares(t *testing.T) {
	for want, share := range map[string]float64{"0.0%": 0, "25.0%": 0.25, "33.3%": 1. / 3, "100.0%": 1, "0.1%": 0.001} {
		if got := shareOr(&share); got != want {
			t.Errorf("%g is %q, want %q", share, got, want)
		}
	}
	if got := shareOr(nil); got != "-" {
		t.Errorf("unknown is %q", got)
	}
}

func TestGPUsByName(t *testing.T) {
	gpus := []control.GPU{
		{Index: 0, UUID: "GPU-aaaa1111"}, {Index: 1, UUID: "GPU-aaaa2222"},
		{Index: 2, MIG: ptr(0), UUID: "MIG-3333"}, {Index: 2, MIG: ptr(1), UUID: "MIG-4444"},
	}
	for ref, want := range map[string]string{
		"0": "GPU-aaaa1111", "1": "GPU-aaaa2222", "2:1": "MIG-4444", "GPU-aaaa2": "GPU-aaaa2222", "mig-3": "MIG-3333",
		"GPU-aaaa1111": "GPU-aaaa1111", "2": "", "GPU-": "", "GPU-aaaa": "", "G": "", "GPU-aaaa11112": "", "-1": "", " 0": "",
	} {
		got, err := uuidOf(gpus, ref)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", ref, got, err, want)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "--gpu ") {
			t.Errorf("%v: it does not name the flag", err)
		}
	}
}

// pages keeps what is written, for whoever looks meanwhile.
type pages struct {
	sync.Mutex
	text strings.Builder
}

func (p *pages) Write(text []byte) (int, error) {
	p.Lock()
	defer p.Unlock()
	return p.text.Write(text)
}

// await waits until a text has been written so many times, and returns all that was.
func (p *pages) await(t *testing.T, want string, times int) string {
	t.Helper()
	for late := time.Now().Add(time.Minute); time.Now().Before(late); time.Sleep(time.Millisecond) {
		p.Lock()
		all := p.text.String()
		p.Unlock()
		if strings.Count(all, want) >= times {
			return all
		}
	}
	t.Fatalf("%q is not written", want)
	return ""
}

// watched watches the agent in dir until the returned function is called.
func watched(t *testing.T, dir, form string, shown, said io.Writer) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	q := queueView{agent: &connection{Client: control.NewClient(dir + "/control.sock")}, form: form, talk: said}
	ended := make(chan error, 1)
	go func() { ended <- q.watch(ctx, shown, time.Millisecond) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s, interrupted: %v", form, err)
		}
	}
}

func TestWatchGoesOnOverARestart(t *testing.T) {
	dir := t.TempDir()
	node := &controltest.Node{Flows: []control.Flow{{Container: "first", Mode: control.ModeOpen}}}
	stop, err := serveFake(dir, node)
	if err != nil {
		t.Fatal(err)
	}
	var shown, said pages
	end := watched(t, dir, formTable, &shown, &said)
	shown.await(t, "first", 2)
	node.Lock()
	node.Flows = []control.Flow{{Container: "second"}}
	node.Unlock()
	shown.await(t, "second", 1)
	stop()
	said.await(t, "waiting for it\n", 1)
	if stop, err = serveFake(dir, &controltest.Node{Flows: []control.Flow{{Container: "third"}}}); err != nil {
		t.Fatal(err)
	}
	defer stop()
	shown.await(t, "third", 2)
	end()
	if all := said.await(t, "", 0); strings.Count(all, "\n") != 1 {
		t.Errorf("it says %q, want one line", all)
	}
}

// What cannot be written ends it.
func TestWatchEndsWithItsOutput(t *testing.T) {
	dir := t.TempDir()
	stop, err := serveFake(dir, &controltest.Node{})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	defer writer.Close()
	q := queueView{agent: &connection{Client: control.NewClient(dir + "/control.sock")}, form: formJSON, talk: io.Discard}
	if err := q.watch(t.Context(), writer, time.Millisecond); err == nil {
		t.Error("it went on, or ended well")
	}
}

// Pages of one watch can be told apart wherever they go.
func TestWatchSeparatesItsPages(t *testing.T) {
	dir := t.TempDir()
	stop, err := serveFake(dir, &controltest.Node{})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for form, between := range map[string]string{formTable: "LEASES\n\nCONTAINER", formYAML: "\n---\n", formJSON: "}\n{"} {
		var shown pages
		end := watched(t, dir, form, &shown, io.Discard)
		all := shown.await(t, between, 2)
		end()
		if strings.HasPrefix(all, "\n") || strings.HasPrefix(all, "---") || strings.Contains(all, "\x1b") {
			t.Errorf("%s begins with what separates, or clears what is no terminal:\n%q", form, all)
		}
	}
}
