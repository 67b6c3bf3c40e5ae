package session

// What the server of NVIDIA's multi-process service (MPS) may hold that runs within a container. One outside of
// all containers, which is usual, is nobody's and not looked at.
//
// Before compute capability 7.0 the server holds what its clients have declared, and NVML has no figures of theirs;
// later it holds a context of its own and each client the rest, as without MPS. A process may give itself
// the server's name. It gains a context by that, and no more: what other processes hold by themselves is
// not allowed to it as well.

// mpsProgram is what the kernel calls MPS's programs; it keeps 15 letters.
const mpsProgram = "nvidia-cuda-mps"

// servedBy is what NVML may say that an MPS server in a container holds on a GPU: a context, and what the
// container's processes have declared of which NVML lists no memory.
func (n *Node) servedBy(c *container, gpu int, listed map[int]int64, declared map[int]declaration) int64 {
	c.mu.Lock()
	bytes := c.contextSize(gpu)
	c.mu.Unlock()
	for pid, d := range declared {
		if has, there := listed[pid]; d.c == c && (!there || has < 0) {
			bytes += d.allowed
		}
	}
	return bytes
}
