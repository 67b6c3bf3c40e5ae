package top

// What is shown, as pages in testdata, and that pages fit whatever the terminal and the node are.

import (
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"weir/agent/control"
)

var update = flag.Bool("update", false, "write testdata anew")

func ptr[T any](v T) *T { return &v }

const mib = int64(1) << 20

// sampleAt is a node so many seconds after the first sample.
func sampleAt(second int64) *Sample {
	trainer := control.Container{
		ID: "0123456789ab", Name: "trainer-with-a-long-name", Namespace: "team-a", Identity: "cgroup", State: "running", Enforced: true,
		EnforcedBy: ptr(control.ByLibrary),
		GPUs: []control.GPUUse{
			{Index: 0, UUID: "GPU-0", CapBytes: ptr(8192 * mib), ChargedBytes: 12000 * mib, UsedBytes: 12000 * mib, MovableBytes: 11000 * mib,
				Swap: &control.SwapUse{LimitBytes: 8192 * mib, ResidentBytes: ptr(6500 * mib), SwappedBytes: ptr(4500 * mib),
					MovedInBytes: ptr(mib * 1536 * second), MovedOutBytes: ptr(mib * 1200 * second),
					FaultedBytes: ptr(mib * 12 * second), DisplacedBytes: ptr(int64(0))}},
			{Index: 1, UUID: "GPU-1", CapBytes: ptr(8192 * mib)},
		},
	}
	service := control.Container{
		ID: "222222222222", Name: "service", Identity: "path", State: "running", Enforced: true, EnforcedBy: ptr(control.ByDriver),
		GPUs: []control.GPUUse{{Index: 0, UUID: "GPU-0", CapBytes: ptr(512 * mib), ChargedBytes: 96 * mib, UsedBytes: 96 * mib}, {UUID: "GPU-1"}},
	}
	free := control.Container{
		ID: "333333333333", Name: "no\x1bcap", Identity: "path", State: "ending", Reason: "process 7 (x): it runs without the library",
		GPUs: []control.GPUUse{{Index: 1, UUID: "GPU-1", ChargedBytes: 1 << 50, UsedBytes: 10240 * mib}},
	}
	foreign := control.Container{ID: "4", Name: "web", Namespace: "default", State: "running", Reason: "it has a GPU"}
	return &Sample{
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(second) * time.Second),
		Info: control.AgentInfo{Version: "1.2.3", GPUs: []control.GPU{
			{Index: 0, UUID: "GPU-0", Name: "Simulated A30", MemoryBytes: 24576 * mib, UsedBytes: ptr(8100 * mib), Simulated: true,
				UtilisationRatio: ptr(0.93), LinkInBytesPerSecond: ptr(int64(24e9)), LinkOutBytesPerSecond: ptr(int64(22e9))},
			{Index: 1, UUID: "GPU-1", Name: "A30", MemoryBytes: 24576 * mib},
		}},
		Containers: []control.Container{trainer, service, free, foreign},
		Flows: []control.Flow{
			{ContainerID: trainer.ID, UUID: "GPU-0", State: "leased", Mode: control.ModeLeased, ShareGot1s: ptr(0.74), ShareAsked: ptr(0.75),
				WaitMeanNS: ptr(int64(20_100_000))},
			{ContainerID: service.ID, UUID: "GPU-0", State: "waiting", Mode: control.ModeLeased, ShareGot1s: ptr(0.26), ShareAsked: ptr(0.25),
				WaitingNS: ptr(int64(1_460_000_000)), WaitMeanNS: ptr(int64(900_000))},
		},
	}
}

func press(m Model, keys ...string) Model {
	for _, key := range keys {
		m = m.Press(key)
	}
	return m
}

// The update function, key by key and sample by sample. `go test ./agent/top -update` writes the pages anew.
func TestPages(t *testing.T) {
	first := New(80, 24, false, "memory").Take(sampleAt(1), nil)
	later := first.Take(sampleAt(3), nil)
	other := sampleAt(0) // of an agent that has been started anew
	other.Info.Started = time.Unix(5, 0)
	for name, m := range map[string]Model{
		"empty":     New(80, 24, false, "memory"),
		"first":     first,
		"later":     later,
		"wide":      later.Resize(140, 12),
		"colour":    New(80, 24, true, "memory").Take(sampleAt(1), nil).Take(sampleAt(3), nil),
		"name":      press(later, "s", "s", "s", "s", "s"),
		"wait":      press(later, "s", "s", "s", "s"),
		"reversed":  press(later, "r"),
		"frozen":    press(later, "space").Take(sampleAt(9), nil),
		"thawed":    press(press(later, "space").Take(sampleAt(9), nil), "space").Take(sampleAt(11), nil),
		"help":      press(later, "?"),
		"helped":    press(later, "?", "x"),
		"lost":      later.Take(nil, errors.New("no agent answers at /run/weir/control.sock: connection refused")),
		"restarted": later.Take(other, nil),
		"nobody":    New(80, 24, false, "memory").Take(&Sample{Info: control.AgentInfo{Version: "1"}}, nil),
		"scrolled":  press(later.Resize(80, 7), "down", "down"),
	} {
		file := filepath.Join("testdata", name+".txt")
		page := m.Page() + "\n"
		if *update {
			if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if page != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, page, want)
		}
		if strings.Contains(page, "\x1b") != (name == "colour") {
			t.Errorf("%s: escape sequences: %q", name, page)
		}
	}
}

func TestQuit(t *testing.T) {
	for _, key := range []string{"q", "esc", "ctrl+c"} {
		if m := press(New(80, 24, false, "memory"), key); !m.Quit {
			t.Errorf("%s does not quit", key)
		}
	}
	if m := press(New(80, 24, false, "memory"), "h", "q"); !m.Quit {
		t.Error("q does not quit in help")
	}
}

// Rates are what has moved by the time between two samples; a counter that has fallen, or only begins, has none.
func TestRates(t *testing.T) {
	rows := Rows(sampleAt(3), sampleAt(1))
	if r := rows[0]; *r.In != float64(1536*mib) || *r.Out != float64(1200*mib) || *r.FaultIn != float64(12*mib) || *r.FaultOut != 0 {
		t.Errorf("%v %v %v %v", *r.In, *r.Out, *r.FaultIn, *r.FaultOut)
	}
	if r := Rows(sampleAt(1), sampleAt(3))[0]; r.In != nil || r.FaultIn != nil {
		t.Errorf("back in time: %v", r)
	}
	if r := Rows(sampleAt(1), nil)[0]; r.In != nil {
		t.Errorf("a first sample: %v", r)
	}
	if len(rows) != 4 || rows[1].In != nil || rows[3].Known {
		t.Errorf("%+v", rows)
	}
}

func TestShort(t *testing.T) {
	for bytes, want := range map[float64]string{
		0: "0", 1: "1B", 999: "999B", 1000: "1.0K", 1024: "1.0K", 10240: "10K", 1 << 20: "1.0M", 999 << 20: "999M", 1000 << 20: "1.0G",
		24 << 30: "24G", 1 << 62: "4.0E",
	} {
		if got := short(bytes); got != want || len(got) > 4 {
			t.Errorf("%v: %s, want %s", bytes, got, want)
		}
	}
	for ns, want := range map[int64]string{
		0: "0u", 999_499: "999u", 999_600: "1m", 20_100_000: "20m", 999_600_000: "1.0s", 9_949_000_000: "9.9s", 9_960_000_000: "10s",
		999_000_000_000: "999s", 1_001_000_000_000: ">16m",
	} {
		if got := span(ns); got != want || len(got) > 4 {
			t.Errorf("%d: %s, want %s", ns, got, want)
		}
	}
}

// Whatever the terminal's size, the node and the keys are, a page fits.
func TestPagesFit(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("WEIR_TEST_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	keys := []string{"s", "r", "p", "h", "down", "up", "pgdown", "pgup", "home", "end", "x", "j", "k"}
	for range 2000 {
		m := New(random.IntN(200), random.IntN(60), false, Orders[random.IntN(len(Orders))])
		for i := range int64(3) {
			s := sampleAt(i)
			for range random.IntN(40) {
				s.Containers = append(s.Containers, s.Containers[random.IntN(4)])
			}
			for range random.IntN(9) {
				s.Info.GPUs = append(s.Info.GPUs, s.Info.GPUs[0])
			}
			m = m.Take(s, nil)
			m = press(m, keys[random.IntN(len(keys))], keys[random.IntN(len(keys))]).Resize(1+random.IntN(200), 1+random.IntN(60))
			lines := strings.Split(m.Page(), "\n")
			if len(lines) > m.Height {
				t.Fatalf("%d lines of %d", len(lines), m.Height)
			}
			for _, line := range lines {
				if n := utf8.RuneCountInString(line); n > max(m.Width, leastWidth) || strings.ContainsAny(line, "\x1b\n") {
					t.Fatalf("a line of %d letters on %d: %q", n, m.Width, line)
				}
			}
		}
	}
}

func BenchmarkPage(b *testing.B) {
	now, before := sampleAt(3), sampleAt(1)
	for i := range 196 {
		c := now.Containers[0]
		c.ID = strconv.Itoa(i)
		now.Containers = append(now.Containers, c)
	}
	for b.Loop() {
		_ = New(120, 50, true, "memory").Take(before, nil).Take(now, nil).Page()
	}
}
