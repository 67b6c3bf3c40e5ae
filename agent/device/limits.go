// Limits of device memory that the driver itself holds, each for a control group and a card.

package device

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// ErrNoLimits says that the driver holds no limit on a GPU for this process: it is too old or keeps none
// here, the GPU is a MIG device, or this process is not root's.
var ErrNoLimits = errors.New("the driver holds no limits of memory here")

// limitsSymbol is NVML's function, which drivers have from 615 on.
const limitsSymbol = "nvmlDeviceSetMemoryLimits_v1"

// SetMemoryLimit has the driver refuse the processes of a control group of version 2, and of those below
// it, more than so many bytes of a card's memory; less than 0 takes the limit away, as removing the group
// does. What the group holds already it keeps. directory is the group's in the file system. ErrNoLimits,
// ErrNotFound, ErrClosed, or why the driver refused it.
//
// No memory is reserved for the group (the soft limit is 0): caps may add up to more than the card has.
func (d *Devices) SetMemoryLimit(gpuUUID, directory string, bytes int64) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	handle, err := d.handle(gpuUUID)
	switch {
	case err != nil:
		return err
	case d.cardOf[gpuUUID] != "":
		return fmt.Errorf("%w: %s is a MIG device", ErrNoLimits, gpuUUID)
	case !d.has(limitsSymbol):
		return fmt.Errorf("%w: NVML of driver %s has no %s", ErrNoLimits, d.driver, limitsSymbol)
	}
	hard := uint64(math.MaxUint64) // NVML's word for none
	if bytes >= 0 {
		hard = uint64(bytes)
	}
	ret := handle.SetMemoryLimits_v1(directory, 0, hard)
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION, nvml.ERROR_FUNCTION_NOT_FOUND:
		return fmt.Errorf("%w: %w", ErrNoLimits, ret)
	}
	if _, gone := os.Stat(directory); bytes < 0 && errors.Is(gone, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("limiting %s on %s: %w", directory, gpuUUID, ret)
}
