package wire

// Tests of messages: each way to be wrong, and the window of question numbers.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	m := &abi.Hello{Magic: abi.HelloMagic, Abi_oldest: abi.Oldest, Abi_newest: abi.Version}
	change(m)
	return raw(abi.MsgHello, 1, m)
}

func relabel(p []byte) []byte {
	binary.LittleEndian.PutUint16(p[2:], uint16(len(p)))
	return p
}

func request(change func(*abi.Request)) []byte {
	m := &abi.Request{Kind: abi.KindPlain, Bytes: 512}
	change(m)
	return raw(abi.MsgRequest, 7, m)
}

// share is an EXPORT, IMPORT or DROP.
func share(kind uint16, change func(*abi.Share)) []byte {
	m := &abi.Share{Bytes: 512, Key: abi.ShareKey{Bytes: [32]uint8{1}}}
	change(m)
	return raw(kind, 7, m)
}

// versions is a HELLO that offers a range of versions.
func versions(oldest, newest uint16) []byte {
	return hello(func(m *abi.Hello) { m.Abi_oldest, m.Abi_newest = oldest, newest })
}

func TestDecodeAccepts(t *testing.T) {
	for name, packet := range map[string][]byte{
		"hello": hello(func(m *abi.Hello) {
			m.Held_count = 2
			m.Held[0] = abi.Held{Uuid: [16]uint8{1}, Bytes: BytesMax}
			m.Held[1] = abi.Held{Uuid: [16]uint8{2}}
		}),
		"hello of a later version": relabel(append(versions(abi.Oldest, 9), 1, 2)),
		"request":                  request(func(*abi.Request) {}),
		"request for no GPU":       request(func(m *abi.Request) { m.Gpu, m.Bytes = 99, BytesMax }),
		"query":                    raw(abi.MsgQuery, 7, &abi.Query{}),
		"note":                     raw(abi.MsgNote, 0, &abi.Note{Code: abi.NoteForked}),
		"request of the last kind": request(func(m *abi.Request) { m.Kind = abi.KindImported }),
		"measure":                  raw(abi.MsgMeasure, 7, &abi.Measure{Contexts: 1, Bytes: BytesMax}),
		"export":                   share(abi.MsgExport, func(*abi.Share) {}),
		"export again":             share(abi.MsgExport, func(m *abi.Share) { m.Flags = abi.ShareAgain }),
		"import of unknown size":   share(abi.MsgImport, func(m *abi.Share) { m.Gpu, m.Bytes = ^uint32(0), 0 }),
		"drop":                     share(abi.MsgDrop, func(*abi.Share) {}),
		"want":                     raw(abi.MsgWant, 0, &abi.Turn{Gpu: abi.GPUsMax - 1, Lease: leaseMax}),
		"drained":                  raw(abi.MsgDrained, 0, &abi.Turn{Lease: 7, Waiting: 3}),
		"progress":                 raw(abi.MsgProgress, 0, &abi.Turn{Lease: 7, Waiting: ^uint32(0)}),
		"idle":                     raw(abi.MsgIdle, 0, &abi.Turn{}),
		"all is declared":          raw(abi.MsgDrop, 7, &abi.Share{Flags: abi.ShareAgain}),
	} {
		m, err := Decode(packet)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if h, ok := m.(*abi.Hello); ok && Negotiated(h) != abi.Version {
			t.Errorf("%s: negotiated %d", name, Negotiated(h))
		}
	}
}

// TestLayout: what is decoded by copying is what package binary makes of it.
func TestLayout(t *testing.T) {
	for _, c := range []struct {
		packet []byte
		want   any
	}{
		{hello(func(m *abi.Hello) {
			m.Driver_version, m.Pid, m.Session, m.Usage_inode = 1, 2, 3, 4
			m.Held_count, m.Held[0].Bytes, m.Held[63].Uuid[15] = 1, 5, 6
			m.Library[0], m.Program[62] = 'a', 'b'
		}), new(abi.Hello)},
		{request(func(m *abi.Request) { m.Gpu, m.Kind, m.Bytes = 1, 2, 3 }), new(abi.Request)},
		{raw(abi.MsgQuery, 7, &abi.Query{Gpu: 1}), new(abi.Query)},
		{raw(abi.MsgMeasure, 7, &abi.Measure{Gpu: 1, Contexts: 2, Bytes: 3}), new(abi.Measure)},
		{share(abi.MsgExport, func(m *abi.Share) { m.Gpu, m.Bytes, m.Key.Bytes[31] = 1, 2, 3 }), new(Export)},
		{raw(abi.MsgNote, 7, &abi.Note{Code: 1, A: 2, B: 3}), new(abi.Note)},
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

func TestDecodeRefuses(t *testing.T) {
	whole := request(func(*abi.Request) {})
	for _, c := range []struct {
		want   string
		packet []byte
	}{
		{"shorter than a header", nil},
		{"shorter than a header", whole[:7]},
		{"longer than", make([]byte, abi.MsgBytesMax+1)},
		{"says it has", whole[:47]},
		{"says it has", append(bytes.Clone(whole), 0)},
		{"where it has", relabel(bytes.Clone(whole[:47]))},
		{"where it has", relabel(append(bytes.Clone(whole), 0))},
		{"unknown type 0", raw(0, 1, &abi.Query{})},
		{"unknown type 2", raw(abi.MsgWelcome, 1, &abi.Welcome{})},
		{"unknown type 99", raw(99, 1, &abi.Query{})},
		{"bytes asked for", request(func(m *abi.Request) { m.Bytes = 0 })},
		{"bytes asked for", request(func(m *abi.Request) { m.Bytes = BytesMax + 1 })},
		{"unknown kind", request(func(m *abi.Request) { m.Kind = 0 })},
		{"unknown kind", request(func(m *abi.Request) { m.Kind = 13 })},
		{"number 0", raw(abi.MsgRequest, 0, &abi.Request{Kind: 1, Bytes: 1})},
		{"number 0", raw(abi.MsgQuery, 0, &abi.Query{})},
		{"number 0", raw(abi.MsgMeasure, 0, &abi.Measure{Contexts: 1})},
		{"0 contexts", raw(abi.MsgMeasure, 1, &abi.Measure{})},
		{"513 contexts", raw(abi.MsgMeasure, 1, &abi.Measure{Contexts: abi.ContextsMax + 1})},
		{"held beside", raw(abi.MsgMeasure, 1, &abi.Measure{Contexts: 1, Bytes: BytesMax + 1})},
		{"number 0", raw(abi.MsgExport, 0, &abi.Share{})},
		{"number 0", raw(abi.MsgImport, 0, &abi.Share{})},
		{"number 0", raw(abi.MsgDrop, 0, &abi.Share{})},
		{"bytes exported", share(abi.MsgExport, func(m *abi.Share) { m.Bytes = BytesMax + 1 })},
		{"bytes imported", share(abi.MsgImport, func(m *abi.Share) { m.Bytes = BytesMax + 1 })},
		{"unknown flags", share(abi.MsgExport, func(m *abi.Share) { m.Flags = 2 })},
		{"unknown flags", share(abi.MsgImport, func(m *abi.Share) { m.Flags = ^uint32(0) })},
		{"something is named", share(abi.MsgDrop, func(m *abi.Share) { m.Flags = abi.ShareAgain })},
		{"unknown type 13", raw(abi.MsgShared, 1, &abi.Shared{})},
		{"reserved", raw(abi.MsgQuery, 1, &abi.Query{Reserved: 1})},
		{"reserved", hello(func(m *abi.Hello) { m.Reserved = 1 })},
		{"unknown type 16", raw(abi.MsgLook, 0, &abi.Turn{})},
		{"WANT: GPU 64", raw(abi.MsgWant, 0, &abi.Turn{Gpu: abi.GPUsMax})},
		{"WANT: GPU 4294967295", raw(abi.MsgWant, 0, &abi.Turn{Gpu: ^uint32(0)})},
		{"IDLE: lease 2147483648", raw(abi.MsgIdle, 0, &abi.Turn{Lease: leaseMax + 1})},
		{"WANT: 1 threads", raw(abi.MsgWant, 0, &abi.Turn{Waiting: 1})},
		{"IDLE: 1 threads", raw(abi.MsgIdle, 0, &abi.Turn{Waiting: 1})},
		{"DRAINED: reserved", raw(abi.MsgDrained, 0, &abi.Turn{Reserved: 1})},
		{"PROGRESS of 28 bytes", relabel(append(raw(abi.MsgProgress, 0, &abi.Turn{}), 0, 0, 0, 0))},
		{"unknown code", raw(abi.MsgNote, 0, &abi.Note{})},
		{"unknown code", raw(abi.MsgNote, 0, &abi.Note{Code: 99})},
		{"HELLO of 12", relabel(versions(abi.Oldest, abi.Version)[:12])},
		{"HELLO of 1681 bytes", relabel(append(versions(abi.Oldest, abi.Version), 0))},
		{"HELLO of 1679 bytes", relabel(versions(abi.Oldest, 9)[:1679])},
		{"magic", hello(func(m *abi.Hello) { m.Magic = 1 })},
		{"no common version", versions(abi.Version+1, 9)},
		{"no common version", versions(0, 0)},
		{"no common version", versions(abi.Version, abi.Oldest-1)},
		{"no common version", relabel(versions(abi.Version+1, abi.Version+2)[:16])},
		{"more than 64", hello(func(m *abi.Hello) { m.Held_count = 65 })},
		{"more than 64", hello(func(m *abi.Hello) { m.Held_count = ^uint32(0) })},
		{"text without an end", hello(func(m *abi.Hello) { fill(m.Program[:]) })},
		{"text without an end", hello(func(m *abi.Hello) { fill(m.Library[:]) })},
		{"bytes held", hello(func(m *abi.Hello) { m.Held_count, m.Held[0].Bytes = 1, BytesMax+1 })},
		{"twice", hello(func(m *abi.Hello) { m.Held_count = 2 })},
	} {
		m, err := Decode(c.packet)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got %v, %v", c.want, m, err)
		}
		if errors.Is(err, ErrVersion) != (c.want == "no common version") {
			t.Errorf("%q: wrong kind of error: %v", c.want, err)
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
	seven := abi.Header{Seq: 7}
	packet := Encode(&abi.Verdict{Header: seven, Verdict: abi.Granted, Granted_bytes: 9})
	want := raw(abi.MsgVerdict, 7, &abi.Verdict{Verdict: abi.Granted, Granted_bytes: 9})
	if !bytes.Equal(packet, want) {
		t.Errorf("got %x, want %x", packet, want)
	}
	long := Close(abi.CloseVersion, abi.ClosePass, strings.Repeat("x", 200))
	if len(long) != 112 || long[111] != 0 || long[110] != 'x' || long[12] != abi.ClosePass {
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
	f.Add(share(abi.MsgExport, func(*abi.Share) {}))
	f.Add(share(abi.MsgImport, func(m *abi.Share) { m.Flags = abi.ShareAgain }))
	f.Add(raw(abi.MsgDrop, 7, &abi.Share{Flags: abi.ShareAgain}))
	f.Add(raw(abi.MsgMeasure, 7, &abi.Measure{Contexts: 1}))
	f.Add(hello(func(m *abi.Hello) { m.Held_count = 1 }))
	f.Add(raw(abi.MsgRequest, 7, &abi.Request{Kind: abi.KindPlain, Bytes: 1}))
	f.Add(raw(abi.MsgQuery, 7, &abi.Query{}))
	f.Add(raw(abi.MsgNote, 0, &abi.Note{Code: abi.NoteForked}))
	f.Add(raw(abi.MsgWant, 0, &abi.Turn{Gpu: 1, Lease: 7}))
	f.Add(movable(func(m *abi.Request) { m.Flags = abi.RequestAgain }))
	f.Add(moved(func(*abi.Moved) {}))
	f.Add(named(abi.MsgUsed, func(*abi.Named) {}))
	f.Add(raw(abi.MsgDrained, 0, &abi.Turn{Gpu: 1, Lease: 7, Waiting: 2}))
	f.Fuzz(func(t *testing.T, packet []byte) {
		m, err := Decode(packet)
		if (m == nil) == (err == nil) {
			t.Errorf("got %v and %v", m, err)
		}
	})
}
