// The device nodes by which programs use GPUs.

package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"
)

// Node is a device node.
type Node struct {
	Path         string
	Major, Minor int64
}

// devDir is where device nodes are.
const devDir = "/dev"

// The nodes that all GPUs of NVIDIA's driver have in common; only the first must be there.
var commonNodes = []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}

// Nodes are the device nodes that a container needs to use a GPU. A simulated GPU has none. Those of MIG
// devices are files of the driver's own that this version does not give out. ErrNotFound, ErrClosed.
func (d *Devices) Nodes(gpuUUID string) ([]Node, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	handle, err := d.handle(gpuUUID)
	if err != nil {
		return nil, err
	}
	for _, gpu := range d.gpus {
		switch {
		case gpu.UUID != gpuUUID:
		case gpu.Simulated:
			return nil, nil
		case gpu.MIG != nil:
			return nil, errors.New("it is a MIG device, which this version does not give to containers by itself; " +
				"let the device plugin or NVIDIA's runtime give it, and leave weir/gpu out")
		}
	}
	minor, ret := handle.GetMinorNumber()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("asking the device node of %s: %w", gpuUUID, ret)
	}
	return nodesIn(devDir, minor)
}

// nodesIn looks at the device nodes of the GPU with this minor number.
func nodesIn(dir string, minor int) ([]Node, error) {
	var nodes []Node
	for i, name := range append([]string{fmt.Sprintf("nvidia%d", minor)}, commonNodes...) {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil && i > 1 && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking at a device node: %w", err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || info.Mode()&os.ModeCharDevice == 0 {
			return nil, fmt.Errorf("%s is no device node", path)
		}
		nodes = append(nodes, Node{path, int64(unix.Major(uint64(st.Rdev))), int64(unix.Minor(uint64(st.Rdev)))})
	}
	return nodes, nil
}
