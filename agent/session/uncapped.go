package session

// Containers of a container runtime that weir has no part in: those with a GPU, or that ask for a part of
// one, are shown as not enforced. And what is learned of the others: their images and labels.

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/agent/config"
	"weir/agent/control"
	"weir/agent/control/ociapi"
	"weir/agent/session/proc"
	"weir/oci/policy"
)

// imageWait is how long a container that is about to start waits to be told of, where it matters which
// image it has. What the runtime tells of it, it has told before it starts it.
const imageWait = 500 * time.Millisecond

// uncapped is a container that runs and for which no cap holds.
type uncapped struct {
	ociapi.Listed
	init   proc.ID
	reason string
}

// pass is a container that was let through, and why it is not enforced.
type pass struct {
	reason string
	listed bool // the runtime has told of it
}

// Listing takes what a helper tells of all containers of a container runtime.
func (n *Node) Listing(_ context.Context, m ociapi.Listing) (again bool, err error) {
	if err := checkListing(m); err != nil {
		return false, err
	}
	what, runtime, again, err := n.listed.take(m)
	if err != nil || again {
		return again, err
	}
	switch what {
	case turnedUp:
		n.events.Add(control.Event{Type: "runtime", Message: runtime + " is there, and tells of its containers"})
	case turnedAway:
		n.events.Add(control.Event{Type: "runtime", Message: runtime + " cannot be asked any more, until it is there " +
			"again: caps hold on; images of new containers, and those that have no cap, are not known: " + m.Lost})
	}
	n.catchUp()
	n.tellMisnamed()
	return false, nil
}

// catchUp does what follows from what the runtime has now.
func (n *Node) catchUp() {
	n.mu.Lock()
	removed := n.follow()
	n.mu.Unlock()
	for _, c := range removed {
		c.event("unstarted", 0, "prepared, and not started: its runtime has removed it")
		c.rootEnded()
	}
}

// follow brings what is known of containers up to date with what their runtime has. It returns those that
// were prepared and have been removed, so that they will never start. Called under mu.
func (n *Node) follow() (removed []*container) {
	all, current := n.listed.copied()
	if !current {
		return nil
	}
	ours, inits := make(map[ociapi.Key]bool), make(map[int]bool)
	for _, c := range n.containers {
		if c.spec.OCI == nil {
			continue
		}
		inits[c.spec.PID] = true
		key, ok := ociapi.KeyOf(c.spec.OCI.Bundle)
		// One that has not begun may have been made without what was prepared for it.
		ours[key] = ours[key] || ok && !c.spec.Prepared()
		_, there := all[key]
		if c.listed && !there && c.spec.Prepared() {
			removed = append(removed, c)
		}
		c.listed = there
	}
	n.forgetPasses(all)
	n.findUncapped(all, ours, inits)
	n.pods.see(all, n.opts.Now())
	return removed
}

// forgetPasses drops what is remembered of containers that have been removed. Called under mu.
func (n *Node) forgetPasses(all map[ociapi.Key]ociapi.Listed) {
	for key, p := range n.passes {
		_, there := all[key]
		if p.listed && !there {
			delete(n.passes, key)
		}
		p.listed = p.listed || there
	}
}

// findUncapped finds those that run and that weir has no part in: ours are not among them, nor are those
// whose first processes are. Called under mu.
func (n *Node) findUncapped(all map[ociapi.Key]ociapi.Listed, ours map[ociapi.Key]bool, inits map[int]bool) {
	before := n.uncapped
	n.uncapped = make(map[ociapi.Key]uncapped)
	for key, l := range all {
		if !l.Running || ours[key] || inits[l.PID] {
			continue
		}
		reason := n.whyUncapped(l)
		if reason == "" {
			continue
		}
		st, err := proc.Read(l.PID)
		if err != nil || st.Zombie {
			continue
		}
		u := uncapped{l, st.ID, reason}
		n.uncapped[key] = u
		if was := before[key]; n.passes[key] == nil && (was.init != u.init || was.reason != u.reason) {
			n.events.Add(control.Event{Type: "unenforced", Container: u.name(), Namespace: u.namespace(), PID: l.PID,
				Message: "runs without a cap: " + u.reason})
		}
	}
}

// whyUncapped says why no cap holds for a container that weir has no part in, or nothing if none has to.
// Called under mu.
func (n *Node) whyUncapped(l ociapi.Listed) string {
	const missed = "weir had no part in its start: start it again with weir's runtime (ctr: --runc-binary weir-runtime, " +
		"pods: runtimeClassName weir)"
	passed := n.passes[l.Key]
	switch {
	case len(l.Asks) > 0:
		return "it asks for " + strings.Join(slices.Sorted(maps.Keys(l.Asks)), ", ") + ", but " + missed
	case passed != nil:
		return passed.reason
	case !l.HasGPU && l.AllDevices && len(n.gpus) > 0:
		return policy.AllDevicesReason
	case !l.HasGPU:
		return ""
	case n.opts.Policy.UnaskedGPU != config.UnaskedPass && n.opts.Policy.UnaskedGPU != "":
		return "it has a GPU, and " + missed
	}
	return policy.UnaskedReason
}

// passed says that a container with a GPU runs without a cap. Called under mu.
func (n *Node) passed(asked ociapi.Container, reason string) {
	if reason == "" {
		return
	}
	n.events.Add(control.Event{Type: "unenforced", Container: asked.Name, Namespace: asked.Namespace,
		PID: asked.PID, Message: "started without a cap: " + reason})
	if key, ok := ociapi.KeyOf(asked.Bundle); ok && len(n.passes) < ociapi.ListedMax {
		n.passes[key] = &pass{reason: reason}
	}
}

// complete adds what the runtime has told of a container to what is known of one that is about to start.
func (n *Node) complete(ctx context.Context, asked *ociapi.Container) {
	key, ok := ociapi.KeyOf(asked.Bundle)
	if !ok || key.ID != asked.ID {
		return
	}
	patience := time.Duration(0)
	if asked.Image == "" && slices.ContainsFunc(n.opts.Policy.Rules, config.ContainerRule.ByImage) {
		patience = imageWait
	}
	l, _ := n.listed.await(ctx, key, patience)
	asked.Image = cmp.Or(asked.Image, l.Image)
	asked.PodUID = cmp.Or(asked.PodUID, l.PodUID)
}

// describeListed adds to a report what the container runtime tells. Called under node.mu.
func (c *container) describeListed(r *control.Container) {
	o := c.spec.OCI
	if o == nil {
		return
	}
	r.RuntimeID, r.Pod, r.PodUID, r.Image = o.ID, o.Pod, o.PodUID, o.Image
	key, ok := ociapi.KeyOf(o.Bundle)
	if !ok {
		return
	}
	l, _ := c.node.listed.get(key)
	r.Pod, r.PodUID = cmp.Or(r.Pod, l.Pod), cmp.Or(r.PodUID, l.PodUID)
	r.Image, r.Labels = cmp.Or(r.Image, l.Image), l.Labels
}

func (u uncapped) name() string      { return nameOf(cmp.Or(u.Name, u.ID)) }
func (u uncapped) namespace() string { return cmp.Or(u.PodNamespace, u.Namespace) }

// report describes the container as far as it is known.
func (u uncapped) report() control.Container {
	return control.Container{
		ID: u.ID, Name: u.name(), Namespace: u.namespace(), State: "running", PID: u.PID, Command: shorten(u.Command),
		Started: u.Created, GPUs: []control.GPUUse{}, Sessions: []control.Session{}, Reason: u.reason,
		ReasonKind: u.reasonKind(),
		RuntimeID:  u.ID, Pod: u.Pod, PodUID: u.PodUID, Image: u.Image, Labels: u.Labels,
	}
}

// reasonKind is which of control.ReasonKinds the reason is.
func (u uncapped) reasonKind() string {
	if u.reason == policy.UnaskedReason || u.reason == policy.AllDevicesReason {
		return control.ReasonUnasked
	}
	return control.ReasonNoPart
}

// running lists the containers without a cap whose first process lives, the oldest first. Called under mu.
func (n *Node) running() []uncapped {
	return living(slices.Collect(maps.Values(n.uncapped)))
}

// living are those whose first process lives, the oldest first.
func living(list []uncapped) []uncapped {
	list = slices.DeleteFunc(list, func(u uncapped) bool {
		st, err := proc.Read(u.PID)
		return err != nil || st.ID != u.init || st.Zombie
	})
	slices.SortFunc(list, func(a, b uncapped) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// namedUncapped is the container without a cap that ref names, by what report says of it. Called under mu.
func (n *Node) namedUncapped(ref string) (control.Container, bool) {
	for _, u := range n.running() {
		r := u.report()
		if ref == r.ID || ref == r.Name || ref == r.Namespace+"/"+r.Name ||
			len(ref) >= idPrefixBytes && strings.HasPrefix(r.ID, ref) {
			return r, true
		}
	}
	return control.Container{}, false
}
