// The agent's end of the API: it judges the form of requests and leaves their meaning to the Node.

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/agent/control/ociapi"
	"weir/agent/sched"
)

// Server answers the CLI's requests from a Node. Only processes of the agent's own user and of
// root are answered, by the credentials of their connection.
type Server struct {
	node    Node
	log     *slog.Logger
	uid     uint32
	started time.Time
}

// NewServer makes a server for node.
func NewServer(node Node, log *slog.Logger) *Server {
	return &Server{node, log, uint32(os.Geteuid()), time.Now()}
}

// Serve answers on a listener of Listen until ctx ends, then lets running requests finish for a
// moment and closes the listener. It returns nil after an orderly end.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler:           s.handler(),
		ConnContext:       withPeer,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		ReadHeaderTimeout: requestTimeMax,
		ReadTimeout:       requestTimeMax,
		IdleTimeout:       idleTimeMax,
		MaxHeaderBytes:    headerBytesMax,
	}
	server.RegisterOnShutdown(cancel) // wakes those who wait for events
	if err := ServeUntil(ctx, server, listener); err != nil {
		return fmt.Errorf("serving the control socket: %w", err)
	}
	return nil
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/info", s.info)
	mux.HandleFunc("GET /v1/containers", s.containers)
	mux.HandleFunc("GET /v1/containers/{ref}", s.container)
	mux.HandleFunc("PATCH /v1/containers/{ref}/caps", s.changeCaps)
	mux.HandleFunc("POST /v1/runs", s.startRun)
	mux.HandleFunc("DELETE /v1/runs/{id}", s.endRun)
	mux.HandleFunc("GET /v1/events", s.events)
	mux.HandleFunc("GET /v1/queue", s.queue)
	mux.HandleFunc("POST "+ociapi.PreparePath, s.prepare)
	mux.HandleFunc("POST "+ociapi.ListingPath, s.listing)
	mux.HandleFunc("POST "+ociapi.RegisterPath, s.told(s.node.Register))
	mux.HandleFunc("POST "+ociapi.ReleasePath, s.told(s.node.Release))
	mux.HandleFunc("POST "+ociapi.EarlyPath, s.early)
	mux.HandleFunc("POST "+ociapi.MissedPath, s.missed)
	mux.HandleFunc("POST "+ociapi.StartPath, s.start)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, ok := r.Context().Value(peerKey{}).(peer)
		if !ok || (caller.uid != s.uid && caller.uid != 0) {
			s.refuse(w, r, fmt.Errorf("%w: this agent answers uid %d and root only",
				ErrPermission, s.uid))
			return
		}
		bytesMax := int64(requestBytesMax)
		if strings.HasPrefix(r.URL.Path, ociapi.Prefix) {
			bytesMax = factsBytesMax
		}
		r.Body = http.MaxBytesReader(w, r.Body, bytesMax)
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) info(w http.ResponseWriter, r *http.Request) {
	info, err := s.node.Info(r.Context())
	s.answer(w, r, InfoDoc{SchemaVersion, info}, err)
}

func (s *Server) containers(w http.ResponseWriter, r *http.Request) {
	list, err := s.node.Containers(r.Context())
	if list == nil {
		list = []Container{}
	}
	s.answer(w, r, ContainersDoc{SchemaVersion, list}, err)
}

func (s *Server) container(w http.ResponseWriter, r *http.Request) {
	one, err := s.node.Container(r.Context(), r.PathValue("ref"))
	s.answer(w, r, ContainerDoc{SchemaVersion, one}, err)
}

func (s *Server) changeCaps(w http.ResponseWriter, r *http.Request) {
	var change CapsChange
	var result CapsResult
	err := readBody(r, &change)
	if err == nil {
		err = change.validate()
	}
	if err == nil {
		result, err = s.node.ChangeCaps(r.Context(), r.PathValue("ref"), change)
	}
	s.answer(w, r, CapsDoc{SchemaVersion, result, change.DryRun}, err)
}

func (s *Server) startRun(w http.ResponseWriter, r *http.Request) {
	var request RunRequest
	var grant RunGrant
	err := readBody(r, &request)
	if err == nil {
		err = request.Caps.validate()
	}
	caller := r.Context().Value(peerKey{}).(peer)
	if err == nil && caller.pid <= 0 {
		err = fmt.Errorf("%w: the caller is in another pid namespace than the agent", ErrPermission)
	}
	if err == nil {
		grant, err = s.node.StartRun(r.Context(), caller.pid, caller.uid, request)
	}
	s.answer(w, r, RunDoc{SchemaVersion, grant}, err)
}

func (s *Server) endRun(w http.ResponseWriter, r *http.Request) {
	caller := r.Context().Value(peerKey{}).(peer)
	err := s.node.EndRun(r.Context(), caller.uid, r.PathValue("id"))
	s.answer(w, r, struct {
		SchemaVersion int `json:"schema_version"`
	}{SchemaVersion}, err)
}

func (s *Server) queue(w http.ResponseWriter, r *http.Request) {
	flows, err := s.node.Queue(r.Context())
	if flows == nil {
		flows = []Flow{}
	}
	s.answer(w, r, QueueDoc{SchemaVersion, flows}, err)
}

func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	after, wait, err := eventsQuery(r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	ctx := r.Context()
	if wait > 0 {
		limited, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		ctx = limited
	}
	list, err := s.node.Events(ctx, after, wait > 0)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil // nothing happened while we waited
	}
	if list == nil {
		list = []Event{}
	}
	s.answer(w, r, EventsDoc{SchemaVersion, s.started, list}, err)
}

// eventsQuery reads ?after=SEQ&wait=DURATION; both may be absent.
func eventsQuery(r *http.Request) (after uint64, wait time.Duration, err error) {
	query := r.URL.Query()
	if text := query.Get("after"); text != "" {
		if after, err = strconv.ParseUint(text, 10, 64); err != nil {
			return 0, 0, fmt.Errorf("%w: after=%q: want the number of an event", ErrInvalid, text)
		}
	}
	if text := query.Get("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 {
			return 0, 0, fmt.Errorf("%w: wait=%q: want a duration such as 30s", ErrInvalid, text)
		}
	}
	return after, min(wait, waitTimeMax), nil
}

// readBody is strict: a field that this agent does not know may be a limit that the caller
// believes to be in force.
func readBody(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%w: request: %v", ErrInvalid, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: request: more than one document", ErrInvalid)
	}
	return nil
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, doc any, err error) {
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	s.write(w, http.StatusOK, doc)
}

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	kind, status := kindOf(err)
	if status == http.StatusInternalServerError {
		s.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	// The kind is told apart from the message.
	s.write(w, status, errorDoc{SchemaVersion, errorBody{kind, Reason(err)}})
}

// Reason is what people are told of an error: it need not begin with its kind.
func Reason(err error) string {
	message := err.Error()
	for _, silent := range []error{ErrInvalid, ErrConflict, ErrUnsupported} {
		message = strings.TrimPrefix(message, silent.Error()+": ")
	}
	return message
}

func (s *Server) write(w http.ResponseWriter, status int, doc any) {
	// The deadline begins here, not with the request: one for events may have waited for long.
	deadline := time.Now().Add(requestTimeMax)
	if err := http.NewResponseController(w).SetWriteDeadline(deadline); err != nil {
		s.log.Debug("no write deadline", "err", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(doc); err != nil {
		s.log.Debug("caller went away", "err", err)
	}
}

// validate refuses what is no limit. Whether it suits the node is the Node's to say.
func (c Caps) validate() error {
	if c.MemoryBytes != nil && *c.MemoryBytes <= 0 {
		return fmt.Errorf("%w: a memory cap of %d bytes: want at least 1", ErrInvalid, *c.MemoryBytes)
	}
	for gpu, bytes := range c.MemoryByGPU {
		if gpu == "" || bytes <= 0 {
			return fmt.Errorf("%w: a memory cap of %d bytes on GPU %q: want a GPU and at least 1",
				ErrInvalid, bytes, gpu)
		}
	}
	if c.SwapBytes != nil && *c.SwapBytes < 0 {
		return fmt.Errorf("%w: a swap of %d bytes: want 0 or more", ErrInvalid, *c.SwapBytes)
	}
	if c.Weight != nil {
		if err := sched.CheckWeight(*c.Weight); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	return nil
}

func (c CapsChange) validate() error {
	set := map[string]bool{
		"memory": c.Set.SetsMemory(), "swap": c.Set.SwapBytes != nil, "weight": c.Set.Weight != nil,
	}
	for _, name := range c.Unset {
		isSet, known := set[name]
		if !known {
			return fmt.Errorf("%w: there is no %q to unset; accepted: memory, swap, weight",
				ErrInvalid, name)
		}
		if isSet {
			return fmt.Errorf("%w: %s is both set and unset", ErrInvalid, name)
		}
	}
	off := slices.Contains(c.Unset, "swap") || c.Set.SwapBytes != nil && *c.Set.SwapBytes == 0
	if c.Drain && !off {
		return fmt.Errorf("%w: drain is for swap that is turned off", ErrInvalid)
	}
	return c.Set.validate()
}
