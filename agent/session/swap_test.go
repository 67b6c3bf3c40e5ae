// Tests of containers that ask for swap, with a driver that says where it can be.

package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"weir/agent/control"
	"weir/agent/session/sessiontest"
)

// Containers that ask for swap do not start where no GPU can have it. The driver is asked once about each GPU, and
// never about a container that asks for none; where it does not tell, swap is taken for possible.
func TestSwapWhereItCannotBe(t *testing.T) {
	groups(t)
	for name, test := range map[string]struct {
		first, others bool // what the driver says of GPU 0, and of the rest
		err           error
		refused       bool
	}{
		"nowhere":          {false, false, nil, true},
		"on all":           {true, true, nil, false},
		"on one":           {true, false, nil, false},
		"not to be learnt": {false, false, errors.New("no driver"), false},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var about []string
			var b *bench
			b = start(t, hooked, func(o *Options) {
				o.Managed = func(_ context.Context, uuid string) (bool, error) {
					mu.Lock()
					defer mu.Unlock()
					about = append(about, uuid)
					return test.others && uuid != b.gpus[0].uuid || test.first && uuid == b.gpus[0].uuid, test.err
				}
			})
			if _, err := b.Prepare(t.Context(), asking("plain", "1GiB")); err != nil || len(about) != 0 {
				t.Errorf("%v; the driver was asked about %v", err, about)
			}
			for _, id := range []string{"one", "two"} {
				asked := asking(id, "1GiB")
				asked.Annotations["weir/swap"] = "1GiB"
				_, err := b.Prepare(t.Context(), asked)
				const want = "weir/swap: no GPU of this node can have swap, since GPU 0 ("
				if refused := errors.Is(err, control.ErrInvalid) && strings.Contains(err.Error(), want); refused != test.refused ||
					!refused && err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
			slices.Sort(about)
			if len(about) != len(b.gpus) || len(slices.Compact(about)) != len(b.gpus) {
				t.Errorf("the driver was asked about %v", about)
			}
		})
	}
}

// Swap is asked for within limits: those of the caps, of the host and of the GPUs; else it is refused with the way out.
func TestSwapAskedFor(t *testing.T) {
	size := func(bytes int64) *int64 { return &bytes }
	none := func(o *Options) {
		o.Managed = func(context.Context, string) (bool, error) { return false, nil }
	}
	for name, test := range map[string]struct {
		change []func(*Options)
		caps   control.Caps
		err    error
		want   string
	}{
		"more than the host": {nil, control.Caps{MemoryBytes: size(mib), SwapBytes: size(65 * mib)}, control.ErrInvalid,
			"65MiB is more than the 64MiB of host memory"},
		"beyond no cap": {nil, control.Caps{SwapBytes: size(mib)}, control.ErrInvalid, "1MiB beyond no cap is no limit"},
		"where no GPU can": {[]func(*Options){none}, control.Caps{MemoryBytes: size(mib), SwapBytes: size(mib)},
			control.ErrUnsupported, "no GPU of this node can have swap, since GPU 0"},
		"where it is off": {[]func(*Options){hostOf(0)}, control.Caps{MemoryBytes: size(mib), SwapBytes: size(mib)},
			control.ErrUnsupported, "leaves no host memory for it (swap_host_limit)"},
		"none of it": {[]func(*Options){none}, control.Caps{MemoryBytes: size(mib), SwapBytes: size(0)}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, append([]func(*Options){hostOf(64 * mib)}, test.change...)...)
			_, err := b.runRequest(control.RunRequest{Name: "refused", Caps: test.caps})
			check := func(what string) {
				t.Helper()
				if !errors.Is(err, test.err) || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s: %v, want %v with %q", what, err, test.err, test.want)
				}
			}
			check("started")
			b.run(0)
			_, err = b.ChangeCaps(t.Context(), "box", control.CapsChange{Set: test.caps})
			check("changed")
		})
	}
}

// A container that asks for swap has it where a GPU can, and is told where not.
func TestSwapOnSomeGPUs(t *testing.T) {
	b := start(t, hostOf(1<<40), func(o *Options) {
		o.Managed = func(_ context.Context, id string) (bool, error) { return id != uuid(1), nil }
	})
	grant := b.swapping(8*mib, 16*mib)
	b.wantEvent("unenforced", "swap: not on GPU 1 (fake), without concurrent managed access")
	p := b.tenant(grant)
	if can, cannot := p.Must("swap 0"), p.Must("swap 1"); can != "16777216 0 false" || cannot != "0 0 false" {
		t.Errorf("the control page says %s and %s", can, cannot)
	}
	b.restart()
	b.eventually("a new agent knows", func() bool {
		p.Must("again")
		return p.Must("swap 0") == "16777216 0 false" && p.Must("swap 1") == "0 0 false"
	})
}

// What a container's control group leaves it of host memory is a limit of its swap, too.
func TestControlGroupLimitsSwap(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := filepath.Join("/sys/fs/cgroup/memory", fmt.Sprintf("weir-test-%d-swap", os.Getpid()))
	if os.Mkdir(dir, 0o755) != nil {
		t.Skip("no control group of the memory controller's version 1 can be made here")
	}
	t.Cleanup(func() { removeGroup(t, dir) })
	limit := []byte(strconv.Itoa(256 * mib))
	if err := os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), limit, 0); err != nil {
		t.Skipf("no limit can be set: %v", err)
	}
	b := start(t, hostOf(1<<40))
	p := inGroup(t, dir)
	grant := b.runAs(p.PID(), mib)
	size := int64(512 * mib)
	if _, err := b.ChangeCaps(t.Context(), grant.ID, control.CapsChange{Set: control.Caps{SwapBytes: &size}}); err != nil {
		t.Fatal(err)
	}
	p.Must("hello %s", grant.Socket)
	p.Must("movable 0 %d 1", 128*mib)
	_, err := p.Do("movable 0 %d 2", 128*mib)
	wantRefused(t, err, sessiontest.ErrHostFull)
	b.wantEvent("denied", "for 128MiB more", "its control group leaves it", "(memory.max)")
	b.wantMovable("after the refusal", grant.ID, 128*mib, 128*mib)
}

// Swap changes while programs run. Less than what is in use beyond the cap is refused, and so is to unset the cap; a
// cap below what is in use is not.
func TestSwapChanges(t *testing.T) {
	b := start(t, hostOf(1<<40))
	grant := b.swapping(8*mib, 16*mib)
	p := b.tenant(grant)
	p.Must("movable 0 %d 1", 20*mib)
	change := func(memory, swap int64, unset ...string) (control.CapsResult, error) {
		var set control.Caps
		if memory > 0 {
			set.MemoryBytes = &memory
		}
		if swap >= 0 {
			set.SwapBytes = &swap
		}
		return b.ChangeCaps(t.Context(), "box", control.CapsChange{Set: set, Unset: unset})
	}
	for _, swap := range []int64{0, 11 * mib} {
		if _, err := change(0, swap); !errors.Is(err, control.ErrConflict) ||
			!strings.Contains(err.Error(), "20MiB are in use on GPU 0, which is 12MiB more than its cap there") {
			t.Errorf("swap of %d: %v", swap, err)
		}
	}
	if _, err := change(0, -1, "swap"); !errors.Is(err, control.ErrConflict) {
		t.Errorf("unset: %v", err)
	}
	if _, err := change(0, -1, "memory"); !errors.Is(err, control.ErrInvalid) {
		t.Errorf("the cap unset: %v", err)
	}
	if _, err := change(0, 12*mib); err != nil {
		t.Error(err)
	}
	if got := p.Must("swap 0"); got != "12582912 20971520 false" {
		t.Errorf("the control page says %s", got)
	}
	p.Must("again") // by which all of it is on the card
	p.Must("query 0")
	result, err := change(4*mib, -1)
	if err != nil || !strings.Contains(result.Message, "20MiB in use on GPU 0, so new allocations fail until it drops") ||
		!strings.Contains(result.Message, "16MiB move to the host on GPU 0 while its programs run on") {
		t.Errorf("a lowered cap: %+v, %v", result, err)
	}
	if _, err := p.Do("movable 0 %d 2", 2*mib); err == nil {
		t.Error("more is granted above cap and swap")
	}
	// The process answers no move, so what was to go is under way for ever.
	_, err = change(20*mib, 0)
	if !errors.Is(err, control.ErrConflict) || !strings.Contains(err.Error(), "lie on the host, of GPU 0; --drain brings them back") {
		t.Errorf("off while memory is on the host: %v", err)
	}
	limit, none := int64(20*mib), int64(0)
	drain := control.CapsChange{Set: control.Caps{MemoryBytes: &limit, SwapBytes: &none}, Drain: true}
	result, err = b.ChangeCaps(t.Context(), "box", drain)
	if err != nil || !strings.Contains(result.SwapMessage, "come back from the host to GPU 0 first") {
		t.Errorf("drained: %+v, %v", result, err)
	}
	if b.hasEvent("swap-drained", "nothing of it lay on the host") {
		t.Error("drained before all is back")
	}
	if got := p.Must("swap 0"); got != "0 20971520 false" {
		t.Errorf("the control page says %s", got)
	}
	if _, err := p.Do("alloc 0 1"); err == nil {
		t.Error("memory that stays where it is does not count under the cap")
	}
}

// Who drains swap is told by the same event where nothing lay on the host.
func TestDrainOfNothing(t *testing.T) {
	b := start(t, hostOf(1<<40))
	grant := b.swapping(8*mib, 16*mib)
	b.tenant(grant).Must("movable 0 %d 1", 8*mib)
	change := control.CapsChange{Unset: []string{"swap"}, Drain: true}
	if result, err := b.ChangeCaps(t.Context(), "box", change); err != nil || result.SwapMessage != "" {
		t.Errorf("%+v, %v", result, err)
	}
	b.wantEvent("swap-drained", "nothing of it lay on the host")
}
