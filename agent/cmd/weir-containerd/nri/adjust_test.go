package nri

// Tests of what is known of a container, and of the adjustment.

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"weir/oci"
)

const grantID = "0123456789ab"

func grantOf(runDir string) oci.Grant {
	dir := runDir + "/c/" + grantID
	return oci.Grant{ID: grantID, SocketDir: dir, LibraryDir: runDir + "/lib/x", PreloadFile: dir + "/ld.so.preload",
		Hook: "/usr/bin/weir-hook", ControlSocket: runDir + "/control.sock", ReadImage: true,
		Devices: []oci.Device{{Path: "/dev/nvidia0", Major: 195, Minor: 0}}}
}

func mountOf(source, destination string) *api.Mount {
	return &api.Mount{Destination: destination, Type: "bind", Source: source, Options: []string{"rbind", "rw"}}
}

// ours are the mounts of grantOf, the flags left out.
var ours = []string{"/etc/ld.so.preload", "/run/weir", "/run/weir/lib"}

func TestAdjustment(t *testing.T) {
	c := &api.Container{Id: "5f3a", Name: "serve",
		Env:    []string{"PATH=/bin", "LD_PRELOAD=/image.so", "XLD_PRELOAD=/x"},
		Mounts: []*api.Mount{mountOf("/a", "/data"), mountOf("/b", "/etc//ld.so.preload"), mountOf("/c", "/run/weir/agent.sock")},
		Linux:  &api.LinuxContainer{Devices: []*api.LinuxDevice{{Path: "/dev/nvidia0", Type: "c", Major: 1}}},
	}
	hook := func(stage string) []*api.Hook {
		return []*api.Hook{{Path: "/usr/bin/weir-hook", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
			Args: []string{"weir-hook", stage, "--socket", "/r/control.sock", "--id", grantID}, Timeout: api.Int(10)}}
	}
	bind := func(source, destination string, more ...string) *api.Mount {
		return &api.Mount{Destination: destination, Type: "bind", Source: source,
			Options: append([]string{"bind", "ro", "nosuid", "nodev"}, more...)}
	}
	want := &api.ContainerAdjustment{
		Annotations: map[string]string{"weir/injected": grantID},
		Mounts: []*api.Mount{{Destination: "-/etc//ld.so.preload"}, {Destination: "-/run/weir/agent.sock"},
			bind("/r/c/"+grantID, "/run/weir", "noexec"), bind("/r/lib/x", "/run/weir/lib"),
			bind("/r/c/"+grantID+"/ld.so.preload", "/etc/ld.so.preload")},
		Env:   []*api.KeyValue{{Key: "-LD_PRELOAD"}, {Key: "LD_PRELOAD", Value: "/run/weir/lib/libweir.so:/image.so"}},
		Hooks: &api.Hooks{CreateRuntime: hook("merge"), Poststop: hook("release")},
		Linux: &api.LinuxContainerAdjustment{Devices: []*api.LinuxDevice{{Path: "-/dev/nvidia0"},
			{Path: "/dev/nvidia0", Type: "c", Major: 195, FileMode: api.FileMode(0o666), Uid: api.UInt32(0), Gid: api.UInt32(0)}}},
	}
	got := Adjustment(grantOf("/r"), c)
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	c.Mounts = got.Mounts
	if again := Adjustment(grantOf("/r"), c); again != nil {
		t.Errorf("what has the grant was adjusted again: %v", again)
	}
	if injected(c, "/r/c") != grantID || injected(c, "/other/c") != "" || injected(&api.Container{}, "/r/c") != "" {
		t.Error("whether a container has a grant is told wrongly")
	}
}

// pod is one with these annotations, pairs of name and value.
func pod(annotations ...string) *api.PodSandbox {
	p := &api.PodSandbox{Id: "77aa", Name: "llm-0", Namespace: "team-a", Uid: "c0ffee",
		Annotations: map[string]string{"io.kubernetes.cri.container-type": "sandbox"}}
	for i := 0; i < len(annotations); i += 2 {
		p.Annotations[annotations[i]] = annotations[i+1]
	}
	return p
}

// container is one of pod.
func container(name string) *api.Container {
	return &api.Container{Id: name + "-id", PodSandboxId: "77aa", Name: name, Annotations: map[string]string{
		"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.image-name": "docker.io/acme/llm:1"}}
}

func TestFacts(t *testing.T) {
	c := container("serve")
	c.Annotations["weir/weight"] = "2"
	c.Mounts = []*api.Mount{mountOf("/srv/preload", "/etc/ld.so.preload")}
	found := facts(pod("weir/memory.serve", "8GiB", "weir/memory.side", "1GiB", "weir/weight", "1"), c)
	got := request(found, c.Id, "/b")
	if diff := cmp.Diff(map[string]string{"weir/memory.serve": "8GiB", "weir/weight": "2"}, got.Annotations); diff != "" {
		t.Error(diff)
	}
	if found.Sandbox || got.Name != "serve" || got.Namespace != "team-a" || got.Pod != "llm-0" || got.PodUID != "c0ffee" ||
		got.Image != "docker.io/acme/llm:1" || got.Root != "/b/rootfs" || !got.Early || got.ReadImage ||
		found.PreloadSource != "/srv/preload" {
		t.Errorf("%+v", got)
	}
}

func TestConcerns(t *testing.T) {
	gpu := func(c *api.Container) {
		c.Linux = &api.LinuxContainer{Devices: []*api.LinuxDevice{{Path: "/dev/nvidia3"}}}
	}
	for _, test := range []struct {
		annotation, handler string
		change              func(*api.Container)
		asks, concerned     bool
	}{
		{"x", "", nil, false, false}, {"weir/memory", "", nil, true, true}, {"weir/memory.serve", "", nil, true, true},
		{"weir/memory.side", "", nil, false, false}, {"weir/injected", "", nil, false, false},
		{"x", "", gpu, false, true}, {"weir/memory.side", "", gpu, false, true},
		{"x", "", func(c *api.Container) { c.CDIDevices = []*api.CDIDevice{{Name: "nvidia.com/gpu=0"}} }, false, true},
		{"x", "", func(c *api.Container) { c.Env = []string{"NVIDIA_VISIBLE_DEVICES=all"} }, false, false},
		{"x", "nvidia", func(c *api.Container) { c.Env = []string{"NVIDIA_VISIBLE_DEVICES=all"} }, false, true},
		{"weir/memory", "", func(c *api.Container) { c.Annotations["io.kubernetes.cri.container-type"] = "sandbox" }, true, true},
		{"x", "", func(c *api.Container) {
			c.Linux = &api.LinuxContainer{Resources: &api.LinuxResources{
				Devices: []*api.LinuxDeviceCgroup{{Allow: true, Type: "c", Major: &api.OptionalInt64{Value: 195}, Access: "rw"}}}}
		}, false, true},
	} {
		p, c := pod(test.annotation, "1GiB"), container("serve")
		p.RuntimeHandler = test.handler
		if test.change != nil {
			test.change(c)
		}
		if found := facts(p, c); asks(found) != test.asks || concerns(found) != test.concerned {
			t.Errorf("%+v: asks %v, concerned %v", test, asks(found), concerns(found))
		}
	}
}
