package ctrd

// Containers of pods, as Kubernetes has them: through the CRI, by crictl. Pods use the machine's network.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/tests/e2e/node"
)

// criNamespace is containerd's namespace of the CRI's containers.
const criNamespace = "k8s.io"

// CRI starts containers in pods.
type CRI struct {
	Daemon  *Daemon
	Handler string // the pods' runtime: "weir" where it is empty, and the default one if it is "-"
	// Devices are names of CDI devices that every container asks for.
	Devices []string
	// HostPaths are what every container has mounted: paths out here, by places in it.
	HostPaths map[string]string
}

// Pod is one that runs.
type Pod struct {
	cri CRI
	ID  string
	pod node.Pod
	dir string
	// names are those of its containers.
	names []string
}

// criContainer is a container of a pod.
type criContainer struct {
	pod  *Pod
	wish node.Wish
	id   string // once it has been made
}

// Pod starts a pod without containers, and removes it with all that are in it when the test ends.
func (c CRI) Pod(wish node.Pod, userNamespace bool) *Pod {
	d := c.Daemon
	d.t.Helper()
	p := &Pod{cri: c, pod: wish}
	var err error
	if p.dir, err = os.MkdirTemp(d.Dir, "pod-"); err != nil {
		d.t.Fatal(err)
	}
	if wish.Name == "" {
		p.pod.Name = filepath.Base(p.dir)
	}
	if wish.Namespace == "" {
		p.pod.Namespace = "default"
	}
	file := p.file("pod.json", p.config(userNamespace))
	arguments := []string{"runp"}
	switch c.Handler {
	case "":
		arguments = append(arguments, "--runtime", "weir")
	case "-":
	default:
		arguments = append(arguments, "--runtime", c.Handler)
	}
	p.ID = d.MustCrictl(append(arguments, file)...)
	d.t.Cleanup(func() {
		d.Node.Eventually(func() string {
			out := d.Crictl("rmp", "--force", p.ID)
			if gone := strings.Contains(out.Stderr, "not found") || strings.Contains(out.Stderr, "while dialing"); out.Code != 0 && !gone {
				return out.Stderr
			}
			return "" // also where the test has ended containerd itself
		})
		for _, name := range p.names {
			d.released(name)
		}
	})
	return p
}

// config is the pod's, as the CRI has it.
func (p *Pod) config(userNamespace bool) map[string]any {
	return map[string]any{
		"metadata":    map[string]any{"name": p.pod.Name, "namespace": p.pod.Namespace, "uid": p.pod.Name + "-uid"},
		"annotations": p.pod.Annotations, "log_directory": p.dir,
		"linux": map[string]any{
			"cgroup_parent":    p.cri.Daemon.cgroup(),
			"security_context": map[string]any{"namespace_options": namespaces(userNamespace)},
		},
	}
}

// namespaces are those of a pod and of its containers.
func namespaces(user bool) map[string]any {
	options := map[string]any{"network": 2} // NODE
	if user {
		mapping := []any{map[string]any{"container_id": 0, "host_id": 100000, "length": 65536}}
		options["userns_options"] = map[string]any{"mode": 0, "uids": mapping, "gids": mapping}
	}
	return options
}

// file writes a configuration of the pod's.
func (p *Pod) file(name string, config map[string]any) string {
	p.cri.Daemon.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, encode(config), 0o644); err != nil {
		p.cri.Daemon.t.Fatal(err)
	}
	return path
}

// For is the same for another test.
func (c CRI) For(t testing.TB) node.Starter {
	c.Daemon = c.Daemon.For(t)
	return c
}

// Lacks what a CRI of this generation does not know, and would pass over.
func (c CRI) Lacks(wish node.Wish) string {
	if wish.UserNamespace && c.Daemon.g.Old {
		return "containerd before 2.0 has no pods in user namespaces"
	}
	return ""
}

// Container wishes for a container. Those with the same pod get into one; without, each gets its own.
func (c CRI) Container(wish node.Wish) node.Container {
	d := c.Daemon
	d.t.Helper()
	key := wish.Pod.Namespace + "/" + wish.Pod.Name
	p := d.pods[key]
	if p == nil {
		p = c.Pod(wish.Pod, wish.UserNamespace)
		if wish.Pod.Name != "" {
			d.pods[key] = p
			d.t.Cleanup(func() { delete(d.pods, key) })
		}
	}
	return p.Container(wish)
}

// Container wishes for a container of the pod.
func (p *Pod) Container(wish node.Wish) node.Container {
	p.names = append(p.names, wish.Name)
	return &criContainer{pod: p, wish: wish}
}

// config is the container's, as the CRI has it.
func (c *criContainer) config() map[string]any {
	d := c.pod.cri.Daemon
	d.t.Helper()
	var envs, mounts, named []any
	for _, variable := range append(d.env(), c.wish.Env...) {
		key, value, _ := strings.Cut(variable, "=")
		envs = append(envs, map[string]any{"key": key, "value": value})
	}
	for _, m := range d.mounts() {
		mounts = append(mounts, map[string]any{"container_path": m.path, "host_path": m.path, "readonly": !m.write})
	}
	if c.wish.GPU {
		mounts = append(mounts, map[string]any{"container_path": "/dev/nvidia0", "host_path": "/dev/null"})
	}
	for place, path := range c.pod.cri.HostPaths {
		mounts = append(mounts, map[string]any{"container_path": place, "host_path": path})
	}
	for _, name := range c.pod.cri.Devices {
		named = append(named, map[string]any{"name": name})
	}
	security := map[string]any{
		"readonly_rootfs":   c.wish.ReadOnly,
		"namespace_options": namespaces(c.wish.UserNamespace),
	}
	if c.wish.User != 0 {
		security["run_as_user"] = map[string]any{"value": c.wish.User}
		security["run_as_group"] = map[string]any{"value": c.wish.User}
	}
	return map[string]any{
		"metadata": map[string]any{"name": c.wish.Name}, "image": map[string]any{"image": d.image(c.wish.Image, 0)},
		"command": d.program(c.wish), "envs": envs, "mounts": mounts, "CDI_devices": named,
		"annotations": c.wish.Annotations, "log_path": c.wish.Name + ".log", "stdin": !c.wish.Detached,
		"stdin_once": !c.wish.Detached,
		"linux":      map[string]any{"security_context": security},
	}
}

func (c *criContainer) Name() string { return c.wish.Name }

// ID is the container's with containerd.
func (c *criContainer) ID() string { return c.id }

// Start makes the container, starts it and attaches to it, as one program. What it writes before that is only in
// its log. A detached one is not attached to.
func (c *criContainer) Start() *node.Program {
	d := c.pod.cri.Daemon
	d.t.Helper()
	config := c.pod.file(c.wish.Name+".json", c.config())
	out := d.Crictl("create", c.pod.ID, config, filepath.Join(c.pod.dir, "pod.json"))
	if out.Code != 0 {
		return c.ended(out)
	}
	c.id = strings.TrimSpace(out.Stdout)
	if out := d.Crictl("start", c.id); out.Code != 0 || c.wish.Detached {
		return c.ended(out)
	}
	return d.Node.Bare(node.Build(d.t, "containers/crictl"), d.crictl([]string{"attach", "--stdin", c.id})...)
}

// ended is a program that says what crictl said, and ends as it did.
func (c *criContainer) ended(out node.Output) *node.Program {
	d := c.pod.cri.Daemon
	return d.Node.Bare("/bin/sh", "-c", `printf '%s' "$1" >&2; exit "$2"`, "sh", out.Stderr, fmt.Sprint(out.Code))
}

func (c *criContainer) Puppet() *node.Puppet {
	d := c.pod.cri.Daemon
	d.t.Helper()
	return d.Node.AsInnerPuppet(c.Start())
}

func (c *criContainer) Exec() *node.Puppet {
	d := c.pod.cri.Daemon
	d.t.Helper()
	arguments := append([]string{"exec", "--interactive", c.id}, d.cleared()...)
	return d.Node.AsInnerPuppet(d.Node.Bare(node.Build(d.t, "containers/crictl"), d.crictl(arguments)...))
}

func (c *criContainer) Touched() bool { return c.pod.cri.Daemon.touched(criNamespace, c.id) }
