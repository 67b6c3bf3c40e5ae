// Package nvmltest tests the simulated NVML as others see it: through go-nvml, and through tools.
//
// This file goes through the layouts that cards can be divided into, and compares what NVML does
// with a model of its own that knows nothing but the table of profiles.
package nvmltest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"pgregory.net/rapid"

	"weir/tests/sim"
)

const library = "../../../build/sim/libnvidia-ml.so.1"

// simulate makes a machine and initialises NVML on it, until the test ends.
func simulate(t *testing.T, name string) nvml.Interface {
	t.Helper()
	if _, err := os.Stat(library); err != nil {
		t.Skipf("%s is not built: run make build", library)
	}
	machine, err := sim.LoadMachine(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := sim.Up(dir, machine); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WEIR_SIM", dir)
	lib := nvml.New(nvml.WithLibraryPath(library))
	if ret := lib.Init(); ret != nvml.SUCCESS {
		t.Fatalf("initialising: %v", ret)
	}
	t.Cleanup(func() { lib.Shutdown() })
	return lib
}

// card is one card of a machine, divided, and what is known of it.
type card struct {
	device   nvml.Device
	geometry sim.Geometry
	live     map[instance]nvml.GpuInstance
}

// instance is a GPU instance by its profile's number and first memory slice.
type instance struct{ profile, start int }

func divide(t *testing.T, lib nvml.Interface, model string) *card {
	t.Helper()
	device, ret := lib.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	if activation, ret := device.SetMigMode(nvml.DEVICE_MIG_ENABLE); ret != nvml.SUCCESS ||
		activation != nvml.SUCCESS {
		t.Fatalf("dividing: %v, %v", ret, activation)
	}
	geometries := sim.Geometries()
	i := slices.IndexFunc(geometries, func(g sim.Geometry) bool { return g.Model == model })
	return &card{device, geometries[i], map[instance]nvml.GpuInstance{}}
}

// slicesOf are the memory slices of an instance, as bits.
func (c *card) slicesOf(i instance) uint {
	return (1<<c.geometry.Profiles[i.profile].Length - 1) << i.start
}

// fits is the model: whether one more instance can be made beside those of a state.
func (c *card) fits(state []instance, one instance) bool {
	profile := c.geometry.Profiles[one.profile]
	compute, same := profile.ComputeSlices, 0
	for _, other := range state {
		theirs := c.geometry.Profiles[other.profile]
		compute += theirs.ComputeSlices
		if other.profile == one.profile {
			same++
		}
		if c.slicesOf(other)&c.slicesOf(one) != 0 || profile.Media() && theirs.Media() {
			return false
		}
	}
	return compute <= c.geometry.ComputeSlices && same < profile.Most
}

// capacity is the model's: how many more of a profile there could be, by trying all ways.
func (c *card) capacity(state []instance, profile int) int {
	best := 0
	for _, start := range c.geometry.Profiles[profile].Starts {
		one := instance{profile, start}
		if c.fits(state, one) {
			best = max(best, 1+c.capacity(append(slices.Clone(state), one), profile))
		}
	}
	return best
}

func (c *card) state() []instance {
	state := make([]instance, 0, len(c.live))
	for one := range c.live {
		state = append(state, one)
	}
	slices.SortFunc(state, func(a, b instance) int { return a.start - b.start })
	return state
}

// name writes a state, whatever the order in which it was made.
func (c *card) name(state []instance) string {
	var text strings.Builder
	for _, one := range state {
		fmt.Fprintf(&text, "%s@%d ", c.geometry.Profiles[one.profile].Name, one.start)
	}
	return text.String()
}

func placement(c *card, one instance) *nvml.GpuInstancePlacement {
	return &nvml.GpuInstancePlacement{
		Start: uint32(one.start), Size: uint32(c.geometry.Profiles[one.profile].Length),
	}
}

func profileInfo(c *card, profile int) *nvml.GpuInstanceProfileInfo {
	return &nvml.GpuInstanceProfileInfo{Id: uint32(c.geometry.Profiles[profile].ID)}
}

// try asks for an instance, and compares the answer with the model's.
func (c *card) try(one instance) error {
	want := nvml.ERROR_INSUFFICIENT_RESOURCES
	if c.fits(c.state(), one) {
		want = nvml.SUCCESS
	}
	handle, ret := c.device.CreateGpuInstanceWithPlacement(profileInfo(c, one.profile),
		placement(c, one))
	if ret == nvml.SUCCESS {
		c.live[one] = handle
	}
	if ret != want {
		return fmt.Errorf("in %s%s@%d: %v, want %v", c.name(c.state()),
			c.geometry.Profiles[one.profile].Name, one.start, ret, want)
	}
	return nil
}

func (c *card) takeAway(one instance) error {
	if ret := c.live[one].Destroy(); ret != nvml.SUCCESS {
		return fmt.Errorf("taking away %v: %w", one, ret)
	}
	delete(c.live, one)
	return nil
}

// check compares what NVML lists with what is there, and the room that it sees with the model's.
func (c *card) check() error {
	state := c.state()
	for number, profile := range c.geometry.Profiles {
		room, ret := c.device.GetGpuInstanceRemainingCapacity(profileInfo(c, number))
		if want := c.capacity(state, number); ret != nvml.SUCCESS || room != want {
			return fmt.Errorf("in %s: room for %d of %s, want %d: %v", c.name(state), room,
				profile.Name, want, ret)
		}
		// go-nvml makes room for as many as the profile's description says.
		info := profileInfo(c, number)
		info.InstanceCount = uint32(profile.Most)
		list, ret := c.device.GetGpuInstances(info)
		if ret != nvml.SUCCESS {
			return ret
		}
		var starts []int
		for _, one := range list {
			description, ret := one.GetInfo()
			if ret != nvml.SUCCESS || int(description.ProfileId) != profile.ID ||
				int(description.Placement.Size) != profile.Length {
				return fmt.Errorf("an instance of %s is %+v: %w", profile.Name, description, ret)
			}
			starts = append(starts, int(description.Placement.Start))
		}
		var want []int
		for _, one := range state {
			if one.profile == number {
				want = append(want, one.start)
			}
		}
		if slices.Sort(starts); !slices.Equal(starts, want) {
			return fmt.Errorf("of %s there are %v, want %v", profile.Name, starts, want)
		}
	}
	return nil
}

// explore goes through all states that can be reached with some of the profiles, trying every
// placement in each, and tells how many states there are, and how many in which nothing fits.
func (c *card) explore(t *testing.T, profiles []int) (states, full int) {
	seen := map[string]bool{}
	var visit func()
	visit = func() {
		seen[c.name(c.state())] = true
		if err := c.check(); err != nil {
			t.Fatal(err)
		}
		isFull := true
		for _, profile := range profiles {
			for _, start := range c.geometry.Profiles[profile].Starts {
				one := instance{profile, start}
				if _, there := c.live[one]; there {
					continue
				}
				if err := c.try(one); err != nil {
					t.Fatal(err)
				}
				if _, made := c.live[one]; !made {
					continue
				}
				isFull = false
				if !seen[c.name(c.state())] {
					visit()
				}
				if err := c.takeAway(one); err != nil {
					t.Fatal(err)
				}
			}
		}
		if isFull {
			full++
		}
	}
	visit()
	return len(seen), full
}

// profilesBut are the numbers of all profiles but those that a predicate names.
func (c *card) profilesBut(not func(sim.Profile) bool) (numbers []int) {
	for i, profile := range c.geometry.Profiles {
		if !not(profile) {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// The numbers of states and layouts were counted from the table once, by another program.
func TestAllLayouts(t *testing.T) {
	noMedia := func(p sim.Profile) bool { return p.Media() }
	noDouble := func(p sim.Profile) bool { return p.Media() || p.Length > p.ComputeSlices && p.Length == 2 }
	for _, test := range []struct {
		machine, model string
		not            func(sim.Profile) bool
		states, full   int
	}{
		{"a30", "A30-24GB", noMedia, 26, 5},
		{"a100x4", "A100-40GB", noDouble, 298, 19},
		{"a100x4", "A100-40GB", noMedia, 723, 78},
	} {
		t.Run(fmt.Sprint(test.model, test.states), func(t *testing.T) {
			c := divide(t, simulate(t, test.machine), test.model)
			states, full := c.explore(t, c.profilesBut(test.not))
			if states != test.states || full != test.full {
				t.Errorf("%d states, %d of them full, want %d and %d", states, full, test.states,
					test.full)
			}
		})
	}
}

// All profiles of the small card, those with media engines too.
func TestAllStatesOfASmallCard(t *testing.T) {
	c := divide(t, simulate(t, "a30"), "A30-24GB")
	states, _ := c.explore(t, c.profilesBut(func(sim.Profile) bool { return false }))
	t.Logf("%d states", states)
}

// walk makes and takes away instances at random, and in the end all.
func (c *card) walk(t *rapid.T) {
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		state := c.state()
		if len(state) > 0 && rapid.IntRange(0, 2).Draw(t, "what") == 0 {
			one := state[rapid.IntRange(0, len(state)-1).Draw(t, "which")]
			if err := c.takeAway(one); err != nil {
				t.Fatal(err)
			}
			continue
		}
		profile := rapid.IntRange(0, len(c.geometry.Profiles)-1).Draw(t, "profile")
		starts := c.geometry.Profiles[profile].Starts
		one := instance{profile, starts[rapid.IntRange(0, len(starts)-1).Draw(t, "start")]}
		if err := c.try(one); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	for _, one := range c.state() {
		if err := c.takeAway(one); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever was made and taken away before: what fits depends only on what is there.
func TestOrderDoesNotMatter(t *testing.T) {
	for _, test := range []struct{ machine, model string }{
		{"a30", "A30-24GB"}, {"a100x4", "A100-40GB"}, {"h200", "H200-141GB"},
	} {
		t.Run(test.model, func(t *testing.T) {
			c := divide(t, simulate(t, test.machine), test.model)
			rapid.Check(t, func(t *rapid.T) { c.walk(t) })
		})
	}
}

// The placement that the machine chooses is one that fits, and leaves most others possible.
func TestChosenPlacements(t *testing.T) {
	c := divide(t, simulate(t, "a100x4"), "A100-40GB")
	left := func(state []instance) (count int) {
		for profile := range c.geometry.Profiles {
			for _, start := range c.geometry.Profiles[profile].Starts {
				if c.fits(state, instance{profile, start}) {
					count++
				}
			}
		}
		return count
	}
	rapid.Check(t, func(t *rapid.T) {
		for {
			profile := rapid.IntRange(0, len(c.geometry.Profiles)-1).Draw(t, "profile")
			state, most := c.state(), -1
			for _, start := range c.geometry.Profiles[profile].Starts {
				if one := (instance{profile, start}); c.fits(state, one) {
					most = max(most, left(append(slices.Clone(state), one)))
				}
			}
			handle, ret := c.device.CreateGpuInstance(profileInfo(c, profile))
			if most < 0 {
				if ret != nvml.ERROR_INSUFFICIENT_RESOURCES {
					t.Fatalf("nothing fits, and NVML says %v", ret)
				}
				break
			}
			info, infoRet := handle.GetInfo()
			if ret != nvml.SUCCESS || infoRet != nvml.SUCCESS {
				t.Fatalf("%v, %v", ret, infoRet)
			}
			one := instance{profile, int(info.Placement.Start)}
			if !c.fits(state, one) || left(append(slices.Clone(state), one)) != most {
				t.Fatalf("in %s chosen: %d", c.name(state), one.start)
			}
			c.live[one] = handle
		}
		for _, one := range c.state() {
			if err := c.takeAway(one); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Ids of the instances that can be there together differ.
func TestInstanceIDs(t *testing.T) {
	for _, test := range []struct{ machine, model string }{
		{"a30", "A30-24GB"}, {"a100x4", "A100-40GB"},
	} {
		t.Run(test.model, func(t *testing.T) {
			c := divide(t, simulate(t, test.machine), test.model)
			ids := map[int]uint{} // by id: the slices of its instance
			for profile := range c.geometry.Profiles {
				for _, start := range c.geometry.Profiles[profile].Starts {
					one := instance{profile, start}
					if err := c.try(one); err != nil {
						t.Fatal(err)
					}
					info, _ := c.live[one].GetInfo()
					slices, known := ids[int(info.Id)]
					if known && slices&c.slicesOf(one) == 0 {
						t.Errorf("%s: id %d is that of %b too", c.name(c.state()), info.Id, slices)
					}
					ids[int(info.Id)] = c.slicesOf(one)
					if err := c.takeAway(one); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}
