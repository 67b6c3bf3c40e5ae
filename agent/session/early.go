package session

// Containers of an NRI plugin. It is asked when a container is made, which may be long before its start:
// its root file system is not there yet, nor is its bundle, and nobody says how long it may take. And while
// the plugin is away containers may begin that it was not asked about.

import (
	"context"
	"fmt"
	"os"

	"weir/agent/control"
	"weir/agent/control/ociapi"
	"weir/agent/store"
	"weir/oci"
	"weir/oci/policy"
)

// Early returns the early containers that have not started.
func (n *Node) Early(context.Context) (ociapi.Early, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	early := ociapi.Early{Grants: make(map[string]string)}
	for id, c := range n.containers {
		if c.spec.Prepared() && c.spec.OCI.Early {
			early.Grants[c.spec.OCI.ID] = id
		}
	}
	return early, nil
}

// missedReason is why a container is not enforced that a plugin was not asked about.
const missedReason = "weir's plugin was not there when it was made; make it anew"

// errMissed says why a container is not started that a plugin was not asked about.
var errMissed = fmt.Errorf("%w: it was made while weir's plugin was away, so nothing holds its caps; remove it, and make "+
	"it anew", control.ErrConflict)

// Start refuses a container that was made and must not run so: one that was to have a grant and has none, because
// nobody asked about it, or because the runtime did not take the answer. What a plugin answered shows in the
// container's mounts; what weir-runtime and hooks do to a container does not, and they do it or fail.
func (n *Node) Start(ctx context.Context, start ociapi.Start) (err error) {
	asked := start.Container
	defer func() { n.tellRefused(&asked, err) }()
	if err := n.checkRuntime(asked); err != nil {
		return err
	}
	n.complete(ctx, &asked)
	decision, refusal := n.decide(ctx, asked)
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.byBundle(asked.Bundle); c != nil {
		if c.spec.OCI.Early && start.Mounted != n.grant(c.spec).SocketDir {
			return errMissed
		}
		return nil
	}
	if refusal == nil && decision.Action != policy.Pass {
		return errMissed
	}
	return refusal
}

// Missed leaves word of a container that runs without a cap, and shows it if its runtime tells of it. One whose
// first process another of the runtime's helpers has registered is none, and one that is shown already is known.
func (n *Node) Missed(_ context.Context, missed ociapi.Container) error {
	n.missed(missed)
	n.catchUp()
	return nil
}

func (n *Node) missed(missed ociapi.Container) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.containers {
		if c.spec.OCI != nil && c.spec.OCI.ID == missed.ID && !c.spec.Prepared() {
			return
		}
	}
	key, ok := ociapi.KeyOf(missed.Bundle)
	if _, shown := n.uncapped[key]; ok && shown {
		return
	}
	n.events.Add(control.Event{Type: "unenforced", Container: missed.Name, Namespace: missed.Namespace,
		PID: missed.PID, Message: "runs without a cap: " + missedReason})
	if ok && len(n.passes) < ociapi.ListedMax {
		n.passes[key] = &pass{reason: missedReason}
	}
}

// mergePreload writes a container's /etc/ld.so.preload anew, now that the image's own is known. The file is
// mounted in the container already, where nothing runs yet, so it has to stay the same one.
func (n *Node) mergePreload(spec store.Container, image string) error {
	grant := n.grant(spec)
	return os.WriteFile(grant.PreloadFile, oci.MergePreload(grant.Library(), []byte(image)), 0o644)
}
