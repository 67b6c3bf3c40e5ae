// Machines that are up: made, read and taken away, through the C sources. Invariant: what is not a
// machine of weir's is neither replaced nor removed.

package sim

// #cgo CFLAGS: -std=gnu11 -Wall -Wextra -O2
// #cgo LDFLAGS: -pthread
// #include <stdlib.h>
// #include "layout.h"
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// granule is what all sizes of device memory are multiples of, in simulated bytes.
const granule = C.SIM_GRANULE

var (
	// ErrNoMachine says that a directory holds no simulated machine.
	ErrNoMachine = errors.New("no simulated machine")
	// ErrNotMachine says that a file has a machine's name and is none.
	ErrNotMachine = errors.New("no file of a simulated machine")
)

// InUseError says that processes of a machine are alive.
type InUseError struct {
	Dir  string
	PIDs []int // as the processes see themselves
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("the simulated machine in %s is in use by %d processes: pids %v",
		e.Dir, len(e.PIDs), e.PIDs)
}

func machinePath(dir string) string {
	return filepath.Join(dir, C.SIM_FILE)
}

// Up makes a machine in a directory, which it makes too if need be. A machine that is there is
// replaced if no process of it is alive; else the error is an *InUseError. ErrNotMachine: another
// file is in its place. fs.ErrPermission: the directory is another user's.
func Up(dir string, machine *Machine) error {
	if err := checkReplaceable(dir, false); err != nil {
		return err
	}
	if err := makeDir(dir, os.Geteuid()); err != nil {
		return err
	}
	config, err := machine.config()
	if err != nil {
		return fmt.Errorf("making machine %s: %w", machine.Name, err)
	}
	path := C.CString(machinePath(dir))
	defer C.free(unsafe.Pointer(path))
	if rc := C.sim_machine_create(path, &config); rc != 0 {
		return fmt.Errorf("making machine %s in %s: %w", machine.Name, dir, syscall.Errno(rc))
	}
	return divide(dir, machine)
}

// Down takes a machine away. Processes of it that are alive are refused with an *InUseError,
// unless force is set: they keep a machine that nobody else can see until they end. ErrNoMachine,
// ErrNotMachine: there is none to take away.
func Down(dir string, force bool) error {
	if err := checkReplaceable(dir, force); err != nil {
		return err
	}
	err := os.Remove(machinePath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w in %s", ErrNoMachine, dir)
	}
	if err != nil {
		return fmt.Errorf("taking the machine down: %w", err)
	}
	return nil
}

// checkReplaceable says why the file of a directory's machine must stay: it is something else, or
// a machine with live processes. One of another version of weir has none that could be seen.
func checkReplaceable(dir string, force bool) error {
	books, err := Status(dir)
	switch {
	case errors.Is(err, ErrNoMachine):
		return nil
	case errors.Is(err, syscall.EPROTO):
		return checkMachineFile(machinePath(dir))
	case err != nil:
		return err
	case len(books.LivePIDs) > 0 && !force:
		return &InUseError{Dir: dir, PIDs: books.LivePIDs}
	}
	return nil
}

// checkMachineFile tells a machine of whatever version from another file, by its first word.
func checkMachineFile(path string) error {
	// Without O_NONBLOCK a pipe in its place would be waited for.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("looking at the machine: %w", err)
	}
	defer file.Close()
	var magic [4]byte
	_, err = io.ReadFull(file, magic[:])
	if err != nil || binary.NativeEndian.Uint32(magic[:]) != C.SIM_MAGIC {
		return fmt.Errorf("%s is %w", path, ErrNotMachine)
	}
	return nil
}

// Running is a machine that is up, opened for reading. Its methods may be called from several
// goroutines; none after Close.
type Running struct {
	dir     string
	machine *C.struct_sim_machine
}

// Open opens the machine of a directory; it takes no part in it. ErrNoMachine: none is there.
func Open(dir string) (*Running, error) {
	path := C.CString(machinePath(dir))
	defer C.free(unsafe.Pointer(path))
	running := &Running{dir: dir}
	switch rc := syscall.Errno(C.sim_machine_open(path, &running.machine)); rc {
	case 0:
		return running, nil
	case syscall.ENOENT:
		return nil, fmt.Errorf("%w in %s", ErrNoMachine, dir)
	case syscall.EPROTO:
		return nil, fmt.Errorf("opening %s: not a machine of this version of weir: %w",
			machinePath(dir), rc)
	default:
		return nil, fmt.Errorf("opening %s: %w", machinePath(dir), rc)
	}
}

// Close lets go of the machine.
func (r *Running) Close() {
	C.sim_machine_close(r.machine)
	r.machine = nil
}

// Status reads the books of the machine in a directory once.
func Status(dir string) (Books, error) {
	running, err := Open(dir)
	if err != nil {
		return Books{}, err
	}
	defer running.Close()
	return running.Books()
}

// Books reads the machine's books: what each GPU and each process of it did up to now.
func (r *Running) Books() (Books, error) {
	config := C.sim_machine_config(r.machine)
	books := Books{
		Schema:    BooksSchema,
		Simulated: true,
		Dir:       r.dir,
		Scale:     int64(config.scale),
		Driver:    C.GoString(&config.driver_version[0]),
		CUDA:      cudaString(int(config.cuda_version)),
		LivePIDs:  []int{},
		GPUs:      make([]GPUBooks, config.gpu_count),
	}
	for i := range books.GPUs {
		var state C.struct_sim_gpu_state
		if rc := C.sim_machine_gpu(r.machine, C.uint(i), &state); rc != 0 {
			return Books{}, fmt.Errorf("reading GPU %d of %s: %w", i, r.dir, syscall.Errno(rc))
		}
		books.GPUs[i] = gpuBooks(i, &config.gpus[i], &state)
		books.GPUs[i].LostCode = int(C.sim_gpu_lost(r.machine, C.uint(i)))
		var err error
		if books.GPUs[i].MIG, err = r.migBooks(i); err != nil {
			return Books{}, err
		}
	}
	books.limits(r.machine)
	// All that processes can have used: cards, and by their numbers the MIG devices.
	all := map[int]*GPUBooks{}
	for i := range books.GPUs {
		all[i] = &books.GPUs[i]
		books.GPUs[i].MIG.number(i, all)
	}
	var process C.struct_sim_process_state
	for slot := C.uint(0); C.sim_machine_process(r.machine, slot, &process) == 0; slot++ {
		if process.alive != 0 {
			books.LivePIDs = append(books.LivePIDs, int(process.pid))
		}
		for i := range books.GPUs {
			books.GPUs[i].add(processBooks(&process, i))
		}
		if device := all[int(process.unit)]; process.unit > 0 && device != nil {
			device.add(processBooks(&process, C.SIM_GPUS_MAX))
		}
	}
	for _, gpu := range all {
		slices.SortFunc(gpu.Processes, func(a, b ProcessBooks) int {
			return int(a.Serial - b.Serial)
		})
	}
	return books, nil
}

// limits fills in the limits of control groups.
func (b *Books) limits(machine *C.struct_sim_machine) {
	var limit C.struct_sim_limit
	for place := range C.uint(C.SIM_LIMITS_MAX) {
		if C.sim_limit_at(machine, place, &limit) != 0 || int(limit.gpu) >= len(b.GPUs) {
			continue
		}
		gpu := &b.GPUs[limit.gpu]
		gpu.Limits = append(gpu.Limits, LimitBooks{
			Directory: C.GoString(&limit.directory[0]), SoftBytes: int64(limit.soft_bytes),
			HardBytes: int64(limit.hard_bytes), UsedBytes: int64(limit.used_bytes),
		})
	}
}

func gpuBooks(index int, config *C.struct_sim_gpu_config, state *C.struct_sim_gpu_state) GPUBooks {
	pci := PCI{uint32(config.pci_domain), uint32(config.pci_bus), uint32(config.pci_device)}
	wall := counters(state.wall_by_rivals_ns)
	return GPUBooks{
		Index:           index,
		UUID:            uuidString("GPU", *(*[16]byte)(unsafe.Pointer(&config.uuid))),
		Name:            C.GoString(&config.name[0]),
		PCI:             pci.String(),
		MemoryBytes:     int64(state.memory_bytes),
		UsedBytes:       int64(state.used_bytes),
		ResidentBytes:   int64(state.resident_bytes),
		NowNS:           int64(state.now_ns),
		CreatedNS:       int64(state.created_ns),
		BusyNS:          int64(state.busy_ns),
		SwitchNS:        int64(state.switch_ns),
		HostToDeviceNS:  int64(state.copy_ns[0]),
		DeviceToHostNS:  int64(state.copy_ns[1]),
		Launches:        int64(state.launches),
		Switches:        int64(state.switches),
		Contexts:        int(state.contexts),
		WallByRivalsNS:  wall,
		ContendedWallNS: contended(wall),
		Processes:       []ProcessBooks{},
	}
}

func processBooks(state *C.struct_sim_process_state, column int) ProcessBooks {
	on := &state.gpus[column]
	busy := counters(on.books.busy_by_rivals_ns)
	return ProcessBooks{
		Serial:         int64(state.serial),
		PID:            int(state.pid),
		Program:        C.GoString(&state.name[0]),
		Alive:          state.alive != 0,
		JoinedNS:       int64(state.joined_ns),
		AllocatedBytes: int64(on.allocated_bytes),
		SharedBytes:    int64(on.shared_bytes),
		ImportedBytes:  int64(on.imported_bytes),
		ContextBytes:   int64(on.context_bytes),
		Contexts:       int(on.contexts),
		BusyNS:         int64(on.books.busy_ns),
		ContendedNS:    contended(busy),
		BusyByRivalsNS: busy,
		CopyNS:         int64(on.books.copy_ns),
		Launches:       int64(on.books.launches),
		Copies:         int64(on.books.copies),
		Managed: ManagedBooks{
			AllocatedBytes:   int64(on.managed.allocated_bytes),
			ResidentBytes:    int64(on.managed.resident_bytes),
			FaultBatches:     int64(on.managed.fault_batches),
			FaultNS:          int64(on.managed.fault_ns),
			FaultInBytes:     int64(on.managed.fault_in_bytes),
			PopulatedBytes:   int64(on.managed.populated_bytes),
			PrefetchInBytes:  int64(on.managed.prefetch_in_bytes),
			PrefetchOutBytes: int64(on.managed.prefetch_out_bytes),
			EvictedBytes:     int64(on.managed.evicted_bytes),
			PeerOutBytes:     int64(on.managed.peer_out_bytes),
			RemoteBytes:      int64(on.managed.remote_bytes),
		},
	}
}

func counters(from [C.SIM_RIVALS_MAX]C.uint64_t) []int64 {
	to := make([]int64, len(from))
	for i, n := range from {
		to[i] = int64(n)
	}
	return to
}

// contended sums what happened while two or more processes had work.
func contended(byRivals []int64) (sum int64) {
	for _, n := range byRivals[1:] {
		sum += n
	}
	return sum
}

func cudaString(version int) string {
	return fmt.Sprintf("%d.%d", version/1000, version%1000/10)
}

// config is the machine as the C side wants it: scaled.
func (m *Machine) config() (C.struct_sim_config, error) {
	config := C.struct_sim_config{
		cuda_version: C.uint32_t(m.CUDA),
		gpu_count:    C.uint32_t(len(m.GPUs)),
		scale:        C.uint32_t(m.Scale),
	}
	if len(m.GPUs) < 1 || len(m.GPUs) > GPUsMax || m.Scale < 1 {
		return config, fmt.Errorf("%d GPUs at scale 1/%d; want 1 to %d, and a scale of at least 1",
			len(m.GPUs), m.Scale, GPUsMax)
	}
	if m.HostBytes > 0 {
		config.host_bytes = C.uint64_t(max(m.HostBytes/m.Scale, 1))
	}
	if m.NVLinkRate > 0 {
		config.nvlink_bytes_per_s = C.uint64_t(max(m.NVLinkRate/m.Scale, 1))
	}
	if m.NoPeerAccess {
		config.no_peer_access = 1
	}
	if m.MemoryLimits {
		config.memory_limits = 1
	}
	if m.ManagedData {
		config.managed_data = 1
	}
	for a, others := range m.linksBetween() {
		for b, links := range others {
			config.nvlinks[a][b] = C.uint8_t(links)
		}
	}
	putString(config.driver_version[:], m.Driver)
	for i, gpu := range m.GPUs {
		config.gpus[i] = gpu.config(m.Scale)
	}
	return config, nil
}

func (g GPU) config(scale int64) C.struct_sim_gpu_config {
	scaled := func(real int64) C.uint64_t { return C.uint64_t(max(real/scale, 1)) }
	nanoseconds := func(d time.Duration) C.uint64_t { return C.uint64_t(d.Nanoseconds()) }
	config := C.struct_sim_gpu_config{
		pci_domain:         C.uint32_t(g.PCI.Domain),
		pci_bus:            C.uint32_t(g.PCI.Bus),
		pci_device:         C.uint32_t(g.PCI.Device),
		numa_node:          C.int32_t(g.NUMANode),
		compute_major:      C.uint32_t(g.ComputeMajor),
		compute_minor:      C.uint32_t(g.ComputeMinor),
		sm_count:           C.uint32_t(g.Multiprocessors),
		clock_khz:          C.uint32_t(g.ClockKHz),
		memory_clock_khz:   C.uint32_t(g.MemoryClockKHz),
		memory_bus_bits:    C.uint32_t(g.MemoryBusBits),
		queue_depth:        C.uint32_t(g.QueueDepth),
		memory_bytes:       scaled(g.MemoryBytes - g.ReservedBytes),
		reserved_bytes:     C.uint64_t(g.ReservedBytes / scale),
		context_bytes:      scaled(g.ContextBytes),
		h2d_bytes_per_s:    scaled(g.HostToDeviceRate),
		d2h_bytes_per_s:    scaled(g.DeviceToHostRate),
		memory_bytes_per_s: scaled(g.MemoryRate),
		copy_latency_ns:    nanoseconds(g.CopyLatency),
		slice_ns:           nanoseconds(g.Slice),
		switch_ns:          nanoseconds(g.SwitchCost),
		launch_ns:          nanoseconds(g.LaunchLatency),
		kernel_ns:          nanoseconds(g.KernelMin),
		thread_ps:          C.uint64_t(g.KernelThreadPicosecs),
		context_create_ns:  nanoseconds(g.ContextCreate),
		page_bytes:         pages(g.PageBytes, scale),
		pool_chunk_bytes:   pages(g.PoolChunkBytes, scale),
		fault_batch_ns:     nanoseconds(g.FaultBatchLatency),
		fault_batch_pages:  C.uint32_t(g.FaultBatch),
		mig:                g.MIG.config(g, scale),
	}
	if g.NoConcurrentManaged {
		config.no_concurrent_managed = 1
	}
	if g.PCIePath == nil { // a host bridge of its own for each NUMA node
		config.pcie_path[0] = C.uint8_t(max(g.NUMANode, 0) % 256)
	}
	for i, place := range g.PCIePath {
		config.pcie_path[i] = C.uint8_t(place)
	}
	putString(config.name[:], g.Name)
	for i, b := range g.UUID {
		config.uuid[i] = C.uint8_t(b)
	}
	return config
}

// pages scales a size and rounds it up to whole pages of the host; 0 stays 0, for the default.
func pages(real, scale int64) C.uint64_t {
	const page = 4096
	if real == 0 {
		return 0
	}
	return C.uint64_t((max(real/scale, 1) + page - 1) / page * page)
}

// config is a geometry as the C side wants it, for a card.
func (g *Geometry) config(card GPU, scale int64) (config C.struct_sim_mig_geometry) {
	if g == nil {
		return config
	}
	config.compute_slices = C.uint32_t(g.ComputeSlices)
	config.memory_slices = C.uint32_t(g.MemorySlices)
	config.profile_count = C.uint32_t(len(g.Profiles))
	for i, profile := range g.Profiles {
		to := &config.profiles[i]
		*to = C.struct_sim_mig_profile{
			id:             C.uint32_t(profile.ID),
			kind:           C.uint32_t(profile.Kind),
			compute_slices: C.uint32_t(profile.ComputeSlices),
			memory_slices:  C.uint32_t(profile.Length),
			instances_max:  C.uint32_t(profile.Most),
			sm_count:       C.uint32_t(g.multiprocessors(profile, card.Multiprocessors)),
			memory_bytes:   C.uint64_t(g.memoryBytes(profile, card.MemoryBytes) / scale),
		}
		putString(to.name[:], profile.Name)
		for _, start := range profile.Starts {
			to.starts |= 1 << start
		}
		switch {
		case strings.HasSuffix(profile.Name, "+me.all"):
			to.attributes = C.SIM_MIG_ALL_MEDIA
		case profile.Media():
			to.attributes = C.SIM_MIG_MEDIA
		case strings.HasSuffix(profile.Name, "+gfx"):
			to.attributes = C.SIM_MIG_GRAPHICS
		}
	}
	return config
}

// putString fills a zero-terminated C array, cutting what does not fit.
func putString(to []C.char, from string) {
	for i := range min(len(from), len(to)-1) {
		to[i] = C.char(from[i])
	}
}
