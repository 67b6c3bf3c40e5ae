package session

// Libraries and drivers that do not go with this agent.

import (
	"fmt"

	"weir/agent/session/proc"
	"weir/agent/session/wire"
	"weir/cgo/abi"
)

// What becomes of a process that does not go with the agent, by Options.PassIncompatible.
const (
	unfitRefused = "its allocations are refused"
	unfitPassed  = "it runs without a cap"
)

// unfit ends a connection of a process that does not go with the agent, and says so to operators: the
// versions, the remedy, and what becomes of it. text is for the process.
func (v *conversation) unfit(text, remedy string) {
	v.c.unfitted(v.peer.ID, fmt.Sprintf("%s; %s", text, remedy))
	var flags uint32
	if v.c.node.opts.PassIncompatible {
		flags = abi.ClosePass
	}
	v.out.now(wire.Close(abi.CloseVersion, flags, text))
}

// unfitted notes a process that does not go with the agent.
func (c *container) unfitted(id proc.ID, why string) {
	if !c.node.opts.PassIncompatible {
		c.event("incompatible", id.PID, "%s; %s", why, unfitRefused)
		return
	}
	c.mu.Lock()
	if len(c.unfit) < abi.SessionsMax {
		c.unfit[id] = why + "; " + unfitPassed
	}
	c.mu.Unlock()
	c.event("incompatible", id.PID, "%s; %s", why, unfitPassed)
}

// welcomeFlags says what a process is to do that cannot use its pages.
func (n *Node) welcomeFlags() uint32 {
	if n.opts.PassIncompatible {
		return abi.WelcomePass
	}
	return 0
}

// oldDriver tells a driver that is older than the oldest that is served, and says so. An unknown one
// is let pass: a process that only asks NVML has none.
func oldDriver(version uint32) (text, remedy string, old bool) {
	if version == 0 || version >= abi.DriverOldest {
		return "", "", false
	}
	return fmt.Sprintf("the driver's CUDA version %s is older than %s, the oldest that is served",
		cudaVersion(version), cudaVersion(abi.DriverOldest)), "update the driver", true
}

// cudaVersion writes a version as people do: 12020 is 12.2.
func cudaVersion(version uint32) string {
	return fmt.Sprintf("%d.%d", version/1000, version%1000/10)
}

// badPage says why the library could not use a page that it was given.
func badPage(m *abi.Note) string {
	switch m.A {
	case abi.BadPageFile:
		return fmt.Sprintf("it is not a file of %d bytes", abi.PageBytes)
	case abi.BadPageSeals:
		return "its seals are missing"
	}
	return fmt.Sprintf("it is no page of a version that the library knows (it says %d)", m.B)
}
