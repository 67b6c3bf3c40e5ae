package ctrd

// The daemon: its start, its sudden end, and what ctr, crictl and weir say to it.

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

// patience is how long a daemon may take to start or to end; it decides only when a test gives up.
const patience = time.Minute

// Options describe a daemon. The zero value has no part of weir's in it.
type Options struct {
	Mode  string   // of `weir runtime configure`; empty: not configured
	Hooks bool     // its CRI has the runtime Hooked, too
	More  string   // lines for its own configuration; @ is the daemon's folder
	Env   []string // more of its environment
}

// Hooked is the handler of pods whose containers begin with hooks of weir's, by no doing of weir's.
const Hooked = "hooked"

// Daemon is one containerd on a node.
type Daemon struct {
	scene
	Dir     string // all that is its own lies below
	g       Generation
	options Options
	log     *node.SyncBuffer
	images  *images
	pods    map[string]*Pod // that run, by namespace and name
	plugin  *plugin
	*running
}

// Start configures a containerd for a node, starts it and imports the image that containers are made of. The
// node's agent is the one that is asked about containers.
func Start(t testing.TB, g Generation, n *node.Node, options Options) *Daemon {
	t.Helper()
	g.need(t)
	d := &Daemon{
		scene: scene{t, n}, Dir: filepath.Join(n.Dir, "ctrd"), g: g, options: options, log: &node.SyncBuffer{},
		images: &images{known: map[string]bool{}}, pods: map[string]*Pod{}, plugin: &plugin{},
		running: &running{},
	}
	if err := os.MkdirAll(d.Dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.remove)
	d.write("config.toml", d.Original())
	d.write("crictl.yaml", "timeout: 60\n")
	if options.Hooks {
		d.write("base.json", d.base())
	}
	if options.Mode != "" {
		if out := d.Runtime("configure", "--mode", options.Mode); out.Code != 0 {
			t.Fatalf("weir runtime configure: exit %d: %s%s", out.Code, out.Stdout, out.Stderr)
		}
	}
	if options.Mode == "nri" {
		d.StartPlugin()
	}
	if options.Mode == "cdi" {
		if err := os.Mkdir(d.file("cdi"), 0o755); err != nil {
			t.Fatal(err)
		}
		n.MustWeir("cdi", "generate", "--output", d.CDI())
	}
	d.Run()
	d.image(node.Image{}, 0)
	if options.Mode == "nri" {
		d.AwaitPlugin()
	}
	return d
}

// For is the same daemon for another test, or a part of one.
func (d *Daemon) For(t testing.TB) *Daemon {
	view := *d
	view.t, view.Node = t, d.Node.For(t)
	return &view
}

func (d *Daemon) write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(d.file(name), []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

func (d *Daemon) file(name string) string { return filepath.Join(d.Dir, name) }

// Address is the path of its socket.
func (d *Daemon) Address() string { return d.file("c.sock") }

// CDI is the path of the specification of the node's GPUs, in a daemon of mode cdi.
func (d *Daemon) CDI() string { return d.file("cdi/weir-gpu.json") }

// Config is the path of its main configuration, and DropIn of weir's part.
func (d *Daemon) Config() string { return d.file("config.toml") }
func (d *Daemon) DropIn() string { return d.file("conf.d/99-weir.toml") }

// Original is the main configuration before weir, and Configured tells whether weir's part is there.
func (d *Daemon) Original() string { return d.g.config(d.Dir, d.options) }
func (d *Daemon) Configured() bool { return exists(d.DropIn()) }

// Run starts the daemon, which must not be running, and returns when it serves.
func (d *Daemon) Run() {
	d.t.Helper()
	command := exec.Command(d.g.program("containerd"), "--config", d.Config())
	command.Env = append(d.Node.Env(), d.g.path(), "WEIR_RUNTIME_CONFIG="+d.file("runtime.toml"))
	command.Env = append(command.Env, d.options.Env...)
	*d.running = launch(d.t, command, d.log)
	// The CRI is the last that it has ready.
	d.serves(&d.scene, "containerd", d.log, func() node.Output { return d.Crictl("info", "-q") })
}

// Kill kills the daemon; its shims and containers go on.
func (d *Daemon) Kill() {
	d.t.Helper()
	_ = d.process.Process.Kill()
	select {
	case <-d.ended:
	case <-time.After(patience):
		d.t.Fatal("containerd does not die")
	}
}

// PID is the daemon's.
func (d *Daemon) PID() int { return d.process.Process.Pid }

// Log is what it has written so far.
func (d *Daemon) Log() string { return d.log.String() }

// Ctr is a call of the generation's own ctr.
func (d *Daemon) Ctr(arguments ...string) node.Output {
	d.t.Helper()
	return d.Node.Command(d.g.program("ctr"), append([]string{"--address", d.Address()}, arguments...)...)
}

// MustCtr is Ctr for a call that has to succeed; it returns what was printed.
func (d *Daemon) MustCtr(arguments ...string) string {
	d.t.Helper()
	return must(d.t, "ctr", arguments, d.Ctr(arguments...))
}

func must(t testing.TB, program string, arguments []string, out node.Output) string {
	t.Helper()
	if out.Code != 0 {
		t.Fatalf("%s %s: exit %d\n%s%s", program, strings.Join(arguments, " "), out.Code, out.Stdout, out.Stderr)
	}
	return out.Stdout
}

// Crictl is a call of crictl.
func (d *Daemon) Crictl(arguments ...string) node.Output {
	d.t.Helper()
	return d.Node.Command(node.Build(d.t, "containers/crictl"), d.crictl(arguments)...)
}

func (d *Daemon) crictl(arguments []string) []string {
	return append([]string{"--config", d.file("crictl.yaml"), "--runtime-endpoint", "unix://" + d.Address()},
		arguments...)
}

// MustCrictl is Crictl for a call that has to succeed; it returns what was printed, less white space around it.
func (d *Daemon) MustCrictl(arguments ...string) string {
	d.t.Helper()
	return strings.TrimSpace(must(d.t, "crictl", arguments, d.Crictl(arguments...)))
}

// Runtime is `weir runtime VERB` about this containerd, as its user would type it.
func (d *Daemon) Runtime(verb string, flags ...string) node.Output {
	d.t.Helper()
	arguments := []string{d.g.path(), node.Build(d.t, "weir"), "runtime", verb, "--state-dir", d.file("weir")}
	if verb == "configure" {
		arguments = append(arguments, "--config", d.Config(), "--drop-in-config", d.DropIn(),
			"--runtime-config", d.file("runtime.toml"))
	}
	return d.Node.Command("/usr/bin/env", append(arguments, flags...)...)
}
