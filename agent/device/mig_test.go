// Cards that are divided, and where cards sit.

package device

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/tests/sim"
)

// simulateChanged makes a machine of the ready-made a100x4, whose lines `changes` replaces by key.
func simulateChanged(t *testing.T, changes map[string]string) string {
	t.Helper()
	text, err := os.ReadFile("../../tests/sim/machines/a100x4.toml")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		key, _, _ := strings.Cut(line, "=")
		if changed, there := changes[strings.TrimSpace(key)]; there {
			lines[i] = changed
		}
	}
	file := filepath.Join(t.TempDir(), "changed.toml")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return simulate(t, file)
}

func TestDividedCardsAreTheirMIGDevices(t *testing.T) {
	dir := simulateChanged(t, map[string]string{"count": "count = 1", "numa_node": "numa_node = 1",
		"pcie_path": "", "links": "", "gpus": "", "[[nvlink]]": "",
		"mig": "mig = \"A100-40GB\"\nmig_instances = [\"3g.20gb\", \"1g.5gb@1\"]\n" + secondCard})
	devices := openSimulated(t)
	books, err := sim.Status(dir)
	if err != nil {
		t.Fatal(err)
	}
	gpus := devices.GPUs()
	want := books.GPUs[0].MIG.Devices()
	if len(gpus) != 3 || len(want) != 2 {
		t.Fatalf("%d GPUs, of which %d are MIG devices: %+v", len(gpus), len(want), gpus)
	}
	for i, device := range want {
		gpu := gpus[i]
		if gpu.Index != 0 || gpu.UUID != device.UUID || gpu.Name != device.Name || !gpu.Simulated ||
			gpu.MemoryBytes != device.MemoryBytes || gpu.NUMANode != 1 {
			t.Errorf("MIG device %d: %+v", i, gpu)
		}
		instance := books.GPUs[0].MIG.Instances[i]
		if wantMIG := (MIG{
			Card: books.GPUs[0].UUID, Index: i, GPUInstance: instance.ID,
			ComputeInstance: 0, Profile: instance.Profile, Start: instance.Start,
			Length: instance.Length,
		}); gpu.MIG == nil || *gpu.MIG != wantMIG {
			t.Errorf("MIG device %d is %+v of its card, want %+v", i, gpu.MIG, wantMIG)
		}
	}
	if gpus[2].MIG != nil || gpus[2].Index != 1 || gpus[2].UUID != books.GPUs[1].UUID {
		t.Errorf("the whole card: %+v", gpus[2])
	}
	for _, pair := range []struct {
		a, b int
		want Link
	}{
		{0, 1, Link{Level: LevelSameCard}},
		{0, 0, Link{Level: LevelSameCard}},
		{0, 2, Link{Level: LevelHostBridge}},
		{2, 0, Link{Level: LevelHostBridge}},
	} {
		link, err := devices.Link(gpus[pair.a].UUID, gpus[pair.b].UUID)
		if err != nil || link != pair.want {
			t.Errorf("from %d to %d: %+v: %v", pair.a, pair.b, link, err)
		}
	}
}

// secondCard is one more card, which is not divided.
const secondCard = `
[[gpu]]
name               = "A100 40GB"
pci                = "0000:61:00.0"
numa_node          = 1
compute_capability = "8.0"
multiprocessors    = 108
clock              = "1410MHz"
memory_clock       = "1215MHz"
memory_bus         = 5120
memory             = "40GiB"
context_memory     = "416MiB"
host_to_device     = "24GB/s"
device_to_host     = "24GB/s"
memory_bandwidth   = "1555GB/s"
copy_latency       = "10us"
slice              = "1024us"
switch_cost        = "100us"
launch_latency     = "2.6us"
kernel_min         = "2us"
kernel_thread      = "10ps"
context_create     = "0ns"
queue_depth        = 1024
`

func TestMIGMemoryAndProcesses(t *testing.T) {
	simulateChanged(t, map[string]string{
		"mig": "mig = \"A100-40GB\"\nmig_instances = [\"1g.5gb@0\", \"1g.5gb@1\"]"})
	devices := openSimulated(t)
	const context = (416 << 20) / 64
	const unit = 16 + 1*8 + 1 // the second MIG device of card 1, by its number in the machine
	pid, kill := startClient(t, unit, 8<<20)
	gpus := devices.GPUs()
	if len(gpus) != 8 {
		t.Fatalf("%d GPUs", len(gpus))
	}
	for i, gpu := range gpus {
		want, used := map[int]int64{}, int64(0)
		if i == 3 {
			want, used = map[int]int64{pid: 8<<20 + context}, 8<<20+context
		}
		got, err := devices.Processes(gpu.UUID)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("processes of %d: %v, want %v (%v)", i, got, want, err)
		}
		memory, err := devices.Memory(gpu.UUID)
		if err != nil || memory != (Memory{gpu.MemoryBytes, used, gpu.MemoryBytes - used}) {
			t.Errorf("memory of %d: %+v (%v)", i, memory, err)
		}
	}
	kill()
	if got, err := devices.Processes(gpus[3].UUID); err != nil || len(got) != 0 {
		t.Errorf("after its end: %v (%v)", got, err)
	}
}

func TestTopology(t *testing.T) {
	simulate(t, "a100x4")
	devices := openSimulated(t)
	gpus := devices.GPUs()
	for i, gpu := range gpus {
		if gpu.NUMANode != i/2 {
			t.Errorf("GPU %d is near node %d", i, gpu.NUMANode)
		}
		for k, other := range gpus {
			want := Link{Level: LevelSystem, NVLinks: 4, Peer: true}
			if i/2 == k/2 {
				want.Level = LevelSwitch
			}
			if i == k {
				want = Link{Level: LevelSameCard}
			}
			link, err := devices.Link(gpu.UUID, other.UUID)
			if err != nil || link != want {
				t.Errorf("from %d to %d: %+v, want %+v: %v", i, k, link, want, err)
			}
		}
	}
	if _, err := devices.Link(gpus[0].UUID, "GPU-0"); err == nil {
		t.Error("a link to a GPU that is not there")
	}
}

func TestNUMANodeOfTheKernel(t *testing.T) {
	sys := t.TempDir()
	dir := filepath.Join(sys, "bus/pci/devices/0000:3b:00.0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"1\n": 1, "-1\n": -1, "": -1} {
		if err := os.WriteFile(filepath.Join(dir, "numa_node"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := numaNodeOf(sys, "00000000:3B:00.0"); got != want {
			t.Errorf("%q: node %d, want %d", text, got, want)
		}
	}
	if got := numaNodeOf(sys, "00000000:3C:00.0"); got != -1 {
		t.Errorf("of no device: %d", got)
	}
}
