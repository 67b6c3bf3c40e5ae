// Cards that are divided into MIG instances, as their MIG devices.

package device

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// MIG says which part of its card a MIG device is.
type MIG struct {
	Card            string // UUID of the card, "GPU-…"
	Index           int    // among the MIG devices of the card
	GPUInstance     int    // ids as `nvidia-smi mig` shows them
	ComputeInstance int
	Profile         string // "1g.5gb"; of a part of a GPU instance "1c.3g.20gb"
	// Placement of the GPU instance, in memory slices; Length 0 where the driver does not tell it.
	Start, Length int
}

// divided says whether a card is divided now. One that cannot be says that it is not supported.
func (d *Devices) divided(handle nvml.Device) bool {
	if !d.has("nvmlDeviceGetMigMode") {
		return false
	}
	current, _, ret := handle.GetMigMode()
	return ret == nvml.SUCCESS && current == nvml.DEVICE_MIG_ENABLE
}

// listMIG adds the MIG devices of a divided card. One that does not answer is left out and logged.
func (d *Devices) listMIG(card GPU, handle nvml.Device) {
	count, ret := handle.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		slog.Warn("MIG devices left out: their card does not count them", "card", card.UUID,
			"error", ret)
		return
	}
	for index := range count {
		device, ret := handle.GetMigDeviceHandleByIndex(index)
		if ret == nvml.ERROR_NOT_FOUND {
			continue // indexes may have holes
		}
		gpu := GPU{Index: card.Index, PCI: card.PCI, NUMANode: card.NUMANode}
		err := error(ret)
		if ret == nvml.SUCCESS {
			gpu.MIG = &MIG{Card: card.UUID, Index: index}
			err = describeMIG(&gpu, handle, device)
		}
		if err != nil {
			slog.Warn("MIG device left out: it does not answer", "card", card.UUID, "index", index,
				"error", err)
			continue
		}
		d.add(gpu, device)
	}
}

func describeMIG(gpu *GPU, card, device nvml.Device) error {
	if err := identify(gpu, device); err != nil {
		return err
	}
	_, gpu.MIG.Profile, _ = strings.Cut(gpu.Name, " MIG ")
	var ret nvml.Return
	if gpu.MIG.GPUInstance, ret = device.GetGpuInstanceId(); ret != nvml.SUCCESS {
		return fmt.Errorf("asking its GPU instance: %w", ret)
	}
	if gpu.MIG.ComputeInstance, ret = device.GetComputeInstanceId(); ret != nvml.SUCCESS {
		return fmt.Errorf("asking its compute instance: %w", ret)
	}
	// Only who may divide the card may ask for instances.
	instance, ret := card.GetGpuInstanceById(gpu.MIG.GPUInstance)
	if ret != nvml.SUCCESS {
		return nil
	}
	if info, ret := instance.GetInfo(); ret == nvml.SUCCESS {
		gpu.MIG.Start, gpu.MIG.Length = int(info.Placement.Start), int(info.Placement.Size)
	}
	return nil
}
