// Package sim makes and reads simulated machines: GPUs that exist only as a file which all
// processes of the machine map, and which the simulated driver and NVML answer from. It is the Go
// face of the C sources in this folder.
//
// A machine file (TOML) describes a machine in the figures of the real card. A simulated machine
// is smaller by the file's scale, in bytes and in bytes per second alike, so that a full card fits
// in test memory and moving all of it takes as long as on the card.
package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// GPUsMax is how many GPUs a machine can have.
const GPUsMax = 16

// namePrefix begins the name of every simulated GPU, whatever its machine file says, so that none
// is ever mistaken for a real one.
const namePrefix = "Simulated "

// Machine describes a simulated machine, in the figures of the real one.
type Machine struct {
	Name   string // the machine file's, without its folder and ending
	Scale  int64  // how many bytes of the real card one simulated byte stands for
	Driver string // version of the driver, such as "535.309.01"
	CUDA   int    // as cuDriverGetVersion gives it: 12020 is CUDA 12.2
	GPUs   []GPU

	HostBytes    int64 // most managed memory of all processes together; 0: what the host has
	NVLinkRate   int64 // of one link, one way; 0: 25 GB/s
	NVLinks      []NVLink
	NoPeerAccess bool // no card can reach another's memory
	MemoryLimits bool // the driver holds limits of device memory of control groups
	ManagedData  bool // data of managed memory move with its pages
}

// NVLink is a number of links between each two of some GPUs.
type NVLink struct {
	GPUs  []int
	Links int
}

// GPU describes one GPU. Sizes, and rates per second, are the real card's: unscaled.
type GPU struct {
	Name                 string // begins with "Simulated "
	UUID                 [16]byte
	PCI                  PCI
	NUMANode             int // -1: none
	ComputeMajor         int
	ComputeMinor         int
	Multiprocessors      int64
	ClockKHz             int64
	MemoryClockKHz       int64
	MemoryBusBits        int64
	MemoryBytes          int64 // of the card
	ReservedBytes        int64 // of it, what the driver keeps for itself
	ContextBytes         int64 // device memory that one context takes
	HostToDeviceRate     int64
	DeviceToHostRate     int64
	MemoryRate           int64 // of copies within the device, and sets
	CopyLatency          time.Duration
	Slice                time.Duration // how long a context runs while others wait
	SwitchCost           time.Duration
	LaunchLatency        time.Duration // from submission to the earliest start
	KernelMin            time.Duration // the shortest kernel
	KernelThreadPicosecs int64         // what each thread of a kernel adds
	ContextCreate        time.Duration // how long making a context takes its process
	QueueDepth           int64         // operations in flight, a context
	PageBytes            int64         // of managed memory and of cuMemCreate; 0: 2 MiB
	PoolChunkBytes       int64         // by which memory pools grow; 0: 32 MiB
	FaultBatch           int64         // managed pages that one batch of faults serves; 0: 1
	FaultBatchLatency    time.Duration // of one batch, transfer apart; 0: 35 us
	NoConcurrentManaged  bool          // it cannot use managed memory while the host does
	PCIePath             []uint8       // host bridge, then switches; nil: a bridge a NUMA node
	MIG                  *Geometry     // nil: it cannot be divided
	MIGInstances         []Instance    // it is divided into these from the beginning
}

// Instance is a GPU instance to be made, with one compute instance that has all of it.
type Instance struct {
	Profile string
	Start   int // memory slice; -1: the machine chooses
}

// PCI is where a GPU sits; its function is 0.
type PCI struct {
	Domain, Bus, Device uint32
}

// String writes the address as the driver does: "0000:3b:00.0".
func (p PCI) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.0", p.Domain, p.Bus, p.Device)
}

// UUIDString is the UUID as NVML writes it: "GPU-…".
func (g GPU) UUIDString() string {
	return uuidString("GPU", g.UUID)
}

func uuidString(kind string, uuid [16]byte) string {
	digits := hex.EncodeToString(uuid[:])
	return kind + "-" + strings.Join([]string{digits[:8], digits[8:12], digits[12:16], digits[16:20],
		digits[20:]}, "-")
}

// FileError is a mistake in a machine file: where it is, and what is accepted there.
type FileError struct {
	File    string
	Line    int
	Key     string // as it stands in its table; empty where the file is not TOML
	Problem string

	missing bool // the key is not there at all
}

func (e *FileError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem)
	}
	return fmt.Sprintf("%s:%d: %s: %s", e.File, e.Line, e.Key, e.Problem)
}

// ParseMachine reads a machine file. file is its name, for messages and for the machine's name.
// The error, where there is one, is a *FileError of one line: the file's first mistake.
func ParseMachine(file string, data []byte) (*Machine, error) {
	reader := reader{file: file, lines: findLines(data)}
	document := map[string]any{}
	if err := toml.Unmarshal(data, &document); err != nil {
		return nil, reader.syntaxError(err)
	}
	name := strings.TrimSuffix(filepath.Base(file), ".toml")
	machine := &Machine{Name: name}
	readKeys(&reader, "", machineKeys, machine, document)
	reader.gpus(machine, document["gpu"])
	reader.nvlinks(machine, document["nvlink"])
	reader.memoryLimits(machine)
	if len(reader.mistakes) > 0 {
		return nil, slices.MinFunc(reader.mistakes, compareMistakes)
	}
	return machine, nil
}

// compareMistakes orders mistakes by line, those about missing keys last: what is there, such as a
// misspelt key, is the likelier cause.
func compareMistakes(a, b *FileError) int {
	if a.missing != b.missing {
		if b.missing {
			return -1
		}
		return 1
	}
	return a.Line - b.Line
}

// reader collects the mistakes of one file.
type reader struct {
	file     string
	lines    lineIndex
	mistakes []*FileError
}

func (r *reader) mistake(table, key, format string, args ...any) *FileError {
	mistake := &FileError{
		File: r.file, Line: r.lines.of(table, key), Key: key, Problem: fmt.Sprintf(format, args...),
	}
	r.mistakes = append(r.mistakes, mistake)
	return mistake
}

func (r *reader) syntaxError(err error) *FileError {
	mistake := &FileError{File: r.file, Line: 1, Problem: err.Error()}
	if decode := (*toml.DecodeError)(nil); errors.As(err, &decode) {
		mistake.Line, _ = decode.Position()
		mistake.Key = r.lines.key(mistake.Line)
		mistake.Problem = strings.TrimPrefix(decode.Error(), "toml: ")
	}
	mistake.Problem = strings.ReplaceAll(mistake.Problem, "\n", " ")
	return mistake
}

// readKeys fills in target from a table: every key must be known, every key that is not optional
// must be there.
func readKeys[T any](r *reader, table string, keys []key[T], target *T, values map[string]any) {
	for _, name := range sortedNames(values) {
		if !slices.ContainsFunc(keys, func(k key[T]) bool { return k.name == name }) {
			r.mistake(table, name, "unknown key; known here: %s", keyNames(keys))
		}
	}
	for _, k := range keys {
		value, there := values[k.name]
		if !there && !k.optional {
			r.mistake(table, k.name, "missing; want %s", k.wanted).missing = true
		}
		if !there || k.set == nil {
			continue
		}
		if err := k.set(target, value); err != nil {
			r.mistake(table, k.name, "%v", err)
		}
	}
}

// gpus reads the [[gpu]] tables; each stands for as many GPUs as its count says.
func (r *reader) gpus(machine *Machine, value any) {
	if value == nil {
		return // readKeys has said that it is missing
	}
	tables, isList := value.([]any)
	if !isList || len(tables) == 0 {
		r.mistake("", "gpu", "want [[gpu]], one such table a GPU or with a count")
		return
	}
	for i, entry := range tables {
		table := fmt.Sprintf("gpu[%d]", i)
		values, isTable := entry.(map[string]any)
		if !isTable {
			r.mistake("", "gpu", "want [[gpu]], one such table a GPU or with a count")
			return
		}
		kind := gpuTable{count: 1, GPU: GPU{NUMANode: -1}}
		readKeys(r, table, gpuKeys, &kind, values)
		if len(machine.GPUs)+kind.count > GPUsMax {
			r.mistake(table, "count", "%d GPUs in all; a machine has 1 to %d",
				len(machine.GPUs)+kind.count, GPUsMax)
			return
		}
		if kind.numaNodes != nil && len(kind.numaNodes) != kind.count {
			r.mistake(table, "numa_node", "%d nodes for %d GPUs; want one number, or one a GPU",
				len(kind.numaNodes), kind.count)
			return
		}
		if kind.pciePaths != nil && len(kind.pciePaths) != kind.count {
			r.mistake(table, "pcie_path", "%d paths for %d GPUs; want one, or one a GPU",
				len(kind.pciePaths), kind.count)
			return
		}
		r.sizes(table, machine.Scale, kind)
		machine.addGPUs(kind)
		r.addresses(table, machine.GPUs, kind.count)
	}
}

// sizes checks that something of the card is left at the machine's scale, beside one context.
// What is zero was refused before.
func (r *reader) sizes(table string, scale int64, kind gpuTable) {
	if scale == 0 || kind.MemoryBytes == 0 || kind.ContextBytes == 0 {
		return
	}
	if kind.ReservedBytes >= kind.MemoryBytes {
		r.mistake(table, "reserved_memory", "%d bytes leave nothing of the card's %d; want less",
			kind.ReservedBytes, kind.MemoryBytes)
		return
	}
	forPrograms := kind.MemoryBytes - kind.ReservedBytes
	memory := forPrograms / scale / granule * granule
	if memory == 0 {
		r.mistake(table, "memory", "%d bytes are less than %d at scale 1/%d; want more",
			kind.MemoryBytes, granule, scale)
	} else if kind.ContextBytes/scale >= memory {
		r.mistake(table, "context_memory", "%d bytes leave nothing of the card's %d; want less",
			kind.ContextBytes, kind.MemoryBytes)
	}
	if kind.MIG == nil {
		if len(kind.MIGInstances) > 0 {
			r.mistake(table, "mig_instances", "there are none without the key mig, the card's model")
		}
		return
	}
	r.instances(table, scale, kind)
	for _, profile := range kind.MIG.Profiles {
		if bytes := kind.MIG.memoryBytes(profile, kind.MemoryBytes); bytes > forPrograms {
			r.mistake(table, "mig", "instances of profile %s have %d bytes, the card has %d; want "+
				"the model of this card", profile.Name, bytes, forPrograms)
			return
		}
	}
}

// addresses checks that the last count GPUs sit where none of the others does.
func (r *reader) addresses(table string, gpus []GPU, count int) {
	taken := map[PCI]int{}
	for i, gpu := range gpus {
		if other, found := taken[gpu.PCI]; found && i >= len(gpus)-count {
			r.mistake(table, "pci", "GPU %d would be at %s like GPU %d; want another address",
				i, gpu.PCI, other)
			return
		}
		taken[gpu.PCI] = i
	}
}

func (m *Machine) addGPUs(kind gpuTable) {
	for i := range kind.count {
		gpu := kind.GPU
		index := len(m.GPUs)
		gpu.UUID = makeUUID(m.Name, index)
		if gpu.PCI == (PCI{}) {
			gpu.PCI.Bus = uint32(index + 1)
		} else {
			gpu.PCI.Bus += uint32(i)
		}
		if kind.numaNodes != nil {
			gpu.NUMANode = kind.numaNodes[i]
		}
		if kind.pciePaths != nil {
			gpu.PCIePath = kind.pciePaths[i]
		}
		m.GPUs = append(m.GPUs, gpu)
	}
}

// makeUUID gives the same GPU of the same machine file the same UUID each time. Version 8 is the
// one for values of one's own making (RFC 9562).
func makeUUID(machine string, index int) [16]byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "simulated GPU %d of %s", index, machine))
	uuid := [16]byte(sum[:16])
	uuid[6] = uuid[6]&0x0f | 0x80
	uuid[8] = uuid[8]&0x3f | 0x80
	return uuid
}
