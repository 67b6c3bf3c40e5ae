package session

// Tests of containers that are prepared long before they start.

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/agent/config"
	"weir/agent/control/ociapi"
	"weir/oci"
)

// earlyAsking is as a plugin asks when nothing of the container is there yet.
func earlyAsking(id string) ociapi.Container {
	asked := asking(id, "4MiB")
	asked.Preload, asked.ReadImage, asked.Early = "", true, true
	return asked
}

func TestEarlyContainerIsKept(t *testing.T) {
	dir := groups(t)
	var ahead atomic.Int64
	b := start(t, hooked, func(o *Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	grant, removed := b.granted(earlyAsking("web")), b.granted(earlyAsking("removed"))
	b.granted(asking("other", "4MiB"))
	if !grant.ReadImage {
		t.Errorf("%+v", grant)
	}
	ahead.Store(int64(startWait + time.Second))
	b.dropUnstarted()
	b.container(grant.ID)
	want := map[string]string{"web": grant.ID, "removed": removed.ID}
	if early, err := b.Early(t.Context()); err != nil || !maps.Equal(early.Grants, want) {
		t.Errorf("%v, %v", early, err)
	}
	if err := b.Release(t.Context(), ociapi.Event{Bundle: "/bundles/removed"}); err != nil {
		t.Error(err)
	}
	b.gone(removed)
	// The merged file is the mounted one: the same before and after.
	before, err := os.Open(grant.PreloadFile)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	image := "/image.so\n"
	first := inGroup(t, filepath.Join(dir, "web"))
	event := ociapi.Event{GrantID: grant.ID, PID: first.PID(), Preload: &image}
	if err := b.Register(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 100)
	if n, _ := before.Read(text); string(text[:n]) != grant.Library()+"\n/image.so\n" {
		t.Errorf("it has become %q", text[:n])
	}
	if err := b.Register(t.Context(), event); err != nil {
		t.Errorf("registered by a second hook: %v", err)
	}
	first.Must("hello %s", socketOf(grant))
	if early, err := b.Early(t.Context()); err != nil || len(early.Grants) > 0 {
		t.Errorf("%v, %v", early, err)
	}
}

// A container whose image was read when it was prepared keeps what was found then.
func TestPreloadIsToldOnce(t *testing.T) {
	dir := groups(t)
	b := start(t, hooked)
	grant := b.granted(asking("web", "4MiB"))
	other := "/other.so\n"
	event := ociapi.Event{GrantID: grant.ID, PID: inGroup(t, filepath.Join(dir, "web")).PID(), Preload: &other}
	if err := b.Register(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(grant.PreloadFile); err != nil || string(text) != grant.Library()+"\n/image.so\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// A container that was made runs only with what was prepared for it, and for it alone.
func TestStartOfWhatWasMade(t *testing.T) {
	dir := groups(t)
	b := start(t, hooked)
	web, wrapped := b.granted(earlyAsking("web")), b.granted(asking("wrapped", "4MiB"))
	gpu := earlyAsking("gpu")
	gpu.Annotations, gpu.HasGPU = nil, true
	check := func(what string, asked ociapi.Container, mounted, want string) {
		t.Helper()
		err := b.Start(t.Context(), ociapi.Start{Container: asked, Mounted: mounted})
		if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for range 2 { // prepared, then registered
		check("with its own directory", earlyAsking("web"), web.SocketDir, "")
		check("without", earlyAsking("web"), "", "plugin was away")
		check("with another's", earlyAsking("web"), wrapped.SocketDir, "plugin was away")
		check("by weir-runtime", asking("wrapped", "4MiB"), "", "")
		check("one that nobody asked about, with another's", earlyAsking("late"), web.SocketDir, "plugin was away")
		check("with a GPU, unasked, and it passes", gpu, "", "")
		check("with a bad annotation", asking("bad", "x"), web.SocketDir, `annotation "weir/memory": `)
		for id, grant := range map[string]oci.Grant{"web": web, "wrapped": wrapped} {
			if b.container(grant.ID).PID == 0 {
				b.register(grant, inGroup(t, filepath.Join(dir, id)))
			}
		}
	}
	b.wantEvent("start-refused", "not started: it was made while weir's plugin was away")
	for _, what := range []string{config.UnaskedDefault, config.UnaskedRefuse} {
		b := start(t, hooked, func(o *Options) { o.Policy.UnaskedGPU = what })
		want := map[string]string{config.UnaskedDefault: "plugin was away", config.UnaskedRefuse: "unasked_gpu"}[what]
		if err := b.Start(t.Context(), ociapi.Start{Container: gpu}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a GPU that nobody asked for, by the policy %s: %v", what, err)
		}
		if early, err := b.Early(t.Context()); err != nil || len(early.Grants) > 0 {
			t.Errorf("prepared are %v, %v", early, err)
		}
	}
}

// A container that was missed is told once, and shown as soon as its runtime tells of it.
func TestMissedContainer(t *testing.T) {
	dir := groups(t)
	b := start(t, hooked)
	b.register(b.granted(earlyAsking("web")), inGroup(t, filepath.Join(dir, "web")))
	b.granted(earlyAsking("missed"))
	process := inGroup(t, filepath.Join(dir, "missed"))
	tell := func() {
		t.Helper()
		for _, id := range []string{"web", "missed"} {
			missed := ociapi.Container{ID: id, Name: id, Namespace: "default", Bundle: tasks + "k8s.io/" + id, PID: process.PID()}
			if err := b.Missed(t.Context(), missed); err != nil {
				t.Error(err)
			}
		}
	}
	tell()
	b.told(ociapi.Listed{Key: ociapi.Key{Namespace: "k8s.io", ID: "missed"}, Name: "missed", PodNamespace: "default",
		PID: process.PID(), Running: true})
	tell()
	if got := b.lists(); !slices.Equal(got, []string{"default/missed: " + missedReason}) {
		t.Errorf("%q", got)
	}
	events, err := b.Events(t.Context(), 0, false)
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, e := range events {
		if e.Type == "unenforced" {
			named = append(named, e.Container)
		}
	}
	if !slices.Equal(named, []string{"missed"}) {
		t.Errorf("not enforced: %q", named)
	}
}
