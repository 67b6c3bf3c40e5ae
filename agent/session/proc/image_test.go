package proc

// Tests of what is read of a program's file: what the kernel reads of it, and no more.

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"
)

// program is an ELF file with these segments that claims to have a billion sections.
func program(t *testing.T, segments ...elf.ProgType) []byte {
	t.Helper()
	head := elf.Header64{
		Type: uint16(elf.ET_EXEC), Version: 1, Phoff: 64, Shoff: 4096, Ehsize: 64,
		Phentsize: 56, Phnum: uint16(len(segments)), Shentsize: 64,
	}
	copy(head.Ident[:], elf.ELFMAG)
	head.Ident[elf.EI_CLASS], head.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	var file bytes.Buffer
	binary.Write(&file, binary.LittleEndian, head)
	for _, segment := range segments {
		binary.Write(&file, binary.LittleEndian, elf.Prog64{Type: uint32(segment)})
	}
	file.Write(make([]byte, 4096-file.Len()))
	binary.Write(&file, binary.LittleEndian, elf.Section64{Size: 1e9})
	return file.Bytes()
}

// counted counts what is read of a file.
type counted struct {
	file *bytes.Reader
	most int64 // the end of the farthest read
}

func (c *counted) ReadAt(p []byte, at int64) (int, error) {
	c.most = max(c.most, at+int64(len(p)))
	return c.file.ReadAt(p, at)
}

func TestHasLoader(t *testing.T) {
	for _, c := range []struct {
		segments []elf.ProgType
		want     bool
	}{
		{[]elf.ProgType{elf.PT_LOAD}, false},
		{[]elf.ProgType{elf.PT_PHDR, elf.PT_INTERP, elf.PT_LOAD}, true},
	} {
		file := &counted{file: bytes.NewReader(program(t, c.segments...))}
		if got, err := hasLoader(file); got != c.want || err != nil {
			t.Errorf("segments %v: %v, %v", c.segments, got, err)
		}
		if file.most > 4096 {
			t.Errorf("segments %v: read up to byte %d, though nothing of it matters", c.segments, file.most)
		}
	}
	if got, err := HasLoader(os.Getpid()); err != nil {
		t.Errorf("this program: %v, %v", got, err)
	}
	if got, err := HasLoader(1 << 30); err == nil {
		t.Errorf("no process: %v", got)
	}
}

func TestStarted(t *testing.T) {
	t.Setenv("EMPTY", "")
	t.Setenv("LONG", strings.Repeat("SHORT=x", 10000))
	pid, _, out := start(t, "echo ready; read line")
	out()
	got, err := Started(pid, "SHORT", "LONG", "EMPTY", "EMPT")
	if want := []bool{false, true, true, false}; !slices.Equal(got, want) || err != nil {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if got, err := Started(1<<30, "PATH"); err == nil {
		t.Errorf("no process: %v", got)
	}
}

func TestHasLoaderDistrusts(t *testing.T) {
	whole := program(t, elf.PT_INTERP)
	for name, spoil := range map[string]func(file []byte) []byte{
		"short":         func(file []byte) []byte { return file[:63] },
		"no ELF file":   func(file []byte) []byte { file[0] = '#'; return file },
		"far away":      func(file []byte) []byte { file[39] = 0xff; return file },
		"past its end":  func(file []byte) []byte { file[34] = 1; return file },
		"tiny segments": func(file []byte) []byte { file[54] = 3; return file },
		"many segments": func(file []byte) []byte { file[57] = 0xff; return file },
	} {
		if got, err := hasLoader(bytes.NewReader(spoil(bytes.Clone(whole)))); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Files that never answer hold up nobody, however many they are; the others can be looked into again once they do.
func TestLooksThatHang(t *testing.T) {
	hangs := make(chan struct{})
	for range looksMax {
		if _, err := look(func() (bool, error) { <-hangs; return true, nil }); err == nil {
			t.Fatal("it has an answer")
		}
	}
	if _, err := HasLoader(os.Getpid()); err == nil {
		t.Error("more looks are under way than may be")
	}
	close(hangs)
	for {
		if has, err := HasLoader(os.Getpid()); err == nil || !strings.Contains(err.Error(), "do not answer") {
			if err != nil && !strings.Contains(err.Error(), "does not answer") {
				t.Error(has, err)
			}
			return
		}
	}
}
