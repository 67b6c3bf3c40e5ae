package main

// What a context takes: as weir measures and charges it, beside NVML's figure of the process.

import (
	"math"

	"weir/agent/control"
	"weir/agent/device"
)

// containerGPU is the container's use of the card.
func containerGPU(r *run, t *trial, name string) control.GPUUse {
	for _, gpu := range r.node.For(t).Container(name).GPUs {
		if gpu.UUID == r.gpuUUID {
			return gpu
		}
	}
	t.Fatalf("the container has no entry for GPU %s", r.gpuUUID)
	return control.GPUUse{}
}

// contextTolerance is how far NVML's figure of a process with one context may be from what weir charges
// for it: a quarter, as the agent's reconciliation allows.
const contextTolerance = 0.25

func (r *run) context(t *trial) {
	// What the first on this kind of GPU took is what all are charged.
	first, second := r.puppet(t, "context-first"), r.puppet(t, "context-second")
	charged := containerGPU(r, t, "context-second").ContextBytes
	if charged == 0 {
		t.Fatalf("contexts are not charged: the agent could not measure one (does NVML list pid %d?)",
			first.PID())
	}
	if again := containerGPU(r, t, "context-first").ContextBytes; again != charged {
		t.Errorf("two programs with a context each are charged %d and %d", again, charged)
	}
	processes, err := r.devices.Processes(r.gpuUUID)
	if err != nil {
		t.Fatalf("asking NVML for processes: %v", err)
	}
	bytes, listed := processes[second.PID()]
	if _, too := processes[first.PID()]; !listed || !too || bytes == device.UnknownBytes {
		t.skip("NVML does not tell what processes have here (in a container it may see other pids); charged %s",
			size(charged))
	}
	if off := math.Abs(float64(bytes-charged)) / float64(max(bytes, 1)); off > contextTolerance {
		t.Errorf("weir charges %s, NVML says %s", size(charged), size(bytes))
	}
	t.figure("charged %s, NVML says %s", size(charged), size(bytes))
}

// contextCharge: a second context is charged as the first; one that does not fit is refused.
func (r *run) contextCharge(t *trial) {
	const name = "contexts"
	p := r.puppet(t, name)
	one := containerGPU(r, t, name)
	context := p.Number("context 0")
	two := containerGPU(r, t, name)
	if two.ContextBytes != 2*one.ContextBytes || two.UsedBytes != one.UsedBytes+one.ContextBytes {
		t.Errorf("one context: %d bytes, %d used in all; two: %d and %d", one.ContextBytes, one.UsedBytes,
			two.ContextBytes, two.UsedBytes)
	}
	p.OK("destroy %d", context)
	r.uses(t, name, "destroyed", one.UsedBytes)
	p.OK("alloc %d", r.room(t, name)/granule*granule)
	refused(t, p, "context 0")
	small := r.node.For(t).Puppet(r.cappedAt("too-small", mib))
	refused(t, small, "init")
	t.figure("%s each; none under a cap of %s", size(one.ContextBytes), size(mib))
}
