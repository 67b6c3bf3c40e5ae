package library

// Images of every kind, whole and damaged. Damaged ones lie at the end of a page behind which nothing can
// be read, so that a read beyond them ends the test.

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

const unit = 512

// round is what one piece counts.
func round(bytes int) uint64 { return uint64((bytes + unit - 1) / unit * unit) }

func TestTextVariables(t *testing.T) {
	const head = ".version 7.0\n.target sm_70\n.address_size 64\n"
	for name, one := range map[string]struct {
		text string
		want []int // sizes of the variables
	}{
		"none":                {"", nil},
		"scalar":              {".global .u32 a;", []int{4}},
		"array":               {".visible .global .align 4 .b8 a[1000];", []int{1000}},
		"gigabytes":           {".global .align 16 .b8 a[8589934592];", []int{8 << 30}},
		"two dimensions":      {".global .f64 a[10][20];", []int{1600}},
		"vector":              {".global .v4 .f32 a[8];", []int{128}},
		"several names":       {".global .u16 a, b[4], c = 5, d[2] = {1, 2};", []int{2, 8, 2, 4}},
		"open dimension":      {".const .b32 a[] = {1, 2, 3};", []int{12}},
		"open, nested":        {".const .b32 a[][2] = {{1, 2}, {3, 4}, {5, 6}};", []int{24}},
		"constant bank":       {".const[3] .b64 a[4];", []int{32}},
		"managed":             {".visible .global .attribute(.managed) .align 8 .b8 a[4096];", []int{4096}},
		"hexadecimal":         {".global .b8 a[0x400];", []int{1024}},
		"octal and suffix":    {".global .b8 a[010], b[16U];", []int{8, 16}},
		"external":            {".extern .global .b8 a[4096]; .global .u8 b;", []int{1}},
		"weak and common":     {".weak .global .b8 a[600]; .common .global .b8 b[700];", []int{600, 700}},
		"initial value":       {".global .u64 a = generic(b);.global .b8 b[3] = {1,2,3};", []int{8, 3}},
		"half and wide":       {".global .f16x2 a; .global .b128 b; .global .bf16 c;", []int{4, 16, 2}},
		"comments":            {"// .global .b8 a[99];\n/* .global .b8 b[99]; */ .global .u8 c /* [7] */;", []int{1}},
		"strings":             {".file 1 \".global .b8 a[99];\"\n.global .u8 b;", []int{1}},
		"parameters":          {".entry f(.param .u64 .ptr .global .align 4 p) { ret; }", nil},
		"instructions":        {".entry f() { ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd1], %r1; cvta.to.global.u64 %rd2, %rd1; ret; }", nil},
		"shared is not":       {".shared .b8 a[4096]; .local .b8 b[4096];", nil},
		"after a function":    {".entry f() { .shared .b8 x[64]; ret; }\n.global .b8 a[5];", []int{5}},
		"too large":           {".global .b8 a[99999999999999999999999999];", []int{1 << 50}},
		"too large a product": {".global .b64 a[4294967296][4294967296];", []int{1 << 50}},
		"no end":              {".global .b8 a[100", []int{100}},
		"texture":             {".global .texref t; .global .u8 a;", []int{1}},
	} {
		var want uint64
		for _, size := range one.want {
			want += round(size)
		}
		want = min(want, 1<<50)
		text := head + one.text
		code, variables, errno := imageBytes([]byte(text), 80)
		if errno != 0 || code != round(len(text)) || variables != want {
			t.Errorf("%s: code %d, variables %d, error %d; want %d, %d", name, code, variables, errno, round(len(text)), want)
		}
		// The same by its address alone, and behind its end nothing.
		ended := append([]byte(text), 0)
		guarded, free := guard(t, ended)
		code, variables, errno = imageBytesAt(unsafe.Pointer(unsafe.SliceData(guarded)), 80)
		if errno != 0 || code != round(len(text)) || variables != want {
			t.Errorf("%s by address: code %d, variables %d, error %d", name, code, variables, errno)
		}
		free()
	}
}

// guard copies bytes to the end of a page behind which nothing can be read.
func guard(t testing.TB, content []byte) (copied []byte, free func()) {
	t.Helper()
	page := os.Getpagesize()
	bytes := (len(content)/page + 2) * page
	memory, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mprotect(memory[bytes-page:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	copied = memory[bytes-page-len(content) : bytes-page : bytes-page]
	copy(copied, content)
	return copied, func() { syscall.Munmap(memory) }
}

// section is one of a cubin's, as far as it counts.
type section struct {
	name  string
	kind  elf.SectionType
	flags elf.SectionFlag
	size  int
}

// cubin makes an ELF file with these sections.
func cubin(sections ...section) []byte {
	var names, body bytes.Buffer
	names.WriteByte(0)
	headers := []elf.Section64{{}}
	at := uint64(64)
	for _, s := range append(sections, section{".shstrtab", elf.SHT_STRTAB, 0, 0}) {
		header := elf.Section64{Name: uint32(names.Len()), Type: uint32(s.kind), Flags: uint64(s.flags), Off: at, Size: uint64(s.size)}
		names.WriteString(s.name + "\x00")
		if s.name == ".shstrtab" {
			header.Size = uint64(names.Len())
			body.Write(names.Bytes())
			at += header.Size
		} else if s.kind != elf.SHT_NOBITS {
			body.Write(make([]byte, s.size))
			at += header.Size
		}
		headers = append(headers, header)
	}
	var file bytes.Buffer
	header := elf.Header64{Ehsize: 64, Shoff: at, Shentsize: 64, Shnum: uint16(len(headers)), Shstrndx: uint16(len(headers) - 1), Machine: 190}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	binary.Write(&file, binary.LittleEndian, header)
	file.Write(body.Bytes())
	binary.Write(&file, binary.LittleEndian, headers)
	return file.Bytes()
}

func someCubin(globals int) []byte {
	return cubin(
		section{".text._Z1f", elf.SHT_PROGBITS, elf.SHF_ALLOC | elf.SHF_EXECINSTR, 1000},
		section{".text._Z1g", elf.SHT_PROGBITS, elf.SHF_ALLOC | elf.SHF_EXECINSTR, 500},
		section{".nv.global", elf.SHT_NOBITS, elf.SHF_ALLOC | elf.SHF_WRITE, globals},
		section{".nv.global.init", elf.SHT_PROGBITS, elf.SHF_ALLOC | elf.SHF_WRITE, 100},
		section{".nv.constant0._Z1f", elf.SHT_PROGBITS, elf.SHF_ALLOC, 380},
		section{".nv.shared._Z1f", elf.SHT_NOBITS, elf.SHF_ALLOC | elf.SHF_WRITE, 4096},
		section{".debug_line", elf.SHT_PROGBITS, 0, 3000},
	)
}

func TestCubinSections(t *testing.T) {
	code, variables, errno := imageBytes(someCubin(6<<30), 80)
	wantCode := round(1000) + round(500)
	wantVariables := round(6<<30) + round(100) + round(380)
	if errno != 0 || code != wantCode || variables != wantVariables {
		t.Errorf("code %d, variables %d, error %d; want %d, %d", code, variables, errno, wantCode, wantVariables)
	}
}

// entry is one of a fat binary's.
type entry struct {
	kind       uint16
	capability uint32
	payload    []byte
	expanded   int // length before compression; 0: it is not compressed
}

func fatbin(entries ...entry) []byte {
	var body bytes.Buffer
	for _, e := range entries {
		flags, padded := uint64(0), len(e.payload)
		if e.expanded > 0 {
			flags, padded = 0x2000, (len(e.payload)+7)/8*8
		}
		binary.Write(&body, binary.LittleEndian, struct {
			Kind, Version          uint16
			Header                 uint32
			Bytes                  uint64
			Compressed, Unused     uint32
			Minor, Major           uint16
			Capability, Name, Long uint32
			Flags, Zero, Expanded  uint64
		}{e.kind, 0x101, 64, uint64(padded), uint32(len(e.payload)), 0, 0, 0, e.capability, 0, 0, flags, 0, uint64(e.expanded)})
		body.Write(e.payload)
		body.Write(make([]byte, padded-len(e.payload)))
	}
	var file bytes.Buffer
	binary.Write(&file, binary.LittleEndian, struct {
		Magic           uint32
		Version, Header uint16
		Bytes           uint64
	}{0xba55ed50, 1, 16, uint64(body.Len())})
	file.Write(body.Bytes())
	return file.Bytes()
}

// literals is a block of LZ4 without any compression.
func literals(plain []byte) []byte {
	block := []byte{0xf0}
	rest := len(plain) - 15
	for ; rest >= 255; rest -= 255 {
		block = append(block, 255)
	}
	return append(append(block, byte(rest)), plain...)
}

func text(globals int) []byte {
	return []byte(".version 7.0\n.target sm_70\n.global .b8 a[" + strconv.Itoa(globals) + "];\n")
}

// A fat binary counts by the entry that the device would get.
func TestFatBinaryChoice(t *testing.T) {
	const ptx, sass = 1, 2
	for name, one := range map[string]struct {
		entries []entry
		want    int // the variable's size
	}{
		"text":                        {[]entry{{ptx, 70, text(1 << 20), 0}}, 1 << 20},
		"the latest text that runs":   {[]entry{{ptx, 50, text(1024), 0}, {ptx, 75, text(2048), 0}, {ptx, 90, text(4096), 0}}, 2048},
		"code before text":            {[]entry{{ptx, 80, text(1024), 0}, {sass, 80, someCubin(1 << 30), 0}}, 1 << 30},
		"code of another generation":  {[]entry{{sass, 75, someCubin(1 << 30), 0}, {ptx, 75, text(1024), 0}}, 1024},
		"code of a later step":        {[]entry{{sass, 89, someCubin(1 << 30), 0}, {ptx, 75, text(1024), 0}}, 1024},
		"nothing that seems to run":   {[]entry{{sass, 90, someCubin(1 << 30), 0}, {ptx, 90, text(1024), 0}}, 1 << 30},
		"compressed text":             {[]entry{{ptx, 70, literals(text(1 << 33)), len(text(1 << 33))}}, 1 << 33},
		"compressed code":             {[]entry{{sass, 80, literals(someCubin(5 << 30)), len(someCubin(5 << 30))}}, 5 << 30},
		"an unknown kind is no image": {[]entry{{9, 80, []byte("?"), 0}, {ptx, 70, text(512), 0}}, 512},
	} {
		image := fatbin(one.entries...)
		_, variables, errno := imageBytes(image, 80)
		if one.want >= 1<<30 && strings.Contains(name, "code") || one.want == 1<<30 {
			variables -= round(100) + round(380) // the cubin's others
		}
		if errno != 0 || variables != round(one.want) {
			t.Errorf("%s: variables %d, error %d, want %d", name, variables, errno, one.want)
		}
		// By the address of a wrapper, as programs have it.
		guarded, free := guard(t, image)
		wrapper := struct {
			magic, version uint32
			fatbin         unsafe.Pointer
		}{0x466243b1, 1, unsafe.Pointer(unsafe.SliceData(guarded))}
		var again uint64
		_, again, errno = imageBytesAt(unsafe.Pointer(&wrapper), 80)
		if errno != 0 || again < variables {
			t.Errorf("%s by a wrapper: variables %d, error %d", name, again, errno)
		}
		free()
	}
}

// What is compressed in a way that we do not know counts by its size.
func TestFatBinaryOpaque(t *testing.T) {
	code, variables, errno := imageBytes(fatbin(entry{2, 80, bytes.Repeat([]byte{7}, 5000), 20000}), 80)
	if errno != 0 || code != round(20000) || variables != 0 {
		t.Errorf("code %d, variables %d, error %d", code, variables, errno)
	}
}

func TestLZ4(t *testing.T) {
	for name, one := range map[string]struct {
		block []byte
		want  string
	}{
		"literals":       {[]byte("\x50hello"), "hello"},
		"a copy":         {[]byte("\x32abc\x03\x00\x20xy"), "abcabcabcxy"},
		"overlap":        {[]byte("\x10a\x01\x00\x10b"), "aaaaab"},
		"long literals":  {literals([]byte(strings.Repeat("x", 600))), strings.Repeat("x", 600)},
		"nothing before": {[]byte("\x00\x01\x00"), ""},
		"cut short":      {[]byte("\x50hel"), ""},
		"cut in a copy":  {[]byte("\x30abc\x03"), ""},
		"too far back":   {[]byte("\x30abc\x04\x00"), ""},
		"too long":       {[]byte("\x1fa\x01\x00\xff\xff\xff\xff\xff\xff\xff\x00"), ""},
	} {
		if got := string(undoLZ4(one.block, 600)); got != one.want {
			t.Errorf("%s: %q, want %q", name, got, one.want)
		}
	}
}

// An address that leads nowhere, and images that end where nothing can be read.
func TestImageUnreadable(t *testing.T) {
	if _, _, errno := imageBytesAt(nil, 80); errno == 0 {
		t.Error("no image is read without an error")
	}
	one, free := guard(t, []byte{1})
	behind := unsafe.Add(unsafe.Pointer(unsafe.SliceData(one)), 1)
	if code, variables, _ := imageBytesAt(behind, 80); code != 0 || variables != 0 {
		t.Errorf("what cannot be read counts %d and %d", code, variables)
	}
	free()
	whole := fatbin(entry{1, 70, text(1 << 20), 0})
	for cut := range len(whole) {
		guarded, free := guard(t, whole[:cut])
		imageBytesAt(unsafe.Pointer(unsafe.SliceData(guarded)), 80)
		free()
	}
}

func seeds() [][]byte {
	return [][]byte{
		text(100), someCubin(4096),
		fatbin(entry{1, 70, text(100), 0}, entry{2, 80, someCubin(64), 0}),
		fatbin(entry{1, 70, literals(text(5)), len(text(5))}),
		[]byte(".const .b32 a[][2] = {{1, 2}, {3, 4}}; /* \" */ .global .v2 .u16 b, c[3] = {\"\\\"\"};"),
	}
}

// Images with bytes changed at random are read without a read beyond them.
func TestDamagedImages(t *testing.T) {
	seed := uint64(1)
	if text := os.Getenv("WEIR_TEST_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 20000 {
		image := bytes.Clone(seeds()[random.IntN(len(seeds()))])
		for range 1 + random.IntN(4) {
			image[random.IntN(len(image))] = byte(random.Uint32())
		}
		checkImage(t, image[:random.IntN(len(image)+1)])
	}
}

func checkImage(t testing.TB, image []byte) {
	guarded, free := guard(t, image)
	defer free()
	code, variables, errno := imageBytes(guarded, 80)
	if code > 1<<50 || variables > 1<<50 {
		t.Errorf("code %d, variables %d, error %d: more than any device has", code, variables, errno)
	}
	if code%unit != 0 || variables%unit != 0 {
		t.Errorf("code %d, variables %d: not in units", code, variables)
	}
}

func FuzzImage(f *testing.F) {
	for _, seed := range seeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, image []byte) { checkImage(t, image) })
}
