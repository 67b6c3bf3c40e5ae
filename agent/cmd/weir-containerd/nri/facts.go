package nri

// What a plugin is told of a container, as the rest of weir knows it.

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"weir/agent/control/ociapi"
	"weir/oci"
)

// facts are what oci.Look would find in the container's specification, were it there, with the pod's
// annotations. The container's own come first: what a specification says of itself must not come from
// the pod, which is a container, too.
func facts(pod *api.PodSandbox, c *api.Container) oci.Facts {
	var parts oci.Parts
	parts.Annotations = make(map[string]string)
	for name, value := range pod.GetAnnotations() {
		if strings.HasPrefix(name, oci.Prefix) {
			parts.Annotations[name] = value
		}
	}
	maps.Copy(parts.Annotations, c.GetAnnotations())
	parts.Process.Args, parts.Process.Env = c.GetArgs(), c.GetEnv()
	for _, m := range c.GetMounts() {
		parts.Mounts = append(parts.Mounts,
			oci.Mount{Destination: m.GetDestination(), Source: m.GetSource()})
	}
	for _, d := range c.GetLinux().GetDevices() {
		parts.Linux.Devices = append(parts.Linux.Devices, oci.Node{
			Path: d.GetPath(), Type: d.GetType(), Major: d.GetMajor(), Minor: d.GetMinor()})
	}
	for _, r := range c.GetLinux().GetResources().GetDevices() {
		parts.Linux.Resources.Devices = append(parts.Linux.Resources.Devices, oci.Rule{
			Allow: r.GetAllow(), Type: r.GetType(), Access: r.GetAccess(),
			Major: number(r.GetMajor()), Minor: number(r.GetMinor())})
	}
	found := parts.Facts(strings.Contains(pod.GetRuntimeHandler(), "nvidia"))
	found.HasGPU = found.HasGPU || slices.ContainsFunc(c.GetCDIDevices(), func(d *api.CDIDevice) bool {
		return strings.HasPrefix(d.GetName(), "nvidia.com/")
	})
	for field, value := range map[*string]string{
		&found.Name: c.GetName(), &found.Namespace: pod.GetNamespace(), &found.Pod: pod.GetName(),
		&found.PodUID: pod.GetUid(), &found.Image: c.GetImage().GetName(),
	} {
		if value != "" {
			*field = value
		}
	}
	if found.Name == "" {
		found.Name = c.GetId()
	}
	return found
}

// number is one that may be missing.
func number(optional *api.OptionalInt64) *int64 {
	if optional == nil {
		return nil
	}
	return &optional.Value
}

// concerns tells whether weir has anything to do with a container: others are never touched. None is a sandbox, of
// which plugins are told as pods.
func concerns(found oci.Facts) bool {
	return asks(found) || found.HasGPU || found.AllDevices
}

// onlyShown tells whether the agent is told of it for people's sake alone, so that nothing keeps it from starting.
func onlyShown(found oci.Facts) bool { return !asks(found) && !found.HasGPU }

func asks(found oci.Facts) bool { return oci.Asks(found.Annotations, found.Name) }

// request is what the agent is asked about a container. Its image is not there yet: the runtime makes the
// root file system when it starts. It can be written to then, be it only for the runtime, which makes the
// places for mounts in it, so none is a FixedImage.
func request(found oci.Facts, id, bundle string) ociapi.Container {
	return ociapi.Container{
		ID: id, Bundle: bundle, Root: filepath.Join(bundle, "rootfs"), Name: found.Name,
		Namespace: found.Namespace, Pod: found.Pod, PodUID: found.PodUID, Image: found.Image, Command: found.Command,
		Annotations: oci.Requests(found.Annotations, found.Name), HasGPU: found.HasGPU,
		AllDevices: found.AllDevices,
		ReadImage:  found.PreloadSource == "", Early: true,
	}
}
