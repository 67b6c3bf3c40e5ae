package session

// Tests of the driver's own limits as a backstop: when they are set, to what, and that none is left.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"weir/agent/control"
	"weir/agent/session/sessiontest"
	"weir/oci"
)

// fakeLimits is a driver that holds limits.
type fakeLimits struct {
	mu    sync.Mutex
	holds map[string]int64 // by GPU and directory
	asked []int64          // on GPU 0
	err   error
	stuck chan struct{}     // if not nil, a change takes until it is closed
	watch func(bytes int64) // if not nil, called at each change on GPU 0
}

func (f *fakeLimits) SetMemoryLimit(gpu, directory string, bytes int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if stuck := f.stuck; stuck != nil {
		f.mu.Unlock()
		<-stuck
		f.mu.Lock()
	}
	if gpu == uuid(0) {
		f.asked = append(f.asked, bytes)
		if f.watch != nil {
			f.watch(bytes)
		}
	}
	if f.err != nil {
		return f.err
	}
	if _, err := os.Stat(directory); bytes >= 0 && err != nil {
		return err
	}
	if f.holds == nil {
		f.holds = make(map[string]int64)
	}
	f.holds[gpu+directory] = bytes
	if bytes < 0 {
		delete(f.holds, gpu+directory)
	}
	return nil
}

func (f *fakeLimits) of(gpu int, directory string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if bytes, there := f.holds[uuid(gpu)+directory]; there {
		return bytes
	}
	return noLimit
}

// fail has all changes fail from now on, or none.
func (f *fakeLimits) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeLimits) changes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

func limited(f *fakeLimits) func(*Options) { return func(o *Options) { hooked(o); o.Limits = f } }

// unified mounts control groups of version 2 for a test, and makes one in them.
func unified(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount control groups")
	}
	at := t.TempDir()
	if err := unix.Mount("none", at, "cgroup2", 0, ""); err != nil {
		t.Skipf("control groups of version 2 cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(at, "weir-test-"+strconv.Itoa(os.Getpid())+"-"+strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-"))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeGroup(t, dir) })
	return dir
}

// sameGroup is whether two directories are one control group, which may be mounted twice.
func sameGroup(t *testing.T, a, b string) bool {
	t.Helper()
	one, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.Stat(b)
	return err == nil && one.Sys() != nil && os.SameFile(one, other)
}

// inUnified starts a capped container in a control group of version 2, and finds by which directory the
// agent knows it.
func (b *bench) inUnified(dir, memory string) (grant oci.Grant, first *sessiontest.Process, directory string) {
	b.t.Helper()
	name := filepath.Base(dir)
	grant = b.granted(asking(name, memory))
	first = inGroup(b.t, dir)
	b.register(grant, first)
	group, err := ownGroup(first.PID())
	if err == nil {
		directory, err = group.Directory()
	}
	if err != nil || !sameGroup(b.t, dir, directory) {
		b.t.Fatalf("the group is %s at %q, want %s: %v", group.Path, directory, dir, err)
	}
	return grant, first, directory
}

// wantLimit checks what the driver holds on both GPUs, and that operators are told.
func (b *bench) wantLimit(f *fakeLimits, id, directory string, want int64) {
	b.t.Helper()
	c := b.container(id)
	for gpu := range 2 {
		if got := f.of(gpu, directory); got != want {
			b.t.Errorf("on GPU %d the driver holds %d, want %d", gpu, got, want)
		}
		shown := c.GPUs[gpu].DriverLimitBytes
		if want >= 0 && (shown == nil || *shown != want) || want < 0 && shown != nil {
			b.t.Errorf("on GPU %d %v is shown, want %d", gpu, shown, want)
		}
	}
	by := ""
	if c.EnforcedBy != nil {
		by = *c.EnforcedBy
	}
	if !c.Enforced || want >= 0 && by != control.ByDriver || want < 0 && by == control.ByDriver {
		b.t.Errorf("enforced %t by %q", c.Enforced, by)
	}
}

// limitFor is the limit that goes with a cap where the size of a context is not known: so many processes
// are allowed 1/1024 of a card of 16 GiB each.
func limitFor(limit int64, processes int) int64 {
	return limit + limit/16 + int64(processes)*(1<<34/1024)
}

func TestDriverLimitFollowsTheCap(t *testing.T) {
	dir, f := unified(t), &fakeLimits{}
	b := start(t, limited(f), func(o *Options) { o.CountContext = true })
	grant, first, directory := b.inUnified(dir, "64MiB")
	b.wantLimit(f, grant.ID, directory, limitFor(64*mib, 1))
	change := func(bytes int64) {
		t.Helper()
		if _, err := b.ChangeCaps(t.Context(), grant.ID, control.CapsChange{Set: control.Caps{MemoryBytes: &bytes}}); err != nil {
			t.Fatal(err)
		}
	}
	change(256 * mib)
	b.wantLimit(f, grant.ID, directory, limitFor(256*mib, 1))
	change(32 * mib)
	b.wantLimit(f, grant.ID, directory, limitFor(32*mib, 1))
	change(1 << 34) // the card itself holds it
	if got := f.of(0, directory); got != noLimit {
		t.Errorf("for all of the card the driver holds %d", got)
	}
	if c := b.container(grant.ID); c.EnforcedBy == nil || *c.EnforcedBy != control.ByDriver {
		t.Errorf("all of the card is enforced by %v", c.EnforcedBy)
	}
	if _, err := b.ChangeCaps(t.Context(), grant.ID, control.CapsChange{Unset: []string{"memory"}}); err != nil {
		t.Fatal(err)
	}
	b.wantLimit(f, grant.ID, directory, noLimit)
	if c := b.container(grant.ID); c.EnforcedBy != nil {
		t.Errorf("no cap is enforced by %s", *c.EnforcedBy)
	}
	change(64 * mib)
	b.wantLimit(f, grant.ID, directory, limitFor(64*mib, 1))
	first.Kill()
	b.gone(grant)
	if got := f.of(0, directory); got != noLimit {
		t.Errorf("after its end the driver holds %d", got)
	}
}

// A cap never holds while the driver would refuse its memory.
func TestDriverLimitRisesFirstAndFallsLast(t *testing.T) {
	dir, f := unified(t), &fakeLimits{}
	b := start(t, limited(f), func(o *Options) { o.CountContext = true })
	grant, first, directory := b.inUnified(dir, "64MiB")
	first.Must("hello %s", socketOf(grant))
	for _, bytes := range []int64{256 * mib, 32 * mib, 128 * mib} {
		f.watch = func(limit int64) {
			var held int64
			before := f.holds[uuid(0)+directory]
			if _, err := fmt.Sscan(first.Must("shown 0"), &held); err != nil || min(before, limit) < limitFor(held, 1) {
				t.Errorf("a limit changes from %d to %d under a cap of %d, %v", before, limit, held, err)
			}
		}
		if _, err := b.ChangeCaps(t.Context(), grant.ID, control.CapsChange{Set: control.Caps{MemoryBytes: &bytes}}); err != nil {
			t.Fatal(err)
		}
		f.watch = nil
		b.wantLimit(f, grant.ID, directory, limitFor(bytes, 1))
	}
	own := control.Caps{MemoryByGPU: map[string]int64{"1": 64 * mib}}
	if _, err := b.ChangeCaps(t.Context(), grant.ID, control.CapsChange{Set: own}); err != nil {
		t.Fatal(err)
	}
	if zero, one := f.of(0, directory), f.of(1, directory); zero != limitFor(128*mib, 1) || one != limitFor(64*mib, 1) {
		t.Errorf("with a cap of GPU 1's own the driver holds %d and %d", zero, one)
	}
}

// What fails is an event once, is held by the library meanwhile, and is tried again.
func TestDriverLimitThatFails(t *testing.T) {
	dir, f := unified(t), &fakeLimits{}
	b := start(t, limited(f), func(o *Options) { o.CountContext = true })
	grant, first, directory := b.inUnified(dir, "64MiB")
	first.Must("hello %s", socketOf(grant))
	f.fail(errors.New("not now"))
	bytes := int64(256 * mib)
	if _, err := b.ChangeCaps(t.Context(), grant.ID, control.CapsChange{Set: control.Caps{MemoryBytes: &bytes}}); err != nil {
		t.Fatal(err)
	}
	first.Must("alloc 0 %d", 128*mib) // the library holds it meanwhile
	b.wantEvent("driver-limit", "not now", "tried again")
	if c := b.container(grant.ID); *c.EnforcedBy != control.ByLibrary || c.GPUs[0].DriverLimitBytes != nil {
		t.Errorf("enforced by %s", *c.EnforcedBy)
	}
	b.keepAllLimits()
	events, err := b.Events(t.Context(), 0, false)
	told := 0
	for _, e := range events {
		if e.Type == "driver-limit" {
			told++
		}
	}
	if err != nil || told != 2 {
		t.Errorf("%d events of a failure on each of two GPUs, %v", told, err)
	}
	f.fail(nil)
	b.keepAllLimits()
	b.wantLimit(f, grant.ID, directory, limitFor(256*mib, 1))
	settled := f.changes()
	b.keepAllLimits()
	if f.changes() != settled {
		t.Error("a limit that is right was set again")
	}
}

func TestDriverLimitGrowsWithProcesses(t *testing.T) {
	for _, counted := range []bool{true, false} {
		t.Run(fmt.Sprint(counted), func(t *testing.T) {
			dir, f := unified(t), &fakeLimits{}
			b := start(t, limited(f), func(o *Options) { o.CountContext = counted })
			const context = 100 * mib
			for _, g := range b.gpus {
				g.context.Store(context)
			}
			grant, first, directory := b.inUnified(dir, "300MiB")
			// A quarter of a context each, for no more than have room; or two contexts each.
			limit := func(processes int64) int64 {
				each, most := int64(context/4), int64(3)
				if !counted {
					each, most = 2*context, 1<<10
				}
				return 300*mib + 300*mib/16 + min(processes, most)*each
			}
			b.wantLimit(f, grant.ID, directory, limit(1))
			first.Must("hello %s", socketOf(grant))
			b.wantLimit(f, grant.ID, directory, limit(1))
			for _, processes := range []int64{2, 4, 4, 8} {
				inGroup(t, dir).Must("hello %s", socketOf(grant))
				b.wantLimit(f, grant.ID, directory, limit(processes))
			}
		})
	}
}

func TestDriverLimitAfterARestart(t *testing.T) {
	dir, f := unified(t), &fakeLimits{}
	b := start(t, limited(f), func(o *Options) { o.CountContext = true })
	grant, first, directory := b.inUnified(filepath.Join(dir, "lives"), "64MiB")
	other, ended, left := b.inUnified(filepath.Join(dir, "ends"), "64MiB")
	b.end()
	if f.of(0, directory) == noLimit {
		t.Error("the agent took the limit along")
	}
	f.SetMemoryLimit(uuid(0), directory, 1) // somebody has changed it
	ended.Kill()
	b.begin()
	b.wantLimit(f, grant.ID, directory, limitFor(64*mib, 1))
	b.gone(other)
	if got := f.of(0, left); got != noLimit {
		t.Errorf("of a container that ended meanwhile the driver holds %d", got)
	}
	first.Kill()
	b.gone(grant)
	if got := f.of(0, directory); got != noLimit {
		t.Errorf("after its end the driver holds %d", got)
	}
}

// A container that is started again has a control group of the same name, while its predecessor has not ended for the
// agent: the driver's limit there is its own from then on.
func TestDriverLimitPassesOn(t *testing.T) {
	for _, test := range []struct {
		name, memory string
		restart      bool
		want         int64
	}{
		{"capped", "128MiB", false, limitFor(128*mib, 1)},
		{"restart", "128MiB", true, limitFor(128*mib, 1)},
		{"uncapped", "", false, noLimit},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, f := unified(t), &fakeLimits{}
			b := start(t, limited(f), func(o *Options) { o.CountContext = true })
			before, first, directory := b.inUnified(dir, "64MiB")
			lives := inGroup(t, dir) // on, as a program may without a pid namespace
			lives.Must("hello %s", socketOf(before))
			first.Kill()
			b.eventually("its first process has ended", func() bool { return b.hasEvent("ending", "first process has ended") })
			asked := asking("again", test.memory)
			if test.memory == "" {
				asked.Annotations = map[string]string{"weir/weight": "2"}
			}
			next := b.granted(asked)
			second := inGroup(t, dir)
			b.register(next, second)
			if test.restart {
				b.restart()
			}
			if got := f.of(0, directory); got != test.want {
				t.Errorf("beside its predecessor the driver holds %d, want %d", got, test.want)
			}
			b.mu.Lock()
			left := b.containers[before.ID]
			b.mu.Unlock()
			left.keepLimits(true)
			lives.Kill()
			b.gone(before)
			b.keepAllLimits()
			if got := f.of(0, directory); got != test.want {
				t.Errorf("after its predecessor's end the driver holds %d, want %d", got, test.want)
			}
			second.Kill()
			b.gone(next)
			if got := f.of(0, directory); got != noLimit {
				t.Errorf("after its end the driver holds %d", got)
			}
		})
	}
}

// Switched off, the agent takes away what an earlier one has set, and sets none.
func TestDriverLimitSwitchedOff(t *testing.T) {
	dir, f := unified(t), &fakeLimits{}
	b := start(t, limited(f))
	grant, _, directory := b.inUnified(filepath.Join(dir, "before"), "64MiB")
	b.end()
	b.opts.LimitsOff = true
	b.begin()
	b.wantLimit(f, grant.ID, directory, noLimit)
	asked := f.changes()
	after, _, directory := b.inUnified(filepath.Join(dir, "after"), "64MiB")
	b.wantLimit(f, after.ID, directory, noLimit)
	if f.changes() != asked {
		t.Error("the driver was asked about a container that it need not know")
	}
}

// A limit that is not weir's is left alone: that of a container which never had a cap.
func TestDriverLimitOfOthers(t *testing.T) {
	dir, f := unified(t), &fakeLimits{}
	b := start(t, limited(f))
	asked := asking("web", "")
	asked.Annotations = map[string]string{"weir/weight": "2"}
	grant := b.granted(asked)
	first := inGroup(t, dir)
	b.register(grant, first)
	b.restart()
	first.Kill()
	b.gone(grant)
	if f.changes() != 0 {
		t.Errorf("the driver was asked %d times about a container without a cap", f.changes())
	}
}

func TestDriverWithoutLimits(t *testing.T) {
	dir, f := unified(t), &fakeLimits{err: fmt.Errorf("%w: an old driver", control.ErrUnsupported)}
	b := start(t, limited(f))
	grant, first, directory := b.inUnified(dir, "64MiB")
	first.Must("hello %s", socketOf(grant))
	b.wantLimit(f, grant.ID, directory, noLimit)
	b.keepAllLimits()
	if f.changes() != 1 || b.count("driver-limit") != 0 {
		t.Errorf("it was asked %d times, and %d events tell of it", f.changes(), b.count("driver-limit"))
	}
	if by := b.container(grant.ID).EnforcedBy; by == nil || *by != control.ByLibrary {
		t.Errorf("enforced by %v", by)
	}
}

// A driver that hangs holds up neither a container's start nor its processes for long.
func TestDriverThatHangs(t *testing.T) {
	dir, f := unified(t), &fakeLimits{stuck: make(chan struct{})}
	b := start(t, limited(f), func(o *Options) { o.CountContext = true })
	grant, first, directory := b.inUnified(dir, "64MiB")
	first.Must("hello %s", socketOf(grant))
	if _, err := first.Do("alloc 0 %d", 65*mib); err == nil {
		t.Error("without the driver the cap does not hold")
	}
	b.wantEvent("driver-limit", "GPU 0", "did not do it within")
	f.mu.Lock()
	close(f.stuck)
	f.stuck = nil
	f.mu.Unlock()
	b.eventually("the limit is there", func() bool {
		b.keepAllLimits()
		return f.of(1, directory) == limitFor(64*mib, 1)
	})
	b.wantLimit(f, grant.ID, directory, limitFor(64*mib, 1))
}

// Of version 1 the driver knows nothing, nor of what `weir run` starts.
func TestDriverLimitNeedsVersion2(t *testing.T) {
	groups(t)
	dir := filepath.Join("/sys/fs/cgroup/devices", "weir-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("there are no control groups of version 1 here: %v", err)
	}
	t.Cleanup(func() { removeGroup(t, dir) })
	f := &fakeLimits{}
	b := start(t, limited(f))
	b.run(64 * mib)
	grant := b.granted(asking("web", "64MiB"))
	first := inGroup(t, dir)
	b.register(grant, first)
	first.Must("hello %s", socketOf(grant))
	if by := b.container(grant.ID).EnforcedBy; f.changes() != 0 || by == nil || *by != control.ByLibrary {
		t.Errorf("the driver was asked %d times; enforced by %v", f.changes(), by)
	}
	first.Kill()
	b.gone(grant)
}
