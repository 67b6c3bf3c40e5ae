package ctrd

// What all have in common that start containers here: the node, and what a container of its has, the simulated
// machine and what `make` built at their own places.

import (
	"path/filepath"
	"testing"

	"weir/tests/e2e/node"
)

// scene is where something starts containers, as far as that is the same for all.
type scene struct {
	t    testing.TB
	Node *node.Node
}

// mount is a place of this machine that is the same place in a container.
type mount struct {
	path  string
	write bool
}

func (s *scene) mounts() []mount {
	s.t.Helper()
	build := filepath.Dir(node.Build(s.t, "weir"))
	return []mount{{build, false}, {s.Node.SimDir, true}}
}

// commonFlags are those of a wish that ctr, Docker and Podman spell alike, and the mounts, which each spells in its way.
func (s *scene) commonFlags(wish node.Wish, mountFlags func(path, mode string) []string) (flags []string) {
	s.t.Helper()
	for key, value := range wish.AllAnnotations() {
		flags = append(flags, "--annotation", key+"="+value)
	}
	for _, variable := range append(s.env(), wish.Env...) {
		flags = append(flags, "--env", variable)
	}
	for _, m := range s.mounts() {
		mode := "ro"
		if m.write {
			mode = "rw"
		}
		flags = append(flags, mountFlags(m.path, mode)...)
	}
	if wish.ReadOnly {
		flags = append(flags, "--read-only")
	}
	return flags
}

// env is what finds the simulated machine.
func (s *scene) env() []string {
	s.t.Helper()
	return []string{"WEIR_SIM=" + s.Node.SimDir,
		"LD_LIBRARY_PATH=" + filepath.Dir(node.Build(s.t, "sim/libcuda.so.1"))}
}

// program is what a container runs.
func (s *scene) program(wish node.Wish) []string {
	s.t.Helper()
	if len(wish.Args) > 0 {
		return wish.Args
	}
	return []string{node.Build(s.t, "e2e/puppet")}
}

// cleared is a puppet whose environment has nothing else in it.
func (s *scene) cleared() []string {
	s.t.Helper()
	return append(append([]string{"/bin/env", "-i"}, s.env()...), node.Build(s.t, "e2e/puppet"))
}

// released waits until the agent, if there is one, knows nothing of a container any more.
func (s *scene) released(name string) {
	s.t.Helper()
	if !s.Node.HasAgent() {
		return
	}
	s.Node.Eventually(func() string {
		for _, c := range s.Node.Containers() {
			if c.Name == name {
				return "the agent still has container " + name
			}
		}
		return ""
	})
}
