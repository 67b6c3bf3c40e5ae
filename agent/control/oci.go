// The requests of container runtimes' helpers, which package ociapi describes.

package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"weir/agent/control/ociapi"
)

func (s *Server) prepare(w http.ResponseWriter, r *http.Request) {
	var container ociapi.Container
	var prepared ociapi.Prepared
	err := readFacts(r, &container)
	if err == nil {
		prepared, err = s.node.Prepare(r.Context(), container)
	}
	prepared.SchemaVersion = SchemaVersion
	s.answer(w, r, prepared, err)
}

func (s *Server) early(w http.ResponseWriter, r *http.Request) {
	var early ociapi.Early
	err := checkHelper(r)
	if err == nil {
		early, err = s.node.Early(r.Context())
	}
	early.SchemaVersion = SchemaVersion
	s.answer(w, r, early, err)
}

func (s *Server) missed(w http.ResponseWriter, r *http.Request) {
	var container ociapi.Container
	err := readFacts(r, &container)
	if err == nil {
		err = s.node.Missed(r.Context(), container)
	}
	s.answer(w, r, done{SchemaVersion}, err)
}

func (s *Server) start(w http.ResponseWriter, r *http.Request) {
	var start ociapi.Start
	err := readFacts(r, &start)
	if err == nil {
		err = s.node.Start(r.Context(), start)
	}
	s.answer(w, r, done{SchemaVersion}, err)
}

// done is the answer where there is nothing to say.
type done struct {
	SchemaVersion int `json:"schema_version"`
}

// told makes a handler of what is told of a container.
func (s *Server) told(node func(context.Context, ociapi.Event) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var event ociapi.Event
		err := readFacts(r, &event)
		if err == nil {
			err = node(r.Context(), event)
		}
		s.answer(w, r, done{SchemaVersion}, err)
	}
}

func (s *Server) listing(w http.ResponseWriter, r *http.Request) {
	var listing ociapi.Listing
	var again bool
	err := readFacts(r, &listing)
	if err == nil {
		again, err = s.node.Listing(r.Context(), listing)
	}
	s.answer(w, r, ociapi.ListingAnswer{SchemaVersion: SchemaVersion, Again: again}, err)
}

// readFacts reads what is told of a container. Unlike limits, facts that this agent does not know may be
// left out: a helper of another version must not keep containers from starting.
func readFacts(r *http.Request, into any) error {
	if err := checkHelper(r); err != nil {
		return err
	}
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		return fmt.Errorf("%w: request: %v", ErrInvalid, err)
	}
	return nil
}

// checkHelper refuses a helper to which pids, and names of containers, mean others than to the agent: one above it, which
// has no pid here, and one in a pid namespace below it.
func checkHelper(r *http.Request) error {
	caller := r.Context().Value(peerKey{}).(peer)
	if caller.pid > 0 {
		ours, err := os.Readlink("/proc/self/ns/pid")
		if err != nil {
			return fmt.Errorf("looking at the agent's pid namespace: %w", err)
		}
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", caller.pid))
		if err != nil {
			return fmt.Errorf("%w: looking at the caller's pid namespace: %w", ErrPermission, err)
		}
		if theirs == ours {
			return nil
		}
	}
	return fmt.Errorf("%w: the caller is in another pid namespace than the agent, where pids and containers are others "+
		"(as in kind, or Docker in Docker); run an agent of its own there", ErrPermission)
}
