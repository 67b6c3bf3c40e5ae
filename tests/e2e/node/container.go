package node

// Containers as tests want them, whatever starts them: runc alone, a containerd's ctr, or its CRI.

import (
	"maps"
	"os"
	"testing"
)

// Wish is a container as a test wants it. The zero value has a name missing, and runs a puppet as root.
type Wish struct {
	Name          string // once on a node at a time
	Annotations   map[string]string
	Image         Image
	Env           []string // more of its environment
	Args          []string // its program; empty: a puppet
	User          int      // uid and gid
	ReadOnly      bool     // its root file system is mounted read-only
	UserNamespace bool     // its root is no user out here
	GPU           bool     // it is given the device node of a GPU, not by weir
	Detached      bool     // it runs on when who started it has ended, which it does at once
	Pod           Pod
}

// Pod is the pod that a container is in; without a namespace it is in none, or in one of its own.
type Pod struct {
	Name, Namespace string
	Annotations     map[string]string // the pod's own
}

// Image is what a container's image has beyond a shell and what puppets need.
type Image struct {
	Add     []Entry
	Without []string // paths that are not in it, nor what would be below
}

// Entry is one file of an image. One of File, Link and Text says what it is.
type Entry struct {
	Path string // from the root, without a leading slash
	File string // a file out here, which is copied
	Link string // a symbolic link to this
	Text string // a file with this in it
}

// AllAnnotations are those of the container and of its pod, as the CRI gives them to a container.
func (w *Wish) AllAnnotations() map[string]string {
	all := make(map[string]string)
	if w.Pod.Namespace != "" {
		all = map[string]string{
			"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.container-name": w.Name,
			"io.kubernetes.cri.sandbox-name": w.Pod.Name, "io.kubernetes.cri.sandbox-namespace": w.Pod.Namespace,
		}
	}
	maps.Copy(all, w.Pod.Annotations)
	maps.Copy(all, w.Annotations)
	return all
}

// write makes the entry at a path where nothing is.
func (e *Entry) write(path string) error {
	if e.Link != "" {
		return os.Symlink(e.Link, path)
	}
	text, mode := []byte(e.Text), os.FileMode(0o644)
	if e.File != "" {
		var err error
		if text, err = os.ReadFile(e.File); err != nil {
			return err
		}
		mode = 0o755
	}
	return os.WriteFile(path, text, mode)
}

// Container is one that has been wished for.
type Container interface {
	// Name is the container's with the agent.
	Name() string
	// Start runs its first program; where that is not possible, the program that was to start it ends with
	// an error and says why.
	Start() *Program
	// Puppet is Start for a container that runs a puppet.
	Puppet() *Puppet
	// Exec runs another puppet in it, with a cleared environment but for what finds the simulated machine.
	Exec() *Puppet
	// Touched tells whether anything was put into its specification.
	Touched() bool
}

// Starter starts containers.
type Starter interface {
	// Lacks says why a wish cannot be fulfilled, and nothing if it can be.
	Lacks(Wish) string
	// Container makes a container ready to be started.
	Container(Wish) Container
	// For is the same starter for another test, or a part of one.
	For(testing.TB) Starter
}
