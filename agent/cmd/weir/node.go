// What `weir agent` is made of: GPUs from NVML, the library within this binary, and the node that
// serves tenants.

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"weir/agent/config"
	"weir/agent/control"
	"weir/agent/device"
	"weir/agent/session"
	"weir/cgo/lib"
	"weir/oci"
	"weir/oci/policy"
)

// openedNode is a node with its GPUs.
type openedNode struct {
	*session.Node
	devices *device.Devices
	summary string // of the GPUs, for the ready line
}

// openNode opens the GPUs and the node. A node without GPUs is served too: it may get some later,
// and what is asked of it still gets an answer.
func openNode(settings config.Config, log *slog.Logger) (*openedNode, error) {
	contents, err := lib.Library()
	if err != nil {
		return nil, err
	}
	devices, err := device.Open(settings.NVML)
	if err != nil && !errors.Is(err, device.ErrNoNVML) {
		return nil, fmt.Errorf("opening the GPUs: %w", err)
	}
	if err := checkSlots(devices, settings.Time); err != nil {
		return nil, errors.Join(err, devices.Close())
	}
	summary := summarise(devices.GPUs(), err)
	node, err := session.New(session.Options{
		RunDir:      settings.RunDir,
		StateDir:    settings.StateDir,
		Devices:     nodeDevices{devices},
		Limits:      nodeDevices{devices},
		MakeContext: makeContext,
		Managed:     concurrentManaged,
		Utilisation: devices.Utilisation,
		Library:     contents,
		Version:     version,
		Driver:      devices.DriverVersion(),
		Logger:      log,
		AgentWait:   settings.AgentWait,

		CountContext:     settings.CountContext,
		EndUndeclared:    settings.EndUndeclared,
		PassIncompatible: settings.PassIncompatible,
		LimitsOff:        settings.NoDriverLimit,
		SwapHostLimit:    settings.SwapHostLimit,

		Time:    timeSettings(settings.Time),
		TimeOff: settings.Time.Off,

		Policy: policy.Policy{UnaskedGPU: settings.UnaskedGPU, Rules: settings.Rules},
		Hook:   besideProgram("weir-hook"),
	})
	if err != nil {
		return nil, errors.Join(err, devices.Close())
	}
	return &openedNode{node, devices, summary}, nil
}

func (n *openedNode) close() error { return n.devices.Close() }

// summarise says how many GPUs there are, of which kind, and that simulated ones are simulated.
func summarise(gpus []device.GPU, reason error) string {
	if len(gpus) == 0 {
		text := "no GPU, so there is nothing to cap"
		if reason != nil {
			text += " (" + reason.Error() + ")"
		}
		return text
	}
	var kinds []string
	simulated := false
	for _, gpu := range gpus {
		simulated = simulated || gpu.Simulated
		kind := gpu.Name + ", " + config.FormatSize(gpu.MemoryBytes)
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	text := fmt.Sprintf("%d ", len(gpus))
	if simulated {
		text += "simulated "
	}
	text += "GPU"
	if len(gpus) > 1 {
		text += "s"
	}
	return text + " (" + strings.Join(kinds, "; ") + ")"
}

// nodeDevices shows the GPUs as the control API describes them.
type nodeDevices struct{ *device.Devices }

// GPUs lists the GPUs with what is in use on each now.
func (d nodeDevices) GPUs() ([]control.GPU, error) {
	var list []control.GPU
	for _, gpu := range d.Devices.GPUs() {
		entry := control.GPU{
			Index: gpu.Index, UUID: gpu.UUID, Name: gpu.Name, MemoryBytes: gpu.MemoryBytes,
			Simulated: gpu.Simulated,
		}
		if gpu.MIG != nil {
			entry.MIG = &gpu.MIG.Index
		}
		if memory, err := d.Memory(gpu.UUID); err == nil {
			entry.UsedBytes = &memory.UsedBytes
		}
		if percent, err := d.Utilisation(gpu.UUID); err == nil {
			ratio := percent / 100
			entry.UtilisationRatio = &ratio
		}
		list = append(list, entry)
	}
	return list, nil
}

// SetMemoryLimit has the driver hold a limit of its own.
func (d nodeDevices) SetMemoryLimit(gpuUUID, directory string, bytes int64) error {
	err := d.Devices.SetMemoryLimit(gpuUUID, directory, bytes)
	if errors.Is(err, device.ErrNoLimits) {
		return fmt.Errorf("%w: %w", control.ErrUnsupported, err)
	}
	return err
}

// Nodes are a GPU's device nodes.
func (d nodeDevices) Nodes(gpuUUID string) ([]oci.Device, error) {
	nodes, err := d.Devices.Nodes(gpuUUID)
	var list []oci.Device
	for _, node := range nodes {
		list = append(list, oci.Device(node))
	}
	return list, err
}
