package node

// Containers of an OCI runtime: bundles with the machine's own programs in them, started by weir-runtime
// with a real runc behind it.

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Spec is a specification as a test changes it.
type Spec = map[string]any

// Bundle is one container's, and what it is called with.
type Bundle struct {
	n    *Node
	name string
	Dir  string
	Root string // its root file system
	made string // the specification, before anybody put something in
}

// NeedRunc skips a test where no runc or no root is there.
func NeedRunc(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start containers")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("there is no runc in PATH")
	}
}

// Bundle makes a bundle with annotations. The container sees the machine's programs, the simulated
// machine and what `make` built, at their own places; change may change the rest.
func (n *Node) Bundle(name string, annotations map[string]string, change func(Spec)) *Bundle {
	n.t.Helper()
	b := &Bundle{n: n, name: name, Dir: filepath.Join(n.Dir, "bundles", name)}
	b.Root = filepath.Join(b.Dir, "rootfs")
	if err := os.MkdirAll(filepath.Join(b.Root, "etc"), 0o755); err != nil {
		n.t.Fatal(err)
	}
	for _, link := range []string{"bin", "lib", "lib64", "sbin"} {
		if err := os.Symlink("usr/"+link, filepath.Join(b.Root, link)); err != nil {
			n.t.Fatal(err)
		}
	}
	bind := func(path, mode string) Spec {
		return Spec{"destination": path, "type": "bind", "source": path, "options": []any{"rbind", mode}}
	}
	namespaces := []any{}
	for _, kind := range []string{"pid", "mount", "ipc", "uts"} {
		namespaces = append(namespaces, Spec{"type": kind})
	}
	notes := Spec{}
	for key, value := range annotations {
		notes[key] = value
	}
	spec := Spec{
		"ociVersion": "1.0.2", "root": Spec{"path": "rootfs"}, "annotations": notes,
		"process": Spec{"user": Spec{"uid": 0, "gid": 0}, "cwd": "/", "args": []any{Build(n.t, "e2e/puppet")},
			"env": []any{"PATH=/bin", "WEIR_SIM=" + n.SimDir, n.driverPath()}},
		"mounts": []any{
			Spec{"destination": "/proc", "type": "proc", "source": "proc"},
			Spec{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
			bind("/usr", "ro"), bind(buildDir(n.t), "ro"), bind(n.SimDir, "rw"),
		},
		"linux": Spec{"namespaces": namespaces, "cgroupsPath": b.id()},
	}
	if change != nil {
		change(spec)
	}
	b.Write(spec)
	b.made = b.Text()
	if err := os.WriteFile(b.settings(), []byte("control_socket = \""+n.ControlSocket()+"\"\n"), 0o644); err != nil {
		n.t.Fatal(err)
	}
	return b
}

// settings is the file of weir-runtime's.
func (b *Bundle) settings() string { return filepath.Join(b.Dir, "runtime.toml") }

// driverPath is the variable by which programs find the simulated driver.
func (n *Node) driverPath() string { return "LD_LIBRARY_PATH=" + filepath.Join(buildDir(n.t), "sim") }

// Write writes the specification.
func (b *Bundle) Write(spec Spec) {
	b.n.t.Helper()
	text, err := json.Marshal(spec)
	if err == nil {
		err = os.WriteFile(b.config(), text, 0o644)
	}
	if err != nil {
		b.n.t.Fatal(err)
	}
}

func (b *Bundle) config() string { return filepath.Join(b.Dir, "config.json") }

// Text is the specification as it is now.
func (b *Bundle) Text() string {
	b.n.t.Helper()
	text, err := os.ReadFile(b.config())
	if err != nil {
		b.n.t.Fatal(err)
	}
	return string(text)
}

// id is the container's with runc, which is the whole machine's.
func (b *Bundle) id() string { return filepath.Base(b.n.Dir) + "-" + b.name }

// Name is the container's with the agent.
func (b *Bundle) Name() string { return b.id() }

// runtime is a call of weir-runtime, with a state of this node's own.
func (b *Bundle) runtime(arguments ...string) (env []string, program string, all []string) {
	return []string{"WEIR_RUNTIME_CONFIG=" + b.settings()}, Build(b.n.t, "weir-runtime"),
		append([]string{"--root", filepath.Join(b.n.Dir, "runc")}, arguments...)
}

// Touched tells whether the specification is another than the test made.
func (b *Bundle) Touched() bool { return b.Text() != b.made }

// Start runs the container's first program.
func (b *Bundle) Start() *Program {
	b.n.t.Helper()
	env, program, arguments := b.runtime("run", "--bundle", b.Dir, b.id())
	b.n.t.Cleanup(func() {
		// After a failed test it may still be there; a container that is gone is no error.
		env, program, arguments := b.runtime("delete", "--force", b.id())
		remove := exec.Command(program, arguments...)
		remove.Env = append(os.Environ(), env...)
		remove.Run()
	})
	return b.n.start(env, program, arguments...)
}

// Puppet runs the container with a puppet as its first program.
func (b *Bundle) Puppet() *Puppet {
	b.n.t.Helper()
	return b.n.AsInnerPuppet(b.Start())
}

// Exec runs another program in the running container, with a cleared environment but for what finds the
// simulated machine.
func (b *Bundle) Exec() *Puppet {
	b.n.t.Helper()
	env, program, arguments := b.runtime("exec", b.id(), "/bin/env", "-i", "WEIR_SIM="+b.n.SimDir, b.n.driverPath(),
		Build(b.n.t, "e2e/puppet"))
	return b.n.AsInnerPuppet(b.n.start(env, program, arguments...))
}

// Runc starts containers by runc alone, through weir-runtime.
type Runc struct{ Node *Node }

// For is the same for another test.
func (r Runc) For(t testing.TB) Starter { return Runc{r.Node.For(t)} }

// Lacks nobody who would take care of a container that nothing waits for.
func (r Runc) Lacks(wish Wish) string {
	if wish.Detached {
		return "nobody would take care of it"
	}
	return ""
}

// Container makes a bundle of a wish.
func (r Runc) Container(wish Wish) Container {
	r.Node.t.Helper()
	name := wish.Name
	if wish.Pod.Name != "" {
		name = wish.Pod.Name + "-" + name
	}
	b := r.Node.Bundle(name, wish.AllAnnotations(), func(s Spec) {
		process, linux := s["process"].(Spec), s["linux"].(Spec)
		for _, variable := range wish.Env {
			process["env"] = append(process["env"].([]any), variable)
		}
		if len(wish.Args) > 0 {
			process["args"] = wish.Args
		}
		process["user"] = Spec{"uid": wish.User, "gid": wish.User}
		s["root"].(Spec)["readonly"] = wish.ReadOnly
		if wish.GPU {
			linux["devices"] = []any{Spec{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}}
		}
		if wish.UserNamespace {
			mapping := []any{Spec{"containerID": 0, "hostID": mappedRoot, "size": 65536}}
			linux["namespaces"] = append(linux["namespaces"].([]any), Spec{"type": "user"})
			linux["uidMappings"], linux["gidMappings"] = mapping, mapping
		}
	})
	b.fill(wish.Image)
	if wish.UserNamespace {
		b.give(mappedRoot)
	}
	return b
}

// mappedRoot is who root of a user namespace is out here.
const mappedRoot = 100000

// give makes a user the owner of the root file system.
func (b *Bundle) give(user int) {
	b.n.t.Helper()
	err := filepath.WalkDir(b.Root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, user, user)
	})
	if err != nil {
		b.n.t.Fatal(err)
	}
}

// fill makes the root file system that of an image.
func (b *Bundle) fill(image Image) {
	b.n.t.Helper()
	place := func(name string) string {
		path := filepath.Join(b.Root, name)
		err := os.RemoveAll(path)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err != nil {
			b.n.t.Fatal(err)
		}
		return path
	}
	for _, name := range image.Without {
		place(name)
	}
	for _, entry := range image.Add {
		if err := entry.write(place(entry.Path)); err != nil {
			b.n.t.Fatal(err)
		}
	}
}
