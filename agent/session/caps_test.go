package session

// Tests of caps that GPUs have of their own.

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/agent/control"
	"weir/agent/store"
)

func pointer[T any](v T) *T { return &v }

// TestCapsByGPU: each GPU's own cap goes before that for all.
func TestCapsByGPU(t *testing.T) {
	b := start(t)
	req := control.RunRequest{Name: "box", Caps: control.Caps{
		MemoryBytes: pointer(int64(100 * mib)), MemoryByGPU: map[string]int64{"1": 40 * mib},
	}}
	grant, err := b.StartRun(t.Context(), os.Getpid(), uint32(os.Geteuid()), req)
	if err != nil {
		t.Fatal(err)
	}
	b.wantEvent("started", "a memory cap of 100MiB, 40MiB on GPU 1")
	p := b.tenant(grant)
	p.Must("alloc 0 %d", 100*mib)
	p.Must("alloc 1 %d", 40*mib)
	for _, over := range []string{"alloc 0 512", "alloc 1 512"} {
		if _, err := p.Do("%s", over); err == nil {
			t.Errorf("%s was granted", over)
		}
	}
	c := b.container(grant.ID)
	want := control.Caps{
		MemoryBytes: pointer(int64(100 * mib)), MemoryByGPU: map[string]int64{uuid(1): 40 * mib},
	}
	if diff := cmp.Diff(want, c.Caps); diff != "" {
		t.Errorf("caps (-want +got):\n%s", diff)
	}
	if *c.GPUs[0].CapBytes != 100*mib || *c.GPUs[1].CapBytes != 40*mib {
		t.Errorf("caps of the GPUs: %d, %d", *c.GPUs[0].CapBytes, *c.GPUs[1].CapBytes)
	}
	b.restart()
	if diff := cmp.Diff(want, b.container(grant.ID).Caps); diff != "" {
		t.Errorf("caps after a restart (-want +got):\n%s", diff)
	}
	p.Must("again")
	if _, err := p.Do("alloc 1 512"); err == nil {
		t.Error("granted after a restart")
	}
}

// TestCapsOverTheCard: what would hold nothing back is refused, in the same words wherever it is asked for.
func TestCapsOverTheCard(t *testing.T) {
	b := start(t)
	b.devices.gpus[1].MemoryBytes = 1 << 35
	b.restart()
	over := map[string]control.Caps{
		"--memory: 64GiB is more than GPU 1, the largest, has (32GiB); ask for at most that": {
			MemoryBytes: pointer(int64(1) << 36)},
		"--memory: 17GiB is more than GPU 0 has (16GiB); ask for at most that": {
			MemoryByGPU: map[string]int64{"0": 17 << 30, "1": 17 << 30}},
	}
	fits := control.Caps{MemoryBytes: pointer(int64(1) << 35), MemoryByGPU: map[string]int64{"0": 1 << 34}}
	grant, err := b.StartRun(t.Context(), os.Getpid(), uint32(os.Geteuid()), control.RunRequest{Name: "box", Caps: fits})
	if err != nil {
		t.Fatal(err)
	}
	for want, caps := range over {
		_, err := b.StartRun(t.Context(), os.Getpid(), uint32(os.Geteuid()), control.RunRequest{Caps: caps})
		if !errors.Is(err, control.ErrInvalid) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("weir run: %v, want %s", err, want)
		}
		for _, dry := range []bool{true, false} {
			_, err = b.ChangeCaps(t.Context(), "box", control.CapsChange{Set: caps, DryRun: dry})
			if !errors.Is(err, control.ErrInvalid) || !strings.HasSuffix(err.Error(), "caps of box: "+want) {
				t.Errorf("weir caps set: %v, want %s", err, want)
			}
		}
	}
	// What a cap is that an earlier agent gave, on a larger card, stays until it is changed.
	b.devices.gpus[1].MemoryBytes = 1 << 33
	b.restart()
	weight := control.CapsChange{Set: control.Caps{Weight: pointer(2.0)}}
	if _, err := b.ChangeCaps(t.Context(), grant.ID, weight); err != nil {
		t.Error(err)
	}
}

// TestCapOfOneGPUOnly: what has no cap at all is not capped.
func TestCapOfOneGPUOnly(t *testing.T) {
	b := start(t)
	req := control.RunRequest{Caps: control.Caps{MemoryByGPU: map[string]int64{uuid(1): mib}}}
	grant, err := b.StartRun(t.Context(), os.Getpid(), uint32(os.Geteuid()), req)
	if err != nil {
		t.Fatal(err)
	}
	p := b.tenant(grant)
	p.Must("alloc 0 %d", 1<<33)
	if _, err := p.Do("alloc 1 %d", 2*mib); err == nil {
		t.Error("over the cap of GPU 1")
	}
	if c := b.container(grant.ID); c.GPUs[0].CapBytes != nil || *c.GPUs[1].CapBytes != mib {
		t.Errorf("caps of the GPUs: %v, %v", c.GPUs[0].CapBytes, c.GPUs[1].CapBytes)
	}
}

// TestChangeCapsByGPU: what is set for single GPUs is added, what is set for all replaces all.
func TestChangeCapsByGPU(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	change := func(set control.Caps, unset ...string) store.Caps {
		t.Helper()
		r, err := b.ChangeCaps(t.Context(), "box", control.CapsChange{Set: set, Unset: unset})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r.After, b.container(grant.ID).Caps); diff != "" {
			t.Errorf("the answer and what holds (-answer +holds):\n%s", diff)
		}
		return store.Caps(r.After)
	}
	for _, c := range []struct {
		set   control.Caps
		unset []string
		want  store.Caps
	}{
		{
			set: control.Caps{MemoryByGPU: map[string]int64{"1": 5 * mib}},
			want: store.Caps{
				MemoryBytes: pointer(int64(100 * mib)), MemoryByGPU: map[string]int64{uuid(1): 5 * mib},
			},
		},
		{
			// By the beginning of a UUID, in whatever case, where that is unique.
			set: control.Caps{MemoryByGPU: map[string]int64{strings.ToLower(uuid(0)): 6 * mib}},
			want: store.Caps{
				MemoryBytes: pointer(int64(100 * mib)),
				MemoryByGPU: map[string]int64{uuid(0): 6 * mib, uuid(1): 5 * mib},
			},
		},
		{
			set:  control.Caps{MemoryBytes: pointer(int64(7 * mib))},
			want: store.Caps{MemoryBytes: pointer(int64(7 * mib))},
		},
		{
			set: control.Caps{
				MemoryBytes: pointer(int64(8 * mib)), MemoryByGPU: map[string]int64{"0": 9 * mib},
			},
			want: store.Caps{
				MemoryBytes: pointer(int64(8 * mib)), MemoryByGPU: map[string]int64{uuid(0): 9 * mib},
			},
		},
		{unset: []string{"memory"}},
	} {
		if diff := cmp.Diff(c.want, change(c.set, c.unset...)); diff != "" {
			t.Errorf("after %+v (-want +got):\n%s", c.set, diff)
		}
	}
	b.wantEvent("caps", "memory 100MiB -> 100MiB, 5MiB on GPU 1")
	b.wantEvent("caps", "memory 8MiB, 9MiB on GPU 0 -> none")
}

// TestBadCapsByGPU are refused, and change nothing.
func TestBadCapsByGPU(t *testing.T) {
	b := start(t)
	grant := b.run(100 * mib)
	for ref, want := range map[string]error{
		"2": control.ErrNotFound, "-1": control.ErrNotFound, "": control.ErrNotFound,
		"GPU-1": control.ErrNotFound, "GPU-9999": control.ErrNotFound, "0:0": control.ErrNotFound,
		"GPU-00000000": control.ErrInvalid, // both
	} {
		change := control.CapsChange{Set: control.Caps{MemoryByGPU: map[string]int64{ref: mib}}}
		if _, err := b.ChangeCaps(t.Context(), "box", change); !errors.Is(err, want) {
			t.Errorf("GPU %q: %v", ref, err)
		}
	}
	for name, byGPU := range map[string]map[string]int64{
		"nothing": {"0": 0}, "negative": {"0": -1}, "twice": {"0": mib, uuid(0): mib},
	} {
		change := control.CapsChange{Set: control.Caps{MemoryByGPU: byGPU}}
		if _, err := b.ChangeCaps(t.Context(), "box", change); !errors.Is(err, control.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	change := control.CapsChange{
		Set: control.Caps{MemoryByGPU: map[string]int64{"0": mib}}, Unset: []string{"memory"},
	}
	if _, err := b.ChangeCaps(t.Context(), "box", change); !errors.Is(err, control.ErrInvalid) {
		t.Errorf("set and unset: %v", err)
	}
	want := control.Caps{MemoryBytes: pointer(int64(100 * mib))}
	if diff := cmp.Diff(want, b.container(grant.ID).Caps); diff != "" {
		t.Errorf("caps (-want +got):\n%s", diff)
	}
}

// TestOverCapByGPU: the answer says on which GPU more is in use than the new caps allow.
func TestOverCapByGPU(t *testing.T) {
	b := start(t)
	p := b.tenant(b.run(100 * mib))
	p.Must("alloc 0 %d", 50*mib)
	p.Must("alloc 1 %d", 50*mib)
	for _, dry := range []bool{true, false} {
		r, err := b.ChangeCaps(t.Context(), "box", control.CapsChange{
			Set: control.Caps{MemoryByGPU: map[string]int64{"1": 20 * mib}}, DryRun: dry,
		})
		want := "50MiB in use on GPU 1, so new allocations fail until it drops"
		if err != nil || r.Message != want || len(r.GPUs) != 2 {
			t.Errorf("dry run %v: %+v, %v", dry, r, err)
		}
	}
	p.Must("alloc 0 %d", 10*mib)
	if _, err := p.Do("alloc 1 512"); err == nil {
		t.Error("granted over the new cap")
	}
}
