package ctrd

// Docker: a daemon of its own on one of the containerds here, driven by its command line. It is Debian's, or the one
// that WEIR_TEST_DOCKER names a folder of, which has `dockerd` and `docker`.

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// dockerNamespace is containerd's namespace of Docker's containers.
const dockerNamespace = "moby"

// dockerConfig is a daemon.json before weir, written as no program would. Where Docker looks for CDI devices it knows
// only since it knows those.
const (
	dockerConfig = `{ "userland-proxy":false,
   "log-level" : "warn", "runtimes":{}MORE
}`
	dockerCDI = `, "cdi-spec-dirs": [ "@/cdi" ]`
)

// Docker is one Docker daemon on a node.
type Docker struct {
	scene
	Containerd *Daemon
	Dir        string // all that is its own lies below
	Version    string
	bin        string
	path       string // more places of programs that it finds
	log        *node.SyncBuffer
	images     *images
	*running
}

// DockerOptions describe one. The zero value has no part of weir's in it.
type DockerOptions struct {
	Configure []string // flags of `weir runtime configure`; nil: not configured
	Path      string   // a folder in which the daemon finds programs before others
}

// StartDocker starts a containerd, configures a Docker daemon on it and starts that.
func StartDocker(t testing.TB, n *node.Node, options DockerOptions) *Docker {
	t.Helper()
	node.NeedRunc(t)
	generation := Generations()[0]
	d := &Docker{
		scene: scene{t, n}, Dir: filepath.Join(n.Dir, "docker"), bin: "/usr", path: options.Path,
		log: &node.SyncBuffer{}, images: &images{known: map[string]bool{}}, running: &running{},
	}
	if bin := os.Getenv("WEIR_TEST_DOCKER"); bin != "" {
		d.bin, generation = bin, Generations()[1]
	}
	version, err := exec.Command(d.program("dockerd"), "--version").Output()
	if err != nil {
		lacking(t, "there is no Docker: %v", err)
	}
	d.Version = strings.TrimSuffix(strings.Fields(string(version))[2], ",")
	d.Containerd = Start(t, generation, n, Options{})
	if err := os.MkdirAll(d.Dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Config(), []byte(d.Original()), 0o644); err != nil {
		t.Fatal(err)
	}
	if options.Configure != nil {
		if out := d.Runtime("configure", options.Configure...); out.Code != 0 {
			t.Fatalf("weir runtime configure: exit %d: %s%s", out.Code, out.Stdout, out.Stderr)
		}
	}
	// It makes the place where it looks for plugins, and before 23 a key, wherever its own places are.
	for _, path := range []string{"/run/docker", "/run/docker/plugins", "/etc/docker", "/etc/docker/key.json"} {
		if !exists(path) {
			t.Cleanup(func() { _ = os.Remove(path) })
		}
	}
	t.Cleanup(d.Stop)
	d.Run()
	d.image(node.Image{}, 0)
	return d
}

// lacking skips a test, or fails it where tests/packages.sh should have brought what lacks.
func lacking(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// For is the same daemon for another test, or a part of one.
func (d *Docker) For(t testing.TB) *Docker {
	view := *d
	view.Containerd = d.Containerd.For(t)
	view.scene = view.Containerd.scene
	return &view
}

func (d *Docker) file(name string) string { return filepath.Join(d.Dir, name) }

// program is the path of one of its programs: Debian has them in two places.
func (d *Docker) program(name string) string {
	if d.bin != "/usr" {
		return filepath.Join(d.bin, name)
	}
	return map[string]string{"dockerd": "/usr/sbin/dockerd", "docker": "/usr/bin/docker"}[name]
}

// Config is the path of its daemon.json, and Original the text of that before weir.
func (d *Docker) Config() string { return d.file("daemon.json") }
func (d *Docker) Original() string {
	more := ""
	if !d.Containerd.g.Old {
		more = strings.ReplaceAll(dockerCDI, "@", d.Dir)
	}
	return strings.ReplaceAll(dockerConfig, "MORE", more)
}

// CDI is where a specification of devices is looked for.
func (d *Docker) CDI() string { return d.file("cdi/weir-gpu.json") }

// Annotates tells whether its command line can give a container annotations.
func (d *Docker) Annotates() bool {
	d.t.Helper()
	return strings.Contains(d.MustDocker("run", "--help"), "--annotation")
}

// Run starts the daemon and returns when it serves.
func (d *Docker) Run() {
	d.t.Helper()
	command := exec.Command(d.program("dockerd"), "--config-file", d.Config(), "--data-root", d.file("root"),
		"--exec-root", d.file("exec"), "--pidfile", d.file("pid"), "--host", d.host(), "--containerd", d.Containerd.Address(),
		"--bridge=none", "--iptables=false", "--ip6tables=false")
	path := d.Containerd.g.path()
	if d.path != "" {
		path = strings.Replace(path, "=", "="+d.path+":", 1)
	}
	command.Env = append(d.Node.Env(), path)
	*d.running = launch(d.t, command, d.log)
	d.serves(&d.scene, "dockerd", d.log, func() node.Output { return d.Docker("version") })
}

// Stop ends the daemon, and with it its containers.
func (d *Docker) Stop() {
	d.t.Helper()
	if d.t.Failed() {
		d.t.Logf("dockerd's log:\n%s", lastLines(d.log.String(), 40))
	}
	_ = d.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(patience):
		_ = d.process.Process.Kill()
		<-d.ended
		d.t.Error("dockerd does not end")
	}
}

func (d *Docker) host() string { return "unix://" + d.file("d.sock") }

func (d *Docker) words(arguments []string) []string {
	return append([]string{"--config", d.file("client"), "--host", d.host()}, arguments...)
}

// Docker is a call of its command line.
func (d *Docker) Docker(arguments ...string) node.Output {
	d.t.Helper()
	return d.Node.Command(d.program("docker"), d.words(arguments)...)
}

// MustDocker is Docker for a call that has to succeed; it returns what was printed, less white space around it.
func (d *Docker) MustDocker(arguments ...string) string {
	d.t.Helper()
	return strings.TrimSpace(must(d.t, "docker", arguments, d.Docker(arguments...)))
}

// Runtime is `weir runtime VERB` about this daemon.
func (d *Docker) Runtime(verb string, flags ...string) node.Output {
	d.t.Helper()
	arguments := []string{"runtime", verb, "--runtime", "docker", "--state-dir", d.file("weir")}
	if verb == "configure" {
		arguments = append(arguments, "--config", d.Config(), "--runtime-config", d.Containerd.file("runtime.toml"))
	}
	return d.Node.Weir(append(arguments, flags...)...)
}

// image is the name of an image that the daemon has once this returns.
func (d *Docker) image(wish node.Image, user int) string {
	d.t.Helper()
	return d.images.load(&d.scene, wish, user, func(file, _ string) { d.MustDocker("load", "--input", file) })
}

// DockerStarter starts containers by `docker run`.
type DockerStarter struct {
	Docker  *Docker
	Runtime string   // that it asks for: weir where it is empty, and none if it is "-"
	Flags   []string // more of `docker run`'s
}

// dockerContainer is one of them.
type dockerContainer struct {
	daemon *Docker
	wish   node.Wish
	run    []string
}

// For is the same for another test.
func (s DockerStarter) For(t testing.TB) node.Starter {
	s.Docker = s.Docker.For(t)
	return s
}

// Lacks what this Docker has no flags for, or its daemon was not started for.
func (s DockerStarter) Lacks(wish node.Wish) string {
	switch {
	case wish.UserNamespace:
		return "Docker has one user namespace for all containers, if any"
	case len(wish.AllAnnotations()) > 0 && !s.Docker.Annotates():
		return "Docker before 24 has no annotations"
	}
	return ""
}

// Container wishes for a container. It is made when it is started.
func (s DockerStarter) Container(wish node.Wish) node.Container {
	d := s.Docker
	d.t.Helper()
	flags := append([]string{"run", "--interactive", "--cgroup-parent", d.cgroup(), "--pull", "never"}, d.flags(wish)...)
	switch s.Runtime {
	case "":
		flags = append(flags, "--runtime", "weir")
	case "-":
	default:
		flags = append(flags, "--runtime", s.Runtime)
	}
	if !d.Containerd.g.Old {
		flags = append(flags, "--security-opt", "seccomp=unconfined") // the runc that is built here knows no other
	}
	if wish.Detached {
		flags = append(flags, "--detach")
	} else {
		flags = append(flags, "--rm")
	}
	flags = append(append(flags, s.Flags...), d.image(wish.Image, wish.User))
	return &dockerContainer{d, wish, append(flags, d.scene.program(wish)...)}
}

// flags are those that Docker and Podman have alike.
func (s *scene) flags(wish node.Wish) []string {
	s.t.Helper()
	flags := []string{"--name", wish.Name, "--network", "none"}
	flags = append(flags, s.commonFlags(wish, func(path, mode string) []string {
		return []string{"--volume", path + ":" + path + ":" + mode}
	})...)
	if wish.GPU {
		flags = append(flags, "--volume", "/dev/null:/dev/nvidia0")
	}
	return flags
}

func (c *dockerContainer) Name() string { return c.wish.Name }

func (c *dockerContainer) program(arguments ...string) *node.Program {
	return c.daemon.Node.Bare(c.daemon.program("docker"), c.daemon.words(arguments)...)
}

func (c *dockerContainer) Start() *node.Program {
	d := c.daemon
	d.t.Helper()
	d.t.Cleanup(func() {
		d.Docker("rm", "--force", c.wish.Name)
		d.released(c.wish.Name)
	})
	return c.program(c.run...)
}

func (c *dockerContainer) Puppet() *node.Puppet {
	c.daemon.t.Helper()
	return c.daemon.Node.AsInnerPuppet(c.Start())
}

func (c *dockerContainer) Exec() *node.Puppet {
	d := c.daemon
	d.t.Helper()
	return d.Node.AsInnerPuppet(c.program(append([]string{"exec", "--interactive", c.wish.Name}, d.cleared()...)...))
}

func (c *dockerContainer) Touched() bool {
	c.daemon.t.Helper()
	id := c.daemon.MustDocker("inspect", "--format", "{{.Id}}", c.wish.Name)
	return c.daemon.Containerd.touched(dockerNamespace, id)
}
