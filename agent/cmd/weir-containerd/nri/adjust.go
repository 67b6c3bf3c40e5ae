package nri

// The grant as an adjustment: what oci.Edit does to a specification, in the terms of NRI.

import (
	"path"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"weir/oci"
)

const preloadKey = "LD_PRELOAD"

// Adjustment is what puts a grant into a container. It is pure. What other plugins or the container's
// maker have put at our places is removed by name before, without which adding there is an error, or
// silently nothing, by version of the runtime. A container that has the grant already, of a second
// plugin such as this, needs none: nil.
func Adjustment(grant oci.Grant, c *api.Container) *api.ContainerAdjustment {
	if slices.ContainsFunc(c.GetMounts(), func(m *api.Mount) bool { return m.GetSource() == grant.SocketDir }) {
		return nil
	}
	adjust := &api.ContainerAdjustment{}
	adjust.AddAnnotation(oci.Marker, grant.ID)
	adjustMounts(adjust, grant, c.GetMounts())
	adjustEnvironment(adjust, grant, c.GetEnv())
	for _, hook := range grant.Hooks() {
		adjust.AddHooks(asHooks(hook))
	}
	for _, d := range grant.Devices {
		for _, there := range c.GetLinux().GetDevices() {
			if path.Clean(there.GetPath()) == d.Path {
				adjust.RemoveDevice(there.GetPath())
			}
		}
		adjust.AddDevice(&api.LinuxDevice{Path: d.Path, Type: "c", Major: d.Major, Minor: d.Minor,
			FileMode: api.FileMode(0o666), Uid: api.UInt32(0), Gid: api.UInt32(0)})
	}
	return adjust
}

// adjustMounts adds the grant's mounts. The runtime sorts all by their depth, so that what lies below
// ours would cover it: it goes, too.
func adjustMounts(adjust *api.ContainerAdjustment, grant oci.Grant, there []*api.Mount) {
	ours := grant.Mounts()
	for _, m := range there {
		place := path.Clean("/" + m.GetDestination())
		if slices.ContainsFunc(ours, func(o oci.Mount) bool {
			return place == o.Destination || strings.HasPrefix(place, o.Destination+"/")
		}) {
			adjust.RemoveMount(m.GetDestination())
		}
	}
	for _, m := range ours {
		adjust.AddMount(&api.Mount{Destination: m.Destination, Type: m.Type, Source: m.Source, Options: m.Options})
	}
}

func adjustEnvironment(adjust *api.ContainerAdjustment, grant oci.Grant, environment []string) {
	value := ""
	for _, variable := range environment {
		if rest, found := strings.CutPrefix(variable, preloadKey+"="); found {
			adjust.RemoveEnv(preloadKey)
			value = rest
		}
	}
	adjust.AddEnv(preloadKey, grant.Preload(value))
}

func asHooks(hook oci.Hook) *api.Hooks {
	list := []*api.Hook{{Path: hook.Path, Args: hook.Args, Env: hook.Env, Timeout: api.Int(hook.TimeoutSeconds)}}
	if hook.Stage == "poststop" {
		return &api.Hooks{Poststop: list}
	}
	return &api.Hooks{CreateRuntime: list}
}

// mounted is what is mounted last where a grant has the container's own directory; empty: nothing is. Who makes a
// container can mount there what he likes, so only the agent can tell whether that is its own.
func mounted(c *api.Container) string {
	for _, m := range slices.Backward(c.GetMounts()) {
		if path.Clean("/"+m.GetDestination()) == oci.SocketPlace {
			return path.Clean(m.GetSource())
		}
	}
	return ""
}

// injected is the id of the grant that a container shows, of an agent whose directories of containers lie in dir.
// Empty: none.
func injected(c *api.Container, dir string) string {
	source := mounted(c)
	if path.Dir(source) != dir {
		return ""
	}
	return path.Base(source)
}
