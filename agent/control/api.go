// Package control is the API between the CLI and the agent: HTTP and JSON on a Unix socket.
// It is the only package that knows it. Sizes are bytes as integers; unknown is null; every
// answer carries the schema version.
package control

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"weir/agent/control/ociapi"
)

// SchemaVersion is the version of the JSON documents below. It rises with an incompatible change.
const SchemaVersion = 1

// Errors that a Node returns and the API carries to the client with their kind intact.
var (
	ErrNotFound   = errors.New("not found")
	ErrInvalid    = errors.New("invalid")
	ErrPermission = errors.New("permission denied")
	ErrConflict   = errors.New("conflict")
	// ErrUnsupported says that this node cannot do what is asked.
	ErrUnsupported = errors.New("unsupported")
)

// Caps are a container's limits. A nil field means "not set": no cap, weight 1, no swap.
type Caps struct {
	MemoryBytes *int64 `json:"memory_bytes"` // on each GPU
	// MemoryByGPU has the caps of GPUs that have one of their own. They are named by UUID; a request
	// may name them by index, or by the beginning of the UUID.
	MemoryByGPU map[string]int64 `json:"memory_bytes_by_gpu"`
	SwapBytes   *int64           `json:"swap_bytes"`
	Weight      *float64         `json:"weight"`
}

// IsZero tells whether nothing is set.
func (c Caps) IsZero() bool {
	return c.MemoryBytes == nil && len(c.MemoryByGPU) == 0 && c.SwapBytes == nil && c.Weight == nil
}

// SetsMemory tells whether any memory cap is set.
func (c Caps) SetsMemory() bool { return c.MemoryBytes != nil || len(c.MemoryByGPU) > 0 }

// Swaps tells whether it may hold anything beyond its memory: a swap of 0 bytes is off, which holds.
func (c Caps) Swaps() bool { return c.SwapBytes != nil && *c.SwapBytes > 0 }

// GPU is one GPU, or MIG instance, of the node.
type GPU struct {
	Index       int    `json:"index"` // of the card
	MIG         *int   `json:"mig"`   // of a MIG device: its index on the card; nil: a whole card
	UUID        string `json:"uuid"`  // "GPU-…" or "MIG-…", as NVML writes it
	Name        string `json:"name"`
	MemoryBytes int64  `json:"memory_bytes"`
	UsedBytes   *int64 `json:"used_bytes"`
	// UtilisationRatio is the part of the last moments in which some kernel ran, as NVML tells it; nil: it does not.
	UtilisationRatio *float64 `json:"utilisation_ratio"`
	// What the link to the card is found to carry, by what moves of swap took; nil: none has been seen.
	LinkInBytesPerSecond  *int64 `json:"link_in_bytes_per_second"`
	LinkOutBytesPerSecond *int64 `json:"link_out_bytes_per_second"`
	Simulated             bool   `json:"simulated"`
}

// GPUName is how people name a GPU: by its index, and a MIG device by that of its card and its own
// on that, "1:0".
func GPUName(index int, mig *int) string {
	if mig == nil {
		return strconv.Itoa(index)
	}
	return fmt.Sprintf("%d:%d", index, *mig)
}

// GPUUse is what a container, or one session of it, has on one GPU.
type GPUUse struct {
	Index    int    `json:"index"`
	MIG      *int   `json:"mig"` // as of a GPU
	UUID     string `json:"uuid"`
	CapBytes *int64 `json:"cap_bytes"` // nil: no cap
	// DriverLimitBytes is the limit that the driver itself holds; nil: none. Of a session, its container's.
	DriverLimitBytes *int64 `json:"driver_limit_bytes"`
	ChargedBytes     int64  `json:"charged_bytes"` // used and credit together; what the cap holds against
	UsedBytes        int64  `json:"used_bytes"`
	CreditBytes      int64  `json:"credit_bytes"` // granted, not in use, recallable
	// What contexts take for being there; and what code, its variables and limits of contexts take:
	// as the processes say. Part of UsedBytes, unless the agent does not count contexts.
	ContextBytes int64 `json:"context_bytes"`
	CodeBytes    int64 `json:"code_bytes"`
	// MovableBytes is what lies on the card or on the host, by what swap does: part of UsedBytes, and of no credit.
	MovableBytes int64 `json:"movable_bytes"`
	// Swap is how that stands; nil: it has no swap there. Of a session, nil.
	Swap *SwapUse `json:"swap"`
	// SharedBytes: of a container, what of UsedBytes its processes have exported, as long as anybody
	// has it; of a session, what it has exported, which is not in its other figures.
	SharedBytes int64 `json:"shared_bytes"`
}

// OnCard is what the container has on the card.
func (u *GPUUse) OnCard() int64 {
	if u.Swap == nil || u.Swap.ResidentBytes == nil {
		return u.UsedBytes
	}
	return u.UsedBytes - u.MovableBytes + *u.Swap.ResidentBytes
}

// SwapUse is where a container's movable memory on one GPU is, and how it came there, since the container or the agent
// began. All but the limit is null where nothing is moved by plan.
type SwapUse struct {
	LimitBytes    int64  `json:"limit_bytes"`    // what it may hold beyond its cap; 0: its swap is being turned off
	ResidentBytes *int64 `json:"resident_bytes"` // on the card, or on its way there or from there
	SwappedBytes  *int64 `json:"swapped_bytes"`  // on the host; the rest has not been touched yet
	MovedInBytes  *int64 `json:"moved_in_bytes"` // by plan
	MovedOutBytes *int64 `json:"moved_out_bytes"`
	FaultedBytes  *int64 `json:"faulted_bytes"` // came to the card by kernels' page faults, as far as is known
	// DisplacedBytes went to the host by the driver itself, as far as is known.
	DisplacedBytes *int64 `json:"displaced_bytes"`
	// CancelledMoves were to be taken back by a plan that had changed, UndoneMoves are those of them that had not begun.
	CancelledMoves *int64 `json:"cancelled_moves"`
	UndoneMoves    *int64 `json:"undone_moves"`
	// OverCapBytes is what it has on the card beyond its cap, OverCapMostBytes the most of that by kernels' page faults.
	OverCapBytes     *int64 `json:"over_cap_bytes"`
	OverCapMostBytes *int64 `json:"over_cap_most_bytes"`
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
	ID        string `json:"id"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// State is prepared (a container runtime is about to start it), running, or ending: `weir run`, or
	// its first process, has ended, and processes of it live on.
	State    string    `json:"state"`
	Identity string    `json:"identity"` // cgroup | path; empty: weir has no part in it
	PID      int       `json:"pid"`      // of `weir run`, or the container's init
	Command  []string  `json:"command"`
	Started  time.Time `json:"started"`
	Caps     Caps      `json:"caps"`
	Report   string    `json:"report"` // what its processes are shown as the total: ReportCap or ReportVirtual
	GPUs     []GPUUse  `json:"gpus"`
	Sessions []Session `json:"sessions"`
	Enforced bool      `json:"enforced"`
	// EnforcedBy is what its memory caps hold by, ByDriver or ByLibrary; nil: nothing, or it has none.
	EnforcedBy *string `json:"enforced_by"`
	Reason     string  `json:"reason"` // why not, or what only the driver holds, or an empty string
	// ReasonKind is which kind of reason that is, one of ReasonKinds; empty where there is none.
	ReasonKind string `json:"reason_kind"`
	Refused    int64  `json:"refused"` // allocations refused so far
	// What a container runtime calls it, or has told of it; empty where that is not known.
	RuntimeID string            `json:"runtime_id"`
	Pod       string            `json:"pod"`
	PodUID    string            `json:"pod_uid"`
	Image     string            `json:"image"`
	Labels    map[string]string `json:"labels"` // nil: not known
}

// What memory caps hold by: the driver's own limit (and the library), or the library alone.
const (
	ByDriver  = "driver"
	ByLibrary = "library"
)

// The kinds of reasons for which a container is not enforced.
const (
	ReasonNoLibrary  = "no-library" // a process of it runs without the library, or the library in it is of no use
	ReasonUndeclared = "undeclared" // a process of it holds memory that it has not declared
	ReasonUnasked    = "unasked"    // it has a GPU and asked for nothing
	ReasonNoPart     = "no-part"    // weir had no part in its start
)

// ReasonKinds are all of them.
var ReasonKinds = []string{ReasonNoLibrary, ReasonUndeclared, ReasonUnasked, ReasonNoPart}

// What memory reports inside a container show as the total: its cap, or cap and swap together.
const (
	ReportCap     = "cap"
	ReportVirtual = "virtual"
)

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
	Count     int64     `json:"count"`   // how often it has happened so far: see package events
	Message   string    `json:"message"` // one sentence, with the way out
}

// RunRequest registers `weir run`'s process group as a container. The caller is the process whose
// end ends the container; its pid is taken from the connection, not from the request.
type RunRequest struct {
	Name    string   `json:"name"` // empty: made from the command
	Command []string `json:"command"`
	Caps    Caps     `json:"caps"`
	Report  string   `json:"report"` // ReportCap or ReportVirtual; empty: ReportCap
}

// RunGrant is what `weir run` gives its child in the environment.
type RunGrant struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Socket  string `json:"socket"`  // WEIR_SOCKET
	Library string `json:"library"` // LD_PRELOAD
}

// CapsChange sets the fields that are not nil and, where named in Unset, removes others. A memory cap
// on each GPU takes the place of those that GPUs have of their own, but for those that come with it.
type CapsChange struct {
	Set   Caps     `json:"set"`
	Unset []string `json:"unset"` // memory | swap | weight
	// Drain: where swap is turned off, what lies on the host comes back first; else that is refused.
	Drain  bool `json:"drain"`
	DryRun bool `json:"dry_run"`
}

// CapsResult says what was, what is, and what the change does to running work.
type CapsResult struct {
	Name    string   `json:"name"`
	Before  Caps     `json:"before"`
	After   Caps     `json:"after"`
	GPUs    []GPUUse `json:"gpus"`    // as they are after it
	Message string   `json:"message"` // "6.1GiB in use, so new allocations fail until it drops", or ""
	// SwapMessage is the same of swap: "2GiB come back from the host first", or "".
	SwapMessage string `json:"swap_message"`
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
	// TimeShared: GPU time is shared out by weights; else they are kept, and have no effect.
	TimeShared bool `json:"time_shared"`
	// SwapHostLimitBytes is the most host memory that swap may take, SwapHostBytes what is set aside of it.
	SwapHostLimitBytes int64 `json:"swap_host_limit_bytes"`
	SwapHostBytes      int64 `json:"swap_host_bytes"`

	GPUs []GPU `json:"gpus"`
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
	// Queue lists the flows of all containers that use a GPU, or have used it lately, by GPU.
	Queue(ctx context.Context) ([]Flow, error)
	// Prepare, Register and Release are what container runtimes' helpers ask: see package ociapi.
	Prepare(ctx context.Context, container ociapi.Container) (ociapi.Prepared, error)
	Register(ctx context.Context, event ociapi.Event) error
	Release(ctx context.Context, event ociapi.Event) error
	// Early and Missed are what an NRI plugin asks and tells after it was away: see there, too.
	Early(ctx context.Context) (ociapi.Early, error)
	Missed(ctx context.Context, container ociapi.Container) error
	Start(ctx context.Context, start ociapi.Start) error
	// Listing takes what a helper tells of all containers of a container runtime. again is true where it
	// should tell of all of them anew.
	Listing(ctx context.Context, listing ociapi.Listing) (again bool, err error)
	// Events returns those after seq (0: all kept). With wait it blocks until there is one or ctx ends.
	Events(ctx context.Context, afterSeq uint64, wait bool) ([]Event, error)
}
