package ctrd

// Podman, which has no daemon: its calls run in a mount namespace of the test's, in which /etc and /var/lib are the
// node's to change and /run is empty, so that what weir and Podman write to their usual places is nowhere else.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/tests/e2e/node"
)

// podmanConfig is a containers.conf before weir.
const podmanConfig = `[engine]
runtime = "RUNTIME"
cgroup_manager = "cgroupfs"
events_logger = "none"
tmp_dir = "@/tmp"
`

const podmanStorage = `[storage]
driver = "overlay"
graphroot = "@/root"
runroot = "@/run"
`

// Podman is one node's.
type Podman struct {
	scene
	Dir       string // all that is its own lies below
	namespace string // the file of its mount namespace
	images    *images
}

// StartPodman makes a place for Podman, which starts containers by this OCI runtime, and imports the image that
// containers are made of.
func StartPodman(t testing.TB, n *node.Node, runtime string) *Podman {
	t.Helper()
	node.NeedRunc(t)
	for _, program := range []string{"podman", runtime} {
		if _, err := exec.LookPath(program); err != nil {
			lacking(t, "there is no %s: %v", program, err)
		}
	}
	p := &Podman{scene: scene{t, n}, Dir: filepath.Join(n.Dir, "podman"), images: &images{known: map[string]bool{}}}
	for _, dir := range []string{"etc/containers", "etc.work", "lib", "lib.work", "tmp"} {
		if err := os.MkdirAll(filepath.Join(p.Dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"containers.conf": podmanConfig, "storage.conf": podmanStorage} {
		text = strings.NewReplacer("@", p.Dir, "RUNTIME", runtime).Replace(text)
		if err := os.WriteFile(p.Etc("containers/"+name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { p.clear(p.members) })
	// crun refuses machines that have control groups of both versions.
	const place = `{ ! [ -d /sys/fs/cgroup/unified ] || umount /sys/fs/cgroup/unified; } &&
		mount -t overlay -o "lowerdir=/etc,upperdir=$1/etc,workdir=$1/etc.work" overlay /etc &&
		mount -t overlay -o "lowerdir=/var/lib,upperdir=$1/lib,workdir=$1/lib.work" overlay /var/lib &&
		mount -t tmpfs tmpfs /run && echo ready && exec cat`
	holder := n.Bare("/usr/bin/unshare", "--mount", "/bin/sh", "-c", place, "sh", p.Dir)
	if line := holder.Line(); line != "ready" {
		t.Fatalf("a place for Podman: %q", line)
	}
	p.namespace = fmt.Sprintf("/proc/%d/ns/mnt", holder.PID())
	p.image(node.Image{}, 0)
	return p
}

// For is the same for another test, or a part of one.
func (p *Podman) For(t testing.TB) *Podman {
	view := *p
	view.scene = scene{t, p.Node.For(t)}
	return &view
}

// Etc is where a file of the node's /etc is; one that nobody has written is not there.
func (p *Podman) Etc(name string) string { return filepath.Join(p.Dir, "etc", name) }

// inside are the words that run a program in Podman's place.
func (p *Podman) inside(program string, arguments ...string) []string {
	return append([]string{"--mount=" + p.namespace, "--", program}, arguments...)
}

const enter = "/usr/bin/nsenter"

// Podman is a call of its command line.
func (p *Podman) Podman(arguments ...string) node.Output {
	p.t.Helper()
	return p.Node.Command(enter, p.inside("podman", arguments...)...)
}

// MustPodman is Podman for a call that has to succeed; it returns what was printed, less white space around it.
func (p *Podman) MustPodman(arguments ...string) string {
	p.t.Helper()
	return strings.TrimSpace(must(p.t, "podman", arguments, p.Podman(arguments...)))
}

// Runtime is `weir runtime VERB` about this Podman, with no place named but where it keeps what was there.
func (p *Podman) Runtime(verb string, flags ...string) node.Output {
	p.t.Helper()
	arguments := p.inside(node.Build(p.t, "weir"), "runtime", verb, "--runtime", "podman", "--state-dir",
		filepath.Join(p.Dir, "weir"))
	return p.Node.Command(enter, append(arguments, flags...)...)
}

// image is the name of an image that is there once this returns.
func (p *Podman) image(wish node.Image, user int) string {
	p.t.Helper()
	return p.images.load(&p.scene, wish, user, func(file, _ string) { p.MustPodman("load", "--input", file) })
}

// Annotated is the name of an image that is as the usual one, and has these annotations.
func (p *Podman) Annotated(annotations map[string]string) string {
	p.t.Helper()
	const name = "weir.test/annotated:1"
	recipe := filepath.Join(p.t.TempDir(), "Containerfile")
	if err := os.WriteFile(recipe, []byte("FROM "+p.image(node.Image{}, 0)+"\n"), 0o644); err != nil {
		p.t.Fatal(err)
	}
	build := []string{"build", "--format", "oci", "--pull-never", "--tag", name, "--file", recipe}
	for annotation, value := range annotations {
		build = append(build, "--annotation", annotation+"="+value)
	}
	p.MustPodman(append(build, filepath.Dir(recipe))...)
	return name
}

// PodmanStarter starts containers by `podman run`.
type PodmanStarter struct {
	Podman *Podman
	Image  string   // empty: as wished for
	Flags  []string // of podman's, before `run`
	More   []string // of `podman run`'s
}

// podmanContainer is one of them.
type podmanContainer struct {
	podman *Podman
	wish   node.Wish
	run    []string
}

// For is the same for another test.
func (s PodmanStarter) For(t testing.TB) node.Starter {
	s.Podman = s.Podman.For(t)
	return s
}

// Lacks nothing.
func (s PodmanStarter) Lacks(node.Wish) string { return "" }

// Container wishes for a container. It is made when it is started.
func (s PodmanStarter) Container(wish node.Wish) node.Container {
	p := s.Podman
	p.t.Helper()
	// A test's root may not be allowed the limits of processes that Podman sets otherwise.
	flags := append(s.Flags[:len(s.Flags):len(s.Flags)], "run", "--interactive", "--cgroup-parent", p.cgroup(),
		"--pull", "never", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
	flags = append(flags, p.flags(wish)...)
	if wish.UserNamespace {
		flags = append(flags, "--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536")
	}
	if wish.Detached {
		flags = append(flags, "--detach")
	} else {
		flags = append(flags, "--rm")
	}
	flags = append(flags, s.More...)
	image := s.Image
	if image == "" {
		image = p.image(wish.Image, wish.User)
	}
	return &podmanContainer{p, wish, append(append(flags, image), p.program(wish)...)}
}

func (c *podmanContainer) Name() string { return c.wish.Name }

func (c *podmanContainer) Start() *node.Program {
	p := c.podman
	p.t.Helper()
	p.t.Cleanup(func() {
		p.Podman("rm", "--force", "--time", "0", "--ignore", c.wish.Name)
		p.released(c.wish.Name)
	})
	return p.Node.Bare(enter, p.inside("podman", c.run...)...)
}

func (c *podmanContainer) Puppet() *node.Puppet {
	c.podman.t.Helper()
	return c.podman.Node.AsInnerPuppet(c.Start())
}

func (c *podmanContainer) Exec() *node.Puppet {
	p := c.podman
	p.t.Helper()
	arguments := append([]string{"exec", "--interactive", c.wish.Name}, p.cleared()...)
	return p.Node.AsInnerPuppet(p.Node.Bare(enter, p.inside("podman", arguments...)...))
}

func (c *podmanContainer) Touched() bool {
	p := c.podman
	p.t.Helper()
	words := strings.Fields(p.MustPodman("inspect", "--format", "{{.Id}} {{.State.Pid}}", c.wish.Name))
	return touched(p.t, filepath.Join(p.Dir, "root/overlay-containers", words[0], "userdata/config.json"), words[1])
}
