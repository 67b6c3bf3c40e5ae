package e2e

// Containers of containerd: caps, ends, restarts, and what its user is told.

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/agent/control"
	"weir/tests/e2e/ctrd"
	"weir/tests/e2e/node"
	"weir/tests/sim"
)

// containerd is a machine with a simulated card of 16 GiB, of which only those pages take memory here that are
// written, and a containerd that weir is configured for.
func containerd(t *testing.T, g ctrd.Generation, mode string) *ctrd.Daemon {
	t.Helper()
	n := node.Start(t, node.Options{Machine: node.Machine("16GiB", "1MiB")})
	return ctrd.Start(t, g, n, ctrd.Options{Mode: mode})
}

// ways are those in which a daemon's user starts containers.
func ways(d *ctrd.Daemon) map[string]node.Starter {
	return map[string]node.Starter{"ctr": ctrd.Ctr{Daemon: d}, "pod": ctrd.CRI{Daemon: d}}
}

// memory asks for a cap.
func memory(size string) map[string]string { return map[string]string{"weir/memory": size} }

func TestContainerd(t *testing.T) {
	ctrd.Each(t, func(t *testing.T, g ctrd.Generation) {
		d := containerd(t, g, "runtime")
		for way, starter := range ways(d) {
			t.Run(way+"-two-caps", func(t *testing.T) { twoCaps(t, d.Node.For(t), starter.For(t)) })
			t.Run(way+"-bad-input", func(t *testing.T) { badInput(t, d.Node.For(t), starter.For(t)) })
		}
		t.Run("many", func(t *testing.T) { manyLeaveNothing(t, d.For(t)) })
		t.Run("containerd-killed", func(t *testing.T) { containerdKilled(t, d.For(t)) })
		t.Run("agent-killed", func(t *testing.T) { agentKilled(t, d.For(t)) })
		t.Run("unconfigure", func(t *testing.T) { unconfigured(t, d.For(t)) })
	})
}

// Two containers at once: each has its own cap, to the byte, which reports show as all that there is.
func twoCaps(t *testing.T, n *node.Node, s node.Starter) {
	caps := []int64{4, 8} // GiB
	var puppets []*node.Puppet
	for _, size := range caps {
		puppets = append(puppets, s.Container(node.Wish{
			Name: fmt.Sprintf("cap-%d", size), Annotations: memory(fmt.Sprintf("%dGiB", size)),
		}).Puppet())
	}
	const grain = 512 // what an allocation's size is rounded up to
	for i, p := range puppets {
		p.OK("init")
		whole := caps[i] * gib
		p.OK("alloc %d", whole/2)
		if code := p.Code("alloc %d", whole/2+1); code != outOfMemory {
			t.Errorf("cap %dGiB: a byte past it: code %d, want 2 (out of memory)", caps[i], code)
		}
		p.OK("alloc %d", whole/2-grain)
		p.OK("alloc 1")
		if code := p.Code("alloc 1"); code != outOfMemory {
			t.Errorf("cap %dGiB, in full use: code %d, want 2 (out of memory)", caps[i], code)
		}
		if total := p.Numbers("nvml 0")[0]; total != whole {
			t.Errorf("cap %dGiB: NVML's total is %d", caps[i], total)
		}
		if used, _ := n.Use(fmt.Sprintf("cap-%d", caps[i])); used != whole {
			t.Errorf("cap %dGiB: the agent counts %d", caps[i], used)
		}
	}
}

// What cannot be keeps the container from starting, and whoever started it is told in one line why, and what can be.
func badInput(t *testing.T, n *node.Node, s node.Starter) {
	pod := node.Pod{Name: "bad"} // one for all, which is sooner
	for name, bad := range map[string]struct{ annotation, value, words string }{
		"unknown":  {"weir/memroy", "1GiB", "weir/memory"},
		"size":     {"weir/memory", "many", "want a size such as 8GiB"},
		"fraction": {"weir/memory", "0.3", "is not a whole number of bytes: want a size such as 8GiB"},
		"over":     {"weir/memory", "4TiB", "is more than GPU 0 has (16GiB); ask for at most that"},
		"gpu":      {"weir/gpu", "7", "its GPUs are 0"},
		"swap":     {"weir/swap", "1GiB", "1GiB beyond no cap is no limit; ask for weir/memory too"},
	} {
		refused(t, n, s, node.Wish{Name: "bad-" + name, Pod: pod, Annotations: map[string]string{bad.annotation: bad.value}},
			bad.words)
		told := n.EventsOf("start-refused", "bad-"+name)
		if len(told) != 1 || !strings.Contains(told[0].Message, bad.annotation) || !strings.Contains(told[0].Message, bad.words) {
			t.Errorf("%s: events %+v", name, told)
		}
	}
	if _, alone := s.(ctrd.Ctr); alone { // in a pod there may be a container of that name
		refused(t, n, s, node.Wish{Name: "train", Annotations: map[string]string{"weir/memory.trian": "1GiB"}},
			`accepted: weir/memory, or weir/memory.train`)
	}
	n.StopAgent()
	refused(t, n, s, node.Wish{Name: "no-agent", Pod: pod, Annotations: memory("1GiB")}, "start one with: weir agent --run-dir ")
	s.Container(node.Wish{Name: "did-not-ask", Pod: pod}).Puppet().OK("init")
	n.StartAgent()
}

// refused asserts that a container does not start, and that one line on the user's terminal says why.
func refused(t *testing.T, n *node.Node, s node.Starter, wish node.Wish, words string) {
	t.Helper()
	p := s.Container(wish).Start()
	code, _ := p.Wait(time.Minute)
	n.Eventually(func() string {
		for line := range strings.Lines(p.Stderr()) {
			if code != 0 && strings.Contains(line, "weir: container "+wish.Name) && strings.Contains(line, words) {
				return ""
			}
		}
		return fmt.Sprintf("%s: code %d, and it said %q, want %q", wish.Name, code, p.Stderr(), words)
	})
}

// comeAndGo starts so many containers of one wish, some at a time, each of which has to end as is right.
func comeAndGo(
	t *testing.T, s node.Starter, wish node.Wish, count, atATime int, right func(code int, said []string) bool,
) {
	var runs sync.WaitGroup
	next := make(chan node.Container)
	for range atATime {
		runs.Go(func() {
			for c := range next {
				p := c.Start()
				if code, said := p.Wait(2 * time.Minute); !right(code, said) {
					t.Errorf("container %s: code %d: %q, %s", c.Name(), code, said, p.Stderr())
				}
			}
		})
	}
	for i := range count {
		wish.Name = fmt.Sprintf("many-%d", i)
		next <- s.Container(wish)
	}
	close(next)
	runs.Wait()
}

// refusedCode is how a container of manyLeaveNothing ends whose second allocation was refused. Its own shell reads what
// the puppet says: ctr 1.6 may end without the last lines of a container that is quick.
const refusedCode = 7

// A hundred containers, five at a time, each of which uses the GPU up to its cap, leave nothing behind.
func manyLeaveNothing(t *testing.T, d *ctrd.Daemon) {
	n := d.Node
	before := leftovers(t, d)
	fills := fmt.Sprintf(`said=$(printf 'init\nalloc %d\nalloc %d\n' | %s); echo "$said"; case $said in *"error %d") exit %d; esac`,
		24*mib, 16*mib, node.Build(t, "e2e/puppet"), outOfMemory, refusedCode)
	wish := node.Wish{Annotations: memory("32MiB"), Args: []string{"/bin/sh", "-c", fills}}
	comeAndGo(t, ctrd.Ctr{Daemon: d}, wish, 100, 5, func(code int, _ []string) bool { return code == refusedCode })
	n.Eventually(func() string {
		if after := leftovers(t, d); after != before {
			return fmt.Sprintf("left are %s, before there were %s", after, before)
		}
		return ""
	})
}

// leftovers is what there is of containers: with the agent, in all of its run directory, mounted, as control groups,
// shims and runc's own state, and on the GPU.
func leftovers(t *testing.T, d *ctrd.Daemon) string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(d.Node.RunDir, func(path string, _ fs.DirEntry, err error) error {
		files = append(files, strings.TrimPrefix(path, d.Node.RunDir))
		if errors.Is(err, fs.ErrNotExist) { // it has gone just now
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	states, err := filepath.Glob(d.Dir + "/runc/*/*")
	if err != nil {
		t.Fatal(err)
	}
	books, err := sim.Status(d.Node.SimDir)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d containers, files %q, %d mounts, %d control groups, %d shims, %d of runc's, %d bytes of %d processes",
		len(d.Node.Containers()), files, len(d.Mounts()), len(d.Cgroups()), len(d.Shims()), len(states),
		books.GPUs[0].UsedBytes, len(books.LivePIDs))
}

// crowd is ten capped containers that depend on nobody, of which ctr started half, and half are in one pod.
func crowd(t *testing.T, d *ctrd.Daemon) map[string]*node.Puppet {
	t.Helper()
	puppets := map[string]*node.Puppet{}
	var meet []func()
	for i := range 10 {
		wish := node.Wish{Name: fmt.Sprintf("crowd-%d", i), Annotations: memory("8MiB"), Detached: true}
		starter := node.Starter(ctrd.Ctr{Daemon: d})
		if i%2 == 1 {
			starter, wish.Pod = ctrd.CRI{Daemon: d}, node.Pod{Name: "crowd", Namespace: "team-a"}
		}
		remote, puppet := d.Node.Remote(wish)
		if code, said := start(starter, remote); code != 0 {
			t.Fatalf("%s: code %d: %s", wish.Name, code, said)
		}
		meet = append(meet, func() {
			p := puppet()
			p.OK("init")
			p.OK("alloc %d", 6*mib)
			puppets[wish.Name] = p
		})
	}
	for _, one := range meet {
		one()
	}
	return puppets
}

func start(starter node.Starter, wish node.Wish) (code int, said string) {
	p := starter.Container(wish).Start()
	code, _ = p.Wait(time.Minute)
	return code, p.Stderr()
}

// named is how `weir ps` names the containers.
func named(containers []control.Container) []string {
	var names []string
	for _, c := range containers {
		names = append(names, fmt.Sprintf("%s/%s %d %t", c.Namespace, c.Name, c.PID, c.Enforced))
	}
	slices.Sort(names)
	return names
}

// without are those of the crowd that stay when two end, one of each kind, and what ends the two as if by themselves.
func without(t *testing.T, n *node.Node, puppets map[string]*node.Puppet) (rest []string, end func()) {
	t.Helper()
	containers := n.Containers()
	var pids []int
	for _, name := range []string{"crowd-0", "crowd-1"} {
		delete(puppets, name)
		pids = append(pids, n.Container(name).PID)
		containers = slices.DeleteFunc(containers, func(c control.Container) bool { return c.Name == name })
	}
	return named(containers), func() {
		for _, pid := range pids {
			if pid <= 1 {
				t.Fatalf("a container has pid %d", pid)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// goOn asserts that the crowd's caps hold, and that the agent names those that are left as it did before, within 2 s.
func goOn(t *testing.T, n *node.Node, puppets map[string]*node.Puppet, names []string, since time.Time) {
	t.Helper()
	n.Eventually(func() string {
		if now := named(n.Containers()); !slices.Equal(now, names) {
			return fmt.Sprintf("weir ps has %q, before it had %q", now, names)
		}
		return ""
	})
	took := time.Since(since).Round(time.Millisecond)
	t.Logf("names were right %v after the restart", took)
	if took > 2*time.Second { // which is promised
		t.Errorf("names were right only %v after the restart", took)
	}
	for _, name := range slices.Sorted(maps.Keys(puppets)) {
		p := puppets[name]
		if code := p.Code("alloc %d", 3*mib); code != outOfMemory {
			t.Errorf("%s: code %d, want 2 (out of memory)", name, code)
		}
		p.OK("alloc %d", 2*mib)
	}
}

// containerd is killed and started again while ten containers run, two of which end meanwhile.
func containerdKilled(t *testing.T, d *ctrd.Daemon) {
	puppets := crowd(t, d)
	names, end := without(t, d.Node, puppets)
	d.Kill()
	end()
	for name, p := range puppets {
		if code := p.Code("alloc %d", 3*mib); code != outOfMemory {
			t.Errorf("%s, without containerd: code %d, want 2 (out of memory)", name, code)
		}
	}
	d.Run()
	goOn(t, d.Node, puppets, names, time.Now())
}

// The agent is killed and started again while ten containers run, two of which end meanwhile; what the others ask
// for while it is away waits for the next one.
func agentKilled(t *testing.T, d *ctrd.Daemon) {
	puppets := crowd(t, d)
	names, end := without(t, d.Node, puppets)
	d.Node.KillAgent()
	end()
	for _, p := range puppets {
		p.Tell("alloc %d", 3*mib)
	}
	since := time.Now()
	d.Node.StartAgent()
	for name, p := range puppets {
		if code := p.Answer(); code != outOfMemory {
			t.Errorf("%s, asking without an agent: code %d, want 2 (out of memory)", name, code)
		}
	}
	goOn(t, d.Node, puppets, names, since)
}

// unconfigure is refused while containers run that weir has a part in; then it puts back every byte.
func unconfigured(t *testing.T, d *ctrd.Daemon) {
	c := ctrd.Ctr{Daemon: d}.Container(node.Wish{Name: "runs", Annotations: memory("32MiB")})
	p := c.Puppet()
	out := d.Runtime("unconfigure")
	if out.Code != 1 || !strings.Contains(out.Stderr, "container runs runs under weir") {
		t.Errorf("exit %d: %s", out.Code, out.Stderr)
	}
	if !d.Configured() {
		t.Fatal("it has been undone")
	}
	p.Leave()
	d.Node.Eventually(func() string {
		if out = d.Runtime("unconfigure"); out.Code != 0 {
			return out.Stderr
		}
		return ""
	})
	text, err := os.ReadFile(d.Config())
	if err != nil || string(text) != d.Original() {
		t.Errorf("%v, the configuration has become:\n%s", err, text)
	}
	if d.Configured() {
		t.Error("weir's part is still there")
	}
	d.Kill()
	d.Run()
	if out := d.MustCrictl("info"); strings.Contains(out, "weir-runtime") {
		t.Error("containerd still has the runtime weir")
	}
}
