package ctrd

// A containerd's configuration before weir: all that lies somewhere lies in the test's folder. The score by which
// the kernel ends processes is left alone, since the tests' own root may not be allowed to lower it.

import (
	"encoding/json"
	"strings"

	"weir/oci"
	"weir/tests/e2e/node"
)

// sandboxImage holds pods' namespaces; it is the image of everything else, too.
const sandboxImage = baseImage

// oldConfig is for containerd before 2.0. The plugins that are disabled look at the machine.
const oldConfig = `version = 2
root = "@/root"
state = "@/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]

[debug]
  level = "warn"

[grpc]
  address = "@/c.sock"

[plugins."io.containerd.internal.v1.opt"]
  path = "@/opt"

[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "` + sandboxImage + `"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "@/cni"
    conf_dir = "@/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "@/runc"
`

// pluggable is for containerd 1.7: the plugin's socket, and in the CRI's section where CDI devices are found.
const (
	pluggable = `
[plugins."io.containerd.nri.v1.nri"]
  socket_path = "@/nri.sock"
  plugin_path = "@/nri"
  plugin_config_path = "@/nri"
  plugin_request_timeout = "6s"
`
	withDevices = `
  cdi_spec_dirs = ["@/cdi"]
`
)

// newConfig is for containerd from 2.0 on.
const newConfig = `version = 3
imports = []
root = "@/root"
state = "@/state"

[debug]
  level = "warn"

[grpc]
  address = "@/c.sock"

[plugins.'io.containerd.internal.v1.opt']
  path = "@/opt"

[plugins.'io.containerd.nri.v1.nri']
  socket_path = "@/nri.sock"
  plugin_path = "@/nri"
  plugin_config_path = "@/nri"
  plugin_request_timeout = "6s"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "` + sandboxImage + `"

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["@/cdi"]
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["@/cni"]
    conf_dir = "@/cni"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      Root = "@/runc"
`

// hooked is a runtime whose containers all begin with weir-hook's hooks, which an administrator has put into what
// the CRI makes specifications from; weir runtime configure does not do so.
const hooked = `
[plugins.CRI.containerd.runtimes.` + Hooked + `]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "@/base.json"
  pod_annotations = ["weir/*"]
  container_annotations = ["weir/*"]
  [plugins.CRI.containerd.runtimes.` + Hooked + `.options]
    Root = "@/runc"
`

// config is the text for a daemon's folder, with more lines at the end.
func (g *Generation) config(dir string, options Options) string {
	text, cri := newConfig, "'io.containerd.cri.v1.runtime'"
	if g.Old {
		text, cri = oldConfig, "'io.containerd.grpc.v1.cri'"
		if !g.Plain {
			const first = `[plugins."io.containerd.grpc.v1.cri"]`
			text = strings.Replace(text, first, first+withDevices, 1) + pluggable
		}
	}
	if options.Hooks {
		text += strings.ReplaceAll(hooked, "CRI", cri)
	}
	return strings.ReplaceAll(text+options.More, "@", dir)
}

// base is what the CRI makes specifications of the runtime hooked from: containerd's own, and the hooks.
func (d *Daemon) base() string {
	d.t.Helper()
	var spec map[string]any
	if err := json.Unmarshal([]byte(d.MustCtr("oci", "spec")), &spec); err != nil {
		d.t.Fatal(err)
	}
	hooks := map[string][]oci.Hook{}
	for stage, verb := range map[string]string{
		"createRuntime": "start", "createContainer": "inject", "poststop": "release",
	} {
		hooks[stage] = []oci.Hook{oci.NewHook(stage, node.Build(d.t, "weir-hook"), verb, "--socket", d.Node.ControlSocket())}
	}
	spec["hooks"] = hooks
	return string(encode(spec))
}
