// The stand-in for the agent: shared memory. It charges all of it to its one container.

package hosttest

import (
	"unsafe"

	"weir/cgo/abi"
)

// share is one piece of shared memory: who has it, and whether they have said so on their present
// connection.
type share struct {
	gpu   int
	bytes uint64
	named map[int32]bool
}

// share answers one message about shared memory, with mu held; nil where it has no answer.
func (a *agent) share(s *session, m abi.Share) *abi.Shared {
	again := m.Flags&abi.ShareAgain != 0
	answer := &abi.Shared{Header: abi.Header{Type: abi.MsgShared, Bytes: uint16(unsafe.Sizeof(abi.Shared{})), Seq: m.Header.Seq},
		Verdict: abi.Granted, Gpu: m.Gpu}
	one := a.shares[m.Key]
	named, has := false, false
	if one != nil {
		named, has = one.named[s.pid]
	}
	switch {
	case m.Header.Type == abi.MsgDrop && again:
		a.dropUnnamed(s.pid)
		return nil
	case m.Header.Type == abi.MsgDrop:
		a.drops++
		a.lose(s.pid, m.Key)
	case m.Header.Type == abi.MsgImport && one == nil && !again:
	case m.Header.Type == abi.MsgImport:
		if one == nil {
			one = a.newShare(m)
		}
		one.named[s.pid] = true
		answer.Verdict, answer.Gpu, answer.Bytes = abi.ChargedElsewhere, uint32(one.gpu), one.bytes
	case one != nil && !again && (one.bytes != m.Bytes || !has || named):
		answer.Verdict = abi.ChargedElsewhere
	default:
		if one == nil {
			one = a.newShare(m)
		}
		one.named[s.pid] = true
		if !again {
			if s.granted[m.Gpu] < m.Bytes {
				a.t.Errorf("exported %d bytes, where %d were granted", m.Bytes, s.granted[m.Gpu])
			}
			s.granted[m.Gpu] -= m.Bytes
			answer.Bytes = m.Bytes
		}
	}
	a.publish()
	if again {
		return nil
	}
	return answer
}

func (a *agent) newShare(m abi.Share) *share {
	one := &share{gpu: int(m.Gpu), bytes: m.Bytes, named: map[int32]bool{}}
	a.shares[m.Key] = one
	return one
}

// lose ends a process's having of a piece.
func (a *agent) lose(pid int32, key abi.ShareKey) {
	if one := a.shares[key]; one != nil {
		if delete(one.named, pid); len(one.named) == 0 {
			delete(a.shares, key)
		}
	}
}

func (a *agent) dropUnnamed(pid int32) {
	for key, one := range a.shares {
		if named, has := one.named[pid]; has && !named {
			a.lose(pid, key)
		}
	}
}

// unnamed prepares for what a process will say that it has; all is lost where it has forgotten.
func (a *agent) unnamed(s *session, all bool) {
	for key, one := range a.shares {
		if _, has := one.named[s.pid]; has && all {
			a.lose(s.pid, key)
		} else if has {
			one.named[s.pid] = false
		}
	}
}

// sharedBytes is what is charged for shared memory on a GPU.
func (a *agent) sharedBytes(gpu int) (sum uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.shares {
		if one.gpu == gpu {
			sum += one.bytes
		}
	}
	return sum
}
