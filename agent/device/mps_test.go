// MPS, as the simulated NVML shows it: by a program that has a server's name.

package device

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/tests/sim"
)

const mpsContext = (320 << 20) / 64 // of an A30

// asProgram copies a program under another name.
func asProgram(t *testing.T, file, name string) string {
	t.Helper()
	contents, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, contents, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// startServer starts a stand-in for an MPS server, which holds bytes.
func startServer(t *testing.T, gpu int, bytes int64) (pid int, kill func()) {
	t.Helper()
	return startProgram(t, asProgram(t, clientProgram, "nvidia-cuda-mps-server"), gpu, bytes)
}

func checkMPS(t *testing.T, devices *Devices, gpu int, want MPS, serves bool) {
	t.Helper()
	uuid := devices.GPUs()[gpu].UUID
	got, err := devices.MPS(uuid)
	if err != nil || !slices.Equal(got.Servers, want.Servers) || !maps.Equal(got.Clients, want.Clients) ||
		got.Waiting != want.Waiting || got.Serves() != serves {
		t.Errorf("GPU %d: %+v, want %+v (%v)", gpu, got, want, err)
	}
	switch err := devices.CheckSlots(uuid, 2); {
	case serves && err != nil:
		t.Errorf("GPU %d: two slots are refused: %v", gpu, err)
	case !serves && (err == nil || !strings.HasPrefix(err.Error(), "slots = 2: no MPS serves GPU "+uuid)):
		t.Errorf("GPU %d: two slots: %v", gpu, err)
	}
	if err := devices.CheckSlots(uuid, 1); err != nil {
		t.Errorf("GPU %d: one slot is refused: %v", gpu, err)
	}
}

func TestMPS(t *testing.T) {
	if daemonRuns("/proc") {
		t.Skip("MPS runs on this machine")
	}
	simulate(t, "a100x4")
	devices := openSimulated(t)
	const context = (416 << 20) / 64
	before, _ := startClient(t, 1, 1<<20)
	checkMPS(t, devices, 1, MPS{}, false)
	server, kill := startServer(t, 1, 0)
	first, _ := startClient(t, 1, 8<<20)
	second, _ := startClient(t, 1, 4<<20)
	checkMPS(t, devices, 0, MPS{}, false) // the server has nothing there
	checkMPS(t, devices, 1, MPS{
		Servers: []int{server}, Clients: map[int]int64{first: 8<<20 + context, second: 4<<20 + context},
	}, true)
	want := map[int]int64{
		before: 1<<20 + context, server: context, first: 8<<20 + context, second: 4<<20 + context,
	}
	if held, err := devices.Processes(devices.GPUs()[1].UUID); err != nil || !maps.Equal(held, want) {
		t.Errorf("processes: %v, want %v (%v)", held, want, err)
	}
	kill()
	checkMPS(t, devices, 1, MPS{}, false)
	if _, err := devices.MPS("GPU-0"); !errors.Is(err, ErrNotFound) {
		t.Errorf("of a GPU that is not there: %v", err)
	}
}

// TestMPSOfOldCards: the server has what its clients hold, and they are listed without it.
func TestMPSOfOldCards(t *testing.T) {
	simulateOld(t)
	devices := openSimulated(t)
	server, _ := startServer(t, 0, 0)
	client, _ := startClient(t, 0, 8<<20)
	checkMPS(t, devices, 0, MPS{Servers: []int{server}, Clients: map[int]int64{client: UnknownBytes}}, true)
	want := map[int]int64{server: 8<<20 + 2*mpsContext, client: UnknownBytes}
	if held, err := devices.Processes(devices.GPUs()[0].UUID); err != nil || !maps.Equal(held, want) {
		t.Errorf("processes: %v, want %v (%v)", held, want, err)
	}
}

// TestMPSDaemon: before the first program there is a control daemon and no server.
func TestMPSDaemon(t *testing.T) {
	if daemonRuns("/proc") {
		t.Skip("MPS runs on this machine")
	}
	simulate(t, "a30")
	devices := openSimulated(t)
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("sleep is not installed")
	}
	daemon := exec.Command(asProgram(t, sleep, "nvidia-cuda-mps-control"), "60")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { daemon.Process.Kill(); daemon.Wait() })
	checkMPS(t, devices, 0, MPS{Waiting: true}, true)
}

// simulateOld makes a machine with a card of compute capability 6.0.
func simulateOld(t *testing.T) {
	t.Helper()
	simulate(t, "a30")
	text, err := os.ReadFile("../../tests/sim/machines/a30.toml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "old.toml")
	old := strings.Replace(string(text), `compute_capability = "8.0"`, `compute_capability = "6.0"`, 1)
	if err := os.WriteFile(file, []byte(old), 0o644); err != nil {
		t.Fatal(err)
	}
	machine, err := sim.LoadMachine(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := sim.Up(dir, machine); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WEIR_SIM", dir)
}
