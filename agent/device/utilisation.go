package device

// How busy a GPU is.

import (
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Utilisation tells in percent for how much of the last moments, a second at most on real cards, some kernel ran on
// a GPU. ErrNotFound, ErrClosed, or why NVML does not tell: it does not for MIG devices.
func (d *Devices) Utilisation(gpuUUID string) (percent float64, err error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	handle, err := d.handle(gpuUUID)
	if err != nil {
		return 0, err
	}
	rates, ret := handle.GetUtilizationRates()
	if ret != nvml.SUCCESS {
		return 0, fmt.Errorf("asking the utilisation of %s: %w", gpuUUID, ret)
	}
	return math.Min(float64(rates.Gpu), 100), nil
}

// CheckUtilisation says why slots of a GPU cannot follow its utilisation, in one line that begins with the key; nil if
// they can, or need not.
func (d *Devices) CheckUtilisation(gpuUUID string, slots int, most float64) error {
	if slots <= 1 || most <= 0 {
		return nil
	}
	if _, err := d.Utilisation(gpuUUID); err != nil {
		return fmt.Errorf("utilisation_max = %g: %w; leave it at 0 and have as many slots as are configured", most, err)
	}
	return nil
}
