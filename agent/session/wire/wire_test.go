package wire

// Tests of messages: each way to be wrong, and the window of question numbers.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weir/cgo/abi"
)

// raw writes a message with a correct header.
func raw(kind uint16, seq uint32, m any) []byte {
	p, err := binary.Append(nil, binary.LittleEndian, m)
	if err != nil {
		panic(err)
	}
	binary.LittleEndian.PutUint16(p, kind)
	binary.LittleEndian.PutUint16(p[2:], uint16(len(p)))
	binary.LittleEndian.PutUint32(p[4:], seq)
	return p
}

func hello(change func(*abi.Hello)) []byte {
	m := &abi.Hello{Magic: abi.HelloMagic, Abi_oldest: 1, Abi_newest: 1}
	change(m)
	return raw(abi.MsgHello, 1, m)
}

func relabel(p []byte) []byte {
	binary.LittleEndian.PutUint16(p[2:], uint16(len(p)))
	return p
}

func TestDecodeAccepts(t *testing.T) {
	for name, packet := range map[string][]byte{
		"hello": hello(func(m *abi.Hello) {
			m.Held_count = 2
			m.Held[0] = abi.Held{Uuid: [16]uint8{1}, Bytes: BytesMax}
			m.Held[1] = abi.Held{Uuid: [16]uint8{2}}
		}),
		"hello of a later version": relabel(append(hello(func(m *abi.Hello) { m.Abi_newest = 9 }), 1, 2)),
		"request":                  raw(abi.MsgRequest, 7, &abi.Request{Kind: abi.KindPlain, Bytes: 1}),
		"request for no GPU":       raw(abi.MsgRequest, 7, &abi.Request{Gpu: 99, Kind: 3, Bytes: BytesMax}),
		"query":                    raw(abi.MsgQuery, 7, &abi.Query{}),
		"note":                     raw(abi.MsgNote, 0, &abi.Note{Code: abi.NoteForked}),
	} {
		if m, err := Decode(packet); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if name == "hello of a later version" && Negotiated(m.(*abi.Hello)) != abi.Version {
			t.Errorf("%s: negotiated %d", name, Negotiated(m.(*abi.Hello)))
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	request := func(change func(*abi.Request)) []byte {
		m := &abi.Request{Kind: abi.KindPlain, Bytes: 512}
		change(m)
		return raw(abi.MsgRequest, 7, m)
	}
	whole := request(func(*abi.Request) {})
	for want, packets := range map[string][][]byte{
		"shorter than a header":   {{}, {1}, whole[:7]},
		"longer than":             {make([]byte, abi.MsgBytesMax+1)},
		"says it has":             {whole[:23], append(bytes.Clone(whole), 0)},
		"where it has":            {relabel(bytes.Clone(whole[:23])), relabel(append(bytes.Clone(whole), 0))},
		"unknown type":            {raw(0, 1, &abi.Query{}), raw(abi.MsgWelcome, 1, &abi.Welcome{}), raw(99, 1, &abi.Query{})},
		"bytes asked for":         {request(func(m *abi.Request) { m.Bytes = 0 }), request(func(m *abi.Request) { m.Bytes = BytesMax + 1 })},
		"unknown kind":            {request(func(m *abi.Request) { m.Kind = 0 }), request(func(m *abi.Request) { m.Kind = 4 })},
		"number 0":                {raw(abi.MsgRequest, 0, &abi.Request{Kind: 1, Bytes: 1}), raw(abi.MsgQuery, 0, &abi.Query{})},
		"reserved":                {raw(abi.MsgQuery, 1, &abi.Query{Reserved: 1}), hello(func(m *abi.Hello) { m.Reserved = 1 })},
		"unknown code":            {raw(abi.MsgNote, 0, &abi.Note{}), raw(abi.MsgNote, 0, &abi.Note{Code: 99})},
		"HELLO of 12":             {relabel(hello(func(*abi.Hello) {})[:12])},
		"magic":                   {hello(func(m *abi.Hello) { m.Magic = 1 })},
		"no common version":       {hello(func(m *abi.Hello) { m.Abi_oldest, m.Abi_newest = 2, 9 }), hello(func(m *abi.Hello) { m.Abi_oldest = 0; m.Abi_newest = 0 }), hello(func(m *abi.Hello) { m.Abi_oldest, m.Abi_newest = 1, 0 })},
		"more than 64":            {hello(func(m *abi.Hello) { m.Held_count = 65 }), hello(func(m *abi.Hello) { m.Held_count = ^uint32(0) })},
		"text without an end":     {hello(func(m *abi.Hello) { fill(m.Program[:]) }), hello(func(m *abi.Hello) { fill(m.Library[:]) })},
		"bytes held":              {hello(func(m *abi.Hello) { m.Held_count = 1; m.Held[0].Bytes = BytesMax + 1 })},
		"twice":                   {hello(func(m *abi.Hello) { m.Held_count = 2 })},
		"HELLO of 1681 bytes":     {relabel(append(hello(func(*abi.Hello) {}), 0))},
		"HELLO of 1679 bytes":     {relabel(hello(func(m *abi.Hello) { m.Abi_newest = 9 })[:1679])},
		"the library speaks 2 to": {relabel(hello(func(m *abi.Hello) { m.Abi_oldest, m.Abi_newest = 2, 3 })[:16])},
	} {
		for _, packet := range packets {
			m, err := Decode(packet)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v, %v", want, m, err)
			}
			if err != nil && errors.Is(err, ErrVersion) != (want == "no common version" || want == "the library speaks 2 to") {
				t.Errorf("%q: wrong kind of error: %v", want, err)
			}
		}
	}
}

func fill(field []int8) {
	for i := range field {
		field[i] = 'a'
	}
}

func TestText(t *testing.T) {
	field := []int8{'a', 0x1b, '[', -61, 0, 'b'}
	if got := Text(field); got != "a?[?" {
		t.Errorf("got %q", got)
	}
	if got := Text([]int8{'a', 'b'}); got != "ab" {
		t.Errorf("got %q", got)
	}
}

func TestEncode(t *testing.T) {
	packet := Encode(&abi.Verdict{Header: abi.Header{Seq: 7}, Verdict: abi.Granted, Granted_bytes: 9})
	want := raw(abi.MsgVerdict, 7, &abi.Verdict{Verdict: abi.Granted, Granted_bytes: 9})
	if !bytes.Equal(packet, want) {
		t.Errorf("got %x, want %x", packet, want)
	}
	long := Close(abi.CloseProtocol, strings.Repeat("x", 200))
	if len(long) != 112 || long[111] != 0 || long[110] != 'x' {
		t.Errorf("a long reason is not cut and ended: %x", long)
	}
}

// TestWindow compares with a set of all numbers seen, as far as the window reaches.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w Window
		seen := map[uint32]bool{}
		base := rapid.Uint32().Draw(t, "base") // wraps among others
		newest := uint32(0)
		for i, step := range rapid.SliceOfN(rapid.Uint32Range(0, 9000), 1, 300).Draw(t, "numbers") {
			fresh := w.Fresh(base + step)
			if i == 0 {
				newest = step
			}
			if late := int64(newest) - int64(step); late < windowSize && fresh == seen[step] {
				t.Fatalf("number %d (newest %d): fresh %v, seen before %v", step, newest, fresh, seen[step])
			} else if late >= windowSize && !fresh {
				t.Fatalf("number %d, %d late, was refused", step, late)
			}
			seen[step] = true
			newest = max(newest, step)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(hello(func(m *abi.Hello) { m.Held_count = 1 }))
	f.Add(raw(abi.MsgRequest, 7, &abi.Request{Kind: abi.KindPlain, Bytes: 1}))
	f.Add(raw(abi.MsgQuery, 7, &abi.Query{}))
	f.Add(raw(abi.MsgNote, 0, &abi.Note{Code: abi.NoteForked}))
	f.Fuzz(func(t *testing.T, packet []byte) {
		m, err := Decode(packet)
		if (m == nil) == (err == nil) {
			t.Errorf("got %v and %v", m, err)
		}
	})
}
