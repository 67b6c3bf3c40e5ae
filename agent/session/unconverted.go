package session

// Processes of containers with swap whose memory stays plain: what operators are told, and which executables are
// remembered because they have tried what only plain memory can.

import (
	"fmt"

	"weir/agent/session/proc"
	"weir/agent/store"
	"weir/cgo/abi"
)

// plainReasons are why a process has no movable memory.
var plainReasons = map[uint32]string{
	abi.PlainCard:     "a GPU that it sees has no concurrent managed access",
	abi.PlainPeers:    "it sees several GPUs, which cannot reach each other's memory",
	abi.PlainLibrary:  "it has a library that exports memory to other processes or cards (%s)",
	abi.PlainExported: "its executable has tried before to export such memory",
	abi.PlainDriver:   "its driver lacks a call that moving memory needs",
}

// exporterNames are the libraries that export memory.
var exporterNames = map[uint64]string{
	abi.ExporterUCX: "UCX", abi.ExporterNVSHMEM: "NVSHMEM", abi.ExporterNCCL: "NCCL, with several GPUs",
}

// exportNames are what was tried with movable memory.
var exportNames = map[uint32]string{
	abi.ExportedIPC:   "share it with other processes (cuIpcGetMemHandle)",
	abi.ExportedRange: "export it (cuMemGetHandleForAddressRange)",
	abi.ExportedValue: "wait for it or write to it in a stream (cuStreamWaitValue, cuStreamWriteValue, cuStreamBatchMemOp)",
}

// unconverted says why a process has plain memory only.
func unconverted(s *session, m *abi.Note) string {
	why, known := plainReasons[m.A]
	if !known {
		why = fmt.Sprintf("for a reason that this agent does not know (%d)", m.A)
	}
	if m.A == abi.PlainLibrary {
		name, known := exporterNames[m.B]
		if !known {
			name = "unknown"
		}
		why = fmt.Sprintf(why, name)
	}
	return fmt.Sprintf("%s has no swap: %s; its memory is plain, and stays within the cap", s.program, why)
}

// triedToExport takes note of what a process has tried with movable memory. Its executable gets plain memory from now
// on, so the next start of it goes well.
func (c *container) triedToExport(s *session, m *abi.Note) {
	what, known := exportNames[m.A]
	if !known {
		what = "do what it cannot do"
	}
	next := "started anew it has plain memory"
	x, err := executableOf(s.process)
	if err == nil {
		err = c.node.exporters.Add(x)
	}
	if err != nil {
		c.node.log.Warn("a program that exports memory is not remembered", "program", s.program, "error", err)
		next = "it could not be remembered for its next start"
	}
	c.event("exported", s.process.PID, "%s has tried to %s, which memory that can be swapped out does not allow, and got the "+
		"driver's error; %s; to be without swap from the start: weir/swap=off, or no --swap", s.program, what, next)
}

// plainFlag tells a process whether its executable is one of those.
func (c *container) plainFlag(s *session) uint32 {
	c.mu.Lock()
	swaps := false
	for _, l := range c.ledgers {
		swaps = swaps || l.Swap() > 0
	}
	c.mu.Unlock()
	if !swaps {
		return 0
	}
	if x, err := executableOf(s.process); err == nil && c.node.exporters.Has(x) {
		return abi.WelcomePlain
	}
	return 0
}

func executableOf(id proc.ID) (x store.Executable, err error) {
	x.Device, x.Inode, x.Changed, err = proc.Executable(id.PID)
	return x, err
}
