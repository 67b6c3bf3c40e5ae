package session

// Containers that a container runtime starts: what they are given, how they begin and end. Between the
// preparation, which names the container's directory to the runtime, and the registration of its first
// process nobody is admitted to it.

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weir/agent/control"
	"weir/agent/control/ociapi"
	"weir/agent/session/proc"
	"weir/agent/store"
	"weir/oci"
	"weir/oci/annotation"
	"weir/oci/policy"
)

// startWait is how long a container may take from its preparation to its first process.
const startWait = 2 * time.Minute

// Prepare decides what becomes of a container that is about to start, and makes what it is granted. Of
// one with a pid the first process is there already, and is registered. Asking the same again about
// the same bundle gives the same grant.
func (n *Node) Prepare(ctx context.Context, asked ociapi.Container) (_ ociapi.Prepared, err error) {
	defer func() { n.tellRefused(&asked, err) }()
	if err := n.checkRuntime(asked); err != nil {
		return ociapi.Prepared{}, err
	}
	n.complete(ctx, &asked)
	// Without the lock, since a driver that hangs must hold up nobody else.
	decision, devices, refusal := n.decideAndFind(ctx, asked)
	if asked.Obstacle != "" && (len(asked.Annotations) > 0 || refusal == nil && decision.Action == policy.Grant) {
		return ociapi.Prepared{}, fmt.Errorf("%w: %s", control.ErrInvalid, asked.Obstacle)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.byBundle(asked.Bundle)
	if c != nil && c.outdated(asked) {
		c.event("unstarted", 0, "prepared, and not started: its bundle is now another container's")
		n.discard(c)
		c = nil
	}
	if c == nil {
		if refusal != nil {
			return ociapi.Prepared{}, refusal
		}
		if decision.Action == policy.Pass {
			n.passed(asked, decision.Reason)
			return ociapi.Prepared{Reason: decision.Reason}, nil
		}
	}
	if err = n.checkHook(); err != nil {
		return ociapi.Prepared{}, err
	}
	switch {
	case c == nil:
		c, err = n.prepare(asked, decision, devices)
	case c.spec.Prepared() && !c.spec.OCI.Early && asked.PID == 0:
		err = n.furnish(c.spec, asked.Preload) // an agent may have ended in the middle of it
	}
	if err != nil {
		return ociapi.Prepared{}, fmt.Errorf("preparing container %s: %w", asked.Name, err)
	}
	grant := n.grant(c.spec)
	if asked.PID > 0 {
		if err := c.mayRegister(asked.PID); err != nil {
			return ociapi.Prepared{}, err
		}
		err := n.leaveNote(c.spec, grant)
		if err == nil && c.spec.Prepared() {
			err = n.register(c, asked.PID)
		}
		if err != nil {
			return ociapi.Prepared{}, err
		}
	}
	return ociapi.Prepared{Grant: &grant}, nil
}

// outdated tells whether a container that was prepared is not the one that is about to start now: a start
// failed, and the next one from the same bundle asks for something else. Early ones are asked about again by
// those who know less, and by a hook that has a process the container is the one that was prepared. Called
// under node.mu.
func (c *container) outdated(asked ociapi.Container) bool {
	return c.spec.Prepared() && !c.spec.OCI.Early && asked.PID == 0 &&
		c.spec.OCI.Asked != digest(asked)
}

// digest names what is asked.
func digest(asked ociapi.Container) string {
	text, err := json.Marshal(asked)
	if err != nil {
		return "" // texts and numbers always have one
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// checkRuntime refuses what no container runtime would ask.
func (n *Node) checkRuntime(asked ociapi.Container) error {
	switch {
	case os.Geteuid() != 0:
		return fmt.Errorf("%w: this agent runs as user %d; container runtimes need one that runs as root",
			control.ErrPermission, os.Geteuid())
	case !filepath.IsAbs(asked.Bundle) || !filepath.IsAbs(asked.Root):
		return fmt.Errorf("%w: bundle %q, root %q: want absolute paths", control.ErrInvalid, asked.Bundle, asked.Root)
	case asked.ID == "" || asked.PID < 0:
		return fmt.Errorf("%w: a container without id, or with pid %d", control.ErrInvalid, asked.PID)
	}
	return nil
}

// checkHook refuses where the program is missing that starts with each container, and whose absence would else be
// told by the runtime, in its words.
func (n *Node) checkHook() error {
	const wayOut = "install all of weir's programs in one directory"
	if n.opts.Hook == "" {
		return fmt.Errorf("%w: the agent has found no weir-hook beside its own program; %s, and restart the agent",
			control.ErrUnsupported, wayOut)
	}
	info, err := os.Stat(n.opts.Hook)
	if err == nil && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0) {
		err = fmt.Errorf("%s is no program", n.opts.Hook)
	}
	if err != nil {
		return fmt.Errorf("%w: weir-hook, which a container with a grant starts with, is missing: %w; %s",
			control.ErrUnsupported, err, wayOut)
	}
	return nil
}

// decide applies the configuration to what is asked. A refusal is an error for the user.
func (n *Node) decide(ctx context.Context, asked ociapi.Container) (policy.Decision, error) {
	request, err := annotation.Parse(asked.Annotations, asked.Name)
	// Those who ask leave out what names other containers of a pod: what is left is a mistake.
	if err == nil {
		err = annotation.Misnamed(asked.Annotations, asked.Name)
	}
	if err != nil {
		return policy.Decision{}, fmt.Errorf("%w: %w", control.ErrInvalid, err)
	}
	node := policy.Node{}
	for _, g := range n.gpus {
		node.GPUs = append(node.GPUs, g.card())
	}
	node.SwapMax = *n.opts.SwapHostLimit
	if request.Swap != nil && *request.Swap > 0 {
		node.NoSwap = n.noSwap(ctx)
	}
	decision := policy.Decide(request, n.opts.Policy,
		policy.Container{Namespace: asked.Namespace, Image: asked.Image, HasGPU: asked.HasGPU,
			AllDevices: asked.AllDevices}, node)
	if s := decision.Limits.Swap; s != nil && *s > 0 {
		n.noSwap(ctx) // by default: which GPUs can have it is known from now on
	}
	if decision.Action == policy.Refuse {
		return decision, fmt.Errorf("%w: %s", control.ErrInvalid, decision.Reason)
	}
	return decision, nil
}

// decideAndFind is decide, with the device nodes that the container is granted.
func (n *Node) decideAndFind(ctx context.Context, asked ociapi.Container) (policy.Decision, []oci.Device, error) {
	decision, err := n.decide(ctx, asked)
	if err != nil {
		return decision, nil, err
	}
	var devices []oci.Device
	for _, uuid := range decision.GPUs {
		nodes, err := n.opts.Devices.Nodes(uuid)
		if err != nil {
			return decision, nil, fmt.Errorf("preparing container %s: GPU %s: %w", asked.Name, uuid, err)
		}
		devices = append(devices, nodes...)
	}
	return decision, devices, nil
}

// prepare makes the container. Called under mu.
func (n *Node) prepare(asked ociapi.Container, decision policy.Decision, devices []oci.Device) (*container, error) {
	caps := control.Caps{MemoryBytes: decision.Limits.Memory, SwapBytes: decision.Limits.Swap,
		Weight: decision.Limits.Weight}
	spec := store.Container{
		ID: n.newContainerID(), Name: n.freeName(nameOf(asked.Name)), Namespace: asked.Namespace,
		Identity: cgroupIdentity, Started: n.opts.Now(), Caps: store.Caps(caps), Command: shorten(asked.Command),
		Virtual: decision.Limits.Report == annotation.ReportVirtual,
		OCI: &store.OCI{ID: asked.ID, Bundle: filepath.Clean(asked.Bundle), Root: asked.Root, Pod: asked.Pod,
			PodUID: asked.PodUID, Image: asked.Image, Devices: unique(devices), FixedImage: asked.FixedImage,
			ReadImage: asked.ReadImage && !asked.FixedImage, Early: asked.Early,
			Asked: digest(asked)},
	}
	c, err := n.open(spec, nil)
	if err != nil {
		return nil, err
	}
	if err := n.furnish(c.spec, asked.Preload); err != nil {
		n.discard(c)
		return nil, err
	}
	_, err = os.Stat(spec.OCI.Bundle)
	c.bundleSeen = err == nil
	c.event("prepared", 0, "%s", strings.Join(nonEmpty("prepared with "+n.describeCaps(spec.Caps), decision.Note), "; "))
	if later := n.notDone(caps, decision); later != "" {
		c.event("unenforced", 0, "%s", later)
	}
	return c, nil
}

// notDone says what of a decision is kept, and not enforced.
func (n *Node) notDone(caps control.Caps, decision policy.Decision) string {
	idle := ""
	if len(decision.WithoutEffect) > 0 {
		idle = strings.Join(decision.WithoutEffect, ", ") + ": accepted, but without effect in this version"
	}
	return strings.Join(nonEmpty(n.unswappable(caps), n.notEnforced(caps), idle), "; ")
}

// nameOf is a name as `weir ps` shows it.
func nameOf(called string) string {
	name := strings.TrimLeft(notInNames.ReplaceAllString(called, "-"), "._-")
	if name = name[:min(len(name), nameBytesMax)]; name == "" {
		return "container"
	}
	return name
}

// unique drops device nodes that several GPUs have in common.
func unique(devices []oci.Device) (list []oci.Device) {
	seen := make(map[string]bool)
	for _, d := range devices {
		if !seen[d.Path] {
			seen[d.Path] = true
			list = append(list, d)
		}
	}
	return list
}

// Register says that the first process of a prepared container is there. It is the caller, as root, who
// is believed which one that is.
func (n *Node) Register(_ context.Context, event ociapi.Event) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.named(event)
	if c == nil {
		return fmt.Errorf("%w: a container that the agent has not prepared, or has given up after %v; start it again",
			control.ErrNotFound, startWait)
	}
	if err := c.mayRegister(event.PID); err != nil {
		return err
	}
	if event.Preload != nil && c.spec.OCI.ReadImage {
		if err := n.mergePreload(c.spec, *event.Preload); err != nil {
			return fmt.Errorf("registering container %s: %w", c.spec.Name, err)
		}
	}
	if !c.spec.Prepared() {
		return nil // by another hook of weir's: a container may be asked about in more than one way
	}
	return n.register(c, event.PID)
}

// mayRegister refuses a first process of a container that has another. Called under node.mu.
func (c *container) mayRegister(pid int) error {
	if c.spec.Prepared() || c.spec.PID == pid {
		return nil
	}
	return fmt.Errorf("%w: container %s, of the same bundle, has process %d as its first already", control.ErrConflict,
		c.spec.Name, c.spec.PID)
}

// register takes hold of a container's first process. Called under mu.
func (n *Node) register(c *container, pid int) error {
	fail := func(err error) error { return fmt.Errorf("registering container %s: %w", c.spec.Name, err) }
	root, err := proc.OpenPID(pid)
	if err != nil {
		return fail(fmt.Errorf("process %d: %w", pid, err))
	}
	group, err := ownGroup(pid)
	if err == nil && root.Ended() {
		err = proc.ErrGone
	}
	var predecessors []*container
	if err == nil {
		predecessors, err = n.predecessors(c, group, root.ID)
	}
	if err != nil {
		root.Close()
		return fail(fmt.Errorf("process %d: %w", pid, err))
	}
	prepared, begun := c.spec.OCI, *c.spec.OCI
	begun.Cgroup = (*store.Cgroup)(&group)
	for _, before := range predecessors {
		begun.DriverLimited = begun.DriverLimited || before.spec.OCI.DriverLimited
	}
	c.root = root
	c.setRoot(root.ID, n.willLimit(&begun, c.spec.Caps))
	if err = n.save(); err == nil {
		c.rootMark, err = n.watcher.add(root, c.rootEnded)
	}
	if err != nil {
		c.root = nil
		c.setRoot(proc.ID{}, prepared)
		root.Close()
		return fail(err)
	}
	c.identity.(*grouped).group.Store(&group)
	c.takeLimits(predecessors)
	c.keepLimits(true)
	c.event("started", pid, "started in the control group %s", group.Path)
	return nil
}

// setRoot notes which process a container's first one is. Called under node.mu.
func (c *container) setRoot(id proc.ID, kept *store.OCI) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spec.PID, c.spec.Start, c.spec.OCI = id.PID, id.Start, kept
}

// ownGroup is a process's control group, which must not be the agent's own, too: everybody would be
// in it.
func ownGroup(pid int) (proc.Cgroup, error) {
	group, err := proc.CgroupOf(pid)
	if err != nil {
		return group, err
	}
	has, err := group.Has(os.Getpid())
	if has {
		err = fmt.Errorf("its control group %s is the agent's, too", group.Path)
	}
	return group, err
}

// predecessors are the containers that had a control group before c, and of which something is left. Two that run in
// one group could not be told from each other; but one that was asked about twice, under two bundles, is one. Called
// under mu.
func (n *Node) predecessors(c *container, group proc.Cgroup, first proc.ID) (ended []*container, err error) {
	for _, other := range n.containers {
		known, is := other.identity.(*grouped)
		if !is || other == c || other.spec.PID == first.PID && other.spec.Start == first.Start {
			continue
		}
		if has := known.group.Load(); has == nil || *has != group {
			continue
		}
		if !other.over() {
			return nil, fmt.Errorf("its control group %s is that of container %s, too; give each container one of its own",
				group.Path, other.spec.Name)
		}
		ended = append(ended, other)
	}
	return ended, nil
}

// over tells whether the container's first process has ended, though the agent may not have been told. Called under
// node.mu.
func (c *container) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rootOver || c.closed || c.root != nil && c.root.Ended()
}

// Release says that a container has ended. One that is not known needs nothing. Nor does one whose first process lives:
// it is another's of the same bundle that has ended, or that was not started, and the agent sees the end by itself.
func (n *Node) Release(_ context.Context, event ociapi.Event) error {
	n.mu.Lock()
	c := n.named(event)
	unstarted := c != nil && c.spec.Prepared()
	lives := c != nil && !unstarted && !c.over()
	n.mu.Unlock()
	if unstarted {
		c.event("unstarted", 0, "prepared, and not started: its start has failed")
	}
	if c != nil && !lives {
		c.rootEnded()
	}
	return nil
}

// dropUnstarted gives up containers that were prepared and did not begin: at once where their bundle is
// gone, as it is after a start that failed, else after some time.
func (n *Node) dropUnstarted() {
	n.mu.Lock()
	var late []*container
	for _, c := range n.containers {
		if !c.spec.Prepared() {
			continue
		}
		gone := false
		if c.bundleSeen {
			_, err := os.Stat(c.spec.OCI.Bundle)
			gone = errors.Is(err, fs.ErrNotExist)
		}
		if gone || !c.spec.OCI.Early && n.opts.Now().Sub(c.spec.Started) > startWait {
			late = append(late, c)
		}
	}
	n.mu.Unlock()
	for _, c := range late {
		c.event("unstarted", 0, "prepared, and not started: its bundle is gone, or %v have passed", startWait)
		c.rootEnded()
	}
}

// named is the container that an event is about, or nil. Called under mu.
func (n *Node) named(event ociapi.Event) *container {
	if event.GrantID == "" {
		return n.byBundle(event.Bundle)
	}
	if c := n.containers[event.GrantID]; c != nil && c.spec.OCI != nil {
		return c
	}
	return nil
}

// byBundle is the living container of a bundle, or nil. One whose first process has ended is none, though the
// agent may not have been told: the next one of the same bundle must not get its grant. Called under mu.
func (n *Node) byBundle(bundle string) *container {
	for _, c := range n.containers {
		if c.spec.OCI == nil || c.spec.OCI.Bundle != filepath.Clean(bundle) {
			continue
		}
		if !c.over() {
			return c
		}
	}
	return nil
}
