// Package nri is weir as a plugin of a container runtime's node resource interface (NRI): of containers
// that the CRI makes, it asks the agent, and answers with the grant as an adjustment.
//
// Invariants: a container that weir has nothing to do with is answered with nothing, whatever is wrong
// with the agent; an answer is always in time, since the runtime starts a container unchanged when its
// plugins are late; nothing but the agent decides. The plugin keeps nothing that it could not lose.
package nri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"

	"weir/agent/control/ociapi"
	"weir/hook/bundle"
)

// runtimeWait is how long runtimes wait for a plugin, unless they say otherwise.
const runtimeWait = 2 * time.Second

// agent is what is asked: an ociapi.Client.
type agent interface {
	Prepare(ociapi.Container) (ociapi.Prepared, error)
	Release(ociapi.Event) error
	Early() (ociapi.Early, error)
	Missed(ociapi.Container) error
	Start(ociapi.Start) error
}

// Plugin answers a runtime's requests. It is used for one connection.
type Plugin struct {
	agent   agent
	control string       // its socket
	bundles string       // the directory of bundles
	grants  string       // the directory of containers' own directories
	wait    atomic.Int64 // how long the agent may take, in ns
	log     *slog.Logger
	synced  func()          // called once it is known to the runtime
	over    <-chan struct{} // closed when the connection is

	mu    sync.Mutex
	asked map[string]bool // containers, by id, that the agent was asked about and may have prepared
}

func newPlugin(o Options, over <-chan struct{}, synced func()) *Plugin {
	p := &Plugin{
		agent:   ociapi.Client{Socket: o.Control},
		control: o.Control,
		bundles: filepath.Join(o.StateDir, "io.containerd.runtime.v2.task", "k8s.io"),
		grants:  filepath.Join(filepath.Dir(o.Control), "c"),
		log:     o.Log, synced: synced, over: over, asked: make(map[string]bool),
	}
	p.waitFor(runtimeWait)
	return p
}

// waitFor says how long the runtime waits. The agent may take most of that.
func (p *Plugin) waitFor(runtime time.Duration) {
	if runtime > 0 {
		p.wait.Store(int64(runtime / 4 * 3))
	}
}

// late fires when an answer would be.
func (p *Plugin) late() (<-chan time.Time, error) {
	wait := time.Duration(p.wait.Load())
	return time.After(wait), ociapi.Unreachable(p.control, fmt.Errorf("no answer within %v", wait))
}

// inTime asks for no longer than the runtime waits.
func inTime[T any](p *Plugin, ask func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	late, err := p.late()
	go func() {
		value, err := ask()
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-late:
		var none T
		return none, err
	}
}

// CreateContainer answers with what the agent grants. An error keeps the container from being made, and
// is what the user sees.
func (p *Plugin) CreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) (
	*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	found := facts(pod, c)
	if !concerns(found) {
		return nil, nil, nil
	}
	fail := func(err error) error { return fmt.Errorf("weir: container %s: %w", found.Name, err) }
	request := request(found, c.GetId(), p.bundle(c))
	var unread error
	if source := found.PreloadSource; source != "" {
		if request.Preload, unread = bundle.MountedPreload(source); unread != nil {
			request.Obstacle = unread.Error() // which the agent weighs against the node's policy, and tells of
		}
	}
	prepared, err := p.prepare(request)
	var refusal *ociapi.Refusal
	if errors.As(err, &refusal) {
		p.note(request.ID, false) // there is nothing to release
	}
	switch {
	case unread != nil && (asks(found) || prepared.Grant != nil):
		if prepared.Grant != nil { // by an agent of old
			go p.release(request.ID, ociapi.Event{Bundle: request.Bundle})
		}
		return nil, nil, fail(unread)
	case !onlyShown(found) && refusal != nil, err != nil && asks(found):
		return nil, nil, fail(err)
	case onlyShown(found):
		p.note(request.ID, false)
		return nil, nil, nil
	case err != nil:
		p.log.Warn("a container with a GPU that asked for nothing passes", "container", found.Name, "error", err)
		return nil, nil, nil
	case prepared.Grant == nil:
		p.note(request.ID, false)
		return nil, nil, nil
	case p.isOver():
		go p.release(request.ID, ociapi.Event{Bundle: request.Bundle})
		return nil, nil, fail(errOver)
	}
	return Adjustment(*prepared.Grant, c), nil, nil
}

var errOver = errors.New("the runtime has closed the connection")

// isOver tells whether nobody waits for an answer any more. What was granted before is in the agent's list
// of early containers when the next connection begins.
func (p *Plugin) isOver() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

// prepare asks the agent, and waits for no longer than the runtime does. What is granted later is given
// back.
func (p *Plugin) prepare(request ociapi.Container) (ociapi.Prepared, error) {
	p.note(request.ID, true)
	type answer struct {
		prepared ociapi.Prepared
		err      error
	}
	answers := make(chan answer)
	late, err := p.late()
	gaveUp := make(chan struct{})
	go func() {
		prepared, err := p.agent.Prepare(request)
		select {
		case answers <- answer{prepared, err}:
		case <-gaveUp:
			p.release(request.ID, ociapi.Event{Bundle: request.Bundle})
		}
	}()
	select {
	case a := <-answers:
		return a.prepared, a.err
	case <-late:
		close(gaveUp)
		return ociapi.Prepared{}, err
	}
}

// StartContainer refuses, as the agent says, a container that is to have a grant and that was made without a
// question: the runtime may lose its plugin, or its patience, in the middle of one.
func (p *Plugin) StartContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	found := facts(pod, c)
	if !concerns(found) || onlyShown(found) {
		return nil
	}
	start := ociapi.Start{Container: request(found, c.GetId(), p.bundle(c)), Mounted: mounted(c)}
	_, err := inTime(p, func() (struct{}, error) { return struct{}{}, p.agent.Start(start) })
	var refusal *ociapi.Refusal
	switch {
	case errors.As(err, &refusal), err != nil && asks(found):
		p.log.Error("a container was not started", "container", found.Name, "error", err)
		return fmt.Errorf("weir: container %s: %w", found.Name, err)
	case err != nil:
		p.log.Warn("a container with a GPU that asked for nothing starts", "container", found.Name, "error", err)
	}
	return nil
}

// RemoveContainer releases one that was prepared, and may not have started.
func (p *Plugin) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	if p.note(c.GetId(), false) || injected(c, p.grants) != "" {
		go p.release(c.GetId(), ociapi.Event{Bundle: p.bundle(c)})
	}
	return nil
}

// Synchronize hears of all containers that there are when the plugin comes. Those that are gone meanwhile
// are released; what concerns weir and was made without it is told to the agent.
func (p *Plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) (
	[]*api.ContainerUpdate, error) {
	// None is made until this is answered, so of what is prepared now and not in the list nothing comes.
	early, err := inTime(p, p.agent.Early)
	if err != nil {
		p.log.Warn("containers that were removed meanwhile may be kept", "error", err)
	}
	go func() {
		p.releaseGone(early, containers)
		p.tellMissed(pods, containers)
	}()
	p.synced()
	return nil, nil
}

// releaseGone releases what is gone, and what a runtime that lost patience has made without its grant.
func (p *Plugin) releaseGone(early ociapi.Early, containers []*api.Container) {
	for _, c := range containers {
		if early.Grants[c.GetId()] == injected(c, p.grants) {
			delete(early.Grants, c.GetId())
		}
	}
	for id, grant := range early.Grants {
		p.release(id, ociapi.Event{GrantID: grant})
	}
}

// tellMissed tells of what runs and concerns weir. The agent knows which of it has no grant: what is mounted in a
// container says only what its maker wanted.
func (p *Plugin) tellMissed(pods []*api.PodSandbox, containers []*api.Container) {
	byID := make(map[string]*api.PodSandbox)
	for _, pod := range pods {
		byID[pod.GetId()] = pod
	}
	for _, c := range containers {
		found := facts(byID[c.GetPodSandboxId()], c)
		if !concerns(found) || onlyShown(found) || c.GetState() != api.ContainerState_CONTAINER_RUNNING {
			continue
		}
		missed := request(found, c.GetId(), p.bundle(c))
		missed.PID = int(c.GetPid())
		if err := p.agent.Missed(missed); err != nil {
			p.log.Warn("containers that run without a cap may go unnoticed", "error", err)
			return
		}
	}
}

// bundle is where the runtime will make the container's bundle. A runtime that makes it elsewhere is none
// the worse: the path then only names the container.
func (p *Plugin) bundle(c *api.Container) string { return filepath.Join(p.bundles, c.GetId()) }

// release gives up a container that is over for the runtime.
func (p *Plugin) release(id string, event ociapi.Event) {
	p.note(id, false)
	if err := p.agent.Release(event); err != nil {
		p.log.Warn("a container that is gone is kept until the plugin starts anew", "container", id, "error", err)
	}
}

// note notes whether a container was asked about, and returns what was noted before.
func (p *Plugin) note(id string, asked bool) (before bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before = p.asked[id]
	if asked {
		p.asked[id] = true
	} else {
		delete(p.asked, id)
	}
	return before
}
