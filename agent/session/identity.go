package session

// Which processes belong to a container.

import (
	"fmt"
	"sync/atomic"

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
	// members are those of all processes that are the container's; has looks at one once more.
	members(all []proc.Stat) ([]proc.Stat, error)
	has(p proc.ID) bool
}

// The kinds of identity.
const (
	pathIdentity   = "path"
	cgroupIdentity = "cgroup"
)

// descent is the identity of `weir run`, which has no cgroup of its own: processes of the user who
// started it that descend from it. `weir run` is their subreaper, so that an orphan still does.
type descent struct {
	root *proc.Ancestry
	id   proc.ID // of root
	uid  uint32
}

func (d descent) kind() string { return pathIdentity }

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

func (d descent) members(all []proc.Stat) ([]proc.Stat, error) {
	return proc.Descendants(all, d.id), nil
}

func (d descent) has(p proc.ID) bool { return proc.Descends(p.PID, d.id) }

// grouped is the identity of a container that a container runtime starts: the processes in its control
// group, whoever they run as. Before the runtime has said which that is, there are none.
type grouped struct {
	group atomic.Pointer[proc.Cgroup]
}

func (g *grouped) kind() string { return cgroupIdentity }

func (g *grouped) close() {}

func (g *grouped) admit(p *proc.Handle, _ uint32) error {
	group := g.group.Load()
	if group == nil {
		return fmt.Errorf("process %d comes before the container runtime has registered the container", p.PID)
	}
	has, err := group.Has(p.PID)
	if err == nil && p.Ended() { // whose control group was looked at is then not known
		err = proc.ErrGone
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", p.PID, err)
	}
	if !has {
		return fmt.Errorf("process %d is not in the container's control group %s", p.PID, group.Path)
	}
	return nil
}

func (g *grouped) members(all []proc.Stat) ([]proc.Stat, error) {
	group := g.group.Load()
	if group == nil {
		return nil, nil
	}
	pids, err := group.Members()
	if err != nil {
		return nil, err
	}
	var list []proc.Stat
	for _, st := range all {
		if pids[st.PID] {
			list = append(list, st)
		}
	}
	return list, nil
}

func (g *grouped) has(p proc.ID) bool {
	group := g.group.Load()
	if group == nil {
		return false
	}
	has, err := group.Has(p.PID)
	return has || err != nil // one that has ended has not left
}
