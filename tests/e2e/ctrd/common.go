package ctrd

// What all containers have: the simulated machine, and what `make` built, at their own places.

import (
	"path/filepath"

	"weir/tests/e2e/node"
)

// mount is a place of this machine that is the same place in a container.
type mount struct {
	path  string
	write bool
}

func (d *Daemon) mounts() []mount {
	d.t.Helper()
	build := filepath.Dir(node.Build(d.t, "weir"))
	return []mount{{build, false}, {d.Node.SimDir, true}}
}

// env is what finds the simulated machine.
func (d *Daemon) env() []string {
	d.t.Helper()
	return []string{"WEIR_SIM=" + d.Node.SimDir,
		"LD_LIBRARY_PATH=" + filepath.Dir(node.Build(d.t, "sim/libcuda.so.1"))}
}

// program is what a container runs.
func (d *Daemon) program(wish node.Wish) []string {
	d.t.Helper()
	if len(wish.Args) > 0 {
		return wish.Args
	}
	return []string{node.Build(d.t, "e2e/puppet")}
}

// cleared is a puppet whose environment has nothing else in it.
func (d *Daemon) cleared() []string {
	d.t.Helper()
	return append(append([]string{"/bin/env", "-i"}, d.env()...), node.Build(d.t, "e2e/puppet"))
}

// released waits until the agent, if there is one, knows nothing of a container any more.
func (d *Daemon) released(name string) {
	d.t.Helper()
	if !d.Node.HasAgent() {
		return
	}
	d.Node.Eventually(func() string {
		for _, c := range d.Node.Containers() {
			if c.Name == name {
				return "the agent still has container " + name
			}
		}
		return ""
	})
}
