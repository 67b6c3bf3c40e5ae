package session

// Which processes belong to a container.

import (
	"fmt"

	"weir/agent/session/proc"
)

// identity decides which processes belong to a container.
type identity interface {
	// kind is what operators see.
	kind() string
	// admit returns nil for a process of the container, held by its pidfd and running as uid, else
	// an error that says why it is none.
	admit(p *proc.Handle, uid uint32) error
	// close lets go of what the identity holds; nobody is admitted any more.
	close()
}

// descent is the identity of `weir run`, which has no cgroup of its own: processes of the user who
// started it that descend from it. `weir run` is their subreaper, so that an orphan still does.
type descent struct {
	root *proc.Ancestry
	uid  uint32
}

func (d descent) kind() string { return "path" }

func (d descent) close() { d.root.Close() }

func (d descent) admit(p *proc.Handle, uid uint32) error {
	if uid != d.uid {
		return fmt.Errorf("process %d runs as user %d, not as user %d who started the container",
			p.PID, uid, d.uid)
	}
	if !d.root.Has(p) {
		return fmt.Errorf("process %d does not descend from the container's weir run", p.PID)
	}
	return nil
}
