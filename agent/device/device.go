// Package device is the only package that knows NVML: which GPUs the node has, how full they are
// and which processes hold memory on them.
//
// Invariants: the list of GPUs is taken once, at Open, and does not change; every figure is read
// from NVML when it is asked for. A node without NVML or without a GPU is a valid node: Open then
// returns an empty, usable Devices together with ErrNoNVML.
package device

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

var (
	// ErrNoNVML says that NVML is not there, or that it found no driver.
	ErrNoNVML = errors.New("no NVML")
	// ErrNotFound says that a UUID names no GPU of this node.
	ErrNotFound = errors.New("no such GPU")
	// ErrClosed is what every query returns after Close.
	ErrClosed = errors.New("devices are closed")
)

// SimulatedPrefix begins the name of every simulated GPU and of no real one: the machine file's
// parser puts it there, so no machine file can leave it out.
const SimulatedPrefix = "Simulated "

// UnknownBytes is a process's memory where the driver does not tell it.
const UnknownBytes = int64(-1)

// GPU is one GPU of the node: a card, or a MIG device of one that is divided.
type GPU struct {
	Index       int      // NVML's; of a MIG device, that of its card
	UUID        string   // "GPU-…" or "MIG-…", as NVML writes it
	UUIDBytes   [16]byte // the same in the order in which it is written
	Name        string
	MemoryBytes int64  // of the card or of the MIG device
	PCI         string // of the card: "00000000:3B:00.0", as NVML writes it
	NUMANode    int    // that is nearest; -1: none is known
	MIG         *MIG   // nil: a whole card
	Simulated   bool
}

// Memory is how full a GPU is. Used and Free need not add up to Total: the driver keeps some.
type Memory struct {
	TotalBytes int64
	UsedBytes  int64 // of all processes
	FreeBytes  int64
}

// ProcessLister tells which processes hold memory on a GPU, in bytes by pid; UnknownBytes where
// the driver does not say. Pids are those of this process's pid namespace.
type ProcessLister interface {
	Processes(gpuUUID string) (map[int]int64, error)
}

// Devices are the GPUs of a node; a divided card is there as its MIG devices only. All methods may be called from several goroutines.
type Devices struct {
	mu      sync.RWMutex // held for reading by queries, for writing by Close
	lib     nvml.Interface
	driver  string
	gpus    []GPU
	handles map[string]nvml.Device // of the GPUs, by UUID
	cards   map[string]nvml.Device // of all cards, likewise
	cardOf  map[string]string      // by the UUID of a MIG device, that of its card
}

var _ ProcessLister = (*Devices)(nil)

// Open loads NVML from libraryPath, or where the loader finds libnvidia-ml.so.1 if that is empty,
// and lists the GPUs. Where there is no NVML, no driver or no machine to simulate, it returns an
// empty Devices and an error that is ErrNoNVML; other errors come with a nil Devices.
//
// A process can use one library path only: NVML's functions are bound to the first that is loaded.
func Open(libraryPath string) (*Devices, error) {
	var options []nvml.LibraryOption
	if libraryPath != "" {
		options = append(options, nvml.WithLibraryPath(libraryPath))
	}
	lib := nvml.New(options...)
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return openFailed(libraryPath, ret)
	}
	d := &Devices{lib: lib}
	if err := d.list(); err != nil {
		lib.Shutdown()
		return nil, err
	}
	return d, nil
}

func openFailed(libraryPath string, ret nvml.Return) (*Devices, error) {
	if libraryPath == "" {
		libraryPath = "libnvidia-ml.so.1"
	}
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return &Devices{}, fmt.Errorf("%w: %s cannot be loaded", ErrNoNVML, libraryPath)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return &Devices{}, fmt.Errorf("%w: %s finds no driver", ErrNoNVML, libraryPath)
	}
	return nil, fmt.Errorf("initialising %s: %w", libraryPath, ret)
}

// list fills in the driver's version and the GPUs. A GPU that does not answer is left out and
// logged: one that fell off the bus must not keep the others from being used.
func (d *Devices) list() error {
	var ret nvml.Return
	if d.driver, ret = d.lib.SystemGetDriverVersion(); ret != nvml.SUCCESS {
		return fmt.Errorf("asking the driver's version: %w", ret)
	}
	count, ret := d.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("counting GPUs: %w", ret)
	}
	d.handles = make(map[string]nvml.Device, count)
	d.cards = make(map[string]nvml.Device, count)
	d.cardOf = make(map[string]string)
	for index := range count {
		handle, ret := d.lib.DeviceGetHandleByIndex(index)
		if ret != nvml.SUCCESS {
			slog.Warn("GPU left out: it does not answer", "index", index, "error", ret)
			continue
		}
		gpu, err := d.describe(index, handle)
		if err != nil {
			slog.Warn("GPU left out: it does not answer", "index", index, "error", err)
			continue
		}
		d.cards[gpu.UUID] = handle
		if d.divided(handle) {
			d.listMIG(gpu, handle)
			continue
		}
		d.add(gpu, handle)
	}
	return nil
}

// has says whether the driver's NVML has a function: to call one that an old driver lacks would end
// this process.
func (d *Devices) has(function string) bool {
	return d.lib.Extensions().LookupSymbol(function) == nil
}

func (d *Devices) add(gpu GPU, handle nvml.Device) {
	d.gpus = append(d.gpus, gpu)
	d.handles[gpu.UUID] = handle
	if gpu.MIG != nil {
		d.cardOf[gpu.UUID] = gpu.MIG.Card
	}
}

func (d *Devices) describe(index int, handle nvml.Device) (GPU, error) {
	gpu := GPU{Index: index}
	if err := identify(&gpu, handle); err != nil {
		return gpu, err
	}
	pci, ret := handle.GetPciInfo()
	if ret != nvml.SUCCESS {
		return gpu, fmt.Errorf("asking the PCI address: %w", ret)
	}
	gpu.PCI = cString(pci.BusId[:])
	gpu.NUMANode = d.numaNode(gpu, handle)
	return gpu, nil
}

// identify fills in what cards and MIG devices have alike.
func identify(gpu *GPU, handle nvml.Device) (err error) {
	var ret nvml.Return
	if gpu.UUID, ret = handle.GetUUID(); ret != nvml.SUCCESS {
		return fmt.Errorf("asking the UUID: %w", ret)
	}
	if gpu.UUIDBytes, err = ParseUUID(gpu.UUID); err != nil {
		return err
	}
	if gpu.Name, ret = handle.GetName(); ret != nvml.SUCCESS {
		return fmt.Errorf("asking the name: %w", ret)
	}
	gpu.Simulated = strings.HasPrefix(gpu.Name, SimulatedPrefix)
	memory, ret := handle.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("asking the memory: %w", ret)
	}
	gpu.MemoryBytes = int64(memory.Total)
	return nil
}

// DriverVersion is the driver's, such as "535.309.01"; empty where there is no NVML.
func (d *Devices) DriverVersion() string {
	return d.driver
}

// Simulated says whether these are simulated GPUs; false where there are none.
func (d *Devices) Simulated() bool {
	for _, gpu := range d.gpus {
		if gpu.Simulated {
			return true
		}
	}
	return false
}

// GPUs lists the node's GPUs in NVML's order. A divided card without MIG devices has none.
func (d *Devices) GPUs() []GPU {
	return append([]GPU(nil), d.gpus...)
}

// Memory tells how full a GPU is now.
func (d *Devices) Memory(gpuUUID string) (Memory, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	handle, err := d.handle(gpuUUID)
	if err != nil {
		return Memory{}, err
	}
	memory, ret := handle.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return Memory{}, fmt.Errorf("asking the memory of %s: %w", gpuUUID, ret)
	}
	return Memory{
		TotalBytes: int64(memory.Total),
		UsedBytes:  int64(memory.Used),
		FreeBytes:  int64(memory.Free),
	}, nil
}

// Processes tells which processes have a context on a GPU now, of their own or through MPS, and how many bytes each
// holds. Before compute capability 7.0 an MPS server holds what its clients do, which are UnknownBytes.
func (d *Devices) Processes(gpuUUID string) (map[int]int64, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	handle, err := d.handle(gpuUUID)
	if err != nil {
		return nil, err
	}
	compute, ret := handle.GetComputeRunningProcesses()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("listing the processes of %s: %w", gpuUUID, ret)
	}
	graphics, ret := handle.GetGraphicsRunningProcesses()
	if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED {
		return nil, fmt.Errorf("listing the graphics processes of %s: %w", gpuUUID, ret)
	}
	held, err := d.mpsClients(gpuUUID, handle)
	if err != nil {
		return nil, err
	}
	for _, process := range append(compute, graphics...) {
		// NVML's "not available" is all ones, which is UnknownBytes. A process that does several
		// kinds of work is in each list with its whole memory.
		pid, bytes := int(process.Pid), int64(process.UsedGpuMemory)
		if known, listed := held[pid]; !listed || bytes > known {
			held[pid] = bytes
		}
	}
	return held, nil
}

// Close lets go of NVML. Queries afterwards return ErrClosed.
func (d *Devices) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lib == nil {
		return nil
	}
	lib := d.lib
	d.lib, d.handles, d.cards = nil, nil, nil
	if ret := lib.Shutdown(); ret != nvml.SUCCESS {
		return fmt.Errorf("closing NVML: %w", ret)
	}
	return nil
}

// handle needs d.mu.
func (d *Devices) handle(gpuUUID string) (nvml.Device, error) {
	if d.lib == nil && len(d.gpus) > 0 {
		return nil, ErrClosed
	}
	handle, ok := d.handles[gpuUUID]
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, gpuUUID)
	}
	return handle, nil
}

// card finds the card of a GPU, and whether that is divided. It needs d.mu.
func (d *Devices) card(gpuUUID string) (uuid string, divided bool, err error) {
	if _, err := d.handle(gpuUUID); err != nil {
		return "", false, err
	}
	if card, isMIG := d.cardOf[gpuUUID]; isMIG {
		return card, true, nil
	}
	return gpuUUID, false, nil
}

// ParseUUID reads "GPU-8-4-4-4-12" hexadecimal digits, or the same after "MIG-", into 16 bytes.
func ParseUUID(text string) ([16]byte, error) {
	var uuid [16]byte
	digits, found := strings.CutPrefix(text, "GPU-")
	if !found {
		digits, found = strings.CutPrefix(text, "MIG-")
	}
	groups := strings.Split(digits, "-")
	wellFormed := found && len(groups) == 5
	for i, length := range []int{8, 4, 4, 4, 12} {
		wellFormed = wellFormed && len(groups[i]) == length
	}
	if !wellFormed {
		return uuid, fmt.Errorf("%q is no GPU UUID", text)
	}
	if _, err := hex.Decode(uuid[:], []byte(strings.Join(groups, ""))); err != nil {
		return uuid, fmt.Errorf("%q is no GPU UUID", text)
	}
	return uuid, nil
}

func cString(chars []int8) string {
	bytes := make([]byte, 0, len(chars))
	for _, c := range chars {
		if c == 0 {
			break
		}
		bytes = append(bytes, byte(c))
	}
	return string(bytes)
}
