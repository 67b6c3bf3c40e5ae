package session

// What a node is made from, and every bound and time that it keeps to.

import (
	"context"
	"io"
	"log/slog"
	"time"

	"weir/agent/control"
	"weir/agent/session/turns"
	"weir/oci"
	"weir/oci/policy"
)

// Devices is what a node must know of its GPUs; package device implements it.
type Devices interface {
	// GPUs lists the node's GPUs, each with its index, UUID and memory.
	GPUs() ([]control.GPU, error)
	// Processes returns the memory in bytes of each process that NVML lists on a GPU, by pid. An
	// error, or nil, means that it cannot be told.
	Processes(gpuUUID string) (map[int]int64, error)
	// Nodes are the device nodes that a container needs to use a GPU; a simulated one has none.
	Nodes(gpuUUID string) ([]oci.Device, error)
}

// MakeContext starts a process of the agent's own that makes one context on a GPU, and returns when
// that is made. The process, whose pid is NVML's, ends when end is called or the agent ends. An error
// says why there is no such context; ctx bounds the wait for it.
type MakeContext func(ctx context.Context, gpuUUID string) (pid int, end func(), err error)

// ConcurrentManaged asks the driver whether a GPU and the host may use managed memory at the same time, without
// which nothing can be swapped. An error says why the driver does not tell; ctx bounds the wait for it.
type ConcurrentManaged func(ctx context.Context, gpuUUID string) (bool, error)

// Options are what a node is made from.
type Options struct {
	RunDir   string // control pages' and sockets' directory, best on a tmpfs
	StateDir string // for what is worth keeping over a restart of the machine
	Devices  Devices
	// Limits are the driver's own of device memory. nil: it holds none.
	Limits DriverLimits
	// MakeContext is how the agent finds out what a context takes. nil: from tenants only.
	MakeContext MakeContext
	// Managed is how it finds out where memory can be swapped. nil: it is taken for possible.
	Managed ConcurrentManaged

	// Utilisation is how busy a GPU was in the last moments, in percent. nil: slots do not follow it.
	Utilisation func(gpuUUID string) (percent float64, err error)

	Library []byte // the contents of libweir.so
	Version string // of the agent
	Driver  string // version of the driver, for display

	Logger    *slog.Logger     // nil: silent
	Now       func() time.Time // nil: time.Now
	AgentWait time.Duration    // how long an allocation waits for an absent agent; 0: 5 s

	CountContext     bool // contexts, code and limits count against caps; else they are only shown
	EndUndeclared    bool // a process that holds undeclared GPU memory is killed; else only reported
	PassIncompatible bool // who does not go with this agent runs without a cap; else it is refused
	LimitsOff        bool // Limits serve only to take away what an earlier agent has set

	Time    *turns.Settings // of GPU time; nil: the default
	TimeOff bool            // nobody is scheduled, and all gates stay open

	// SwapHostLimit is the most host memory that swap of all containers may take, in bytes. nil: half of the machine's.
	SwapHostLimit *int64

	Policy policy.Policy // what containers of container runtimes are given
	Hook   string        // the path of weir-hook; empty: no container runtime is served

	// clock, where a test sets it, is that of GPU time, in ns.
	clock func() int64
	// checkpoint, where a test sets it, is called between the steps of everything that must survive
	// a kill of the agent.
	checkpoint func(step string)
}

const (
	// helloWait is how long a connection may take to say HELLO.
	helloWait = 5 * time.Second
	// helloMax is how many connections of one container are served that have yet to say HELLO.
	helloMax = 512
	// containersMax is how many containers a node has at most.
	containersMax = 1024
	// holdsMax is how many pieces of shared memory a container's processes have at most, one that
	// several have counted for each.
	holdsMax = 1 << 17
	// waitersMax is how many requests of one container may wait for dying processes, or wait to be
	// answered after that: a tenant that does not read is soon refused at once, and then holds up
	// itself only.
	waitersMax = 1024
	// exitHold is how long the charge of a dead process is held for NVML to stop listing it.
	exitHold = 2 * time.Second
	// returnWait is how long after a restart of the agent a request that does not fit may wait for
	// processes to connect again, which takes a library 100 ms unless its process is stopped.
	returnWait = time.Second
	// exitPoll is how often NVML is asked meanwhile.
	exitPoll = 5 * time.Millisecond
	// roundEvery is how often all processes are looked at for what no descriptor tells.
	roundEvery = 10 * time.Second
	// inspectEvery is how often all usage pages are looked over.
	inspectEvery = time.Second
	// reconcileEvery is how often what NVML says of processes is compared with what they declared,
	// and reconcileAgain how soon once more before a difference is believed: the two looks are not
	// of one moment.
	reconcileEvery = 3 * time.Second
	reconcileAgain = 100 * time.Millisecond
	// makeContextWait is how long the agent's own context may take to be made, and makeContextAgain
	// how soon that is tried again where it has failed. With measureWait it is less than the library
	// waits for an answer.
	makeContextWait  = 3 * time.Second
	makeContextAgain = time.Minute
	// measureWait is how long the size of a context may take to be measured, and measureAgain how
	// soon NVML is asked again until two answers agree.
	measureWait  = time.Second
	measureAgain = 2 * time.Millisecond
	// imageCheckPatience is how long the first look waits: the end of a process is heard of by then,
	// and needs none.
	imageCheckPatience = 2 * time.Millisecond
	// imageCheckFirst and imageCheckLast bound how often a process without a connection is looked
	// at for an exec; the time between doubles from one to the other.
	imageCheckFirst = 50 * time.Millisecond
	imageCheckLast  = 5 * time.Second
	// agentWaitDefault is Options.AgentWait where it is not given.
	agentWaitDefault = 5 * time.Second
)

func (o *Options) setDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.AgentWait <= 0 {
		o.AgentWait = agentWaitDefault
	}
	if o.SwapHostLimit == nil {
		half := halfOfMemory()
		o.SwapHostLimit = &half
	}
}

// step marks the end of one step of the write-ahead order.
func (o *Options) step(name string) {
	if o.checkpoint != nil {
		o.checkpoint(name)
	}
}
