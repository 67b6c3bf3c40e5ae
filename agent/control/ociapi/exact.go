package ociapi

// Paths, and what is in an image's file, keep their bytes on the way through JSON, be they UTF-8 or not: else a bundle
// could be taken for another, and a library's name in an image would become another's.

import (
	"encoding/json"

	"weir/oci"
)

// exactly is the container as JSON has it: of the fields of one name the outer ones count.
func (c *Container) exactly() any {
	type plain Container
	return &struct {
		*plain
		ID      *oci.Exact `json:"id"`
		Bundle  *oci.Exact `json:"bundle"`
		Root    *oci.Exact `json:"root"`
		Preload *oci.Exact `json:"preload"`
	}{(*plain)(c), (*oci.Exact)(&c.ID), (*oci.Exact)(&c.Bundle), (*oci.Exact)(&c.Root), (*oci.Exact)(&c.Preload)}
}

// MarshalJSON implements json.Marshaler.
func (c Container) MarshalJSON() ([]byte, error) { return json.Marshal(c.exactly()) }

// UnmarshalJSON implements json.Unmarshaler.
func (c *Container) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, c.exactly()) }

// exactEvent is an Event as JSON has it.
type exactEvent struct {
	GrantID string     `json:"grant_id"`
	Bundle  oci.Exact  `json:"bundle"`
	PID     int        `json:"pid"`
	Preload *oci.Exact `json:"preload"`
}

// MarshalJSON implements json.Marshaler.
func (e Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(exactEvent{e.GrantID, oci.Exact(e.Bundle), e.PID, (*oci.Exact)(e.Preload)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *Event) UnmarshalJSON(text []byte) error {
	var exact exactEvent
	err := json.Unmarshal(text, &exact)
	*e = Event{exact.GrantID, string(exact.Bundle), exact.PID, (*string)(exact.Preload)}
	return err
}

// exactly is the note as JSON has it.
func (n *Note) exactly() any {
	type plain Note
	return &struct {
		*plain
		Root *oci.Exact `json:"root"`
	}{(*plain)(n), (*oci.Exact)(&n.Root)}
}

// MarshalJSON implements json.Marshaler.
func (n Note) MarshalJSON() ([]byte, error) { return json.Marshal(n.exactly()) }

// UnmarshalJSON implements json.Unmarshaler.
func (n *Note) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, n.exactly()) }
