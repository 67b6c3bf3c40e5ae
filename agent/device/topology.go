// Where GPUs sit in the node: NUMA nodes, and what lies between two of them.

package device

import (
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Level is how far two GPUs are apart: what the way from one to the other goes through.
type Level int

// From the nearest to the farthest.
const (
	LevelSameCard   Level = iota // one card, or MIG devices of one
	LevelSameBoard               // two GPUs of one board
	LevelSwitch                  // one PCIe switch
	LevelSwitches                // several PCIe switches
	LevelHostBridge              // a PCIe host bridge
	LevelNode                    // several host bridges of one NUMA node
	LevelSystem                  // between NUMA nodes
)

var levels = map[nvml.GpuTopologyLevel]Level{
	nvml.TOPOLOGY_INTERNAL:   LevelSameBoard,
	nvml.TOPOLOGY_SINGLE:     LevelSwitch,
	nvml.TOPOLOGY_MULTIPLE:   LevelSwitches,
	nvml.TOPOLOGY_HOSTBRIDGE: LevelHostBridge,
	nvml.TOPOLOGY_NODE:       LevelNode,
	nvml.TOPOLOGY_SYSTEM:     LevelSystem,
}

// Link is how two GPUs are connected.
type Link struct {
	Level   Level
	NVLinks int  // between their cards
	Peer    bool // each can read and write the other's memory
}

// Link tells how two GPUs are connected. MIG devices are where their cards are, without NVLinks and
// peer access. ErrNotFound, ErrClosed.
func (d *Devices) Link(one, other string) (Link, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	a, aDivided, err := d.card(one)
	if err != nil {
		return Link{}, err
	}
	b, bDivided, err := d.card(other)
	if err != nil {
		return Link{}, err
	}
	if a == b {
		return Link{Level: LevelSameCard}, nil
	}
	first, second := d.cards[a], d.cards[b]
	nvmlLevel, ret := first.GetTopologyCommonAncestor(second)
	level, known := levels[nvmlLevel]
	if ret != nvml.SUCCESS || !known {
		return Link{}, fmt.Errorf("asking what lies between %s and %s: level %d: %w", one, other,
			nvmlLevel, ret)
	}
	link := Link{Level: level}
	if aDivided || bDivided {
		return link, nil
	}
	link.Peer = canReach(first, second) && canReach(second, first)
	link.NVLinks = linksTo(first, second)
	return link, nil
}

func canReach(from, to nvml.Device) bool {
	read, ret := from.GetP2PStatus(to, nvml.P2P_CAPS_INDEX_READ)
	if ret != nvml.SUCCESS || read != nvml.P2P_STATUS_OK {
		return false
	}
	write, ret := from.GetP2PStatus(to, nvml.P2P_CAPS_INDEX_WRITE)
	return ret == nvml.SUCCESS && write == nvml.P2P_STATUS_OK
}

// linksTo counts the active NVLinks from one card to another.
func linksTo(from, to nvml.Device) (links int) {
	pci, ret := to.GetPciInfo()
	if ret != nvml.SUCCESS {
		return 0
	}
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := from.GetNvLinkState(link)
		if ret == nvml.ERROR_INVALID_ARGUMENT {
			break // more than a card can have
		}
		if ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		remote, ret := from.GetNvLinkRemotePciInfo(link)
		if ret == nvml.SUCCESS && remote.BusId == pci.BusId {
			links++
		}
	}
	return links
}

// nodesMax bounds how many NUMA nodes a machine is asked about.
const nodesMax = 1024

// numaNode is the NUMA node nearest to a card; -1 where none is known.
func (d *Devices) numaNode(card GPU, handle nvml.Device) int {
	words, ret := []uint(nil), nvml.ERROR_FUNCTION_NOT_FOUND
	if d.has("nvmlDeviceGetMemoryAffinity") {
		words, ret = handle.GetMemoryAffinity(nodesMax, nvml.AFFINITY_SCOPE_NODE)
	}
	if ret != nvml.SUCCESS && !card.Simulated {
		return numaNodeOf("/sys", card.PCI)
	}
	for i, word := range words {
		if ret == nvml.SUCCESS && word != 0 {
			return i*strconv.IntSize + bits.TrailingZeros(word)
		}
	}
	return -1
}

// numaNodeOf asks the kernel, which writes shorter addresses than NVML: "0000:3b:00.0".
func numaNodeOf(sys, pci string) int {
	address := strings.ToLower(strings.TrimPrefix(pci, "0000"))
	text, err := os.ReadFile(filepath.Join(sys, "bus/pci/devices", address, "numa_node"))
	if err != nil {
		return -1
	}
	node, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return -1
	}
	return node
}
