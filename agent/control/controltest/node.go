// Package controltest has a Node in memory, for tests of what stands on the control API.
package controltest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"weir/agent/control"
	"weir/agent/control/ociapi"
)

// Node keeps containers and events as a test puts them there. Its fields are read and written
// under Lock; the calls it got are noted in Runs, Ended and Changes.
type Node struct {
	sync.Mutex
	Agent    control.AgentInfo
	List     []control.Container
	Flows    []control.Flow
	Log      []control.Event
	Grant    control.RunGrant
	Fail     error // what every call returns, if not nil
	Note     string
	Runs     []Run
	Ended    []string
	Changes  []control.CapsChange
	Asked    []ociapi.Container // by Prepare, which answers Prepared
	Prepared ociapi.Prepared
	Told     []ociapi.Event // by Register and Release
	Started  []ociapi.Start
	Listed   []ociapi.Listing
	appended chan struct{}
}

// Run is one StartRun.
type Run struct {
	PID     int
	UID     uint32
	Request control.RunRequest
}

var _ control.Node = (*Node)(nil)

// Info returns Agent.
func (n *Node) Info(context.Context) (control.AgentInfo, error) {
	n.Lock()
	defer n.Unlock()
	return n.Agent, n.Fail
}

// Containers returns List.
func (n *Node) Containers(context.Context) ([]control.Container, error) {
	n.Lock()
	defer n.Unlock()
	return slices.Clone(n.List), n.Fail
}

// Queue returns Flows.
func (n *Node) Queue(context.Context) ([]control.Flow, error) {
	n.Lock()
	defer n.Unlock()
	return slices.Clone(n.Flows), n.Fail
}

// Container finds one of List by id, name or namespace/name.
func (n *Node) Container(_ context.Context, ref string) (control.Container, error) {
	n.Lock()
	defer n.Unlock()
	if at := n.find(ref); at >= 0 && n.Fail == nil {
		return n.List[at], nil
	}
	return control.Container{}, n.missing(ref)
}

func (n *Node) find(ref string) int {
	return slices.IndexFunc(n.List, func(c control.Container) bool {
		return ref == c.ID || ref == c.Name || ref == c.Namespace+"/"+c.Name
	})
}

func (n *Node) missing(ref string) error {
	if n.Fail != nil {
		return n.Fail
	}
	return fmt.Errorf("container %q: %w; `weir ps` lists those there are", ref, control.ErrNotFound)
}

// StartRun notes the call and returns Grant.
func (n *Node) StartRun(
	_ context.Context, pid int, uid uint32, request control.RunRequest,
) (control.RunGrant, error) {
	n.Lock()
	defer n.Unlock()
	if n.Fail != nil {
		return control.RunGrant{}, n.Fail
	}
	n.Runs = append(n.Runs, Run{pid, uid, request})
	grant := n.Grant
	grant.Name = request.Name
	return grant, nil
}

// EndRun notes the call.
func (n *Node) EndRun(_ context.Context, _ uint32, id string) error {
	n.Lock()
	defer n.Unlock()
	n.Ended = append(n.Ended, id)
	return n.Fail
}

// ChangeCaps changes one of List.
func (n *Node) ChangeCaps(
	_ context.Context, ref string, change control.CapsChange,
) (control.CapsResult, error) {
	n.Lock()
	defer n.Unlock()
	at := n.find(ref)
	if at < 0 || n.Fail != nil {
		return control.CapsResult{}, n.missing(ref)
	}
	n.Changes = append(n.Changes, change)
	before := n.List[at].Caps
	after := before
	if change.Set.MemoryBytes != nil || len(change.Set.MemoryByGPU) > 0 {
		after.MemoryBytes, after.MemoryByGPU = change.Set.MemoryBytes, change.Set.MemoryByGPU
	}
	if change.Set.SwapBytes != nil {
		after.SwapBytes = change.Set.SwapBytes
	}
	if change.Set.Weight != nil {
		after.Weight = change.Set.Weight
	}
	for _, name := range change.Unset {
		switch name {
		case "memory":
			after.MemoryBytes, after.MemoryByGPU = nil, nil
		case "swap":
			after.SwapBytes = nil
		case "weight":
			after.Weight = nil
		}
	}
	if !change.DryRun {
		n.List[at].Caps = after
	}
	return control.CapsResult{
		Name: n.List[at].Name, Before: before, After: after, GPUs: n.List[at].GPUs, Message: n.Note,
	}, nil
}

// Prepare notes the call and returns Prepared.
func (n *Node) Prepare(_ context.Context, container ociapi.Container) (ociapi.Prepared, error) {
	n.Lock()
	defer n.Unlock()
	n.Asked = append(n.Asked, container)
	return n.Prepared, n.Fail
}

// Register notes the call.
func (n *Node) Register(_ context.Context, event ociapi.Event) error {
	n.Lock()
	defer n.Unlock()
	n.Told = append(n.Told, event)
	return n.Fail
}

// Release notes the call.
func (n *Node) Release(ctx context.Context, event ociapi.Event) error { return n.Register(ctx, event) }

// Early answers Prepared's grant.
func (n *Node) Early(context.Context) (ociapi.Early, error) {
	n.Lock()
	defer n.Unlock()
	early := ociapi.Early{Grants: make(map[string]string)}
	if n.Prepared.Grant != nil {
		early.Grants["web"] = n.Prepared.Grant.ID
	}
	return early, n.Fail
}

// Missed notes the call.
func (n *Node) Missed(_ context.Context, container ociapi.Container) error {
	n.Lock()
	defer n.Unlock()
	n.Asked = append(n.Asked, container)
	return n.Fail
}

// Start notes the call.
func (n *Node) Start(_ context.Context, start ociapi.Start) error {
	n.Lock()
	defer n.Unlock()
	n.Started = append(n.Started, start)
	return n.Fail
}

// Listing notes the call and never asks for all again.
func (n *Node) Listing(_ context.Context, listing ociapi.Listing) (again bool, err error) {
	n.Lock()
	defer n.Unlock()
	n.Listed = append(n.Listed, listing)
	return false, n.Fail
}

// Append adds an event, numbered, and wakes those who wait.
func (n *Node) Append(event control.Event) {
	n.Lock()
	defer n.Unlock()
	event.Seq = uint64(len(n.Log) + 1)
	if event.Time.IsZero() {
		event.Time = time.Now()
	}
	n.Log = append(n.Log, event)
	if n.appended != nil {
		close(n.appended)
		n.appended = nil
	}
}

// Events returns those of Log after seq.
func (n *Node) Events(ctx context.Context, after uint64, wait bool) ([]control.Event, error) {
	for {
		n.Lock()
		if n.Fail != nil || after < uint64(len(n.Log)) || !wait {
			list := slices.Clone(n.Log[min(after, uint64(len(n.Log))):])
			n.Unlock()
			return list, n.Fail
		}
		if n.appended == nil {
			n.appended = make(chan struct{})
		}
		appended := n.appended
		n.Unlock()
		select {
		case <-appended:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
