package device

// NVIDIA's multi-process service (MPS): which GPUs it serves, and whom.
//
// With it the kernels of several processes run on a GPU at once, and without it they take turns there whatever
// anybody decides. A control daemon waits for the first CUDA program and starts a server for it, which has
// a context on each GPU that it serves. Both are told by their names alone, in /proc: their pipes lie wherever
// CUDA_MPS_PIPE_DIRECTORY has said. A name proves nothing, so nothing that is enforced rests on it.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// MPSProgram is what the kernel calls MPS's programs, nvidia-cuda-mps-server and nvidia-cuda-mps-control: it keeps 15
// letters.
const MPSProgram = "nvidia-cuda-mps"

// MPS is what the multi-process service has to do with a GPU now.
type MPS struct {
	Servers []int // pids of those that have a context there
	// Clients have theirs through a server: bytes by pid. Before compute capability 7.0 they are
	// UnknownBytes, and the server holds the memory of all.
	Clients map[int]int64
	// Waiting: no server has a context on any GPU, and a control daemon runs, which starts one with the first
	// program. Whether for this GPU is its own business (CUDA_VISIBLE_DEVICES of the daemon).
	Waiting bool
}

// Serves says whether MPS serves the GPU, or would with the next program as far as can be told.
func (m MPS) Serves() bool { return len(m.Servers) > 0 || m.Waiting }

// MPS tells whether an MPS server serves a GPU, and whom. ErrNotFound, ErrClosed, or why NVML does not tell.
func (d *Devices) MPS(gpuUUID string) (MPS, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	handle, err := d.handle(gpuUUID)
	if err != nil {
		return MPS{}, err
	}
	var m MPS
	if m.Clients, err = d.mpsClients(gpuUUID, handle); err != nil {
		return MPS{}, err
	}
	if m.Servers, err = servers(gpuUUID, handle); err != nil {
		return MPS{}, err
	}
	m.Waiting = len(m.Servers) == 0 && d.noServer() && daemonRuns("/proc")
	return m, nil
}

// CheckSlots says why a GPU cannot have so many leases at a time, in one line that begins with the key; nil
// if it can.
func (d *Devices) CheckSlots(gpuUUID string, slots int) error {
	if slots <= 1 {
		return nil
	}
	m, err := d.MPS(gpuUUID)
	switch {
	case err != nil:
		return fmt.Errorf("slots = %d: whether MPS serves GPU %s cannot be told: %w", slots, gpuUUID, err)
	case !m.Serves():
		return fmt.Errorf("slots = %d: no MPS serves GPU %s, and without it programs take turns on a GPU, whoever holds a "+
			"lease; start nvidia-cuda-mps-control -d before the agent, or leave slots at 1", slots, gpuUUID)
	}
	return nil
}

// mpsClients lists a GPU's processes that came through MPS. It needs d.mu.
func (d *Devices) mpsClients(gpuUUID string, handle nvml.Device) (map[int]int64, error) {
	clients := make(map[int]int64)
	if !d.has("nvmlDeviceGetMPSComputeRunningProcesses") {
		return clients, nil // drivers before 470
	}
	list, ret := handle.GetMPSComputeRunningProcesses()
	switch ret {
	case nvml.SUCCESS:
	case nvml.ERROR_NOT_SUPPORTED:
		return clients, nil
	default:
		return nil, fmt.Errorf("listing the MPS processes of %s: %w", gpuUUID, ret)
	}
	for _, process := range list {
		clients[int(process.Pid)] = int64(process.UsedGpuMemory)
	}
	return clients, nil
}

// servers lists the MPS servers that have a context on a GPU.
func servers(gpuUUID string, handle nvml.Device) (pids []int, err error) {
	list, ret := handle.GetComputeRunningProcesses()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("listing the processes of %s: %w", gpuUUID, ret)
	}
	for _, process := range list {
		if isMPS("/proc", int(process.Pid)) {
			pids = append(pids, int(process.Pid))
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// noServer says whether no GPU of the node has a server. It needs d.mu.
func (d *Devices) noServer() bool {
	for uuid, handle := range d.handles {
		if found, err := servers(uuid, handle); err == nil && len(found) > 0 {
			return false
		}
	}
	return true
}

// daemonRuns says whether a program of MPS runs: where no server does, the control daemon.
func daemonRuns(proc string) bool {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return false
	}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && isMPS(proc, pid) {
			return true
		}
	}
	return false
}

// isMPS goes by what the kernel keeps itself: a process's memory, where its whole command line is, may never answer.
func isMPS(proc string, pid int) bool {
	name, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "comm"))
	return err == nil && strings.TrimSuffix(string(name), "\n") == MPSProgram
}
