package session

// Live changes of caps.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"weir/agent/control"
	"weir/agent/sched"
	"weir/agent/store"
	"weir/oci/policy"
)

// ChangeCaps changes a container's caps while it runs. They are on the disk before they hold.
func (n *Node) ChangeCaps(ctx context.Context, ref string,
	change control.CapsChange) (control.CapsResult, error) {
	if err := n.askSwap(ctx, change.Set); err != nil {
		return control.CapsResult{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c, err := n.find(ref)
	if r, there := n.namedUncapped(ref); there && errors.Is(err, control.ErrNotFound) {
		err = fmt.Errorf("%w: container %s is not weir's: %s", control.ErrUnsupported, r.Name, r.Reason)
	}
	if err != nil {
		return control.CapsResult{}, err
	}
	before := c.spec.Caps
	after, err := n.changed(before, change)
	switch {
	case errors.Is(err, control.ErrInvalid): // which is for the exit code, not for the message
		return control.CapsResult{}, fmt.Errorf("%w: caps of %s: %s", control.ErrInvalid, c.spec.Name,
			strings.TrimPrefix(err.Error(), control.ErrInvalid.Error()+": "))
	case err != nil:
		return control.CapsResult{}, fmt.Errorf("caps of %s: %w", c.spec.Name, err)
	}
	result := control.CapsResult{
		Name: c.spec.Name, Before: control.Caps(before), After: control.Caps(after),
	}
	c.mu.Lock()
	result.SwapMessage, err = c.checkSwapChange(after, change.Drain)
	if err == nil && !change.DryRun {
		err = c.holdSwap(after, change.Drain)
	}
	c.mu.Unlock()
	if err != nil {
		return control.CapsResult{}, err
	}
	if change.DryRun {
		c.mu.Lock()
		result.Message, result.GPUs = c.overCap(after), c.uses()
		c.mu.Unlock()
		return result, nil
	}
	kept := c.spec.OCI
	c.setSpec(after, n.willLimit(kept, after))
	if err := n.save(); err != nil {
		c.setSpec(before, kept)
		c.followCaps(before)
		return control.CapsResult{}, fmt.Errorf("caps of %s: %w", c.spec.Name, err)
	}
	n.opts.step("caps saved")
	c.limiting.Lock()
	c.applyLimits(&after, true)
	c.followCaps(after)
	c.applyLimits(nil, true)
	c.limiting.Unlock()
	c.mu.Lock()
	if !c.closed {
		result.Message, result.GPUs = c.overCap(after), c.uses()
	}
	drained := change.Drain && !c.draining()
	c.mu.Unlock()
	c.event("caps", 0, "%s", strings.Join(nonEmpty(n.difference(before, after), result.Message, result.SwapMessage,
		n.unswappable(change.Set), n.notEnforced(change.Set)), "; "))
	if drained && result.SwapMessage == "" { // who waits for it need not know how that stood
		c.event("swap-drained", 0, "its swap is off, and nothing of it lay on the host")
	}
	return result, nil
}

// followCaps is setCaps, unless the container has ended.
func (c *container) followCaps(caps store.Caps) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.setCaps(caps)
	}
}

// setSpec changes what is kept of the container: its caps, and whether the driver may have limits of it.
// Called under node.mu.
func (c *container) setSpec(caps store.Caps, kept *store.OCI) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spec.Caps, c.spec.OCI = caps, kept
}

// overCap says what of the container's memory in use is over its caps, or nothing: what can move goes to the host where
// its swap allows that. Called under mu.
func (c *container) overCap(caps store.Caps) string {
	var over, moves []string
	for gpu, g := range c.node.gpus {
		used, limit, where := c.used(gpu), limitOf(caps, g.uuid), ""
		if len(c.ledgers) > 1 {
			where = " on GPU " + g.name
		}
		plain := used - c.ledgers[gpu].Movable()
		if plain > limit || used > limit+g.swapOf(caps) {
			over = append(over, size(int64(used))+" in use"+where)
		}
		here := c.onCard(gpu)
		if g.swapOf(caps) > 0 && here > limit && plain < here {
			moves = append(moves, size(int64(min(here-limit, here-plain)))+" move to the host"+where)
		}
	}
	var text []string
	if len(over) > 0 {
		text = append(text, strings.Join(over, ", ")+", so new allocations fail until it drops")
	}
	if len(moves) > 0 {
		text = append(text, strings.Join(moves, ", ")+" while its programs run on")
	}
	return strings.Join(text, "; ")
}

// checkCaps refuses caps that mean nothing, and gives those of single GPUs under their UUIDs.
func (n *Node) checkCaps(caps control.Caps) (control.Caps, error) {
	if m := caps.MemoryBytes; m != nil && *m <= 0 {
		return caps, fmt.Errorf("%w: a memory cap of %d bytes; give at least 1", control.ErrInvalid, *m)
	}
	if s := caps.SwapBytes; s != nil && *s < 0 {
		return caps, fmt.Errorf("%w: swap of %d bytes; give 0 or more", control.ErrInvalid, *s)
	}
	if w := caps.Weight; w != nil {
		if err := sched.CheckWeight(*w); err != nil {
			return caps, fmt.Errorf("%w: %w", control.ErrInvalid, err)
		}
	}
	if m := caps.MemoryBytes; m != nil {
		if err := n.overCard(*m, n.gpus...); err != nil {
			return caps, err
		}
	}
	byUUID := make(map[string]int64, len(caps.MemoryByGPU))
	for ref, bytes := range caps.MemoryByGPU {
		g, err := n.namedGPU(ref)
		if err != nil {
			return caps, err
		}
		if bytes <= 0 {
			return caps, fmt.Errorf("%w: a memory cap of %d bytes on GPU %s; give at least 1",
				control.ErrInvalid, bytes, ref)
		}
		if err := n.overCard(bytes, g); err != nil {
			return caps, err
		}
		if _, twice := byUUID[g.uuid]; twice {
			return caps, fmt.Errorf("%w: two memory caps on one GPU, %s", control.ErrInvalid, g.uuid)
		}
		byUUID[g.uuid] = bytes
	}
	if caps.MemoryByGPU = byUUID; len(byUUID) == 0 {
		caps.MemoryByGPU = nil
	}
	return caps, nil
}

// overCard refuses a memory cap that none of the GPUs has room for: it would hold nothing back.
func (n *Node) overCard(bytes int64, gpus ...*gpu) error {
	if len(gpus) == 0 {
		return nil
	}
	var cards []policy.GPU
	for _, g := range gpus {
		cards = append(cards, g.card())
	}
	if err := policy.OverCard(bytes, cards, 1); err != nil {
		return fmt.Errorf("%w: --memory: %w", control.ErrInvalid, err)
	}
	return nil
}

// uuidPrefixMin is how much of a UUID must be given at least, its kind included.
const uuidPrefixMin = len("GPU-") + 4

// namedGPU finds the GPU that is named by its index ("1:0" for a MIG device, or just that of its card
// where that has one only), its UUID or the beginning of that.
func (n *Node) namedGPU(ref string) (*gpu, error) {
	index, err := strconv.Atoi(ref)
	isIndex := err == nil
	var found []*gpu
	for _, g := range n.gpus {
		begins := len(ref) >= uuidPrefixMin && len(ref) <= len(g.uuid) &&
			strings.EqualFold(ref, g.uuid[:len(ref)])
		if isIndex && g.index == index || !isIndex && (begins || ref == g.name) {
			found = append(found, g)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	if len(found) > 1 {
		return nil, fmt.Errorf("%w: %q can be each of %d GPUs; give all of a UUID, or CARD:DEVICE for a "+
			"MIG device", control.ErrInvalid, ref, len(found))
	}
	known := make([]string, 0, len(n.gpus))
	for _, g := range n.gpus {
		known = append(known, fmt.Sprintf("%s (%s)", g.name, g.uuid))
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("GPU %q: %w; the agent knows no GPU", ref, control.ErrNotFound)
	}
	return nil, fmt.Errorf("GPU %q: %w; there are %s", ref, control.ErrNotFound,
		strings.Join(known, ", "))
}

// describeCaps is for events.
func (n *Node) describeCaps(caps store.Caps) string {
	if caps.MemoryBytes == nil && len(caps.MemoryByGPU) == 0 {
		return "no memory cap"
	}
	text := "a memory cap of " + n.memoryText(caps)
	if caps.SwapBytes != nil && *caps.SwapBytes > 0 {
		text += ", and " + size(*caps.SwapBytes) + " of swap"
	}
	return text
}

// memoryText writes memory caps for people: that on each GPU, then those that GPUs have of their own.
func (n *Node) memoryText(caps store.Caps) string {
	var parts []string
	if caps.MemoryBytes != nil {
		parts = append(parts, size(*caps.MemoryBytes))
	}
	own := maps.Clone(caps.MemoryByGPU)
	for _, g := range n.gpus {
		if bytes, there := own[g.uuid]; there {
			parts = append(parts, fmt.Sprintf("%s on GPU %s", size(bytes), g.name))
			delete(own, g.uuid)
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(own)) { // no longer there
		parts = append(parts, fmt.Sprintf("%s on %s", size(own[uuid]), uuid))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// changed applies a change to caps.
func (n *Node) changed(caps store.Caps, change control.CapsChange) (store.Caps, error) {
	set, err := n.checkCaps(change.Set)
	if err != nil {
		return caps, err
	}
	if set.IsZero() && len(change.Unset) == 0 {
		return caps, fmt.Errorf("%w: nothing to set or to unset", control.ErrInvalid)
	}
	if set.MemoryBytes != nil {
		caps.MemoryBytes, caps.MemoryByGPU = set.MemoryBytes, set.MemoryByGPU
	} else if len(set.MemoryByGPU) > 0 {
		caps.MemoryByGPU = maps.Clone(caps.MemoryByGPU)
		if caps.MemoryByGPU == nil {
			caps.MemoryByGPU = make(map[string]int64)
		}
		maps.Copy(caps.MemoryByGPU, set.MemoryByGPU)
	}
	if set.SwapBytes != nil {
		caps.SwapBytes = set.SwapBytes
	}
	if set.Weight != nil {
		caps.Weight = set.Weight
	}
	for _, name := range change.Unset {
		var both bool
		switch name {
		case "memory":
			both, caps.MemoryBytes, caps.MemoryByGPU = set.SetsMemory(), nil, nil
		case "swap":
			both, caps.SwapBytes = set.SwapBytes != nil, nil
		case "weight":
			both, caps.Weight = set.Weight != nil, nil
		default:
			return caps, fmt.Errorf("%w: no cap %q; there are memory, swap and weight",
				control.ErrInvalid, name)
		}
		if both {
			return caps, fmt.Errorf("%w: %s is to be set and unset", control.ErrInvalid, name)
		}
	}
	return caps, n.checkSwap(caps)
}

// difference says which caps a change has changed.
func (n *Node) difference(before, after store.Caps) string {
	var parts []string
	for _, part := range []struct{ name, before, after string }{
		{"memory", n.memoryText(before), n.memoryText(after)},
		{"swap", sizeOrNone(before.SwapBytes), sizeOrNone(after.SwapBytes)},
		{"weight", numberOrNone(before.Weight), numberOrNone(after.Weight)},
	} {
		if part.before != part.after {
			parts = append(parts, fmt.Sprintf("%s %s -> %s", part.name, part.before, part.after))
		}
	}
	if len(parts) == 0 {
		return "set to what they were"
	}
	return strings.Join(parts, ", ")
}

func sizeOrNone(bytes *int64) string {
	if bytes == nil {
		return "none"
	}
	return size(*bytes)
}

func numberOrNone(number *float64) string {
	if number == nil {
		return "none"
	}
	return fmt.Sprintf("%g", *number)
}

func nonEmpty(texts ...string) (kept []string) {
	for _, t := range texts {
		if t != "" {
			kept = append(kept, t)
		}
	}
	return kept
}
