package e2e

// What a tenant in a container may try against the others, its cap and the agent. Each attack is made
// in real containers of runc, by their root, with all that a careless operator could give them.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/oci"
	"weir/tests/e2e/node"
)

// ownSocket is where a container finds its agent.
const ownSocket = "WEIR_SOCKET=/run/weir/agent.sock"

var capped32 = map[string]string{"weir/memory": "32MiB"}

// change is what a test does to a container's specification.
type change func(node.Spec)

func with(changes ...change) func(node.Spec) {
	return func(s node.Spec) {
		for _, c := range changes {
			c(s)
		}
	}
}

// runs makes words the container's program.
func runs(words ...string) change {
	return func(s node.Spec) {
		list := []any{}
		for _, word := range words {
			list = append(list, word)
		}
		s["process"].(node.Spec)["args"] = list
	}
}

func environment(variables ...string) change {
	return func(s node.Spec) {
		process := s["process"].(node.Spec)
		for _, variable := range variables {
			process["env"] = append(process["env"].([]any), variable)
		}
	}
}

// mounted mounts a directory of the host's, writable.
func mounted(source, place string) change {
	return func(s node.Spec) {
		s["mounts"] = append(s["mounts"].([]any), node.Spec{
			"destination": place, "type": "bind", "source": source, "options": []any{"rbind", "rw"}})
	}
}

// privileged gives the container's root all that root can do, and the host's processes to see.
func privileged(s node.Spec) {
	all := []any{}
	for _, name := range []string{"SYS_ADMIN", "SYS_PTRACE", "DAC_OVERRIDE", "DAC_READ_SEARCH", "CHOWN", "FOWNER"} {
		all = append(all, "CAP_"+name)
	}
	s["process"].(node.Spec)["capabilities"] = node.Spec{"bounding": all, "effective": all, "permitted": all}
	s["linux"].(node.Spec)["namespaces"] = []any{node.Spec{"type": "mount"}, node.Spec{"type": "ipc"}, node.Spec{"type": "uts"}}
}

// containerVictim is a program in a container that must go on as if nothing happened.
func containerVictim(n *node.Node) (*node.Bundle, *node.Puppet) {
	b := n.Bundle("victim", capped32, nil)
	p := b.Puppet()
	p.OK("init")
	p.OK("alloc %d", 8*mib)
	return b, p
}

// checkVictim asserts that it has one session, what it had, and its cap.
func checkVictim(t *testing.T, n *node.Node, b *node.Bundle, p *node.Puppet) {
	t.Helper()
	n.AgentAlive()
	c := n.Container(b.Name())
	if len(c.Sessions) != 1 || c.Sessions[0].PID != c.PID {
		t.Errorf("sessions of the victim, whose only process is %d: %+v", c.PID, c.Sessions)
	}
	if used, _ := n.Use(b.Name()); used != 8*mib {
		t.Errorf("the victim uses %d bytes, inspect says", used)
	}
	p.OK("churn 10 %d", 16*mib)
	if code := p.Code("alloc %d", 32*mib); code != outOfMemory {
		t.Errorf("the victim past its cap: code %d", code)
	}
}

// A tenant that reaches another's socket, by a mount of the host's directory or by the other's root, is
// refused: the socket says whose it is, and the control group says that the tenant is none of them.
func TestAnothersSocket(t *testing.T) {
	node.NeedRunc(t)
	n := node.Start(t, node.Options{})
	victim, p := containerVictim(n)
	c := n.Container(victim.Name())
	for name, attack := range map[string]func(node.Spec){
		"mount": with(mounted(filepath.Join(n.RunDir, "c"), "/victims"), environment("WEIR_SOCKET=/victims/"+c.ID+"/agent.sock")),
		"root":  with(privileged, environment(fmt.Sprintf("WEIR_SOCKET=/proc/%d/root/run/weir/agent.sock", c.PID))),
	} {
		before := refusals(n, victim)
		thief := n.Bundle(name, capped32, with(attack, runs(node.Build(t, "e2e/babbler"), "hello"))).Start()
		if says := thief.Line(); says != "closed 3" {
			t.Errorf("by %s the thief is told %q, want its identity refused (3)", name, says)
		}
		if refusals(n, victim) == before {
			t.Errorf("no event tells of the thief that came by %s: %+v", name, n.Events())
		}
	}
	checkVictim(t, n, victim, p)
}

// refusals counts the connections that were refused at a container's socket.
func refusals(n *node.Node, b *node.Bundle) (count int64) {
	for _, e := range n.EventsOf("refused", b.Name()) {
		count += max(e.Count, 1)
	}
	return count
}

// A connection that is handed to another container stays its maker's: what is said on it counts there,
// and it ends with the process that made it.
func TestHandedConnection(t *testing.T) {
	node.NeedRunc(t)
	n := node.Start(t, node.Options{})
	meeting := mounted(t.TempDir(), "/meeting")
	babbler := node.Build(t, "e2e/babbler")
	from := n.Bundle("from", capped32, with(meeting, environment(ownSocket), runs(babbler, "hand", "/meeting/socket")))
	to := n.Bundle("to", capped32, with(meeting, environment(ownSocket), runs(babbler, "take", "/meeting/socket")))
	giver := from.Start()
	if says := giver.Line(); says != "listening" {
		t.Fatalf("the giver says %q", says)
	}
	taker := to.Start()
	if giver, taker := giver.Line(), taker.Line(); giver != "handed" || taker != "welcome" {
		t.Fatalf("the giver says %q, the taker %q", giver, taker)
	}
	c := n.Container(from.Name())
	if len(c.Sessions) != 1 || c.Sessions[0].PID != c.PID {
		t.Errorf("the giver's container, of process %d, has the sessions %+v", c.PID, c.Sessions)
	}
	if sessions := n.Container(to.Name()).Sessions; len(sessions) != 0 {
		t.Errorf("the taker's container has the sessions %+v", sessions)
	}
	giver.Wait(time.Minute)
	n.Eventually(func() string {
		for _, c := range n.Containers() {
			if c.Name == from.Name() {
				return "the giver's container lives on with the connection"
			}
		}
		return ""
	})
	taker.Wait(time.Minute)
}

// What a process says of itself is for display: the session is that of who has connected.
func TestAnothersIDInHello(t *testing.T) {
	node.NeedRunc(t)
	n := node.Start(t, node.Options{})
	victim, p := containerVictim(n)
	liar := n.Bundle("liar", capped32, with(privileged, environment(ownSocket),
		runs(node.Build(t, "e2e/babbler"), "hello", fmt.Sprint(n.Container(victim.Name()).PID))))
	if says := liar.Start().Line(); says != "welcome" {
		t.Errorf("the liar is told %q", says)
	}
	if c := n.Container(liar.Name()); len(c.Sessions) != 1 || c.Sessions[0].PID != c.PID {
		t.Errorf("the liar's container, of process %d, has the sessions %+v", c.PID, c.Sessions)
	}
	checkVictim(t, n, victim, p)
}

// mover is a shell command that moves a process into another container's control groups.
func mover(process string, b *node.Bundle) string {
	return fmt.Sprintf(`for group in $(find /sys/fs/cgroup -depth -type d -name %s); do echo %s > $group/cgroup.procs; done`,
		b.Name(), process)
}

// A tenant that may write to the control groups' file system leaves its own for another's. What it has
// stays under its cap, and it is flagged; new processes there are nobody's, whichever socket they take.
func TestLeavesItsControlGroup(t *testing.T) {
	node.NeedRunc(t)
	n := node.Start(t, node.Options{})
	victim, p := containerVictim(n)
	groups, puppet := mounted("/sys/fs/cgroup", "/sys/fs/cgroup"), node.Build(t, "e2e/puppet")

	early := n.Bundle("early", capped32, with(privileged, groups, runs("/bin/sh", "-c", mover("0", victim)+"; exec "+puppet)))
	q := early.Puppet()
	if code := q.Code("init"); code == 0 {
		if code := q.Code("alloc %d", mib); code == 0 {
			t.Error("outside its control group it has memory")
		}
	}
	if refusals(n, early) == 0 {
		t.Errorf("no event tells of who came from outside: %+v", n.Events())
	}
	if sessions := n.Container(early.Name()).Sessions; len(sessions) != 0 {
		t.Errorf("outside its control group it has a session: %+v", sessions)
	}
	q.Leave()

	meeting := t.TempDir()
	late := n.Bundle("late", capped32, with(groups, mounted(meeting, "/meeting"), runs("/bin/sh", "-c",
		"(while ! test -e /meeting/go; do sleep 0.1; done; "+mover("1", victim)+") & exec "+puppet)))
	q = late.Puppet()
	q.OK("init")
	q.OK("alloc %d", 8*mib)
	if err := os.WriteFile(filepath.Join(meeting, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	n.Eventually(func() string {
		if len(n.EventsOf("left", late.Name())) == 0 {
			return "no event tells that it has left its control group"
		}
		return ""
	})
	q.OK("alloc %d", 16*mib)
	if code := q.Code("alloc %d", 16*mib); code != outOfMemory {
		t.Errorf("past its cap: code %d", code)
	}
	if used, _ := n.Use(late.Name()); used != 24*mib {
		t.Errorf("who has left uses %d bytes, inspect says", used)
	}
	q.Leave()
	checkVictim(t, n, victim, p)
}

// The pages that agent and library share, attacked by a container's root with all rights: the control
// page cannot be written by any way, and what is written to the usage page ends the writer's session.
func TestForgedPagesInContainers(t *testing.T) {
	node.NeedRunc(t)
	n := node.Start(t, node.Options{})
	victim, p := containerVictim(n)
	for attack, want := range map[string]string{"control-write": "held", "control-shrink": "held", "usage-shrink": "held",
		"usage-fill": "done", "usage-credit": "done"} {
		b := n.Bundle(attack, capped32, with(privileged, runs(node.Build(t, "e2e/forger"), attack)))
		forger := b.Start()
		if says := forger.Line(); says != want {
			t.Errorf("%s: the forger says %q, want %q", attack, says, want)
		}
		if want == "done" {
			n.Eventually(func() string {
				if len(n.EventsOf("forged", b.Name())) == 0 {
					return "no event tells of " + attack
				}
				return ""
			})
		}
		checkVictim(t, n, victim, p)
		forger.Wait(time.Minute)
	}
}

// evilLibrary puts a library into an image that leaves a file at proof, where it is run by a process that
// has the host's files before it: in the image there is no such place.
func evilLibrary(t *testing.T, image, proof string) (name string) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "evil.c")
	text := fmt.Sprintf(`#include <fcntl.h>
		__attribute__((constructor)) static void run(void) { (void)!open("%s", O_CREAT | O_WRONLY, 0600); }`, proof)
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("gcc", "-shared", "-fPIC", "-o", filepath.Join(image, "evil.so"), source)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(image, "evil.so")
}

// The image's environment never reaches the loader of a program of the host's: weir-hook has none, and
// its environment is its own. A hook as others write them shows, where runc still passes the environment
// on, that the attack is a real one.
func TestImagesCodeInHooks(t *testing.T) {
	node.NeedRunc(t)
	n := node.Start(t, node.Options{})
	proof := filepath.Join(t.TempDir(), "ran")
	ran := func() bool {
		_, err := os.Stat(proof)
		os.Remove(proof)
		return err == nil
	}
	for _, kind := range []string{"careless", "weir", "hooks"} {
		annotations := capped32
		if kind == "careless" {
			annotations = nil
		}
		b := n.Bundle(kind, annotations, func(s node.Spec) {
			image := filepath.Join(n.Dir, "bundles", kind, "rootfs")
			environment("LD_PRELOAD="+image+"/evil.so:/proc/self/cwd/evil.so", "LD_AUDIT="+image+"/evil.so", "GODEBUG=inittrace=1")(s)
			runs("/bin/true")(s)
			switch kind {
			case "careless":
				hook := []any{node.Spec{"path": "/bin/true"}}
				s["hooks"] = node.Spec{"createRuntime": hook, "createContainer": hook}
			case "hooks":
				hooked(t, n)(s)
			}
		})
		evilLibrary(t, b.Root, proof)
		start := b.Start
		if kind != "weir" {
			start = func() *node.Program { return byRunc(t, n, b) }
		}
		program := start()
		if code, _ := program.Wait(time.Minute); code != 0 {
			t.Fatalf("%s: code %d: %s", kind, code, program.Stderr())
		}
		switch was := ran(); {
		case kind == "careless" && !was:
			t.Log("this runc keeps the image's environment from every hook")
		case kind != "careless" && was:
			t.Errorf("%s: a program of the host's has run the image's code", kind)
		}
		if kind != "careless" && len(n.EventsOf("started", b.Name())) != 1 {
			t.Errorf("weir-hook has not registered the container: %+v", n.Events())
		}
	}
}

// The image's environment names a socket at which there is no agent: no cap is known, and no memory given.
func TestImageNamesAnotherSocket(t *testing.T) {
	node.NeedRunc(t)
	n := node.Start(t, node.Options{Config: "agent_wait = \"100ms\"\n"})
	p := n.Bundle("deaf", capped32, with(environment("WEIR_SOCKET=/nonexistent"))).Puppet()
	if p.Code("init") == 0 && p.Code("alloc %d", mib) == 0 {
		t.Error("without an agent it has memory")
	}
}

// Images in which the places that weir mounts over are links that lead out, or files: nothing out here is
// written, and the container starts under its cap, or not at all. So it is by hooks alone, too.
func TestHostilePlacesInImages(t *testing.T) {
	node.NeedRunc(t)
	n := node.Start(t, node.Options{})
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "kept"), []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	up := "../../../../../../../../../../.." + outside
	for i, places := range []map[string]string{ // where a link leads; empty: a file
		{"etc": outside}, {"etc": up}, {"etc": ""}, {"etc/ld.so.preload": filepath.Join(outside, "made")},
		{"etc/ld.so.preload": filepath.Join(outside, "kept")}, {"etc/ld.so.preload": "/proc/1/root" + outside},
		{"run": outside}, {"run": up}, {"run": ""}, {"run/weir": outside}, {"run/weir": ""},
		{"run/weir/lib": outside}, {"run/weir/lib": ""}, {"run/weir/agent.sock": outside},
		{"run": "/etc", "etc": "/run"}, {"run": "/proc/1/root" + outside},
	} {
		hostile := func(t *testing.T, b *node.Bundle, start func() *node.Program, event string) {
			n := n.For(t)
			for place, to := range places {
				spoil(t, filepath.Join(b.Root, place), to)
			}
			program := start()
			program.Send("init")
			program.Send(fmt.Sprintf("alloc %d", 24*mib))
			program.Send(fmt.Sprintf("alloc %d", 16*mib))
			code, lines := program.Wait(time.Minute)
			if answers := strings.Join(lines, "\n"); answers != "" {
				if !strings.Contains(answers, fmt.Sprint("error ", outOfMemory)) {
					t.Errorf("it has run, and without its cap: code %d, %s", code, answers)
				}
			} else {
				n.Eventually(func() string { // what it said last may be read after its end
					if said := program.Stderr(); code == 0 || !strings.Contains(said, "run/weir") && !strings.Contains(said, "ld.so.preload") {
						return fmt.Sprintf("it has not run, and says %q", said)
					}
					return ""
				})
				if told := n.EventsOf(event, b.Name()); len(told) != 1 {
					t.Errorf("it has not run, and the events %s are %+v", event, told)
				}
			}
			left, err := os.ReadDir(outside)
			text, readErr := os.ReadFile(filepath.Join(outside, "kept"))
			if err != nil || readErr != nil || len(left) != 1 || string(text) != "kept" {
				t.Errorf("outside there is %v, %v, with %q, %v", left, err, text, readErr)
			}
		}
		t.Run(fmt.Sprint(places), func(t *testing.T) {
			b := n.For(t).Bundle(fmt.Sprintf("image%d", i), capped32, nil)
			hostile(t, b, b.Start, "unstarted")
		})
		t.Run(fmt.Sprint("hooks ", places), func(t *testing.T) {
			b := n.For(t).Bundle(fmt.Sprintf("hooked%d", i), capped32, hooked(t, n))
			hostile(t, b, func() *node.Program { return byRunc(t, n.For(t), b) },
				"ended") // it was registered before the image was looked at
		})
	}
}

// hooked gives a container the hooks by which it is injected where weir-runtime has no part.
func hooked(t *testing.T, n *node.Node) change {
	return func(s node.Spec) {
		hooks := node.Spec{}
		for stage, verb := range map[string]string{"createRuntime": "start", "createContainer": "inject", "poststop": "release"} {
			hooks[stage] = []any{oci.NewHook(stage, node.Build(t, "weir-hook"), verb, "--socket", n.ControlSocket())}
		}
		s["hooks"] = hooks
	}
}

// byRunc runs a bundle by runc itself.
func byRunc(t *testing.T, n *node.Node, b *node.Bundle) *node.Program {
	t.Helper()
	root := filepath.Join(n.Dir, "bare-runc")
	t.Cleanup(func() { _ = exec.Command("runc", "--root", root, "delete", "--force", b.Name()).Run() }) // it may be gone
	return n.Bare("runc", "--root", root, "run", "--bundle", b.Dir, b.Name())
}

// spoil puts a link, or a file, in the place of what is there.
func spoil(t *testing.T, path, to string) {
	t.Helper()
	err := os.RemoveAll(path)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil && to != "" {
		err = os.Symlink(to, path)
	} else if err == nil {
		err = os.WriteFile(path, []byte("a file"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
