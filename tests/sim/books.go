// The books of a machine as Go values and as the JSON of `weir sim status`. Invariant: a published
// key keeps its name and meaning within one BooksSchema.

package sim

import "slices"

// BooksSchema is the version of the JSON form of Books. It rises with an incompatible change.
const BooksSchema = 1

// Books are what a machine recorded, up to the moment of reading. Sizes are simulated bytes, times
// are nanoseconds of CLOCK_MONOTONIC; counters only grow.
type Books struct {
	Schema    int        `json:"schema_version"`
	Simulated bool       `json:"simulated"` // always true
	Dir       string     `json:"dir"`
	Scale     int64      `json:"scale"` // bytes of a real card for one simulated byte
	Driver    string     `json:"driver_version"`
	CUDA      string     `json:"cuda_version"`
	LivePIDs  []int      `json:"live_pids"` // of all processes of the machine that are alive
	GPUs      []GPUBooks `json:"gpus"`
}

// GPUBooks are the books of one GPU: of a card, or of a MIG device of one. Entry i of a list by rivals is for i+1 processes that had
// work for the compute engine at that moment; the last is for that many or more.
type GPUBooks struct {
	Index           int            `json:"index"` // of a MIG device: among those of its card
	UUID            string         `json:"uuid"`
	Name            string         `json:"name"`
	PCI             string         `json:"pci"`
	MemoryBytes     int64          `json:"memory_bytes"`
	UsedBytes       int64          `json:"used_bytes"`      // of all live processes, MIG devices' included
	AllocatedBytes  int64          `json:"allocated_bytes"` // of it, plain memory
	ContextBytes    int64          `json:"context_bytes"`   // of it, contexts
	ResidentBytes   int64          `json:"resident_bytes"`  // of it, managed memory that lies there now
	NowNS           int64          `json:"now_ns"`
	CreatedNS       int64          `json:"created_ns"`
	BusyNS          int64          `json:"busy_ns"`   // the compute engine worked, for anyone
	SwitchNS        int64          `json:"switch_ns"` // it changed contexts
	HostToDeviceNS  int64          `json:"host_to_device_ns"`
	DeviceToHostNS  int64          `json:"device_to_host_ns"`
	Launches        int64          `json:"launches"`
	Switches        int64          `json:"switches"`
	Contexts        int            `json:"contexts"`
	LostCode        int            `json:"lost_code"`         // it fell off the bus: what calls on it give; 0: it is there
	WallByRivalsNS  []int64        `json:"wall_by_rivals_ns"` // switches within
	ContendedWallNS int64          `json:"contended_wall_ns"` // its part with two rivals and more
	Processes       []ProcessBooks `json:"processes"`         // oldest first
	MIG             *MIGBooks      `json:"mig"`               // nil: it cannot be divided
	Limits          []LimitBooks   `json:"memory_limits"`     // of control groups, if the driver holds any
}

// LimitBooks are a control group's limits of device memory, by its directory.
type LimitBooks struct {
	Directory string `json:"directory"`
	SoftBytes int64  `json:"soft_bytes"`
	HardBytes int64  `json:"hard_bytes"`
	UsedBytes int64  `json:"used_bytes"` // what the processes in it, or below it, hold
}

// MIGBooks are how a card is divided.
type MIGBooks struct {
	Enabled   bool          `json:"enabled"`
	Pending   bool          `json:"pending"` // the mode that waits for an idle card
	Instances []MIGInstance `json:"instances"`
}

// MIGInstance is a GPU instance. Start and Length count memory slices.
type MIGInstance struct {
	ID      int         `json:"id"`
	Profile string      `json:"profile"`
	Start   int         `json:"start"`
	Length  int         `json:"length"`
	Devices []MIGDevice `json:"devices"` // its compute instances; they share its memory
}

// MIGDevice is a compute instance: a GPU to programs.
type MIGDevice struct {
	ComputeInstance int `json:"compute_instance"`
	Slices          int `json:"slices"` // compute slices
	GPUBooks
}

// Devices lists the MIG devices of a card in the order of their indexes.
func (m *MIGBooks) Devices() (devices []MIGDevice) {
	if m == nil {
		return nil
	}
	for _, instance := range m.Instances {
		devices = append(devices, instance.Devices...)
	}
	return devices
}

// ProcessBooks are what one process did on one GPU. Those of the dead are kept until the machine
// needs their place.
type ProcessBooks struct {
	Serial         int64   `json:"serial"` // unique in the life of the machine
	PID            int     `json:"pid"`    // as the process sees itself
	Program        string  `json:"program"`
	Alive          bool    `json:"alive"`
	JoinedNS       int64   `json:"joined_ns"`
	AllocatedBytes int64   `json:"allocated_bytes"` // plain memory
	SharedBytes    int64   `json:"shared_bytes"`    // of it, memory that several processes may hold
	ImportedBytes  int64   `json:"imported_bytes"`  // beside it: such memory that another answers for
	ContextBytes   int64   `json:"context_bytes"`
	Contexts       int     `json:"contexts"`
	BusyNS         int64   `json:"busy_ns"`
	ContendedNS    int64   `json:"contended_ns"` // its part while another process had work too
	BusyByRivalsNS []int64 `json:"busy_by_rivals_ns"`
	CopyNS         int64   `json:"copy_ns"`
	Launches       int64   `json:"launches"`
	Copies         int64   `json:"copies"`

	Managed ManagedBooks `json:"managed"`
}

// ManagedBooks are what one process did with managed memory on one GPU. All but the first two only
// grow.
type ManagedBooks struct {
	AllocatedBytes   int64 `json:"allocated_bytes"` // in contexts of the GPU, wherever it lies
	ResidentBytes    int64 `json:"resident_bytes"`  // on the GPU
	FaultBatches     int64 `json:"fault_batches"`
	FaultNS          int64 `json:"fault_ns"`           // operations stood still for pages
	FaultInBytes     int64 `json:"fault_in_bytes"`     // moved to the GPU by faults
	PopulatedBytes   int64 `json:"populated_bytes"`    // came to be there, without a move
	PrefetchInBytes  int64 `json:"prefetch_in_bytes"`  // moved to the GPU ahead of use
	PrefetchOutBytes int64 `json:"prefetch_out_bytes"` // moved from the GPU to the host on demand
	EvictedBytes     int64 `json:"evicted_bytes"`      // moved to the host to make room
	PeerOutBytes     int64 `json:"peer_out_bytes"`     // moved to another GPU
	RemoteBytes      int64 `json:"remote_bytes"`       // used where they lay, over the link
}

// add takes a process into the books of a GPU that it has to do with.
func (g *GPUBooks) add(process ProcessBooks) {
	used := process.Contexts > 0 || process.AllocatedBytes > 0 || process.ImportedBytes > 0
	if !used && process.Launches == 0 && process.Copies == 0 {
		return
	}
	g.AllocatedBytes += process.AllocatedBytes
	g.ContextBytes += process.ContextBytes
	g.Processes = append(g.Processes, process)
}

// Process finds the newest process of that pid in the books of a GPU; false where there is none.
func (g GPUBooks) Process(pid int) (ProcessBooks, bool) {
	for _, process := range slices.Backward(g.Processes) {
		if process.PID == pid {
			return process, true
		}
	}
	return ProcessBooks{}, false
}
