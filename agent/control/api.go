// Package control is the API between the CLI and the agent: HTTP and JSON on a Unix socket.
// It is the only package that knows it. Sizes are bytes as integers; unknown is null; every
// answer carries the schema version.
package control

import (
	"context"
	"errors"
	"time"
)

// SchemaVersion is the version of the JSON documents below. It rises with an incompatible change.
const SchemaVersion = 1

// Errors that a Node returns and the API carries to the client with their kind intact.
var (
	ErrNotFound   = errors.New("not found")
	ErrInvalid    = errors.New("invalid")
	ErrPermission = errors.New("permission denied")
	ErrConflict   = errors.New("conflict")
)

// Caps are a container's limits. A nil field means "not set": no cap, weight 1, no swap.
type Caps struct {
	MemoryBytes *int64   `json:"memory_bytes"`
	SwapBytes   *int64   `json:"swap_bytes"`
	Weight      *float64 `json:"weight"`
}

// GPU is one GPU, or MIG instance, of the node.
type GPU struct {
	Index       int    `json:"index"`
	UUID        string `json:"uuid"` // "GPU-…", as NVML writes it
	Name        string `json:"name"`
	MemoryBytes int64  `json:"memory_bytes"`
	UsedBytes   *int64 `json:"used_bytes"`
	Simulated   bool   `json:"simulated"`
}

// GPUUse is what a container, or one session of it, has on one GPU.
type GPUUse struct {
	Index        int    `json:"index"`
	UUID         string `json:"uuid"`
	CapBytes     *int64 `json:"cap_bytes"`     // nil: no cap
	ChargedBytes int64  `json:"charged_bytes"` // used and credit together; what the cap holds against
	UsedBytes    int64  `json:"used_bytes"`
	CreditBytes  int64  `json:"credit_bytes"` // granted, not in use, recallable
}

// Session is one process's connection.
type Session struct {
	ID      uint64    `json:"id"`
	PID     int       `json:"pid"` // in the agent's pid namespace
	Program string    `json:"program"`
	State   string    `json:"state"` // connected | detached | recovered | exiting
	Since   time.Time `json:"since"`
	GPUs    []GPUUse  `json:"gpus"` // only those with a charge
	Library string    `json:"library"`
	ABI     int       `json:"abi"`
}

// Container is the unit that has caps and weight.
type Container struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Namespace string    `json:"namespace"`
	State     string    `json:"state"`    // running, or ending: `weir run` has ended, processes of it live on
	Identity  string    `json:"identity"` // cgroup | path
	PID       int       `json:"pid"`      // of `weir run`, or the container's init
	Command   []string  `json:"command"`
	Started   time.Time `json:"started"`
	Caps      Caps      `json:"caps"`
	GPUs      []GPUUse  `json:"gpus"`
	Sessions  []Session `json:"sessions"`
	Enforced  bool      `json:"enforced"`
	Reason    string    `json:"reason"`  // why not, or an empty string
	Refused   int64     `json:"refused"` // allocations refused so far
}

// Event is one line of `weir events`.
type Event struct {
	Seq       uint64    `json:"seq"`
	Time      time.Time `json:"time"`
	Type      string    `json:"type"` // denied | caps | started | ended | session-ended | unenforced | agent | …
	Container string    `json:"container"`
	Namespace string    `json:"namespace"`
	PID       int       `json:"pid"`
	GPUUUID   string    `json:"gpu_uuid"`
	Asked     *int64    `json:"asked_bytes"`
	Used      *int64    `json:"used_bytes"`
	Cap       *int64    `json:"cap_bytes"`
	Message   string    `json:"message"` // one sentence, with the way out
}

// RunRequest registers `weir run`'s process group as a container. The caller is the process whose
// end ends the container; its pid is taken from the connection, not from the request.
type RunRequest struct {
	Name    string   `json:"name"` // empty: made from the command
	Command []string `json:"command"`
	Caps    Caps     `json:"caps"`
}

// RunGrant is what `weir run` gives its child in the environment.
type RunGrant struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Socket  string `json:"socket"`  // WEIR_SOCKET
	Library string `json:"library"` // LD_PRELOAD
}

// CapsChange sets the fields that are not nil and, where named in Unset, removes others.
type CapsChange struct {
	Set    Caps     `json:"set"`
	Unset  []string `json:"unset"` // memory | swap | weight
	DryRun bool     `json:"dry_run"`
}

// CapsResult says what was, what is, and what the change does to running work.
type CapsResult struct {
	Name    string `json:"name"`
	Before  Caps   `json:"before"`
	After   Caps   `json:"after"`
	Message string `json:"message"` // "6.1GiB in use, so new allocations fail until it drops", or ""
}

// AgentInfo is what `weir version` and the demo show of the agent.
type AgentInfo struct {
	Version   string    `json:"version"`
	ABI       int       `json:"abi"`
	PID       int       `json:"pid"`
	RunDir    string    `json:"run_dir"`
	StateDir  string    `json:"state_dir"`
	Started   time.Time `json:"started"`
	Driver    string    `json:"driver"`
	Simulated bool      `json:"simulated"`
	GPUs      []GPU     `json:"gpus"`
}

// Node is what the API serves; package session implements it. ref is a container's id, a unique
// prefix of at least four characters of it, or its name (namespace/name where ambiguous).
type Node interface {
	Info(ctx context.Context) (AgentInfo, error)
	Containers(ctx context.Context) ([]Container, error)
	Container(ctx context.Context, ref string) (Container, error)
	StartRun(ctx context.Context, callerPID int, callerUID uint32, req RunRequest) (RunGrant, error)
	EndRun(ctx context.Context, callerUID uint32, id string) error
	ChangeCaps(ctx context.Context, ref string, change CapsChange) (CapsResult, error)
	// Events returns those after seq (0: all kept). With wait it blocks until there is one or ctx ends.
	Events(ctx context.Context, afterSeq uint64, wait bool) ([]Event, error)
}
