// The driver's limits of memory, through the simulated NVML.

package device

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"weir/tests/sim"
)

// withLimits is the driver of a machine that holds limits.
const withLimits = "driver = \"615.10\"\nmemory_limits = true"

// group makes a control group of version 2.
func group(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount control groups")
	}
	at := t.TempDir()
	if err := unix.Mount("none", at, "cgroup2", 0, ""); err != nil {
		t.Skipf("control groups of version 2 cannot be mounted here: %v", err)
	}
	dir := filepath.Join(at, "weir-device-test-"+strconv.Itoa(os.Getpid()))
	err := os.Mkdir(dir, 0o755)
	t.Cleanup(func() {
		if err := errors.Join(os.Remove(dir), unix.Unmount(at, unix.MNT_DETACH)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// limitsOf are the limits that the machine's first card has.
func limitsOf(t *testing.T, machine string) []sim.LimitBooks {
	t.Helper()
	books, err := sim.Status(machine)
	if err != nil {
		t.Fatal(err)
	}
	return books.GPUs[0].Limits
}

func TestMemoryLimits(t *testing.T) {
	dir := group(t)
	machine := simulateChanged(t, map[string]string{"driver": withLimits})
	devices := openSimulated(t)
	gpu := devices.GPUs()[0]
	set := func(bytes int64) {
		t.Helper()
		if err := devices.SetMemoryLimit(gpu.UUID, dir, bytes); err != nil {
			t.Fatal(err)
		}
	}
	set(-1) // where there is none
	for _, bytes := range []int64{1 << 20, 3 << 20, 0, gpu.MemoryBytes} {
		set(bytes)
		if got := limitsOf(t, machine); len(got) != 1 || got[0].Directory != dir || got[0].HardBytes != bytes || got[0].SoftBytes != 0 {
			t.Errorf("%+v, want %d", got, bytes)
		}
	}
	if err := devices.SetMemoryLimit(gpu.UUID, dir, gpu.MemoryBytes+1); err == nil || errors.Is(err, ErrNoLimits) {
		t.Errorf("more than the card has: %v", err)
	}
	set(-1)
	if got := limitsOf(t, machine); len(got) != 0 {
		t.Errorf("taken away, and there is %+v", got)
	}
	set(1 << 20)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if got := limitsOf(t, machine); len(got) != 0 {
		t.Errorf("its group is gone, and there is %+v", got)
	}
	set(-1) // gone with its group
	if err := devices.SetMemoryLimit(gpu.UUID, dir, 1<<20); err == nil || errors.Is(err, ErrNoLimits) {
		t.Errorf("of a group that is gone: %v", err)
	}
	if err := devices.SetMemoryLimit("GPU-0", dir, 1<<20); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no GPU: %v", err)
	}
}

// oldNVML lacks the function.
type oldNVML struct{ nvml.Interface }

func (oldNVML) Extensions() nvml.ExtendedInterface { return oldNVML{} }

func (oldNVML) LookupSymbol(string) error { return errors.New("undefined symbol") }

func TestNoMemoryLimits(t *testing.T) {
	dir := t.TempDir()
	for name, lines := range map[string]map[string]string{
		"not held": nil,
		"MIG": {"driver": withLimits, "count": "count = 1", "numa_node": "", "pcie_path": "", "links": "", "gpus": "",
			"[[nvlink]]": "", "mig": "mig = \"A100-40GB\"\nmig_instances = [\"3g.20gb\"]"},
	} {
		t.Run(name, func(t *testing.T) {
			simulateChanged(t, lines)
			devices := openSimulated(t)
			if err := devices.SetMemoryLimit(devices.GPUs()[0].UUID, dir, 1<<20); !errors.Is(err, ErrNoLimits) {
				t.Error(err)
			}
		})
	}
	t.Run("old", func(t *testing.T) {
		simulateChanged(t, map[string]string{"driver": withLimits})
		devices := openSimulated(t)
		real := devices.lib
		devices.lib = oldNVML{real}
		err := devices.SetMemoryLimit(devices.GPUs()[0].UUID, dir, 1<<20)
		if devices.lib = real; !errors.Is(err, ErrNoLimits) {
			t.Error(err)
		}
	})
}

// refusing is a card whose limits NVML refuses to set.
type refusing struct {
	nvml.Device
	ret nvml.Return
}

func (c refusing) SetMemoryLimits_v1(string, uint64, uint64) nvml.Return { return c.ret }

// What the driver will not do for this agent is no failure; the rest may be tried again.
func TestRefusedMemoryLimits(t *testing.T) {
	simulate(t, "a30")
	devices := openSimulated(t)
	uuid, dir := devices.GPUs()[0].UUID, t.TempDir()
	for ret, none := range map[nvml.Return]bool{
		nvml.ERROR_NO_PERMISSION: true, nvml.ERROR_NOT_SUPPORTED: true, nvml.ERROR_FUNCTION_NOT_FOUND: true,
		nvml.ERROR_NOT_FOUND: false, nvml.ERROR_OPERATING_SYSTEM: false, nvml.ERROR_GPU_IS_LOST: false,
	} {
		devices.handles[uuid] = refusing{ret: ret}
		if err := devices.SetMemoryLimit(uuid, dir, 1<<20); !errors.Is(err, ret) || errors.Is(err, ErrNoLimits) != none {
			t.Errorf("%v: %v", ret, err)
		}
	}
}
