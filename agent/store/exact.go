package store

// Paths keep their bytes in the file, be they UTF-8 or not.

import (
	"encoding/json"

	"weir/oci"
)

// exactly is what is kept as JSON has it: of the fields of one name the outer ones count.
func (o *OCI) exactly() any {
	type plain OCI
	return &struct {
		*plain
		ID     *oci.Exact `json:"id"`
		Bundle *oci.Exact `json:"bundle"`
		Root   *oci.Exact `json:"root"`
	}{(*plain)(o), (*oci.Exact)(&o.ID), (*oci.Exact)(&o.Bundle), (*oci.Exact)(&o.Root)}
}

// MarshalJSON implements json.Marshaler.
func (o OCI) MarshalJSON() ([]byte, error) { return json.Marshal(o.exactly()) }

// UnmarshalJSON implements json.Unmarshaler.
func (o *OCI) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, o.exactly()) }

func (g *Cgroup) exactly() any {
	type plain Cgroup
	return &struct {
		*plain
		Path *oci.Exact `json:"path"`
	}{(*plain)(g), (*oci.Exact)(&g.Path)}
}

// MarshalJSON implements json.Marshaler.
func (g Cgroup) MarshalJSON() ([]byte, error) { return json.Marshal(g.exactly()) }

// UnmarshalJSON implements json.Unmarshaler.
func (g *Cgroup) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, g.exactly()) }
