// The table of MIG profiles: every card of it can be simulated.

package sim

import (
	"strings"
	"testing"
)

func TestGeometries(t *testing.T) {
	models := map[string]bool{}
	for _, geometry := range Geometries() {
		if models[geometry.Model] || geometry.Placements == "" || len(geometry.DeviceIDs) == 0 {
			t.Errorf("%s is there twice, or says too little", geometry.Model)
		}
		models[geometry.Model] = true
		ids, kinds := map[int]bool{}, map[int]bool{}
		for _, profile := range geometry.Profiles {
			if ids[profile.ID] || kinds[profile.Kind] {
				t.Errorf("%s: profile %s has another's id or kind", geometry.Model, profile.Name)
			}
			ids[profile.ID], kinds[profile.Kind] = true, true
			if profile.Most > len(profile.Starts) {
				t.Errorf("%s: %s has fewer places than instances", geometry.Model, profile.Name)
			}
			for _, start := range profile.Starts {
				if start < 0 || start+profile.Length > geometry.MemorySlices {
					t.Errorf("%s: %s begins at %d", geometry.Model, profile.Name, start)
				}
			}
		}
	}
	for _, want := range []string{"A30-24GB", "A100-40GB", "A100-80GB", "H100-80GB", "H200-141GB"} {
		if !models[want] {
			t.Errorf("no %s", want)
		}
	}
}

// A machine can be made of each, also where figures are not known.
func TestGeometriesBecomeMachines(t *testing.T) {
	for _, geometry := range Geometries() {
		text, _ := spoil(t, sample(t), "mig", `mig = "`+geometry.Model+`"`)
		text, _ = spoil(t, text, "memory", `memory = "192GiB"`)
		machine, err := ParseMachine("mig.toml", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", geometry.Model, err)
			continue
		}
		if err := Up(t.TempDir(), machine); err != nil {
			t.Errorf("%s: %v", geometry.Model, err)
		}
		for _, profile := range machine.GPUs[0].MIG.Profiles {
			memory := geometry.memoryBytes(profile, machine.GPUs[0].MemoryBytes)
			units := geometry.multiprocessors(profile, 132)
			if memory <= 0 || memory > machine.GPUs[0].MemoryBytes || units <= 0 {
				t.Errorf("%s: %s has %d bytes and %d multiprocessors", geometry.Model, profile.Name,
					memory, units)
			}
			if strings.Contains(profile.Name, "+me") != profile.Media() {
				t.Errorf("%s: media engines of %s", geometry.Model, profile.Name)
			}
		}
	}
}
