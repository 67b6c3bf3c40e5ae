// The keys of a machine file: one row each in the two tables, with what is accepted. Invariant:
// what passes here is within bounds, so that sums and products of a few values fit 64 bits.

package sim

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/agent/config"
)

// key is one key of a table of the machine file: its name, what is accepted, and how a value gets
// into T. set's error says what is wrong with the value and what is accepted.
type key[T any] struct {
	name     string
	optional bool
	wanted   string
	set      func(target *T, value any) error
}

// gpuTable is one [[gpu]] table.
type gpuTable struct {
	GPU
	count     int
	numaNodes []int     // one for each, or nil
	pciePaths [][]uint8 // likewise
}

const scaleMax = 1 << 16

// sliceMinNS bounds what a moment of contention costs: whoever looks at the machine goes through
// each slice that has passed.
const sliceMinNS = 1000

var machineKeys = []key[Machine]{
	{name: "scale", wanted: scaleWanted, set: setScale},
	{name: "driver", wanted: driverWanted, set: setDriver},
	{name: "cuda", wanted: cudaWanted, set: setCUDA},
	optional(size("host_memory", 1, func(m *Machine, n int64) { m.HostBytes = n })),
	optional(truth("peer_access", func(m *Machine, on bool) { m.NoPeerAccess = !on })),
	optional(truth("memory_limits", func(m *Machine, on bool) { m.MemoryLimits = on })),
	optional(truth("managed_data", func(m *Machine, on bool) { m.ManagedData = on })),
	optional(measured("nvlink_bandwidth", atLeastOne(rates),
		func(m *Machine, n int64) { m.NVLinkRate = n })),
	{name: "gpu", wanted: "one [[gpu]] table a GPU, or one with a count"},
	optional(key[Machine]{name: "nvlink", wanted: nvlinkWanted}),
}

var gpuKeys = []key[gpuTable]{
	optional(number("count", 1, GPUsMax, func(g *gpuTable, n int64) { g.count = int(n) })),
	{name: "name", wanted: nameWanted, set: setName},
	optional(key[gpuTable]{name: "pci", wanted: pciWanted, set: setPCI}),
	optional(key[gpuTable]{name: "numa_node", wanted: numaWanted, set: setNUMA}),
	{name: "compute_capability", wanted: computeWanted, set: setCompute},
	number("multiprocessors", 1, 1024, func(g *gpuTable, n int64) { g.Multiprocessors = n }),
	measured("clock", atLeastOne(frequencies), func(g *gpuTable, n int64) { g.ClockKHz = n }),
	measured("memory_clock", atLeastOne(frequencies),
		func(g *gpuTable, n int64) { g.MemoryClockKHz = n }),
	number("memory_bus", 1, 1<<16, func(g *gpuTable, n int64) { g.MemoryBusBits = n }),
	size("memory", 1, func(g *gpuTable, n int64) { g.MemoryBytes = n }),
	optional(size("reserved_memory", 0, func(g *gpuTable, n int64) { g.ReservedBytes = n })),
	size("context_memory", 1, func(g *gpuTable, n int64) { g.ContextBytes = n }),
	measured("host_to_device", atLeastOne(rates),
		func(g *gpuTable, n int64) { g.HostToDeviceRate = n }),
	measured("device_to_host", atLeastOne(rates),
		func(g *gpuTable, n int64) { g.DeviceToHostRate = n }),
	measured("memory_bandwidth", atLeastOne(rates), func(g *gpuTable, n int64) { g.MemoryRate = n }),
	span("copy_latency", times, func(g *gpuTable, d time.Duration) { g.CopyLatency = d }),
	span("slice", atLeast(times, sliceMinNS), func(g *gpuTable, d time.Duration) { g.Slice = d }),
	span("switch_cost", times, func(g *gpuTable, d time.Duration) { g.SwitchCost = d }),
	span("launch_latency", times, func(g *gpuTable, d time.Duration) { g.LaunchLatency = d }),
	span("kernel_min", times, func(g *gpuTable, d time.Duration) { g.KernelMin = d }),
	measured("kernel_thread", shortTimes,
		func(g *gpuTable, n int64) { g.KernelThreadPicosecs = n }),
	span("context_create", times, func(g *gpuTable, d time.Duration) { g.ContextCreate = d }),
	number("queue_depth", 1, 1024, func(g *gpuTable, n int64) { g.QueueDepth = n }),
	optional(size("uvm_page", 1, func(g *gpuTable, n int64) { g.PageBytes = n })),
	optional(size("pool_chunk", 1, func(g *gpuTable, n int64) { g.PoolChunkBytes = n })),
	optional(number("fault_batch", 1, 1<<20, func(g *gpuTable, n int64) { g.FaultBatch = n })),
	optional(span("fault_batch_latency", atLeastOne(times),
		func(g *gpuTable, d time.Duration) { g.FaultBatchLatency = d })),
	optional(truth("concurrent_managed_access",
		func(g *gpuTable, on bool) { g.NoConcurrentManaged = !on })),
	optional(key[gpuTable]{name: "pcie_path", wanted: pathWanted, set: setPaths}),
	optional(key[gpuTable]{name: "mig", wanted: migWanted, set: setMIG}),
	optional(key[gpuTable]{name: "mig_instances", wanted: instancesWanted, set: setInstances}),
}

func optional[T any](k key[T]) key[T] {
	k.optional = true
	return k
}

func number[T any](name string, least, most int64, put func(*T, int64)) key[T] {
	wanted := fmt.Sprintf("a number from %d to %d", least, most)
	return key[T]{name: name, wanted: wanted, set: func(target *T, value any) error {
		n, isInteger := value.(int64)
		if !isInteger || n < least || n > most {
			return fmt.Errorf("%s is not %s", given(value), wanted)
		}
		put(target, n)
		return nil
	}}
}

func truth[T any](name string, put func(*T, bool)) key[T] {
	const wanted = "true or false"
	return key[T]{name: name, wanted: wanted, set: func(target *T, value any) error {
		on, isBool := value.(bool)
		if !isBool {
			return fmt.Errorf("%s is not %s", given(value), wanted)
		}
		put(target, on)
		return nil
	}}
}

func measured[T any](name string, q quantity, put func(*T, int64)) key[T] {
	return key[T]{name: name, wanted: q.wanted, set: func(target *T, value any) error {
		n, err := q.parse(fmt.Sprint(value))
		if err == nil {
			put(target, n)
		}
		return err
	}}
}

func span(name string, q quantity, put func(*gpuTable, time.Duration)) key[gpuTable] {
	return measured(name, q, func(g *gpuTable, n int64) { put(g, time.Duration(n)) })
}

func size[T any](name string, least int64, put func(*T, int64)) key[T] {
	wanted := `a size such as "24GiB"`
	return key[T]{name: name, wanted: wanted, set: func(target *T, value any) error {
		bytes, err := config.ParseSize(fmt.Sprint(value))
		if err == nil && (bytes < least || bytes > quantityMax) {
			err = fmt.Errorf("%s is not between 1 byte and 1PiB; want %s", given(value), wanted)
		}
		if err == nil {
			put(target, bytes)
		}
		return err
	}}
}

const scaleWanted = `a fraction from "1/1" to "1/65536"`

func setScale(m *Machine, value any) error {
	text, _ := value.(string)
	denominator, found := strings.CutPrefix(text, "1/")
	scale, err := strconv.ParseInt(denominator, 10, 64)
	if !found || err != nil || scale < 1 || scale > scaleMax {
		return fmt.Errorf("%s is not %s", given(value), scaleWanted)
	}
	m.Scale = scale
	return nil
}

const driverWanted = `a version such as "535.309.01"`

var driverForm = regexp.MustCompile(`^[0-9]{3}(\.[0-9]{1,3}){1,2}$`)

func setDriver(m *Machine, value any) error {
	text, _ := value.(string)
	if !driverForm.MatchString(text) {
		return fmt.Errorf("%s is not %s", given(value), driverWanted)
	}
	m.Driver = text
	return nil
}

// memoryLimitsDriver is the first driver that holds limits of control groups.
const memoryLimitsDriver = "615"

// memoryLimits checks that the machine's driver can hold limits.
func (r *reader) memoryLimits(machine *Machine) {
	if machine.MemoryLimits && machine.Driver != "" && machine.Driver < memoryLimitsDriver {
		r.mistake("", "memory_limits", "driver %s holds none; want true with a driver from %s on", machine.Driver,
			memoryLimitsDriver)
	}
}

const cudaWanted = `a version such as "12.2"`

var versionForm = regexp.MustCompile(`^([0-9]{1,2})\.([0-9])$`)

func setCUDA(m *Machine, value any) error {
	major, minor, err := parseVersion(value, cudaWanted)
	m.CUDA = major*1000 + minor*10
	return err
}

const computeWanted = `a compute capability such as "8.0"`

func setCompute(g *gpuTable, value any) (err error) {
	g.ComputeMajor, g.ComputeMinor, err = parseVersion(value, computeWanted)
	return err
}

func parseVersion(value any, wanted string) (major, minor int, err error) {
	text, _ := value.(string)
	parts := versionForm.FindStringSubmatch(text)
	if parts == nil {
		return 0, 0, fmt.Errorf("%s is not %s", given(value), wanted)
	}
	major, _ = strconv.Atoi(parts[1])
	minor, _ = strconv.Atoi(parts[2])
	return major, minor, nil
}

const nameWanted = `a card's name such as "A30 24GB"`

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}$`)

func setName(g *gpuTable, value any) error {
	text, _ := value.(string)
	if !nameForm.MatchString(text) {
		return fmt.Errorf("%s is not %s", given(value), nameWanted)
	}
	g.Name = namePrefix + text
	return nil
}

const pciWanted = `a PCI address such as "0000:3b:00.0"`

var pciForm = regexp.MustCompile(`^([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([01][0-9a-fA-F])\.0$`)

func setPCI(g *gpuTable, value any) error {
	text, _ := value.(string)
	parts := pciForm.FindStringSubmatch(text)
	if parts == nil {
		return fmt.Errorf("%s is not %s", given(value), pciWanted)
	}
	for i, part := range []*uint32{&g.PCI.Domain, &g.PCI.Bus, &g.PCI.Device} {
		n, _ := strconv.ParseUint(parts[i+1], 16, 32)
		*part = uint32(n)
	}
	if g.PCI.Bus+GPUsMax > 0xff {
		return fmt.Errorf("%s leaves no room for more GPUs; want a bus up to ef", given(value))
	}
	return nil
}

const numaWanted = "a node number, -1 for none, or a list with one a GPU"

func setNUMA(g *gpuTable, value any) error {
	if list, isList := value.([]any); isList {
		g.numaNodes = make([]int, 0, len(list))
		for _, entry := range list {
			node, err := numaNode(entry)
			if err != nil {
				return err
			}
			g.numaNodes = append(g.numaNodes, node)
		}
		return nil
	}
	var err error
	g.NUMANode, err = numaNode(value)
	return err
}

func numaNode(value any) (int, error) {
	node, isInteger := value.(int64)
	if !isInteger || node < -1 || node > 1023 {
		return 0, fmt.Errorf("%s is not %s", given(value), numaWanted)
	}
	return int(node), nil
}

// given writes a value as its file has it, shortened.
func given(value any) string {
	if text, isText := value.(string); isText {
		return fmt.Sprintf("%.40q", text)
	}
	return fmt.Sprintf("%.40s", fmt.Sprint(value))
}

func keyNames[T any](keys []key[T]) string {
	names := make([]string, 0, len(keys))
	for _, k := range keys {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

func sortedNames(values map[string]any) []string {
	return slices.Sorted(maps.Keys(values))
}
