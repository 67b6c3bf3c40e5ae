package session

// Live changes of caps.

import (
	"context"
	"fmt"
	"strings"

	"weir/agent/control"
	"weir/agent/store"
)

// ChangeCaps changes a container's caps while it runs. They are on the disk before they hold.
func (n *Node) ChangeCaps(_ context.Context, ref string,
	change control.CapsChange) (control.CapsResult, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, err := n.find(ref)
	if err != nil {
		return control.CapsResult{}, err
	}
	before := c.spec.Caps
	after, err := changed(before, change)
	if err != nil {
		return control.CapsResult{}, fmt.Errorf("caps of %s: %w", c.spec.Name, err)
	}
	result := control.CapsResult{
		Name: c.spec.Name, Before: control.Caps(before), After: control.Caps(after),
	}
	if change.DryRun {
		c.mu.Lock()
		result.Message = c.overCap(after)
		c.mu.Unlock()
		return result, nil
	}
	c.spec.Caps = after
	if err := n.save(); err != nil {
		c.spec.Caps = before
		return control.CapsResult{}, fmt.Errorf("caps of %s: %w", c.spec.Name, err)
	}
	n.opts.step("caps saved")
	c.mu.Lock()
	if !c.closed {
		c.setCaps(after)
		result.Message = c.overCap(after)
	}
	c.mu.Unlock()
	c.event("caps", 0, "%s", strings.Join(nonEmpty(difference(before, after), result.Message,
		notYet(change.Set)), "; "))
	return result, nil
}

// overCap says what of the container's memory in use is over a cap, or nothing. Called under mu.
func (c *container) overCap(caps store.Caps) string {
	if caps.MemoryBytes == nil {
		return ""
	}
	var most uint64
	for gpu := range c.ledgers {
		most = max(most, c.used(gpu))
	}
	if most <= uint64(*caps.MemoryBytes) {
		return ""
	}
	return size(int64(most)) + " in use, so new allocations fail until it drops"
}

// changed applies a change to caps.
func changed(caps store.Caps, change control.CapsChange) (store.Caps, error) {
	if err := checkCaps(change.Set); err != nil {
		return caps, err
	}
	set := change.Set
	if set == (control.Caps{}) && len(change.Unset) == 0 {
		return caps, fmt.Errorf("%w: nothing to set or to unset", control.ErrInvalid)
	}
	if set.MemoryBytes != nil {
		caps.MemoryBytes = set.MemoryBytes
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
			both, caps.MemoryBytes = set.MemoryBytes != nil, nil
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
	return caps, nil
}

// difference says which caps a change has changed.
func difference(before, after store.Caps) string {
	var parts []string
	for _, part := range []struct{ name, before, after string }{
		{"memory", sizeOrNone(before.MemoryBytes), sizeOrNone(after.MemoryBytes)},
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
