package node

// Machines made for one test, where a ready-made one does not fit.

import (
	"fmt"

	"weir/tests/sim"
)

// Machine is the text of a machine file with one GPU at scale 1, so that sizes are what they seem:
// so much memory, of which every context takes so much.
func Machine(memory, context string) string {
	return `scale = "1/1"
driver = "535.309.01"
cuda = "12.2"
` + Card(memory, context)
}

// Card is one more GPU for a machine file, as Machine's.
func Card(memory, context string) string {
	return fmt.Sprintf(`
[[gpu]]
name = "test card"
compute_capability = "8.0"
multiprocessors = 56
clock = "1440MHz"
memory_clock = "1215MHz"
memory_bus = 3072
memory = %q
context_memory = %q
host_to_device = "12GB/s"
device_to_host = "12GB/s"
memory_bandwidth = "933GB/s"
copy_latency = "1us"
slice = "1024us"
switch_cost = "100us"
launch_latency = "2us"
kernel_min = "1us"
kernel_thread = "1ps"
context_create = "0ns"
queue_depth = 1024
`, memory, context)
}

// Card is the books of one card of the simulated machine.
func (n *Node) Card(index int) sim.GPUBooks {
	n.t.Helper()
	books, err := sim.Status(n.SimDir)
	if err != nil {
		n.t.Fatal(err)
	}
	return books.GPUs[index]
}
