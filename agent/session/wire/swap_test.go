package wire

// Tests of messages about movable memory: what is accepted, and each way to be wrong.

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/cgo/abi"
)

func movable(change func(*abi.Request)) []byte {
	return request(func(m *abi.Request) {
		m.Kind, m.Bytes, m.Id = abi.KindMovable, 2*abi.MovableUnit, 5
		change(m)
	})
}

func moved(change func(*abi.Moved)) []byte {
	m := &abi.Moved{Gpu: 1, Count: 2}
	m.Entries[0] = abi.MovedEntry{Move: 3, Result: abi.MoveDone, Ns: 4}
	m.Entries[1] = abi.MovedEntry{Move: 9, Result: abi.MoveFailed}
	change(m)
	return raw(abi.MsgMoved, 0, m)
}

func named(kind uint16, change func(*abi.Named)) []byte {
	m := &abi.Named{Gpu: 1, Count: 1, Ids: [abi.NamedMax]uint64{7}}
	change(m)
	return raw(kind, 0, m)
}

func TestDecodeMovable(t *testing.T) {
	all := func(m *abi.Named) {
		m.Count = abi.NamedMax
		for i := range m.Ids {
			m.Ids[i] = uint64(i) + 1
		}
	}
	for _, c := range []struct {
		packet []byte
		want   any
	}{
		{movable(func(*abi.Request) {}), new(abi.Request)},
		{movable(func(m *abi.Request) { m.Flags, m.Here_bytes = abi.RequestAgain, m.Bytes }), new(abi.Request)},
		{moved(func(*abi.Moved) {}), new(abi.Moved)},
		{named(abi.MsgUsed, all), new(Used)},
		{named(abi.MsgUsed, func(m *abi.Named) { m.Count, m.Ids[0] = 0, 0 }), new(Used)},
		{named(abi.MsgFreed, func(*abi.Named) {}), new(Freed)},
	} {
		got, err := Decode(c.packet)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := binary.Decode(c.packet, binary.LittleEndian, c.want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%T differs:\n%s", got, diff)
		}
	}
}

func TestDecodeRefusesMovable(t *testing.T) {
	for _, c := range []struct {
		want   string
		packet []byte
	}{
		{"kind 12 with the number 0", movable(func(m *abi.Request) { m.Id = 0 })},
		{"kind 1 with the number 5", request(func(m *abi.Request) { m.Id = 5 })},
		{"no multiple of", movable(func(m *abi.Request) { m.Bytes += 512 })},
		{"unknown flags", movable(func(m *abi.Request) { m.Flags = 2 })},
		{"reserved", movable(func(m *abi.Request) { m.Reserved = 1 })},
		{"declared anew", request(func(m *abi.Request) { m.Flags = abi.RequestAgain })},
		{"on the card", movable(func(m *abi.Request) { m.Here_bytes = 1 })},
		{"on the card", movable(func(m *abi.Request) { m.Flags, m.Here_bytes = abi.RequestAgain, m.Bytes+1 })},
		{"MOVED: GPU 64", moved(func(m *abi.Moved) { m.Gpu = abi.GPUsMax })},
		{"0 entries", moved(func(m *abi.Moved) { m.Count = 0 })},
		{"65 entries", moved(func(m *abi.Moved) { m.Count = abi.MovedMax + 1 })},
		{"entry 1 is in use", moved(func(m *abi.Moved) { m.Count = 1 })},
		{"move number 0", moved(func(m *abi.Moved) { m.Entries[0].Move = 0 })},
		{"unknown result 0", moved(func(m *abi.Moved) { m.Entries[1].Result = 0 })},
		{"unknown result 4", moved(func(m *abi.Moved) { m.Entries[1].Result = 4 })},
		{"USED: GPU 64", named(abi.MsgUsed, func(m *abi.Named) { m.Gpu = abi.GPUsMax })},
		{"257 entries", named(abi.MsgUsed, func(m *abi.Named) { m.Count = abi.NamedMax + 1 })},
		{"FREED: 0 entries", named(abi.MsgFreed, func(m *abi.Named) { m.Count, m.Ids[0] = 0, 0 })},
		{"number 7 in place 0, of 0", named(abi.MsgUsed, func(m *abi.Named) { m.Count = 0 })},
		{"number 0 in place 1, of 2", named(abi.MsgFreed, func(m *abi.Named) { m.Count = 2 })},
		{"FREED of 2072 bytes", relabel(append(named(abi.MsgFreed, func(*abi.Named) {}), make([]byte, 8)...))},
		{"unknown type 20", raw(abi.MsgMove, 0, &abi.Move{})},
	} {
		if m, err := Decode(c.packet); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got %v, %v", c.want, m, err)
		}
	}
}

func TestEncodeMove(t *testing.T) {
	m := &abi.Move{Gpu: 1, Count: 1}
	m.Entries[0] = abi.MoveEntry{Move: 2, Id: 3, Offset: 4, Bytes: 5, Flags: abi.MoveOut}
	if got, want := Encode(m), raw(abi.MsgMove, 0, m); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got[:56], want[:56])
	}
}
