package session

// Which containers there are: how they begin, how they are named and found, how they end.

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"weir/agent/control"
	"weir/agent/session/proc"
	"weir/agent/store"
)

const (
	nameBytesMax    = 63
	commandWordsMax = 64
	commandWordMax  = 256 // bytes; a command is kept for display only
)

var (
	nameForm      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	notInNames    = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
	idPrefixBytes = 4
)

// StartRun registers the process group of `weir run`, the caller, as a container.
func (n *Node) StartRun(ctx context.Context, callerPID int, callerUID uint32,
	req control.RunRequest) (control.RunGrant, error) {
	caps, err := n.checkCaps(req.Caps)
	if err != nil {
		return control.RunGrant{}, err
	}
	if len(n.gpus) == 0 && caps.SetsMemory() {
		return control.RunGrant{}, fmt.Errorf("%w: the agent knows no GPU, so there is none that a cap "+
			"could hold on; restart it once the driver is there, or leave --memory out",
			control.ErrUnsupported)
	}
	name, err := runName(req)
	if err == nil {
		err = n.askSwap(ctx, caps)
	}
	if err == nil {
		err = n.checkSwap(store.Caps(caps))
	}
	if err == nil && req.Report != "" && req.Report != control.ReportCap && req.Report != control.ReportVirtual {
		err = fmt.Errorf("%w: report %q: want %s or %s", control.ErrInvalid, req.Report, control.ReportCap, control.ReportVirtual)
	}
	if err != nil {
		return control.RunGrant{}, err
	}
	if self := os.Geteuid(); self != 0 && int(callerUID) != self {
		return control.RunGrant{}, fmt.Errorf("%w: this agent runs as user %d and serves no "+
			"other; user %d needs one of its own, or a system-wide one", control.ErrPermission,
			self, callerUID)
	}
	root, err := proc.OpenPID(callerPID)
	if err != nil {
		return control.RunGrant{}, fmt.Errorf("starting a container for process %d: %w",
			callerPID, err)
	}
	if uid, err := proc.Owner(callerPID); err != nil || uid != callerUID {
		root.Close()
		return control.RunGrant{}, fmt.Errorf("%w: process %d is not of user %d",
			control.ErrPermission, callerPID, callerUID)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c, err := n.open(store.Container{
		ID: n.newContainerID(), Name: n.freeName(name), Identity: descent{}.kind(),
		PID: root.PID, Start: root.Start, UID: callerUID,
		Command: shorten(req.Command), Started: n.opts.Now(), Caps: store.Caps(caps),
		Virtual: req.Report == control.ReportVirtual,
	}, root)
	if err != nil {
		root.Close()
		return control.RunGrant{}, fmt.Errorf("starting container %s: %w", name, err)
	}
	c.event("started", root.PID, "started by user %d with %s", callerUID, n.describeCaps(c.spec.Caps))
	if later := nonEmpty(n.unswappable(req.Caps), n.notEnforced(req.Caps)); len(later) > 0 {
		c.event("unenforced", root.PID, "%s", strings.Join(later, "; "))
	}
	return control.RunGrant{
		ID: c.spec.ID, Name: c.spec.Name, Socket: n.run.socket(c.spec.ID), Library: n.library,
	}, nil
}

// open makes a new container, keeps it, and opens its socket. Called under mu.
func (n *Node) open(spec store.Container, root *proc.Handle) (*container, error) {
	if n.stopping {
		return nil, fmt.Errorf("%w: the agent is stopping", control.ErrConflict)
	}
	if len(n.containers) >= containersMax {
		return nil, fmt.Errorf("%w: the node has %d containers, which is the most",
			control.ErrConflict, containersMax)
	}
	spec.Library = n.library
	c, err := n.newContainer(spec, root)
	if err != nil {
		return nil, err
	}
	undo := func() {
		delete(n.containers, spec.ID)
		c.closePage()
		c.identity.close()
		os.RemoveAll(n.run.container(spec.ID))
	}
	n.containers[spec.ID] = c
	if err := n.save(); err != nil {
		undo()
		return nil, err
	}
	if err := c.begin(); err != nil {
		undo()
		if err := n.save(); err != nil {
			n.log.Error("a container that did not start is still kept", "error", err)
		}
		return nil, err
	}
	return c, nil
}

// discard ends a container whose start failed after open. Called under mu.
func (n *Node) discard(c *container) {
	c.mu.Lock()
	c.shut()
	c.closePage()
	c.mu.Unlock()
	c.identity.close()
	delete(n.containers, c.spec.ID)
	if err := errors.Join(n.save(), n.unfurnish(c.spec)); err != nil {
		n.log.Error("a container that did not start is still kept", "error", err)
	}
}

// begin opens the container's socket and watches its weir run.
func (c *container) begin() error {
	if err := c.listen(); err != nil {
		return err
	}
	if c.root == nil {
		return nil
	}
	mark, err := c.node.watcher.add(c.root, c.rootEnded)
	if err != nil {
		c.listener.Close()
		return err
	}
	c.rootMark = mark
	return nil
}

// EndRun ends a container of `weir run`, as the end of its process does.
func (n *Node) EndRun(_ context.Context, callerUID uint32, id string) error {
	n.mu.Lock()
	c := n.containers[id]
	n.mu.Unlock()
	if c == nil {
		return fmt.Errorf("container %s: %w", id, control.ErrNotFound)
	}
	if callerUID != c.spec.UID && callerUID != 0 && int(callerUID) != os.Geteuid() {
		return fmt.Errorf("%w: container %s is user %d's", control.ErrPermission, c.spec.Name,
			c.spec.UID)
	}
	c.rootEnded()
	return nil
}

// rootEnded is called when the container's weir run has ended. The container ends with its last
// session: processes that live on keep what they have, under its cap.
func (c *container) rootEnded() {
	c.mu.Lock()
	if c.closed || c.rootOver {
		c.mu.Unlock()
		return
	}
	c.rootOver = true
	if living := c.living(); living > 0 {
		c.event("ending", c.spec.PID, "its %s has ended; %d of its processes live on under "+
			"its cap, new ones are refused", c.rootName(), living)
	}
	c.mu.Unlock()
	c.node.retire(c)
}

// living counts the sessions whose processes have not ended. Called under mu.
func (c *container) living() (count int) {
	for _, s := range c.sessions {
		if s.state != exiting && s.handle != nil && !s.handle.Ended() {
			count++
		}
	}
	return count
}

// rootName is what the end of a container's root is the end of, for people.
func (c *container) rootName() string {
	if c.spec.Identity == cgroupIdentity {
		return "first process"
	}
	return "weir run"
}

// retire ends a container whose weir run and sessions have all ended, and of whose memory nobody has
// anything any more.
func (n *Node) retire(c *container) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.mu.Lock()
	if n.stopping || c.closed || !c.rootOver || len(c.sessions) > 0 || c.shared() > 0 {
		c.mu.Unlock()
		return
	}
	c.shut()
	c.closePage()
	c.mu.Unlock()
	c.clearLimits()
	if c.root != nil {
		n.watcher.remove(c.rootMark)
		c.root.Close()
	}
	c.identity.close()
	delete(n.containers, c.spec.ID)
	if err := n.save(); err != nil {
		n.log.Error("an ended container is still kept", "container", c.spec.Name, "error", err)
	}
	if err := n.unfurnish(c.spec); err != nil {
		n.log.Warn("an ended container's directory is left", "error", err)
	}
	if filepath.Dir(c.spec.Library) != filepath.Dir(n.library) {
		if err := n.dropLibraries(); err != nil {
			n.log.Warn("a library is left", "error", err)
		}
	}
	c.event("ended", c.spec.PID, "ended; %d allocations were refused", c.refused)
}

// shut closes the container to tenants. Called under mu.
func (c *container) shut() {
	c.closed = true
	if c.listener != nil {
		c.listener.Close()
	}
	for conn := range c.greeting {
		conn.Close()
	}
}

// save keeps all containers on the disk. Called under mu.
func (n *Node) save() error {
	specs := make([]store.Container, 0, len(n.containers))
	for _, c := range n.sorted() {
		specs = append(specs, c.spec)
	}
	return n.stored.Save(specs)
}

// find returns the container that ref names: an id, a name, namespace/name, or the beginning of one
// id. Called under mu.
func (n *Node) find(ref string) (*container, error) {
	if c := n.containers[ref]; c != nil {
		return c, nil
	}
	var named, begun []*container
	for _, c := range n.sorted() {
		if ref == c.spec.Name || ref == c.spec.Namespace+"/"+c.spec.Name {
			named = append(named, c)
		}
		if len(ref) >= idPrefixBytes && strings.HasPrefix(c.spec.ID, ref) {
			begun = append(begun, c)
		}
	}
	for _, found := range [][]*container{named, begun} {
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return nil, fmt.Errorf("%w: %q names %d containers; give namespace/name, or an id "+
				"(%s, %s, …)", control.ErrConflict, ref, len(found), found[0].spec.ID,
				found[1].spec.ID)
		}
	}
	return nil, fmt.Errorf("container %q: %w", ref, control.ErrNotFound)
}

// runName is the name that a run asks for, or one made from its command.
func runName(req control.RunRequest) (string, error) {
	if req.Name != "" {
		if !nameForm.MatchString(req.Name) || len(req.Name) > nameBytesMax {
			return "", fmt.Errorf("%w: name %q: a name has at most %d letters, digits, dots, "+
				"dashes and underscores, and begins with a letter or digit", control.ErrInvalid,
				req.Name, nameBytesMax)
		}
		return req.Name, nil
	}
	name := "run"
	if len(req.Command) > 0 {
		name = notInNames.ReplaceAllString(filepath.Base(req.Command[0]), "-")
		name = strings.TrimLeft(name, "._-")
	}
	name = name[:min(len(name), nameBytesMax)]
	if name == "" {
		name = "run"
	}
	return name, nil
}

// freeName adds -2, -3, … to a name that is taken. Called under mu.
func (n *Node) freeName(name string) string {
	taken := make(map[string]bool)
	for _, c := range n.containers {
		taken[c.spec.Name] = true
	}
	free := name
	for i := 2; taken[free]; i++ {
		suffix := fmt.Sprintf("-%d", i)
		free = name[:min(len(name), nameBytesMax-len(suffix))] + suffix
	}
	return free
}

// newContainerID is 12 random hexadecimal digits that name no container. Called under mu.
func (n *Node) newContainerID() string {
	for {
		var b [6]byte
		rand.Read(b[:])
		if id := hex.EncodeToString(b[:]); n.containers[id] == nil {
			return id
		}
	}
}

// newSessionID is a random number, so that a restarted agent gives none out again. It is small
// enough for every JSON reader.
func newSessionID() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])>>16 | 1
}

// shorten cuts a command to what is worth showing.
func shorten(command []string) []string {
	short := make([]string, 0, min(len(command), commandWordsMax))
	for _, word := range command[:min(len(command), commandWordsMax)] {
		short = append(short, strings.ToValidUTF8(word[:min(len(word), commandWordMax)], "?"))
	}
	return short
}

// notEnforced says which of the caps are kept but not enforced by this agent, or not as others enforce them.
func (n *Node) notEnforced(caps control.Caps) string {
	var kept []string
	if caps.Swaps() && n.opts.TimeOff {
		kept = append(kept, "swap: memory moves by page faults only, since the agent was started with time off")
	}
	if caps.Weight != nil && n.opts.TimeOff {
		kept = append(kept, "weight: kept, but not enforced, since the agent was started with time off")
	}
	return strings.Join(kept, "; ")
}
