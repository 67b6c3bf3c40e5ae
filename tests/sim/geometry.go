// How cards can be divided into MIG instances: the table of profiles, and what a card takes of it.
// Invariant: what is embedded is well-formed; a test reads all of it.

package sim

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

//go:embed mig/profiles.json
var profilesFile []byte

// Geometry is how one model of card can be divided. Placements count memory slices.
type Geometry struct {
	Model         string    `json:"model"`
	ComputeSlices int       `json:"compute_slices"`
	MemorySlices  int       `json:"memory_slices"`
	DeviceIDs     []string  `json:"device_ids"` // of the cards that have it, PCI device and vendor
	Placements    string    `json:"placements"` // where its placements are from
	Profiles      []Profile `json:"profiles"`
}

// Profile is one kind of GPU instance of a geometry.
type Profile struct {
	Name            string `json:"name"`
	ID              int    `json:"id"`      // by which it is named to NVML
	Kind            int    `json:"kind"`    // NVML's constant
	ComputeSlices   int    `json:"compute"` // and at most as many as its length
	Length          int    `json:"length"`  // of its placements
	Starts          []int  `json:"starts"`
	Most            int    `json:"most"`            // instances at once
	MemoryMiB       *int64 `json:"memory_mib"`      // nil: not known
	Multiprocessors *int64 `json:"multiprocessors"` // likewise
}

// Media says whether instances of the profile have the card's media engines: one on a card does.
func (p Profile) Media() bool {
	return strings.Contains(p.Name, "+me")
}

// Geometries lists what is known, in the order of its file.
func Geometries() []Geometry {
	return geometries()
}

var geometries = sync.OnceValue(func() []Geometry {
	var file struct {
		About   []string   `json:"about"`
		Sources []string   `json:"sources"`
		Cards   []Geometry `json:"cards"`
	}
	decoder := json.NewDecoder(bytes.NewReader(profilesFile))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		panic(fmt.Sprintf("mig/profiles.json: %v", err)) // embedded: a test has read it
	}
	return file.Cards
})

// geometryOf finds a model's; nil where it is not known.
func geometryOf(model string) *Geometry {
	all := Geometries()
	i := slices.IndexFunc(all, func(g Geometry) bool { return g.Model == model })
	if i < 0 {
		return nil
	}
	return &all[i]
}

func geometryModels() string {
	var models []string
	for _, geometry := range Geometries() {
		models = append(models, geometry.Model)
	}
	return strings.Join(models, ", ")
}

// memoryBytes is what an instance of a profile has on a card. Where it is not known, a share of the
// card is taken, less what an A100 keeps: 80384 of 81920 MiB are left of it.
func (g *Geometry) memoryBytes(p Profile, cardBytes int64) int64 {
	if p.MemoryMiB != nil {
		return *p.MemoryMiB << 20
	}
	left := cardBytes >> 20 * 80384 / 81920
	return left * int64(p.Length) / int64(g.MemorySlices) << 20
}

// multiprocessors is what an instance of a profile has. Where it is not known: of the card's all
// for the whole, else as many a slice as the profile of one slice has.
func (g *Geometry) multiprocessors(p Profile, card int64) int64 {
	if p.Multiprocessors != nil {
		return *p.Multiprocessors
	}
	if p.ComputeSlices == g.ComputeSlices {
		return card
	}
	slice := card / int64(g.ComputeSlices+1)
	if first := g.Profiles[0].Multiprocessors; first != nil {
		slice = *first
	}
	return slice * int64(p.ComputeSlices)
}
