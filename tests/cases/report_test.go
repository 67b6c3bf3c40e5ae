package cases

// M10 and M11 with all who report: the driver's two calls, NVML's two forms and its process lists,
// reached directly, by dlsym and by Python's ctypes.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/tests/e2e/node"
)

// nvml asks for the memory of GPU 0 in both forms, and checks that they and the driver agree. What
// total and free are.
func nvml(t *testing.T, p *node.Puppet, what string) (total, free int64) {
	t.Helper()
	v := p.Numbers("nvml 0")
	info := p.Numbers("info")
	total, free = v[0], v[1]
	if v[3] != total || v[4] != free || info[1] != total || info[0] != free || p.Number("total 0") != total {
		t.Errorf("%s: NVML v1 %v, v2 %v, cuMemGetInfo %v", what, v[:3], v[3:7], info)
	}
	if v[2] != total-free || v[5] != total-free || v[6] != 0 {
		t.Errorf("%s: used %d and %d, reserved %d, where total is %d and free %d", what, v[2], v[5], v[6], total, free)
	}
	return total, free
}

func TestM11NVML(t *testing.T) {
	n := counting(t, "256MiB", "")
	pair := n.Puppets(2, node.RunOptions{Name: "report", Memory: "64MiB"})
	outside := n.Puppet(node.RunOptions{Name: "outside"})
	for _, p := range append(slices.Clone(pair), outside) {
		p.OK("init")
	}
	pair[0].OK("alloc %d", 20*mib)
	outside.OK("alloc %d", 30*mib)
	for i, p := range pair {
		total, free := nvml(t, p, fmt.Sprint("process ", i))
		if want := 64*mib - 20*mib - 2*contextBytes; total != 64*mib || free != want {
			t.Errorf("process %d: total %d, free %d, want %d", i, total, free, want)
		}
	}
	// The card gets full from outside: nobody can have what is not there.
	outside.OK("alloc %d", 180*mib)
	if _, free := nvml(t, pair[0], "full card"); free > 256*mib-230*mib {
		t.Errorf("%d bytes are free of a card that has not so much left", free)
	}
	pair[0].OK("alloc %d", pair[0].Numbers("nvml 0")[1])
	// A cap of all of the card; a larger one is refused.
	n.SetCap("report", "256MiB")
	if v := pair[1].Numbers("nvml 0"); v[0] != 256*mib {
		t.Errorf("under a cap of all of the card total is %d", v[0])
	}
	over := n.Weir("caps", "set", "report", "--memory", "1GiB")
	if want := "--memory: 1GiB is more than GPU 0 has (256MiB); ask for at most that"; over.Code != 2 ||
		!strings.Contains(over.Stderr, want) {
		t.Errorf("exit %d, %q; want %s", over.Code, over.Stderr, want)
	}
}

// Under a cap the process list has the container's own processes only, and says how much room those
// need; without one it is NVML's own.
func TestM11ProcessLists(t *testing.T) {
	n := counting(t, "256MiB", "")
	pair := n.Puppets(2, node.RunOptions{Name: "capped", Memory: "64MiB"})
	free := n.Puppet(node.RunOptions{Name: "free"})
	bare := n.BarePuppet()
	everybody := append(slices.Clone(pair), free, bare)
	for _, p := range everybody {
		p.OK("init")
	}
	pids := func(list ...*node.Puppet) (sorted []int64) {
		for _, p := range list {
			sorted = append(sorted, int64(p.PID()))
		}
		slices.Sort(sorted)
		return sorted
	}
	for version := 1; version <= 3; version++ {
		for _, one := range []struct {
			p    *node.Puppet
			want []int64
		}{{pair[0], pids(pair...)}, {pair[1], pids(pair...)}, {free, pids(everybody...)}, {bare, pids(everybody...)}} {
			got := one.p.Numbers("nvml-list 0 %d 200", version)
			slices.Sort(got[2:])
			if got[0] != 0 || got[1] != int64(len(one.want)) || !slices.Equal(got[2:], one.want) {
				t.Errorf("version %d: %v, want %v", version, got, one.want)
			}
			const insufficient = 7
			small := one.p.Numbers("nvml-list 0 %d 1", version)
			if small[0] != insufficient || small[1] != int64(len(one.want)) {
				t.Errorf("version %d, room for one: %v, want code 7 and %d", version, small, len(one.want))
			}
		}
	}
}

// A program that asks NVML and never uses CUDA, as monitors do, is told the same; so is Python.
func TestM11MonitorAndPython(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	n := counting(t, "256MiB", "")
	script := filepath.Join(n.Dir, "monitor.py")
	err := os.WriteFile(script, []byte(`
import ctypes, sys
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
device = ctypes.c_void_p()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
memory = (ctypes.c_ulonglong * 3)()
for line in sys.stdin:
    code = nvml.nvmlDeviceGetMemoryInfo(device, memory)
    count = ctypes.c_uint(0)
    nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), None)
    values = [code, memory[0], memory[1], memory[2], count.value]
    if line.strip() == "cuda":
        cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        cuda.cuInit(0)
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        cuda.cuCtxSetCurrent(context)
        cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        nvml.nvmlDeviceGetMemoryInfo(device, memory)
        values = [code, total.value, free.value, memory[0], memory[1]]
    print(*values, flush=True)
`), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	numbers := func(p *node.Program, question string) (v []int64) {
		p.Send(question)
		for _, word := range strings.Fields(p.Line()) {
			one, _ := strconv.ParseInt(word, 10, 64)
			v = append(v, one)
		}
		return v
	}
	other := n.Puppet(node.RunOptions{Name: "other"})
	other.OK("init")
	monitor := n.Run(node.RunOptions{Name: "monitor", Memory: "32MiB"}, "/usr/bin/env", "python3", script)
	if v := numbers(monitor, "nvml"); !slices.Equal(v, []int64{0, 32 * mib, 32 * mib, 0, 0}) {
		t.Errorf("a monitor under a cap of 32 MiB is told %v", v)
	}
	if v := numbers(monitor, "cuda"); !slices.Equal(v, []int64{0, 32 * mib, 31 * mib, 32 * mib, 31 * mib}) {
		t.Errorf("and when it uses CUDA: %v", v)
	}
	if code, _ := monitor.Wait(patience); code != 0 || monitor.Stderr() != "" {
		t.Errorf("exit %d, stderr %q", code, monitor.Stderr())
	}
	open := n.Run(node.RunOptions{Name: "open"}, "/usr/bin/env", "python3", script)
	bare := n.Bare("/usr/bin/env", "python3", script)
	if got, want := numbers(open, "nvml"), numbers(bare, "nvml"); !slices.Equal(got, want) {
		t.Errorf("without a cap NVML says %v, alone %v", got, want)
	}
}

// M10 in the same way: without a cap NVML's answers are its own.
func TestM10NVML(t *testing.T) {
	n := counting(t, "256MiB", "")
	under, bare := n.Puppet(node.RunOptions{Name: "open"}), n.BarePuppet()
	for _, p := range []*node.Puppet{under, bare} {
		p.OK("init")
		p.OK("alloc %d", 10*mib)
	}
	for _, question := range []string{"nvml 0", "nvml-list 0 1 100", "nvml-list 0 3 100", "nvml-list 0 2 0"} {
		got, want := under.OK("%s", question), bare.OK("%s", question)
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %v, NVML alone %v", question, got, want)
		}
	}
}
