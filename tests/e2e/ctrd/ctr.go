package ctrd

// Containers of ctr, which a person starts by hand.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"weir/oci"
	"weir/tests/e2e/node"
)

// ctrNamespace is containerd's namespace of ctr's containers.
const ctrNamespace = "default"

// Ctr starts containers by ctr.
type Ctr struct {
	Daemon *Daemon
	// Runtime is the program in runc's place: weir-runtime where it is empty, and runc itself if it is "runc".
	Runtime string
	// CDI is a specification that ctr finds in its place: it has no flag that names another.
	CDI   string
	Flags []string // more of `ctr run`'s
}

// ctrContainer is one of them.
type ctrContainer struct {
	daemon *Daemon
	wish   node.Wish
	cdi    string
	run    []string // what ctr is called with to start it
	execs  atomic.Int32
}

// For is the same for another test.
func (c Ctr) For(t testing.TB) node.Starter {
	c.Daemon = c.Daemon.For(t)
	return c
}

// Lacks what a ctr of this generation has no flags for.
func (c Ctr) Lacks(wish node.Wish) string {
	if wish.UserNamespace && c.Daemon.g.Old {
		return "with --uidmap, ctr before 2.0 starts containers by runc, whatever --runc-binary says"
	}
	return ""
}

// Container wishes for a container. It is made when it is started.
func (c Ctr) Container(wish node.Wish) node.Container {
	d := c.Daemon
	d.t.Helper()
	flags := []string{"run", "--cgroup", d.cgroup() + "/" + wish.Name, "--runc-root", d.file("runc"),
		"--fifo-dir", d.file("fifo")}
	switch c.Runtime {
	case "":
		flags = append(flags, "--runc-binary", node.Build(d.t, "weir-runtime"))
	case "runc":
	default:
		flags = append(flags, "--runc-binary", c.Runtime)
	}
	flags = append(flags, d.commonFlags(wish, func(path, mode string) []string {
		return []string{"--mount", fmt.Sprintf("type=bind,src=%s,dst=%s,options=rbind:%s", path, path, mode)}
	})...)
	if wish.Detached {
		flags = append(flags, "--detach", "--null-io")
	} else {
		flags = append(flags, "--rm")
	}
	if wish.GPU {
		flags = append(flags, "--mount", "type=bind,src=/dev/null,dst=/dev/nvidia0,options=bind:rw")
	}
	if wish.UserNamespace {
		flags = append(flags, "--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536")
	}
	flags = append(append(flags, c.Flags...), d.image(wish.Image, wish.User), wish.Name)
	return &ctrContainer{daemon: d, wish: wish, cdi: c.CDI, run: append(flags, d.program(wish)...)}
}

func (c *ctrContainer) Name() string { return c.wish.Name }

// ID is the container's with containerd.
func (c *ctrContainer) ID() string { return c.wish.Name }

func (c *ctrContainer) ctr(arguments ...string) []string {
	return append([]string{"--address", c.daemon.Address(), "--namespace", ctrNamespace}, arguments...)
}

func (c *ctrContainer) Start() *node.Program {
	d := c.daemon
	d.t.Helper()
	d.t.Cleanup(func() {
		if c.wish.Detached || exists(d.Bundle(ctrNamespace, c.wish.Name)) { // no ctr has waited for its end
			d.Ctr("--namespace", ctrNamespace, "tasks", "delete", "--force", c.wish.Name)
			d.Ctr("--namespace", ctrNamespace, "containers", "delete", c.wish.Name)
		}
		d.released(c.wish.Name)
	})
	if c.cdi != "" {
		words := append([]string{"--mount", "/bin/sh", "-c", withCDI, "sh", c.cdi, d.g.program("ctr")}, c.ctr(c.run...)...)
		return d.Node.Bare("/usr/bin/unshare", words...)
	}
	return d.Node.Bare(d.g.program("ctr"), c.ctr(c.run...)...)
}

// withCDI runs a program that sees another /run, with a CDI specification and nothing else in it.
const withCDI = `mount -t tmpfs tmpfs /run && mkdir /run/cdi && cp "$1" /run/cdi/ && shift && exec "$@"`

func (c *ctrContainer) Puppet() *node.Puppet {
	c.daemon.t.Helper()
	return c.daemon.Node.AsInnerPuppet(c.Start())
}

func (c *ctrContainer) Exec() *node.Puppet {
	d := c.daemon
	d.t.Helper()
	arguments := c.ctr("tasks", "exec", "--fifo-dir", d.file("fifo"),
		"--exec-id", fmt.Sprintf("%s-%d", c.wish.Name, c.execs.Add(1)), c.wish.Name)
	return d.Node.AsInnerPuppet(d.Node.Bare(d.g.program("ctr"), append(arguments, d.cleared()...)...))
}

func (c *ctrContainer) Touched() bool { return c.daemon.touched(ctrNamespace, c.wish.Name) }

// touched looks into the specification that runc was given, and at what is mounted in the container, since hooks
// that all containers have do that later.
func (d *Daemon) touched(namespace, id string) bool {
	d.t.Helper()
	bundle := d.Bundle(namespace, id)
	return touched(d.t, bundle+"/config.json", read(d.t, bundle+"/init.pid"))
}

func touched(t testing.TB, specification, pid string) bool {
	t.Helper()
	mounts := read(t, "/proc/"+pid+"/mountinfo")
	return strings.Contains(mounts, oci.SocketPlace) || strings.Contains(read(t, specification), oci.SocketPlace)
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Bundle is the folder of a running container's bundle.
func (d *Daemon) Bundle(namespace, id string) string {
	return filepath.Join(d.Dir, "state/io.containerd.runtime.v2.task", namespace, id)
}
