package session

// Tests of what is told of a container runtime's containers: what is kept of it, and what follows from it.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/agent/config"
	"weir/agent/containerd"
	"weir/agent/control"
	"weir/agent/control/ociapi"
	"weir/agent/session/sessiontest"
	"weir/oci/policy"
)

const tasks = "/run/containerd/io.containerd.runtime.v2.task/"

// told has a helper tell that these are all containers there are.
func (b *bench) told(list ...ociapi.Listed) {
	b.t.Helper()
	again, err := b.Listing(b.t.Context(), ociapi.Listing{Runtime: "containerd at /c.sock", Generation: 1, Begin: true,
		End: true, Containers: list})
	if again || err != nil {
		b.t.Fatalf("%v, %v", again, err)
	}
}

// lists are the names and reasons of the containers that weir has no part in.
func (b *bench) lists() (names []string) {
	b.t.Helper()
	list, err := b.Containers(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range list {
		if c.Identity == "" && !c.Enforced {
			names = append(names, c.Namespace+"/"+c.Name+": "+c.Reason)
		}
	}
	return names
}

// number is how many events there are of a type.
func (b *bench) number(kind string) (number int) {
	for _, e := range b.events.Since(0) {
		if e.Type == kind {
			number++
		}
	}
	return number
}

func key(id string) ociapi.Key { return ociapi.Key{Namespace: "default", ID: id} }

func TestUncappedContainers(t *testing.T) {
	b := start(t, hooked)
	gpu, asks, plain, proxy := sessiontest.Start(t), sessiontest.Start(t), sessiontest.Start(t), sessiontest.Start(t)
	all := []ociapi.Listed{
		{Key: key("gpu"), Name: "main", PodNamespace: "team-a", Pod: "web-0", PID: gpu.PID(), Running: true, HasGPU: true,
			Image: "i:1", Command: []string{"serve"}, Labels: map[string]string{"a": "b"}, Created: time.Unix(1, 0)},
		{Key: key("asks"), PID: asks.PID(), Running: true, Asks: map[string]string{"weir/memory": "1GiB", "weir/gpu": "0"},
			Created: time.Unix(2, 0)},
		{Key: key("proxy"), PID: proxy.PID(), Running: true, AllDevices: true, Created: time.Unix(3, 0)},
		{Key: key("plain"), PID: plain.PID(), Running: true},
		{Key: key("created"), PID: plain.PID(), HasGPU: true},
	}
	b.told(all...)
	b.told(all...) // tells nothing new
	want := []string{
		"team-a/main: it has a GPU and no annotation of weir's",
		"default/asks: it asks for weir/gpu, weir/memory, but weir had no part in its start: start it again with weir's runtime " +
			"(ctr: --runc-binary weir-runtime, pods: runtimeClassName weir)",
		"default/proxy: it may use all devices of the node, GPUs too (privileged), and has no annotation of weir's",
	}
	if diff := cmp.Diff(want, b.lists()); diff != "" {
		t.Error(diff)
	}
	b.wantEvent("unenforced", "runs without a cap: it has a GPU")
	if got := b.number("unenforced"); got != 3 {
		t.Errorf("%d events", got)
	}
	c := b.container("team-a/main")
	if c.ID != "gpu" || c.RuntimeID != "gpu" || c.Pod != "web-0" || c.Image != "i:1" || c.Labels["a"] != "b" ||
		c.PID != gpu.PID() || len(c.Command) != 1 || c.Command[0] != "serve" || c.State != "running" || c.Identity != "" || !c.Started.Equal(time.Unix(1, 0)) {
		t.Errorf("%+v", c)
	}
	limit := int64(mib)
	_, err := b.ChangeCaps(t.Context(), "main", control.CapsChange{Set: control.Caps{MemoryBytes: &limit}})
	if !errors.Is(err, control.ErrUnsupported) || !strings.Contains(err.Error(), "container main is not weir's: it has a GPU") {
		t.Errorf("%v", err)
	}
	asks.Kill() // seen at once, whether or not the runtime tells
	if got := b.lists(); len(got) != 2 {
		t.Errorf("%q", got)
	}
	all[0].Running, all[2].Running = false, false
	b.told(all...)
	if got := b.lists(); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// What the agent has let through itself is said once, with its own reason.
func TestPassedContainers(t *testing.T) {
	b := start(t, hooked)
	p := sessiontest.Start(t)
	asked := ociapi.Container{ID: "web", Bundle: tasks + "default/web", Name: "web", Namespace: "default", Root: "/r", HasGPU: true}
	if prepared, err := b.Prepare(t.Context(), asked); err != nil || prepared.Grant != nil {
		t.Fatalf("%+v, %v", prepared, err)
	}
	b.told(ociapi.Listed{Key: key("web")})
	b.told(ociapi.Listed{Key: key("web"), PID: p.PID(), Running: true}) // its GPU is NVIDIA's runtime's, which only the wrapper knows
	if diff := cmp.Diff([]string{"default/web: " + policy.UnaskedReason}, b.lists()); diff != "" {
		t.Error(diff)
	}
	if got := b.number("unenforced"); got != 1 {
		t.Errorf("%d events", got)
	}
	b.told()
	b.told(ociapi.Listed{Key: key("web"), PID: p.PID(), Running: true}) // another one of the same name
	if got := b.lists(); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

func TestUncappedUnderAnotherPolicy(t *testing.T) {
	b := start(t, hooked, func(o *Options) { o.Policy.UnaskedGPU = config.UnaskedRefuse })
	p := sessiontest.Start(t)
	b.told(ociapi.Listed{Key: key("web"), PID: p.PID(), Running: true, HasGPU: true})
	if got := b.lists(); len(got) != 1 || !strings.Contains(got[0], "it has a GPU, and weir had no part in its start") {
		t.Errorf("%q", got)
	}
}

// What weir has is not shown as uncapped, and more of it is known.
func TestWhatWeirHasIsListed(t *testing.T) {
	dir := groups(t)
	b := start(t, hooked)
	asked := asking("web", "4MiB")
	asked.Bundle = tasks + "default/web"
	grant := b.granted(asked)
	first := inGroup(t, filepath.Join(dir, "web"))
	b.register(grant, first)
	listed := ociapi.Listed{Key: key("web"), Image: "i:1", PID: first.PID(), Running: true,
		Asks: map[string]string{"weir/memory": "4MiB"}, Labels: map[string]string{"a": "b"}}
	for range 2 {
		b.told(listed)
		if c := b.container(grant.ID); c.Name != "web" || c.Image != "i:1" || c.RuntimeID != "web" || c.Labels["a"] != "b" {
			t.Errorf("%+v", c)
		}
		listed.Key.Namespace = "renamed" // its process is still that of the container
		b.told(listed)
		if got := b.lists(); len(got) != 0 {
			t.Errorf("%q", got)
		}
		listed.Key.Namespace = "default"
		b.restart()
		if c := b.container(grant.ID); c.Name != "web" || c.Image != "" {
			t.Errorf("%+v", c)
		}
	}
}

// One that was prepared and then removed never starts, however long its bundle stays.
func TestRemovedBeforeItsStart(t *testing.T) {
	b := start(t, hooked)
	asked := asking("web", "4MiB")
	asked.Bundle = tasks + "default/web"
	b.told() // of what is being made the runtime may tell later
	grant := b.granted(asked)
	b.told()
	if got := b.container(grant.ID).State; got != "prepared" {
		t.Error(got)
	}
	b.told(ociapi.Listed{Key: key("web")})
	b.told()
	b.gone(grant)
	b.wantEvent("unstarted", "its runtime has removed it")
}

// A rule by image holds for containers of ctr, whose image only the container runtime tells. While it does not, the
// strictest rule by image holds.
func TestRulesByImageOfListed(t *testing.T) {
	memory, strict := int64(3*mib), int64(mib)
	b := start(t, hooked, func(o *Options) {
		o.Policy.Rules = []config.ContainerRule{{Namespace: "*", Image: "*/trainer:*", Memory: &memory},
			{Namespace: "*", Image: "*/untrusted:*", MemoryMax: &strict}}
	})
	asked := ociapi.Container{ID: "box", Bundle: tasks + "default/box", Name: "box", Namespace: "default", Root: "/r",
		Annotations: map[string]string{"weir/weight": "2"}}
	capOf := func(id string, early bool) *int64 {
		asked.ID, asked.Name, asked.Bundle = id, id, tasks+"default/"+id
		listed := ociapi.Listed{Key: key(id), Image: "reg.example/trainer:7"}
		if early {
			b.told(listed)
		} else {
			timer := time.AfterFunc(20*time.Millisecond, func() { b.told(listed) })
			defer timer.Stop()
		}
		return b.container(b.granted(asked).ID).Caps.MemoryBytes
	}
	// The first comes before the agent has been told of anything, as after its start.
	for _, test := range []struct {
		id    string
		early bool
	}{{"first", false}, {"early", true}, {"late", false}} {
		if got := capOf(test.id, test.early); got == nil || *got != memory {
			t.Errorf("%s: %v", test.id, got)
		}
	}
	if c := b.container("early"); c.Image != "reg.example/trainer:7" {
		t.Errorf("%+v", c)
	}
	strictly := func(id string) {
		t.Helper()
		asked.ID, asked.Name, asked.Bundle = id, id, tasks+"default/"+id
		if got := b.container(b.granted(asked).ID).Caps.MemoryBytes; got == nil || *got != strict {
			t.Errorf("%s: %v", id, got)
		}
		b.wantEvent("prepared", "its image is not known, so the strictest of the rules by image")
	}
	strictly("never")
	// What was known of another container of the same name is not believed.
	b.told(ociapi.Listed{Key: key("again"), Image: "reg.example/trainer:7"})
	if _, err := b.Listing(t.Context(), ociapi.Listing{Lost: "its shim hangs"}); err != nil {
		t.Fatal(err)
	}
	strictly("again")
	asked.ID, asked.Bundle, asked.Annotations = "more", tasks+"default/more", map[string]string{"weir/memory": "2MiB"}
	if _, err := b.Prepare(t.Context(), asked); !errors.Is(err, control.ErrInvalid) ||
		!strings.Contains(err.Error(), "2MiB is over 1MiB, the lowest ceiling") {
		t.Errorf("%v", err)
	}
	asked.Image = "reg.example/trainer:7" // as the CRI writes into the specification
	if _, err := b.Prepare(t.Context(), asked); err != nil {
		t.Errorf("of the CRI: %v", err)
	}
}

func TestRuntimeIsLostAndFound(t *testing.T) {
	b := start(t)
	lost := ociapi.Listing{Lost: "connection refused"}
	for range 2 {
		if again, err := b.Listing(t.Context(), lost); again || err != nil {
			t.Fatal(again, err)
		}
	}
	if got := b.number("runtime"); got != 0 {
		t.Errorf("%d events of one that was never there", got)
	}
	p := sessiontest.Start(t)
	b.told(ociapi.Listed{Key: key("web"), PID: p.PID(), Running: true, HasGPU: true})
	b.wantEvent("runtime", "containerd at /c.sock is there")
	for range 2 {
		b.Listing(t.Context(), lost)
	}
	b.wantEvent("runtime", "containerd at /c.sock cannot be asked any more", "connection refused")
	if got := b.lists(); len(got) != 1 {
		t.Errorf("what was known is forgotten: %q", got)
	}
	if again, err := b.Listing(t.Context(), ociapi.Listing{Generation: 1}); !again || err != nil {
		t.Errorf("a change to what may have changed meanwhile was taken: %v, %v", again, err)
	}
	b.told()
	if got := b.number("runtime"); got != 3 {
		t.Errorf("%d events", got)
	}
}

func TestListingsOfNonsense(t *testing.T) {
	b := start(t)
	long := strings.Repeat("x", ociapi.NameBytesMax+1)
	for _, c := range []ociapi.Listed{
		{}, {Key: key("")}, {Key: key(long)}, {Key: key("a"), Image: long}, {Key: key("a"), PID: -1},
		{Key: key("a"), Running: true},
	} {
		m := ociapi.Listing{Generation: 1, Begin: true, End: true, Containers: []ociapi.Listed{c}}
		if _, err := b.Listing(t.Context(), m); !errors.Is(err, control.ErrInvalid) {
			t.Errorf("%.100v: %v", c, err)
		}
	}
	var many []ociapi.Listed
	for i := range ociapi.ListedMax {
		many = append(many, ociapi.Listed{Key: key(fmt.Sprint(i))})
	}
	b.told(many...)
	m := ociapi.Listing{Generation: 1, Containers: []ociapi.Listed{{Key: key("more")}}}
	if _, err := b.Listing(t.Context(), m); !errors.Is(err, control.ErrInvalid) {
		t.Errorf("%v", err)
	}
	b.told(ociapi.Listed{Key: key("a"), PID: os.Getpid() + 1<<22, Running: true, HasGPU: true}) // no such process
	if got := b.lists(); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// Whatever changes are told, in however many messages, and whichever get lost: once no more is asked for,
// the agent has what the helper has.
func TestListedIsWhatWasTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, told := newListed(), map[ociapi.Key]ociapi.Listed(nil)
		generation := uint64(0)
		for step := range rapid.IntRange(1, 30).Draw(t, "steps") {
			now := map[ociapi.Key]ociapi.Listed{}
			for i := range rapid.IntRange(0, 20).Draw(t, "containers") {
				id := rapid.StringMatching("[a-z]").Draw(t, "id")
				now[key(id)] = ociapi.Listed{Key: key(id), PID: rapid.IntRange(0, 2).Draw(t, "pid"),
					Labels: map[string]string{"x": strings.Repeat("y", 200*i)}}
			}
			messages := containerd.Changes(told, now)
			if whole := rapid.Bool().Draw(t, "whole"); whole || generation == 0 {
				generation, messages = uint64(step+1), containerd.Whole(now)
			}
			asked := false
			for _, m := range messages {
				m.Generation = generation
				if rapid.IntRange(0, 9).Draw(t, "luck") == 0 {
					l.take(ociapi.Listing{Lost: "x"})
				}
				_, _, again, err := l.take(m)
				if err != nil {
					t.Fatal(err)
				}
				asked = asked || again
			}
			told = now
			if asked {
				generation = 0
				continue
			}
			if all, current := l.copied(); current && len(messages) > 0 {
				if diff := cmp.Diff(now, all); diff != "" {
					t.Fatal(diff)
				}
			}
		}
	})
}
