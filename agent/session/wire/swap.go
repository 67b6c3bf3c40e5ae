package wire

// What a tenant says of movable memory: requests for it, answers to moves, what kernels use and what is freed.
// Whether numbers are the session's own the session knows; here only what can be seen of a message alone.

import (
	"errors"
	"fmt"

	"weir/cgo/abi"
)

// Used and Freed name allocations of movable memory; they differ in their types only.
type (
	Used  struct{ abi.Named }
	Freed struct{ abi.Named }
)

// checkMovable: what only a REQUEST for movable memory has is zero in others.
func checkMovable(m *abi.Request) error {
	movable, again := m.Kind == abi.KindMovable, m.Flags == abi.RequestAgain
	switch {
	case m.Flags&^abi.RequestAgain != 0:
		return fmt.Errorf("unknown flags %#x", m.Flags)
	case m.Reserved != 0:
		return errors.New("reserved field is not zero")
	case movable != (m.Id != 0):
		return fmt.Errorf("kind %d with the number %d", m.Kind, m.Id)
	case movable && m.Bytes%abi.MovableUnit != 0:
		return fmt.Errorf("%d bytes of movable memory, no multiple of %d", m.Bytes, abi.MovableUnit)
	case again && !movable:
		return fmt.Errorf("kind %d is declared anew", m.Kind)
	case m.Here_bytes > m.Bytes, m.Here_bytes != 0 && !again:
		return fmt.Errorf("%d of %d bytes on the card", m.Here_bytes, m.Bytes)
	}
	return nil
}

func checkMoved(m *abi.Moved) error {
	if err := checkCount(m.Gpu, m.Count, 1, abi.MovedMax); err != nil {
		return err
	}
	for i, e := range m.Entries {
		switch {
		case uint32(i) >= m.Count && e != abi.MovedEntry{}:
			return fmt.Errorf("entry %d is in use, of %d", i, m.Count)
		case uint32(i) >= m.Count:
		case e.Move == 0:
			return errors.New("move number 0")
		case e.Result < abi.MoveDone || e.Result > abi.MoveFailed:
			return fmt.Errorf("unknown result %d", e.Result)
		}
	}
	return nil
}

// checkNamed: at least so many are named.
func checkNamed(m *abi.Named, least uint32) error {
	if err := checkCount(m.Gpu, m.Count, least, abi.NamedMax); err != nil {
		return err
	}
	for i, id := range m.Ids {
		if (uint32(i) < m.Count) != (id != 0) {
			return fmt.Errorf("number %d in place %d, of %d", id, i, m.Count)
		}
	}
	return nil
}

func checkCount(gpu, count, least, most uint32) error {
	if gpu >= abi.GPUsMax {
		return fmt.Errorf("GPU %d, of %d at most", gpu, abi.GPUsMax)
	}
	if count < least || count > most {
		return fmt.Errorf("%d entries, of %d to %d", count, least, most)
	}
	return nil
}
