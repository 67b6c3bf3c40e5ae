package session

// Tests of containers that a container runtime starts: their grants, their identity by control group,
// their beginnings and ends. The runtime is the test.

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/agent/config"
	"weir/agent/control"
	"weir/agent/control/ociapi"
	"weir/agent/session/sessiontest"
	"weir/oci"
	"weir/oci/policy"
)

// hooked makes the agent one that serves container runtimes.
func hooked(o *Options) { o.Hook = os.Args[0] } // any program

// asking is a container that asks for a cap.
func asking(id, memory string) ociapi.Container {
	return ociapi.Container{ID: id, Bundle: "/bundles/" + id, Name: id, Namespace: "default", Root: "/bundles/" + id + "/rootfs",
		Annotations: map[string]string{"weir/memory": memory}, Preload: "/image.so\n"}
}

// granted prepares a container.
func (b *bench) granted(asked ociapi.Container) oci.Grant {
	b.t.Helper()
	prepared, err := b.Prepare(b.t.Context(), asked)
	if err != nil || prepared.Grant == nil {
		b.t.Fatalf("%+v, %v", prepared, err)
	}
	return *prepared.Grant
}

// groups makes a directory for control groups, of a hierarchy that is used where there are several.
func groups(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root's agent serves container runtimes")
	}
	for _, hierarchy := range []string{"unified", "", "devices", "pids"} {
		dir := filepath.Join("/sys/fs/cgroup", hierarchy, "weir-test-"+strconv.Itoa(os.Getpid())+"-"+strings.ToLower(t.Name()))
		if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "cgroup.procs")); err != nil || os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { removeGroup(t, dir) })
		return dir
	}
	t.Skip("no control group can be made here")
	return ""
}

// removeGroup removes a control group once the kernel has seen its processes end.
func removeGroup(t *testing.T, dir string) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			return
		} else if time.Now().After(deadline) {
			t.Errorf("a control group is left: %v", err)
			return
		}
	}
}

// inGroup starts a process in a control group, which is made where it is missing.
func inGroup(t *testing.T, dir string) *sessiontest.Process {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err == nil {
		t.Cleanup(func() { removeGroup(t, dir) })
	}
	p := sessiontest.Start(t)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(p.PID())), 0); err != nil {
		t.Fatal(err)
	}
	return p
}

func (b *bench) register(grant oci.Grant, p *sessiontest.Process) {
	b.t.Helper()
	if err := b.Register(b.t.Context(), ociapi.Event{GrantID: grant.ID, PID: p.PID()}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) gone(grant oci.Grant) {
	b.t.Helper()
	b.eventually("the container is gone", func() bool {
		_, err := b.Container(b.t.Context(), grant.ID)
		_, dirErr := os.Stat(grant.SocketDir)
		return errors.Is(err, control.ErrNotFound) && errors.Is(dirErr, fs.ErrNotExist)
	})
}

func socketOf(grant oci.Grant) string { return filepath.Join(grant.SocketDir, "agent.sock") }

func TestRuntimeContainer(t *testing.T) {
	dir := groups(t)
	b := start(t, hooked)
	asked := asking("web", "4MiB")
	asked.Command = []string{"serve", "--port\x1b", strings.Repeat("x", 4096)}
	grant := b.granted(asked)
	if got := b.container(grant.ID).Command; len(got) != 3 || got[1] != "--port\x1b" || len(got[2]) > commandWordMax {
		t.Errorf("its command is %q", got)
	}
	if got := b.container(grant.ID).State; got != "prepared" {
		t.Errorf("before its start it is %s", got)
	}
	early := inGroup(t, filepath.Join(dir, "early"))
	if _, err := early.Do("hello %s", socketOf(grant)); err == nil {
		t.Error("a process was admitted before the container's first one")
	}
	first := inGroup(t, filepath.Join(dir, "web"))
	b.register(grant, first)
	first.Must("hello %s", socketOf(grant))
	first.Must("alloc 0 %d", 3*mib)
	second := inGroup(t, filepath.Join(dir, "web")) // as `ctr task exec` starts one: no child of the first
	second.Must("hello %s", socketOf(grant))
	if _, err := second.Do("alloc 0 %d", 2*mib); err == nil {
		t.Error("the cap does not hold for what is exec'd")
	}
	second.Must("alloc 0 %d", mib)
	b.wantEvent("denied")
	c := b.container(grant.ID)
	if c.Name != "web" || c.Namespace != "default" || c.Identity != "cgroup" || c.PID != first.PID() || c.State != "running" {
		t.Errorf("%+v", c)
	}
	for name, p := range map[string]*sessiontest.Process{"another group": early, "none": sessiontest.Start(t)} {
		if _, err := p.Do("hello %s", socketOf(grant)); err == nil {
			t.Errorf("a process of %s was admitted", name)
		}
	}
	b.wantEvent("refused", "is not in the container's control group")
	// Who else was to start from its bundle, and did not, says that it has ended.
	for _, event := range []ociapi.Event{{GrantID: grant.ID}, {Bundle: "/bundles/web"}} {
		if err := b.Release(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	third := inGroup(t, filepath.Join(dir, "web"))
	third.Must("hello %s", socketOf(grant))
	first.Kill()
	b.eventually("its end is told", func() bool { return b.hasEvent("ending", "2 of its processes live on") })
	if _, err := inGroup(t, filepath.Join(dir, "web")).Do("hello %s", socketOf(grant)); err == nil {
		t.Error("a process was admitted after the container's end")
	}
	b.eventually("what lives on is charged alone", func() bool { return b.used(grant.ID) == mib })
	second.Kill()
	third.Kill()
	b.gone(grant)
}

func TestGrantIsFurnished(t *testing.T) {
	groups(t)
	b := start(t, hooked)
	grant := b.granted(asking("web", "1GiB"))
	for path, want := range map[string]fs.FileMode{
		grant.SocketDir: fs.ModeDir | 0o711, socketOf(grant): fs.ModeSocket | 0o666, grant.PreloadFile: 0o644,
		grant.SocketDir + "/lib": fs.ModeDir | 0o755, grant.LibraryDir + "/libweir.so": 0o555,
	} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, info, err, want)
		}
	}
	text, err := os.ReadFile(grant.PreloadFile)
	if err != nil || string(text) != "/run/weir/lib/libweir.so\n/image.so\n" {
		t.Errorf("%q, %v", text, err)
	}
	if want := []oci.Device{{Path: "/dev/fake-1", Major: 1}, {Path: "/dev/fakectl", Major: 2}}; !cmp.Equal(grant.Devices, want) {
		t.Errorf("%v", grant.Devices)
	}
	for _, made := range []string{"lib", "ld.so.preload"} { // which an agent that was killed may not have come to
		if err := os.RemoveAll(filepath.Join(grant.SocketDir, made)); err != nil {
			t.Fatal(err)
		}
	}
	b.restart()
	if diff := cmp.Diff(grant, b.granted(asking("web", "1GiB"))); diff != "" {
		t.Errorf("asked again: %s", diff)
	}
	for _, made := range []string{"lib", "ld.so.preload"} {
		if _, err := os.Stat(filepath.Join(grant.SocketDir, made)); err != nil {
			t.Errorf("asked again: %v", err)
		}
	}
	fixed := asking("fixed", "1GiB")
	fixed.FixedImage = true
	if grant := b.granted(fixed); grant.PreloadFile != "" || !grant.FixedImage {
		t.Errorf("%+v", grant)
	}
	two := asking("two", "1GiB")
	two.Annotations["weir/count"] = "2"
	if grant := b.granted(two); len(grant.Devices) != 3 {
		t.Errorf("%v", grant.Devices)
	}
	served := asking("served", "1GiB")
	served.HasGPU = true
	if grant := b.granted(served); len(grant.Devices) != 0 {
		t.Errorf("%v", grant.Devices)
	}
	if _, err := oci.Edit([]byte("{}"), grant); err != nil {
		t.Error(err)
	}
}

// A driver that hangs holds up the container that needs its answer, and no other.
func TestPrepareUnderADriverThatHangs(t *testing.T) {
	dir := groups(t)
	b := start(t, hooked)
	grant := b.granted(asking("before", "4MiB"))
	slow := make(chan struct{})
	b.devices.slowly(slow)
	done := make(chan error, 1)
	both := asking("hangs", "4MiB")
	both.Annotations["weir/count"] = "2"
	go func() {
		_, err := b.Prepare(context.Background(), both)
		done <- err
	}()
	slow <- struct{}{} // of one GPU it has the nodes
	first := inGroup(t, filepath.Join(dir, "before"))
	b.register(grant, first)
	first.Must("hello %s", socketOf(grant))
	served := asking("served", "4MiB")
	served.HasGPU = true
	b.granted(served)
	select {
	case err := <-done:
		t.Errorf("it did not ask: %v", err)
	default:
	}
	b.devices.slowly(nil)
	close(slow)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestPrepareRefuses(t *testing.T) {
	groups(t)
	most := int64(8 << 30)
	b := start(t, hooked, func(o *Options) {
		o.Policy = policy.Policy{UnaskedGPU: config.UnaskedRefuse,
			Rules: []config.ContainerRule{{Namespace: "default", Image: "*", MemoryMax: &most}}}
	})
	unasked := asking("web", "")
	unasked.Annotations, unasked.HasGPU = nil, true
	relative := asking("web", "1GiB")
	relative.Bundle = "bundle"
	misnamed := asking("web", "1GiB")
	misnamed.Annotations["weir/memory.wbe"] = "2GiB"
	for want, asked := range map[string]ociapi.Container{
		`annotation "weir/memory": "x" is not a size`:   asking("web", "x"),
		`weir/memory: 9GiB is over the ceiling of 8GiB`: asking("web", "9GiB"),
		`unasked_gpu = "refuse"`:                        unasked,
		"want absolute paths":                           relative,
		"a container without id":                        {Bundle: "/b", Root: "/r", HasGPU: true},
		`there is no container "wbe"`:                   misnamed,
	} {
		if _, err := b.Prepare(t.Context(), asked); !errors.Is(err, control.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		b.wantEvent("start-refused", "not started: ", want)
	}
	hindered := asking("web", "1GiB")
	hindered.Obstacle = "its image cannot be read"
	if _, err := b.Prepare(t.Context(), hindered); !errors.Is(err, control.ErrInvalid) || !strings.Contains(err.Error(), hindered.Obstacle) {
		t.Error(err)
	}
	b.wantEvent("start-refused", "not started: its image cannot be read")
	hindered.Annotations = nil // it concerns weir no more
	if got, err := b.Prepare(t.Context(), hindered); err != nil || got.Grant != nil {
		t.Errorf("%+v, %v", got, err)
	}
	inPod := asking("web", "x")
	inPod.Pod = "web-0"
	if _, err := b.Prepare(t.Context(), inPod); err == nil {
		t.Error("a container of a pod is prepared")
	}
	b.wantEvent("start-refused", `not started in pod web-0: annotation "weir/memory": "x"`)
	shown, told := asking("shown", ""), b.number("start-refused")
	shown.Annotations, shown.AllDevices, shown.Bundle = nil, true, "bundle"
	if _, err := b.Prepare(t.Context(), shown); err == nil || b.number("start-refused") != told {
		t.Errorf("%v; one that starts all the same is said not to", err)
	}
	nothing := asking("web", "")
	nothing.Annotations = nil
	if got, err := b.Prepare(t.Context(), nothing); err != nil || got.Grant != nil || got.Reason != "" {
		t.Errorf("a container without a GPU: %+v, %v", got, err)
	}
	if list, err := b.Containers(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("left are %v, %v", list, err)
	}
}

// Without weir-hook those that would start with it are refused, with what is missing and what to do; others are not.
func TestNoHook(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "text"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for hook, want := range map[string]string{
		"":            "the agent has found no weir-hook beside its own program; ",
		dir + "/hook": "is missing: stat " + dir + "/hook: no such file or directory; ",
		dir:           "is missing: " + dir + " is no program; ",
		dir + "/text": "is missing: " + dir + "/text is no program; ",
	} {
		b := start(t, func(o *Options) { o.Hook = hook })
		_, err := b.Prepare(t.Context(), asking("web", "1GiB"))
		if !errors.Is(err, control.ErrUnsupported) || !strings.Contains(err.Error(), want+"install all of weir's programs in one directory") {
			t.Errorf("%q: %v", hook, err)
		}
		gpu := asking("gpu", "")
		gpu.Annotations, gpu.HasGPU = nil, true
		if _, err := b.Prepare(t.Context(), gpu); err != nil {
			t.Errorf("%q: what passes as it is: %v", hook, err)
		}
		if list, err := b.Containers(t.Context()); err != nil || len(list) > 0 {
			t.Errorf("left are %v, %v", list, err)
		}
	}
}

// A container's memory reports show what its annotation asks for.
func TestReportAnnotation(t *testing.T) {
	groups(t)
	b := start(t, hooked)
	for report, want := range map[string]string{"": "cap", "cap": "cap", "virtual": "virtual"} {
		asked := asking("report"+report, "4MiB")
		asked.Annotations["weir/swap"] = "8MiB"
		if report != "" {
			asked.Annotations["weir/report"] = report
		}
		grant := b.granted(asked)
		if c := b.container(grant.ID); c.Report != want || *c.Caps.SwapBytes != 8*mib {
			t.Errorf("%q: report %q, %+v", report, c.Report, c.Caps)
		}
	}
	if got := b.number("unenforced"); got != 0 {
		t.Errorf("of what is enforced there are %d events", got)
	}
}

// What a container asked for and nothing does yet is one event that names it, and what holds is none.
func TestUnenforcedAnnotations(t *testing.T) {
	groups(t)
	b := start(t, hooked)
	asked := asking("quiet", "4MiB")
	asked.Annotations["weir/swap"] = "off"
	b.granted(asked)
	if got := b.number("unenforced"); got != 0 {
		t.Errorf("of what is enforced there are %d events", got)
	}
	asked = asking("web", "4MiB")
	asked.Annotations["weir/swap"], asked.Annotations["weir/affinity"], asked.Annotations["weir/task"] = "8MiB", "a", "b"
	b.granted(asked)
	b.wantEvent("unenforced", "weir/affinity, weir/task: accepted, but without effect in this version")
	if got := b.number("unenforced"); got != 1 {
		t.Errorf("there are %d events", got)
	}
}

func TestUnaskedPassesAndIsShown(t *testing.T) {
	groups(t)
	b := start(t, hooked)
	unasked := asking("web", "")
	unasked.Annotations, unasked.HasGPU = nil, true
	got, err := b.Prepare(t.Context(), unasked)
	if err != nil || got.Grant != nil || got.Reason == "" {
		t.Errorf("%+v, %v", got, err)
	}
	b.wantEvent("unenforced", "started without a cap")
	privileged := asking("proxy", "")
	privileged.Annotations, privileged.AllDevices = nil, true
	if got, err := b.Prepare(t.Context(), privileged); err != nil || got.Grant != nil || got.Reason != policy.AllDevicesReason {
		t.Errorf("%+v, %v", got, err)
	}
	b.wantEvent("unenforced", "started without a cap: it may use all devices")
}

func TestRegisterRefuses(t *testing.T) {
	dir := groups(t)
	b := start(t, hooked)
	grant := b.granted(asking("web", "1GiB"))
	bare := sessiontest.Start(t)
	if err := b.Register(t.Context(), ociapi.Event{GrantID: grant.ID, PID: bare.PID()}); err == nil {
		t.Error("a process in the agent's own control group was taken for a container")
	}
	if err := b.Register(t.Context(), ociapi.Event{GrantID: grant.ID, PID: 1 << 22}); err == nil {
		t.Error("a process that is not there was registered")
	}
	if err := b.Register(t.Context(), ociapi.Event{GrantID: "0123", PID: bare.PID()}); !errors.Is(err, control.ErrNotFound) {
		t.Errorf("%v", err)
	}
	first := inGroup(t, filepath.Join(dir, "web"))
	b.register(grant, first)
	if err := b.Register(t.Context(), ociapi.Event{Bundle: "/bundles/web", PID: bare.PID()}); !errors.Is(err, control.ErrConflict) {
		t.Errorf("%v", err)
	}
	beside := b.granted(asking("beside", "1GiB"))
	both := inGroup(t, filepath.Join(dir, "web"))
	err := b.Register(t.Context(), ociapi.Event{GrantID: beside.ID, PID: both.PID()})
	if err == nil || !strings.Contains(err.Error(), "is that of container web, too; give each container one of its own") {
		t.Errorf("two containers in one control group: %v", err)
	}
	b.register(b.granted(asking("again", "1GiB")), first) // by a plugin that knows another bundle
	second := asking("web", "1GiB")                       // which hooks ask about, of a container that was made from a running one's bundle
	second.PID = bare.PID()
	if _, err := b.Prepare(t.Context(), second); !errors.Is(err, control.ErrConflict) {
		t.Errorf("%v", err)
	}
	run := b.run(mib)
	if err := b.Release(t.Context(), ociapi.Event{GrantID: run.ID}); err != nil {
		t.Error(err)
	}
	if got := b.container(run.ID).State; got != "running" {
		t.Errorf("a container of weir run was released: %s", got)
	}
}

// The end of the first process is the container's, whether or not a hook tells of it.
func TestFirstProcessEnds(t *testing.T) {
	dir := groups(t)
	b := start(t, hooked)
	grant := b.granted(asking("web", "4MiB"))
	first := inGroup(t, filepath.Join(dir, "web"))
	b.register(grant, first)
	first.Must("hello %s", socketOf(grant))
	first.Kill()
	b.gone(grant)
	if b.hasEvent("ending") {
		t.Error("processes are said to live on that have ended")
	}
	again := b.granted(asking("web", "4MiB")) // the same bundle, as after a restart policy's restart
	if again.ID == grant.ID {
		t.Error("an ended container's grant was given again")
	}
}

// A container that is started again before the agent has been told of its predecessor's end gets a grant of its own.
func TestStartedAgainAtOnce(t *testing.T) {
	dir := groups(t)
	b := start(t, hooked)
	grant := b.granted(asking("web", "4MiB"))
	first := inGroup(t, filepath.Join(dir, "web"))
	b.register(grant, first)
	b.watcher.remove(b.containers[grant.ID].rootMark) // nobody tells
	first.Kill()
	again := b.granted(asking("web", "4MiB"))
	if again.ID == grant.ID {
		t.Fatal("it was given the grant of a container that has ended")
	}
	next := inGroup(t, filepath.Join(dir, "web"))
	b.register(again, next)
	next.Must("hello %s", socketOf(again))
	next.Must("alloc 0 %d", mib)
}

func TestUnstartedIsGivenUp(t *testing.T) {
	groups(t)
	var ahead atomic.Int64
	b := start(t, hooked, func(o *Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	grant := b.granted(asking("web", "4MiB"))
	b.dropUnstarted()
	b.container(grant.ID)
	ahead.Store(int64(startWait + time.Second))
	b.gone(grant)
	b.wantEvent("unstarted")
	if err := b.Register(t.Context(), ociapi.Event{GrantID: grant.ID, PID: os.Getpid()}); !errors.Is(err, control.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// What a start that failed has asked for is not what the next one from the same bundle gets.
func TestNextStartAsksAnew(t *testing.T) {
	groups(t)
	b := start(t, hooked)
	first := b.granted(asking("web", "1GiB"))
	next := asking("web", "2GiB")
	next.Preload = "/other.so\n"
	second := b.granted(next)
	text, err := os.ReadFile(second.PreloadFile)
	if err != nil || !strings.HasSuffix(string(text), "/other.so\n") {
		t.Errorf("%q, %v", text, err)
	}
	if got := *b.container(second.ID).Caps.MemoryBytes; got != 2<<30 {
		t.Errorf("its cap is %d bytes", got)
	}
	b.gone(first)
	b.wantEvent("unstarted")
	b.restart()
	refused := asking("web", "1TiB")
	if _, err := b.Prepare(t.Context(), refused); !errors.Is(err, control.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

func TestFailedStartIsGivenUpAtOnce(t *testing.T) {
	groups(t)
	b := start(t, hooked)
	asked := asking("web", "4MiB")
	asked.Bundle = t.TempDir()
	grant := b.granted(asked)
	other := b.granted(asking("other", "4MiB")) // its bundle was never to be seen
	b.dropUnstarted()
	b.container(grant.ID)
	if err := os.Remove(asked.Bundle); err != nil {
		t.Fatal(err)
	}
	b.gone(grant)
	b.container(other.ID)
}

// A runtime that gives a start up says that the container has ended: it has never begun.
func TestFailedStartIsReleased(t *testing.T) {
	groups(t)
	b := start(t, hooked)
	grant := b.granted(asking("web", "4MiB"))
	if err := b.Release(t.Context(), ociapi.Event{GrantID: grant.ID}); err != nil {
		t.Fatal(err)
	}
	b.wantEvent("unstarted", "its start has failed")
	b.gone(grant)
}

// A new agent goes on with containers in each state, and releases what has ended meanwhile.
func TestRuntimeContainersSurvive(t *testing.T) {
	dir := groups(t)
	b := start(t, hooked)
	grants := map[string]oci.Grant{}
	processes := map[string]*sessiontest.Process{}
	for _, name := range []string{"prepared", "running", "ended"} {
		grants[name] = b.granted(asking(name, "4MiB"))
		processes[name] = inGroup(t, filepath.Join(dir, name))
	}
	for _, name := range []string{"running", "ended"} {
		b.register(grants[name], processes[name])
	}
	running := processes["running"]
	running.Must("hello %s", socketOf(grants["running"]))
	running.Must("alloc 0 %d", 3*mib)
	b.end()
	processes["ended"].Kill()
	b.begin()
	b.gone(grants["ended"])
	running.Must("again")
	if _, err := running.Do("alloc 0 %d", 2*mib); err == nil {
		t.Error("the cap does not hold after the restart")
	}
	exec := inGroup(t, filepath.Join(dir, "running"))
	exec.Must("hello %s", socketOf(grants["running"]))
	if diff := cmp.Diff(grants["prepared"], b.granted(asking("prepared", "4MiB"))); diff != "" {
		t.Error(diff)
	}
	b.register(grants["prepared"], processes["prepared"])
	processes["prepared"].Must("hello %s", socketOf(grants["prepared"]))
}

// One container's process at another's socket, and one that moves to another control group.
func TestStrangersAtTheSocket(t *testing.T) {
	dir := groups(t)
	b := start(t, hooked)
	one, other := b.granted(asking("one", "4MiB")), b.granted(asking("other", "4MiB"))
	inOne, inOther := inGroup(t, filepath.Join(dir, "one")), inGroup(t, filepath.Join(dir, "other"))
	b.register(one, inOne)
	b.register(other, inOther)
	if _, err := inOne.Do("hello %s", socketOf(other)); err == nil {
		t.Error("a process was admitted to another's container")
	}
	inOne.Must("hello %s", socketOf(one))
	inOne.Must("alloc 0 %d", mib)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(inOne.PID())), 0); err != nil {
		t.Fatal(err)
	}
	b.round()
	b.wantEvent("left")
	if got := b.used(one.ID); got != mib {
		t.Errorf("who has left holds %d", got)
	}
}

// The hook that injects by itself finds a note, for as long as the container is there.
func TestNoteForTheHook(t *testing.T) {
	dir := groups(t)
	b := start(t, hooked)
	first := inGroup(t, filepath.Join(dir, "web"))
	asked := asking("web", "4MiB")
	asked.PID = first.PID()
	grant := b.granted(asked)
	note := ociapi.NotePath(b.opts.RunDir, asked.Bundle)
	if info, err := os.Stat(note); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
	first.Must("hello %s", socketOf(grant))
	b.restart()
	if _, err := os.Stat(note); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	first.Kill()
	b.gone(grant)
	if _, err := os.Stat(note); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a note is left: %v", err)
	}
}

// The note is the next container's where the bundle is, as long as something of the one before lives on.
func TestNoteOfTheNextContainer(t *testing.T) {
	dir := groups(t)
	b := start(t, hooked)
	started := func(group string) (oci.Grant, *sessiontest.Process) {
		p := inGroup(t, filepath.Join(dir, group))
		asked := asking("web", "4MiB")
		asked.PID = p.PID()
		return b.granted(asked), p
	}
	before, first := started("before")
	straggler := inGroup(t, filepath.Join(dir, "before"))
	straggler.Must("hello %s", socketOf(before))
	first.Kill()
	b.eventually("the first process has ended", func() bool { return b.hasEvent("ending") })
	next, _ := started("next")
	straggler.Kill()
	b.gone(before)
	text, err := os.ReadFile(ociapi.NotePath(b.opts.RunDir, "/bundles/web"))
	if err != nil || !strings.Contains(string(text), next.ID) {
		t.Errorf("the note of container %s is %q, %v", next.ID, text, err)
	}
}
