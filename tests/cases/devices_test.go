package cases

// D rows: devices. What is charged and what is busy is read from the simulated machine's own books.

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/agent/control"
	"weir/tests/e2e/node"
	"weir/tests/sim"
)

// gpuTable is the [[gpu]] table of a ready-made machine with one card, and what stands before it.
func gpuTable(t *testing.T, machine string) (head, table string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(node.Root(t), "tests/sim/machines", machine+".toml"))
	if err != nil {
		t.Fatal(err)
	}
	head, table, _ = strings.Cut(string(text), "[[gpu]]")
	return head, "[[gpu]]" + table
}

// dividedMachine is a machine of two A30, of which the second is divided into three MIG devices: one
// of half the card, and two of a quarter.
func dividedMachine(t *testing.T) string {
	head, table := gpuTable(t, "a30")
	second := strings.Replace(table, "0000:3b:00.0", "0000:5e:00.0", 1)
	return head + table + second + "mig_instances = [\"2g.12gb@0\", \"1g.6gb@2\", \"1g.6gb@3\"]\n"
}

func books(t *testing.T, n *node.Node) sim.Books {
	t.Helper()
	books, err := sim.Status(n.SimDir)
	if err != nil {
		t.Fatal(err)
	}
	return books
}

// useOf is what a container has by the agent, on the GPU of a UUID; all others must be untouched.
func useOf(t *testing.T, n *node.Node, container, uuid string) (use control.GPUUse) {
	t.Helper()
	for _, gpu := range n.Container(container).GPUs {
		if gpu.UUID == uuid {
			use = gpu
		} else if gpu.UsedBytes != 0 || gpu.ChargedBytes != 0 {
			t.Errorf("%s has %d bytes on %s, and uses %s", container, gpu.UsedBytes, gpu.UUID, uuid)
		}
	}
	return use
}

// D1: CUDA_VISIBLE_DEVICES renumbers the program's devices, by index, UUID, and MIG UUID; the charge
// goes to the GPU that is meant, and the cap of that GPU is what holds.
func TestD1VisibleDevices(t *testing.T) {
	n := node.Start(t, node.Options{Machine: "a100x4"})
	gpus := books(t, n).GPUs
	const caps = "64MiB,0=10MiB,1=21MiB,2=32MiB,3=43MiB"
	for variable, want := range map[string]struct {
		gpu      int
		capBytes int64
	}{
		"2,3": {2, 32 * mib}, "3": {3, 43 * mib}, gpus[1].UUID: {1, 21 * mib},
		gpus[0].UUID[:12] + ",1": {0, 10 * mib},
	} {
		name := "d1-" + strconv.Itoa(want.gpu)
		p := n.Puppet(node.RunOptions{Name: name, Memory: caps,
			Env: []string{"CUDA_VISIBLE_DEVICES=" + variable}})
		p.OK("init 0")
		checkCap(t, n, p, name, gpus[want.gpu].UUID, want.capBytes)
	}
}

// checkCap fills the cap that a puppet should have on a GPU, and compares all three: what the puppet
// got, what the agent charges, what the machine's books say.
func checkCap(t *testing.T, n *node.Node, p *node.Puppet, name, uuid string, capBytes int64) {
	t.Helper()
	if info := p.Numbers("info"); info[1] != capBytes {
		t.Errorf("%s: the program is told of %d bytes, its cap is %d", name, info[1], capBytes)
	}
	if got := p.Numbers("hog %d", mib); got[0] != capBytes/mib || got[1] != outOfMemory {
		t.Errorf("%s: got %d MiB, then code %d; the cap is %d", name, got[0], got[1], capBytes)
	}
	if use := useOf(t, n, name, uuid); use.UsedBytes != capBytes || use.CapBytes == nil ||
		*use.CapBytes != capBytes {
		t.Errorf("%s: the agent says %+v", name, use)
	}
	found := int64(-1)
	for _, gpu := range books(t, n).GPUs {
		for _, one := range append([]sim.GPUBooks{gpu}, devicesOf(gpu)...) {
			process, uses := one.Process(p.PID())
			switch {
			case uses && one.UUID == uuid:
				found = process.AllocatedBytes
			case uses:
				t.Errorf("%s: its process is in the books of %s", name, one.UUID)
			}
		}
	}
	if found != capBytes {
		t.Errorf("%s: %d bytes in the books of %s, want %d", name, found, uuid, capBytes)
	}
}

func devicesOf(gpu sim.GPUBooks) (devices []sim.GPUBooks) {
	for _, device := range gpu.MIG.Devices() {
		devices = append(devices, device.GPUBooks)
	}
	return devices
}

// D1 for a card that is divided: each MIG device has a cap and a charge of its own.
func TestD1VisibleMIGDevices(t *testing.T) {
	n := node.Start(t, node.Options{Machine: dividedMachine(t)})
	gpus := books(t, n).GPUs
	mig := devicesOf(gpus[1])
	caps := "50MiB"
	for i, device := range mig {
		ref := device.UUID
		if i == 2 {
			ref = "1:2" // its card's index, and its own on that
		}
		caps += fmt.Sprintf(",%s=%dMiB", ref, 20+i)
	}
	for i, test := range []struct {
		visible  string
		gpu      sim.GPUBooks
		capBytes int64
	}{
		{mig[0].UUID, mig[0], 20 * mib},
		{mig[1].UUID, mig[1], 21 * mib},
		{mig[2].UUID[:14], mig[2], 22 * mib},
		{mig[1].UUID + "," + mig[0].UUID, mig[1], 21 * mib}, // one MIG device at most
		{"0," + mig[2].UUID, mig[2], 22 * mib},              // and no card beside it
		{"1", mig[0], 20 * mib},                             // the first of the card
		{gpus[1].UUID, mig[0], 20 * mib},
		{"0", gpus[0], 50 * mib},
	} {
		name := "d1-" + strconv.Itoa(i)
		p := n.Puppet(node.RunOptions{Name: name, Memory: caps,
			Env: []string{"CUDA_VISIBLE_DEVICES=" + test.visible}})
		p.OK("init 0")
		if count := p.Number("count"); count != 1 {
			t.Errorf("%s: %d devices", test.visible, count)
		}
		checkCap(t, n, p, name, test.gpu.UUID, test.capBytes)
		p.Kill()
	}
	if events := n.EventsOf("denied", "d1-2"); len(events) == 0 ||
		!strings.Contains(events[0].Message, "on GPU 1:2") {
		t.Errorf("events: %+v", events)
	}
	out := n.Weir("run", "--memory", "1=10MiB", "--", "true")
	if out.Code == 0 || !strings.Contains(out.Stderr, "3 GPUs") {
		t.Errorf("a cap for three MIG devices by their card's index: %+v", out)
	}
}

// Two containers on two MIG devices of one card, each up to what its device has: neither takes from
// the other, and a container without a cap gets all of its own device.
func TestD1MIGDevicesAreApart(t *testing.T) {
	n := node.Start(t, node.Options{Machine: dividedMachine(t)})
	mig := devicesOf(books(t, n).GPUs[1])
	const context = (320 << 20) / 64
	for i, device := range mig {
		name := "apart-" + strconv.Itoa(i)
		p := n.Puppet(node.RunOptions{Name: name, Env: []string{"CUDA_VISIBLE_DEVICES=" + device.UUID}})
		p.OK("init 0")
		want := (device.MemoryBytes - context) / mib
		if got := p.Numbers("hog %d", mib); got[0] != want || got[1] != outOfMemory {
			t.Errorf("MIG device %d of %d bytes: got %d MiB, want %d, then code %d", i,
				device.MemoryBytes, got[0], want, got[1])
		}
	}
}

// D2: what one GPU is loaded with is never felt on another, cards and MIG devices alike: its
// programs never have to share, and their kernels are done in their own time.
func TestD2LoadOfAnotherGPU(t *testing.T) {
	n := node.Start(t, node.Options{Machine: dividedMachine(t)})
	ptx := filepath.Join(node.Root(t), "tests/sim/kernels/spin.ptx")
	gpus := books(t, n).GPUs
	mig := devicesOf(gpus[1])
	const cost = 5 * time.Millisecond
	var programs []*node.Program
	start := func(name, uuid string) {
		p := n.Run(node.RunOptions{Name: name, Memory: "32MiB",
			Env: []string{"CUDA_VISIBLE_DEVICES=" + uuid}}, node.Build(t, "e2e/spinner"), ptx,
			strconv.FormatInt(cost.Nanoseconds(), 10))
		if line := p.Line(); line != "ready" {
			t.Fatalf("%s says %q", name, line)
		}
		programs = append(programs, p)
	}
	// Two on the card, two on one MIG device, one alone on each of the others.
	loads := map[string]int{gpus[0].UUID: 2, mig[0].UUID: 1, mig[1].UUID: 2, mig[2].UUID: 1}
	for uuid, count := range loads {
		for i := range count {
			start(fmt.Sprintf("d2-%.12s-%d", uuid, i), uuid)
		}
	}
	for _, p := range programs {
		p.Send("go")
	}
	const kernels = 20
	n.Eventually(func() string {
		now := books(t, n)
		for _, gpu := range append(devicesOf(now.GPUs[1]), now.GPUs[0]) {
			if gpu.BusyNS < kernels*cost.Nanoseconds() {
				return fmt.Sprintf("%s has worked for %d ns only", gpu.UUID, gpu.BusyNS)
			}
		}
		return ""
	})
	now := books(t, n)
	for _, gpu := range append(devicesOf(now.GPUs[1]), now.GPUs[0]) {
		if shared := gpu.ContendedWallNS > 0; shared != (loads[gpu.UUID] == 2) {
			t.Errorf("%s, with %d programs, was shared for %d ns", gpu.Name, loads[gpu.UUID],
				gpu.ContendedWallNS)
		}
		if loads[gpu.UUID] != 1 {
			continue
		}
		// Alone: whenever its program had work, the engine did it.
		if gpu.Switches != 0 || gpu.WallByRivalsNS[0] != gpu.BusyNS {
			t.Errorf("%s had work for %d ns, worked for %d, and changed contexts %d times", gpu.Name,
				gpu.WallByRivalsNS[0], gpu.BusyNS, gpu.Switches)
		}
		if len(gpu.Processes) != 1 || gpu.Processes[0].ContendedNS != 0 {
			t.Errorf("%s worked for %+v", gpu.Name, gpu.Processes)
		}
	}
}

// D2 for memory: a card that is full refuses nothing on another.
func TestD2FullCardBesideAnother(t *testing.T) {
	n := node.Start(t, node.Options{Machine: "a100x4"})
	hog := n.BarePuppet()
	hog.OK("init 0")
	hog.OK("hog %d", 16*mib)
	p := n.Puppet(node.RunOptions{Name: "beside", Memory: "48MiB"})
	p.OK("init 1")
	if got := p.Numbers("hog %d", mib); got[0] != 48 {
		t.Errorf("got %d MiB of 48 beside a full card", got[0])
	}
}
