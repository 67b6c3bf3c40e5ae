// Package cdi makes and reads specifications of the Container Device Interface, by which runtimes that
// know it give a container weir's devices by name. It is pure. Invariants: what it makes is valid by the
// oldest version that has its features, and every hook in it has an environment of its own.
package cdi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"weir/oci"
)

// The kinds of devices that weir makes.
const (
	// GPUKind has the GPUs of the node: "weir/gpu=0". Its hooks ask the agent when a container starts.
	GPUKind = "weir/gpu"
	// LeaseKind has grants that the agent has already made, one a container: "weir/lease=<id>".
	LeaseKind = "weir/lease"
)

// noOther keeps NVIDIA's runtime from giving the container GPUs, too, which every CUDA image asks it for.
const noOther = "NVIDIA_VISIBLE_DEVICES=void"

// GPU is one GPU, or MIG device, of the node.
type GPU struct {
	Name    string // as people name it: "0", or "1:0" of a MIG device
	UUID    string
	Devices []oci.Device
}

// Programs are where a node has what its containers' hooks run and ask.
type Programs struct {
	Hook          string // the weir-hook program
	ControlSocket string // the agent's
}

// Generate makes the specification of the node's GPUs, each by its name and by its UUID. What a
// container is given beyond device nodes depends on its annotations, so hooks put it in.
func Generate(gpus []GPU, programs Programs) (*specs.Spec, error) {
	spec := &specs.Spec{Kind: GPUKind, Devices: []specs.Device{}}
	for _, gpu := range gpus {
		for _, name := range []string{gpu.Name, gpu.UUID} {
			spec.Devices = append(spec.Devices, specs.Device{
				Name: name, ContainerEdits: specs.ContainerEdits{Env: []string{noOther}, DeviceNodes: nodes(gpu.Devices)},
			})
		}
	}
	for _, hook := range []oci.Hook{
		oci.NewHook("createRuntime", programs.Hook, "start", "--socket", programs.ControlSocket),
		oci.NewHook("createContainer", programs.Hook, "inject", "--socket", programs.ControlSocket),
		oci.NewHook("poststop", programs.Hook, "release", "--socket", programs.ControlSocket),
	} {
		spec.ContainerEdits.Hooks = append(spec.ContainerEdits.Hooks, convert(hook))
	}
	return finish(spec)
}

// Lease makes the specification of one grant. It has no LD_PRELOAD, which would take the place of the
// image's own: programs of musl are not covered by it.
func Lease(grant oci.Grant) (*specs.Spec, error) {
	edits := specs.ContainerEdits{DeviceNodes: nodes(grant.Devices)}
	for _, m := range grant.Mounts() {
		edits.Mounts = append(edits.Mounts, &specs.Mount{
			HostPath: m.Source, ContainerPath: m.Destination, Options: m.Options, Type: m.Type,
		})
	}
	for _, hook := range grant.Hooks() {
		edits.Hooks = append(edits.Hooks, convert(hook))
	}
	return finish(&specs.Spec{Kind: LeaseKind, Devices: []specs.Device{{Name: grant.ID, ContainerEdits: edits}}})
}

func nodes(devices []oci.Device) []*specs.DeviceNode {
	var list []*specs.DeviceNode
	for _, device := range devices {
		mode := os.FileMode(0o666)
		list = append(list, &specs.DeviceNode{
			Path: device.Path, Type: "c", Major: device.Major, Minor: device.Minor, FileMode: &mode, Permissions: "rwm",
		})
	}
	return list
}

func convert(hook oci.Hook) *specs.Hook {
	timeout := hook.TimeoutSeconds
	return &specs.Hook{HookName: hook.Stage, Path: hook.Path, Args: hook.Args, Env: hook.Env, Timeout: &timeout}
}

// finish gives a specification the oldest version that has its features, and checks it.
func finish(spec *specs.Spec) (*specs.Spec, error) {
	version, err := specs.MinimumRequiredVersion(spec)
	if err == nil {
		spec.Version = version
		err = Validate(spec)
	}
	if err != nil {
		return nil, fmt.Errorf("making the CDI specification of %s: %w", spec.Kind, err)
	}
	return spec, nil
}

// Encode writes a specification as it lies in a file.
func Encode(spec *specs.Spec) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(spec)
	return out.Bytes(), err
}

// FileName is the file of a kind in a directory of specifications; of leases there is one a container.
func FileName(spec *specs.Spec) string {
	if spec.Kind == LeaseKind {
		return "weir-lease-" + spec.Devices[0].Name + ".json"
	}
	return "weir-gpu.json"
}

// Listed is a device as a directory has it.
type Listed struct {
	Name string // as containers ask for it: "weir/gpu=0"
	File string
	// Hidden is why runtimes do not give it, or an empty string.
	Hidden string
}
