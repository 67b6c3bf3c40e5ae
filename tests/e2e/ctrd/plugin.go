package ctrd

// weir's plugin, where containerd is configured for it: a process beside the agent and containerd, which ends with
// neither.

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"weir/tests/e2e/node"
)

// plugin is the present process of a daemon's plugin.
type plugin struct {
	running
	log node.SyncBuffer
}

// StartPlugin starts the plugin, as its service does. The daemon need not be there yet.
func (d *Daemon) StartPlugin() {
	d.t.Helper()
	d.plugin.running = d.startPlugin()
}

func (d *Daemon) startPlugin() running {
	d.t.Helper()
	command := exec.Command(node.Build(d.t, "weir-containerd"), "nri", "--control", d.Node.RunDir+"/control.sock",
		"--socket", d.file("nri.sock"), "--state", d.file("state"))
	return launch(d.t, command, &d.plugin.log)
}

// SecondPlugin starts another one and returns when containerd has it, too; end ends it.
func (d *Daemon) SecondPlugin() (end func()) {
	d.t.Helper()
	before := strings.Count(d.plugin.log.String(), "a plugin now")
	second := d.startPlugin()
	d.Node.Eventually(func() string {
		if strings.Count(d.plugin.log.String(), "a plugin now") == before {
			return "the second plugin is none yet"
		}
		return ""
	})
	return func() {
		_ = second.process.Process.Kill()
		<-second.ended
	}
}

// KillPlugin kills it.
func (d *Daemon) KillPlugin() { d.signalPlugin(syscall.SIGKILL) }

// StopPlugin ends it as its service does.
func (d *Daemon) StopPlugin() { d.signalPlugin(syscall.SIGTERM) }

func (d *Daemon) signalPlugin(signal syscall.Signal) {
	d.t.Helper()
	if d.plugin.process == nil {
		return
	}
	_ = d.plugin.process.Process.Signal(signal)
	select {
	case <-d.plugin.ended:
	case <-time.After(patience):
		d.t.Fatal("weir's plugin does not end")
	}
	d.plugin.process = nil
}

// AwaitPlugin waits until containerd makes containers, which without its plugin it does not. It returns how long
// that took.
func (d *Daemon) AwaitPlugin() time.Duration {
	d.t.Helper()
	begun := time.Now()
	pod := CRI{Daemon: d, Handler: "-"}.Pod(node.Pod{}, false)
	config := pod.file("probe.json", (&criContainer{pod: pod, wish: node.Wish{Name: "probe"}}).config())
	var took time.Duration
	d.Node.Eventually(func() string {
		out := d.Crictl("create", pod.ID, config, filepath.Join(pod.dir, "pod.json"))
		took = time.Since(begun)
		switch {
		case out.Code == 0:
			return ""
		case !strings.Contains(out.Stderr, "required plugin"):
			d.t.Fatalf("containerd makes no container: %s", out.Stderr)
		}
		return "containerd has no plugin of weir's"
	})
	d.MustCrictl("rmp", "--force", pod.ID)
	return took
}

// FreezePlugin stops the plugin in the middle of whatever it does.
func (d *Daemon) FreezePlugin() { _ = d.plugin.process.Process.Signal(syscall.SIGSTOP) }

// ThawPlugin lets a frozen plugin go on.
func (d *Daemon) ThawPlugin() { _ = d.plugin.process.Process.Signal(syscall.SIGCONT) }

// Create makes a container of the pod and does not start it. It returns its id, and what crictl said.
func (p *Pod) Create(wish node.Wish) (id string, said node.Output) {
	d := p.cri.Daemon
	d.t.Helper()
	p.names = append(p.names, wish.Name)
	config := p.file(wish.Name+".json", (&criContainer{pod: p, wish: wish}).config())
	out := d.Crictl("create", p.ID, config, filepath.Join(p.dir, "pod.json"))
	return strings.TrimSpace(out.Stdout), out
}
