// Package ociapitest is an agent for tests of what speaks with one: it keeps what it is told and answers
// what the test wants.
package ociapitest

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"weir/agent/control/ociapi"
)

// Agent answers on a control socket of its own.
type Agent struct {
	Socket string

	mu       sync.Mutex
	prepared []ociapi.Container
	started  []ociapi.Start
	events   []string
	answer   ociapi.Prepared
	refusal  string
	early    map[string]string
	hold     chan struct{} // Prepare is answered once it is closed
}

// Start starts an agent that lets every container pass; it ends with the test.
func Start(t *testing.T) *Agent {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-agent-") // short, as sockets' paths must be
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{Socket: filepath.Join(dir, "control.sock")}
	listener, err := net.Listen("unix", a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+ociapi.PreparePath, a.prepare)
	mux.HandleFunc("POST "+ociapi.RegisterPath, a.event("register"))
	mux.HandleFunc("POST "+ociapi.ReleasePath, a.event("release"))
	mux.HandleFunc("POST "+ociapi.EarlyPath, a.tellEarly)
	mux.HandleFunc("POST "+ociapi.MissedPath, a.missed)
	mux.HandleFunc("POST "+ociapi.StartPath, a.start)
	server := &http.Server{Handler: mux}
	go server.Serve(listener)
	t.Cleanup(func() {
		server.Close()
		os.RemoveAll(dir)
	})
	return a
}

// Answer is what every container is answered from now on.
func (a *Agent) Answer(prepared ociapi.Prepared) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer, a.refusal = prepared, ""
}

// Refuse refuses every container from now on.
func (a *Agent) Refuse(reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refusal = reason
}

// Early is what is answered for early containers.
func (a *Agent) Early(grants map[string]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.early = grants
}

// Hold lets nothing be prepared until the function is called that it returns.
func (a *Agent) Hold() (release func()) {
	hold := make(chan struct{})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hold = hold
	return func() { close(hold) }
}

// Prepared are the containers that were asked about.
func (a *Agent) Prepared() []ociapi.Container {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]ociapi.Container(nil), a.prepared...)
}

// Started are the containers whose start was asked about.
func (a *Agent) Started() []ociapi.Start {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]ociapi.Start(nil), a.started...)
}

// Events are the other requests: "register ID" and "release ID", with the bundle where there is no grant's
// id, and "missed NAME".
func (a *Agent) Events() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.events...)
}

func (a *Agent) prepare(w http.ResponseWriter, r *http.Request) {
	var container ociapi.Container
	if err := json.NewDecoder(r.Body).Decode(&container); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if hold := a.hold; hold != nil {
		a.mu.Unlock()
		<-hold
		a.mu.Lock()
	}
	a.prepared = append(a.prepared, container)
	a.decide(w, a.answer)
}

// decide answers, or refuses. Called under mu.
func (a *Agent) decide(w http.ResponseWriter, answer any) {
	if a.refusal != "" {
		w.WriteHeader(http.StatusBadRequest)
		json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"kind": "invalid", "message": a.refusal}})
		return
	}
	json.NewEncoder(w).Encode(answer)
}

func (a *Agent) start(w http.ResponseWriter, r *http.Request) {
	var start ociapi.Start
	if err := json.NewDecoder(r.Body).Decode(&start); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.started = append(a.started, start)
	a.decide(w, struct{}{})
}

func (a *Agent) event(kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var event ociapi.Event
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		name := event.GrantID
		if name == "" {
			name = event.Bundle
		}
		if event.Preload != nil {
			name += " " + *event.Preload
		}
		a.events = append(a.events, kind+" "+name)
	}
}

func (a *Agent) tellEarly(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	json.NewEncoder(w).Encode(ociapi.Early{Grants: a.early})
}

func (a *Agent) missed(w http.ResponseWriter, r *http.Request) {
	var container ociapi.Container
	if err := json.NewDecoder(r.Body).Decode(&container); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, "missed "+container.Name)
}
