// Package metrics shows what the agent knows to Prometheus: one family a figure, made anew at each scrape of what the agent
// tells at that moment (control.Survey, control.AgentInfo).
//
// Invariants:
//   - units are base units (bytes, seconds, ratios of one), counters end in _total, and a figure that is not known is not
//     there; what `weir ps -o json` and `weir queue -o json` show of the same moment is the same;
//   - a scrape waits for no tenant and for no GPU: NVML, which may hang, is asked beside it, once at a time;
//   - how many series there are is bounded: label values are the agent's own words, GPUs, or names of containers, of which
//     so many are told; the series of what is gone are gone with the next scrape.
package metrics

//go:generate go run ./generate ../../docs/METRICS.md

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// kind is a family's type.
type kind string

const (
	gauge   kind = "gauge"
	counter kind = "counter"
	summary kind = "summary" // with a sum and a count only
)

// family is the metrics of one name.
type family struct {
	name, help string
	kind       kind
	labels     []string
	desc       *prometheus.Desc
}

// families are all of them, in the order in which they are documented.
var families []*family

func newFamily(name string, kind kind, help string, labels ...string) *family {
	f := &family{name: name, help: help, kind: kind, labels: labels, desc: prometheus.NewDesc(name, help, labels, nil)}
	families = append(families, f)
	return f
}

// Labels that families have in common. Containers are named as in `weir ps`, GPUs as NVML does.
var (
	ofContainer      = []string{"container", "namespace", "pod"}
	ofContainerOnGPU = append(slices.Clone(ofContainer), "gpu_uuid")
)

func ofOne(name string, kind kind, help string, more ...string) *family {
	return newFamily("weir_container_"+name, kind, help, append(slices.Clone(ofContainer), more...)...)
}

func ofOneOnGPU(name string, kind kind, help string, more ...string) *family {
	return newFamily("weir_container_"+name, kind, help, append(slices.Clone(ofContainerOnGPU), more...)...)
}

// Of the agent.
var (
	agentInfo = newFamily("weir_agent_info", gauge,
		"Always 1: the agent's version, that of what it shares with libraries, and of the driver.", "version", "abi", "driver")
	agentStarted = newFamily("weir_agent_start_time_seconds", gauge,
		"When the agent started, in seconds of the Unix epoch.")
	timeShared = newFamily("weir_agent_time_shared", gauge,
		"1 where GPU time is shared out by weights, 0 where weights have no effect.")
	containers = newFamily("weir_agent_containers", gauge,
		"Containers, by whether they are prepared, running or ending.", "state")
	sessions = newFamily("weir_agent_sessions", gauge,
		"Processes of containers that use weir, by the state of their connection.", "state")
	leftOut = newFamily("weir_agent_containers_left_out", gauge,
		"Containers of which there are no metrics, since there are too many.")
	hostLimit = newFamily("weir_swap_host_limit_bytes", gauge,
		"The most host memory that the swap of all containers may take.")
	hostReserved = newFamily("weir_swap_host_reserved_bytes", gauge,
		"What of it is set aside, for all memory that may be swapped out, wherever it lies.")
	eventsTotal = newFamily("weir_events_total", counter,
		"Events, repetitions included, by their type, since the agent started.", "type")
	eventsDropped = newFamily("weir_events_dropped_total", counter,
		"Events that have been dropped from the agent's log to make room, and that nobody can read any more.")
)

// Of GPUs.
var (
	gpuInfo = newFamily("weir_gpu_info", gauge,
		"Always 1: what the GPU is, by its index (CARD:DEVICE of a MIG device), and whether it is a simulated one.",
		"gpu_uuid", "gpu", "name", "simulated")
	gpuMemory = newFamily("weir_gpu_memory_bytes", gauge,
		"The memory of the GPU.", "gpu_uuid")
	gpuUsed = newFamily("weir_gpu_memory_used_bytes", gauge,
		"What of it is in use, by NVML, whoever uses it.", "gpu_uuid")
	gpuUtilisation = newFamily("weir_gpu_utilisation_ratio", gauge,
		"The part of the last moments in which some kernel ran, by NVML, which does not tell it of MIG devices.", "gpu_uuid")
	gpuLink = newFamily("weir_gpu_link_bytes_per_second", gauge,
		"What the link carries to the GPU (in) and from it (out), as far as moves of swap have shown.", "gpu_uuid", "direction")
)

// Of containers.
var (
	enforced = ofOne("enforced", gauge,
		"1 where the container's caps hold, by the library or by the driver, or it has none; 0 where they do not, and why.",
		"by", "reason")
	started  = ofOne("start_time_seconds", gauge, "When the container started, in seconds of the Unix epoch.")
	ownUsers = ofOne("sessions", gauge, "Its processes that use weir.")
	denials  = ofOne("denials_total", counter, "Allocations that its caps, or the node's limit of swap, have refused.")
	weight   = ofOne("weight", gauge, "Its weight: that of a container with weight 2 is to have twice the GPU time of one with 1.")
)

// Of the memory of containers on a GPU.
var (
	memoryCap = ofOneOnGPU("memory_cap_bytes", gauge,
		"The most memory that it may have on the GPU; not there where it has no cap.")
	driverLimit = ofOneOnGPU("memory_driver_limit_bytes", gauge,
		"The limit that the driver itself holds for it; not there where it holds none.")
	charged = ofOneOnGPU("memory_charged_bytes", gauge,
		"What its caps hold against: used memory, and what its processes have been granted in advance; only where it has a cap.")
	used = ofOneOnGPU("memory_used_bytes", gauge,
		"Memory that it has: plain and movable, wherever that lies.")
	plain = ofOneOnGPU("memory_plain_bytes", gauge,
		"What of it is plain: always on the GPU.")
	movable = ofOneOnGPU("memory_movable_bytes", gauge,
		"What of it may be swapped out; as much host memory is set aside for it.")
	resident = ofOneOnGPU("memory_resident_bytes", gauge,
		"What of it lies on the GPU, as far as is known.")
	contexts = ofOneOnGPU("memory_contexts_bytes", gauge,
		"What contexts, code and their limits take, as its processes say; part of the used memory unless contexts do not count.")
	swapLimit = ofOneOnGPU("swap_limit_bytes", gauge,
		"What it may have beyond its cap; not there where it has no swap.")
	swapResident = ofOneOnGPU("swap_resident_bytes", gauge,
		"Movable memory on the GPU, or on its way there or from there.")
	swapped = ofOneOnGPU("swap_swapped_bytes", gauge,
		"Movable memory on the host. What is neither here nor there has not been touched yet.")
	moved = ofOneOnGPU("swap_moved_bytes_total", counter,
		"Movable memory that came to the GPU (in) or went to the host (out): by the agent's plan, or by kernels' page faults and "+
			"what the driver made room by, as far as is known.", "direction", "cause")
	cancelled = ofOneOnGPU("swap_moves_cancelled_total", counter,
		"Moves that were taken back, since the plan had changed, by whether they had begun (late) or not (undone).", "result")
)

// Of the GPU time of containers.
var (
	gpuTime = ofOneOnGPU("gpu_time_seconds_total", counter,
		"GPU time that it has had, of that which is shared out; in the time that nobody else wanted, what it used.")
	gpuCharged = ofOneOnGPU("gpu_time_charged_seconds_total", counter,
		"GPU time that was charged to it: while others waited, all of a lease.")
	shareAsked = ofOneOnGPU("gpu_share_asked_ratio", gauge,
		"The share of GPU time that is its due by its weight, among those active now; not there while it is idle.")
	shareGot = ofOneOnGPU("gpu_share_got_ratio", gauge,
		"The share that it had in the last 10 seconds.")
	leases = ofOneOnGPU("leases_total", counter,
		"Leases that it was granted.")
	handovers = ofOneOnGPU("lease_handovers_total", counter,
		"Leases of these that came after another container's.")
	leaseWait = ofOneOnGPU("lease_wait_seconds", summary,
		"How long it waited for its leases.")
	longestWait = ofOneOnGPU("lease_wait_longest_seconds", gauge,
		"The longest of these waits.")
	waiting = ofOneOnGPU("lease_waiting_seconds", gauge,
		"How long it has waited by now for a lease that it lacks; 0 where it lacks none.")
	reopened = ofOneOnGPU("drains_reopened_total", counter,
		"Leases at whose end its work stood still, so that its launches were let through again.")
	expired = ofOneOnGPU("drains_expired_total", counter,
		"Leases whose work did not end in time, so that others went on beside it.")
)
