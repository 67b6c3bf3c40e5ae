package e2e

// What the agent learns from containerd: images, names and pods of containers, and who has a GPU without weir.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/tests/e2e/ctrd"
	"weir/tests/e2e/node"
)

// byImage gives a cap to containers of the tests' own image that ask for a part of a GPU and for no cap.
const byImage = "[[containers]]\nimage = \"*weir.test/base:*\"\nmemory = \"48MiB\"\n"

func TestListed(t *testing.T) {
	ctrd.Each(t, func(t *testing.T, g ctrd.Generation) {
		n := node.Start(t, node.Options{Config: byImage})
		d := ctrd.Start(t, g, n, ctrd.Options{Mode: "runtime"})
		told(t, n)
		t.Run("ctr-image", func(t *testing.T) { imageOfCtr(t, d.For(t)) })
		t.Run("pod", func(t *testing.T) { listedPod(t, d.For(t)) })
		t.Run("misnamed", func(t *testing.T) { misnamedInPod(t, d.For(t)) })
		t.Run("without-weir", func(t *testing.T) { withoutWeir(t, d.For(t)) })
		t.Run("lost-and-found", func(t *testing.T) { lostAndFound(t, d.For(t)) })
	})
}

// told waits until containerd has told the present agent of its containers, and not lost it since.
func told(t *testing.T, n *node.Node) {
	t.Helper()
	n.Eventually(func() string {
		events := runtimeEvents(n)
		if len(events) == 0 || !strings.Contains(events[len(events)-1], "tells of its containers") {
			return fmt.Sprintf("containerd tells nothing: %q\n%s", events, n.Log())
		}
		return ""
	})
}

// runtimeEvents are what the present agent has said of containerd.
func runtimeEvents(n *node.Node) (messages []string) {
	for _, e := range n.Events() {
		if e.Type == "runtime" {
			messages = append(messages, e.Message)
		}
	}
	return messages
}

// asked asks for something of a GPU, and for no cap.
func asked() map[string]string { return map[string]string{"weir/weight": "2"} }

// The image of a container of ctr is nowhere but with containerd.
func imageOfCtr(t *testing.T, d *ctrd.Daemon) {
	p := ctrd.Ctr{Daemon: d}.Container(node.Wish{Name: "box", Annotations: asked()}).Puppet()
	p.OK("init")
	p.OK("alloc %d", 40*mib)
	if code := p.Code("alloc %d", 16*mib); code != outOfMemory {
		t.Errorf("over the cap of the rule: code %d, want 2 (out of memory)", code)
	}
	c := d.Node.Container("box")
	if !strings.HasSuffix(c.Image, "weir.test/base:1") || c.Namespace != "default" || c.RuntimeID != "box" ||
		len(c.Command) != 1 || !strings.HasSuffix(c.Command[0], "/e2e/puppet") {
		t.Errorf("%+v", c)
	}
}

// An annotation for a container that the pod has never had is told when the pod ends, at the latest.
func misnamedInPod(t *testing.T, d *ctrd.Daemon) {
	n := d.Node
	wish := node.Wish{Name: "train", Pod: node.Pod{Name: "short", Namespace: "team-a",
		Annotations: map[string]string{"weir/memory.trian": "1GiB"}}}
	t.Run("runs", func(t *testing.T) {
		c := ctrd.CRI{Daemon: d.For(t)}.Container(wish)
		c.Puppet()
		if c.Touched() {
			t.Error("the container has got something by another's annotation")
		}
		// Once the agent shows a container that came later, it has been told of this one.
		ctrd.Ctr{Daemon: d.For(t), Runtime: "runc"}.Container(node.Wish{Name: "later", GPU: true}).Puppet()
		shows(t, d.Node, "default/later: it has a GPU and no annotation of weir's")
	})
	n.Eventually(func() string {
		for _, e := range n.EventsOf("misnamed", "") {
			if e.Namespace == "team-a" && strings.Contains(e.Message, "weir/memory.trian of pod short") &&
				strings.Contains(e.Message, "but train;") {
				return ""
			}
		}
		return "no event says that nobody is called trian"
	})
}

func listedPod(t *testing.T, d *ctrd.Daemon) {
	pod := node.Pod{Name: "web-0", Namespace: "team-a"}
	ctrd.CRI{Daemon: d}.Container(node.Wish{Name: "main", Annotations: asked(), Pod: pod}).Puppet().OK("init")
	d.Node.Eventually(func() string {
		c := d.Node.Container("main")
		if c.Namespace != "team-a" || c.Pod != "web-0" || c.PodUID != "web-0-uid" || !strings.HasSuffix(c.Image, "weir.test/base:1") ||
			c.Labels["io.cri-containerd.kind"] != "container" || len(c.RuntimeID) != 64 {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
}

// unenforced are the containers that weir has no part in, as `weir ps` has them.
func unenforced(n *node.Node) (lines []string) {
	for _, c := range n.Containers() {
		if c.Identity == "" && !c.Enforced {
			lines = append(lines, c.Namespace+"/"+c.Name+": "+c.Reason)
		}
	}
	slices.Sort(lines)
	return lines
}

func shows(t *testing.T, n *node.Node, want ...string) {
	t.Helper()
	n.Eventually(func() string {
		if got := unenforced(n); !slices.Equal(got, want) {
			return fmt.Sprintf("shown are %q, want %q", got, want)
		}
		return ""
	})
}

// Containers that are not under weir are shown where they have a GPU or ask for one, and as long as they run.
func withoutWeir(t *testing.T, d *ctrd.Daemon) {
	const missed = "but weir had no part in its start: start it again with weir's runtime " +
		"(ctr: --runc-binary weir-runtime, pods: runtimeClassName weir)"
	starters := []struct {
		starter node.Starter
		wish    node.Wish
		line    string
	}{
		{ctrd.Ctr{Daemon: d, Runtime: "runc"}, node.Wish{Name: "asks", Annotations: memory("8MiB")},
			"default/asks: it asks for weir/memory, " + missed},
		{ctrd.Ctr{Daemon: d, Runtime: "runc"}, node.Wish{Name: "bare", GPU: true}, "default/bare: it has a GPU and no annotation of weir's"},
		{ctrd.Ctr{Daemon: d}, node.Wish{Name: "passed", GPU: true}, "default/passed: it has a GPU and no annotation of weir's"},
		// Who says that it holds a pod's namespaces hides nothing by that.
		{ctrd.Ctr{Daemon: d}, node.Wish{Name: "posing", GPU: true,
			Annotations: map[string]string{"io.kubernetes.cri.container-type": "sandbox"}},
			"default/posing: it has a GPU and no annotation of weir's"},
		{ctrd.Ctr{Daemon: d, Flags: []string{"--privileged"}}, node.Wish{Name: "proxy"},
			"default/proxy: it may use all devices of the node, GPUs too (privileged), and has no annotation of weir's"},
		{ctrd.CRI{Daemon: d, Handler: "-"}, node.Wish{Name: "side", GPU: true, Pod: node.Pod{Name: "p", Namespace: "team-b"}},
			"team-b/side: it has a GPU and no annotation of weir's"},
		{ctrd.Ctr{Daemon: d, Runtime: "runc"}, node.Wish{Name: "none"}, ""},
	}
	var lines []string
	for _, one := range starters {
		one.starter.Container(one.wish).Puppet().OK("init")
		if one.line != "" {
			lines = append(lines, one.line)
		}
	}
	shows(t, d.Node, lines...)
	d.Node.KillAgent()
	d.Node.StartAgent()
	since := time.Now()
	shows(t, d.Node, lines...)
	t.Logf("shown again %v after a restart of the agent", time.Since(since).Round(time.Millisecond))
	d.Kill()
	end(t, d.Node.Container("bare").PID)
	shows(t, d.Node, slices.Delete(slices.Clone(lines), 1, 2)...)
	d.Run()
	for _, name := range []string{"asks", "passed", "posing", "proxy", "side"} {
		end(t, d.Node.Container(name).PID)
	}
	shows(t, d.Node)
}

// end kills a container's first process.
func end(t *testing.T, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("a container has pid %d", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// The loss of containerd, and of the helper that asks it, is said once, and what was known is known again soon.
func lostAndFound(t *testing.T, d *ctrd.Daemon) {
	ctrd.Ctr{Daemon: d}.Container(node.Wish{Name: "stays", Annotations: memory("32MiB")}).Puppet().OK("init")
	d.Node.KillAgent()
	d.Node.StartAgent()
	since := time.Now()
	d.Node.Eventually(func() string {
		if c := d.Node.Container("stays"); len(c.Labels) == 0 && c.Image == "" {
			return "its image is not known"
		}
		return ""
	})
	t.Logf("the image was known %v after a restart of the agent", time.Since(since).Round(time.Millisecond))
	told(t, d.Node)
	for what, end := range map[string]func(){
		"containerd": func() { d.Kill(); time.Sleep(time.Second); d.Run() },
		"the helper": func() { endHelper(t, d.Node) },
	} {
		before := len(runtimeEvents(d.Node))
		end()
		since := time.Now()
		d.Node.Eventually(func() string {
			events := runtimeEvents(d.Node)[before:]
			if len(events) < 2 {
				return fmt.Sprintf("%s was killed, and it is said: %q", what, events)
			}
			return ""
		})
		t.Logf("%s was found again after %v", what, time.Since(since).Round(time.Millisecond))
		events := runtimeEvents(d.Node)[before:]
		if len(events) != 2 || !strings.Contains(events[0], "cannot be asked any more") {
			t.Errorf("%s was killed, and it is said: %q", what, events)
		}
	}
	if c := d.Node.Container("stays"); !c.Enforced || c.State != "running" {
		t.Errorf("%+v", c)
	}
}

// endHelper kills the agent's helper for containerd.
func endHelper(t *testing.T, n *node.Node) {
	t.Helper()
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", n.Agent()))
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, file := range children {
		text, _ := os.ReadFile(file) // of a thread that may have ended
		for _, word := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(word)
			name, _ := os.ReadFile("/proc/" + word + "/comm")
			if err == nil && strings.HasPrefix(string(name), "weir-containerd") {
				end(t, pid)
				killed++
			}
		}
	}
	if killed != 1 {
		t.Fatalf("the agent has %d helpers", killed)
	}
}
