package store

// Tests of what is kept: it comes back whole, or is reported as damaged.

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const boot = "01234567-89ab-cdef-0123-456789abcdef"

func pointer[T any](v T) *T { return &v }

func sampleContainers() []Container {
	return []Container{
		{
			ID: "0123456789ab", Name: "trainer", Identity: "path", PID: 42, Start: 4711, UID: 1000,
			Command: []string{"python", "train.py"}, Started: time.Unix(1_800_000_000, 5).UTC(),
			Caps: Caps{MemoryBytes: pointer(int64(8 << 30)), Weight: pointer(2.0)},
		},
		{ID: "0123456789ac", Name: "free", Identity: "path", PID: 43, Started: time.Unix(1, 0).UTC()},
	}
}

func TestContainersSurvive(t *testing.T) {
	dir := t.TempDir()
	want := sampleContainers()
	if err := NewContainers(dir, boot).Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := NewContainers(dir, boot).Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("containers differ (-want +got):\n%s", diff)
	}
	got, err = NewContainers(dir, "another boot").Load()
	if len(got) != 0 || err != nil {
		t.Errorf("of an earlier boot: got %v, %v", got, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.new")); len(left) > 0 {
		t.Errorf("temporary files left: %v", left)
	}
}

func TestNoContainersYet(t *testing.T) {
	got, err := NewContainers(t.TempDir(), boot).Load()
	if len(got) != 0 || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestDamagedContainersAreRefused(t *testing.T) {
	c := NewContainers(t.TempDir(), boot)
	if err := c.Save(sampleContainers()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(c.path)
	if err != nil {
		t.Fatal(err)
	}
	change := func(from, to string) string { return strings.Replace(string(whole), from, to, 1) }
	for name, text := range map[string]string{
		"empty":           "",
		"cut":             string(whole[:len(whole)/2]),
		"garbage":         "\x00\x01\x02",
		"appended":        string(whole) + "x",
		"of another kind": `{"schema": 1, "boot": "b", "containers": 7}`,
		"newer schema":    change(`"schema": 1`, `"schema": 2`),
		"bad id":          change("0123456789ab", "../../../etc"),
		"no name":         change(`"trainer"`, `""`),
		"bad pid":         change(`"pid": 42`, `"pid": 0`),
		"negative cap":    change("8589934592", "-1"),
		"same id twice":   change("0123456789ac", "0123456789ab"),
		"same name twice": change(`"free"`, `"trainer"`),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(c.path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := c.Load()
			if err == nil {
				t.Fatalf("accepted as %v", got)
			}
			if !strings.Contains(err.Error(), c.path) || !strings.Contains(err.Error(), "move it away") {
				t.Errorf("the error names neither the file nor the way out: %v", err)
			}
		})
	}
}

func sampleRecord() Record {
	return Record{
		Container: "0123456789ab", PID: 42, Start: 4711, UID: 1000, Image: 99, Session: 7, Inode: 12,
		Since: time.Unix(1_800_000_000, 5), ABI: 1, Program: "python3", Library: "1.0",
		GPUs: []Grant{
			{UUID: [16]byte{1}, Row: Row{Bytes: 5, Moves: 1 << 40, Move: -3}}, {UUID: [16]byte{2}},
		},
	}
}

func TestRecordsSurvive(t *testing.T) {
	credits := OpenCredits(t.TempDir(), boot)
	want := sampleRecord()
	record, err := credits.Create(want)
	if err != nil {
		t.Fatal(err)
	}
	want.GPUs[1].Row = Row{Bytes: 1 << 50, Moves: 7, Move: 512}
	if err := record.Set(1, want.GPUs[1].Row); err != nil {
		t.Fatal(err)
	}
	if got, damaged, err := credits.Load(); err != nil || damaged != nil {
		t.Error(damaged, err)
	} else if diff := cmp.Diff([]Record{want}, got); diff != "" {
		t.Errorf("records differ (-want +got):\n%s", diff)
	}

	next := sampleRecord()
	next.Session = 8
	replaced, err := credits.Create(next)
	if err != nil {
		t.Fatal(err)
	}
	if err := record.Set(0, Row{Bytes: 77}); err != nil { // the former record must not reach the new one
		t.Fatal(err)
	}
	if err := record.Close(); err != nil {
		t.Fatal(err)
	}
	if got, damaged, err := credits.Load(); err != nil || damaged != nil {
		t.Error(damaged, err)
	} else if diff := cmp.Diff([]Record{next}, got); diff != "" {
		t.Errorf("records differ after a replacement (-want +got):\n%s", diff)
	}
	if err := replaced.Remove(); err != nil {
		t.Fatal(err)
	}
	if got, _, err := credits.Load(); len(got) != 0 || err != nil {
		t.Errorf("after the removal: %v, %v", got, err)
	}
}

func TestRecordLayout(t *testing.T) {
	size := binary.Size(recordHeader{})
	if size != headerBytes || rowsAt%8 != 0 || len(Row{}.encode()) != rowBytes {
		t.Errorf("header of %d bytes, rows at %d", size, rowsAt)
	}
	tooMany := sampleRecord()
	tooMany.GPUs = make([]Grant, RecordGPUs+1)
	if _, err := OpenCredits(t.TempDir(), boot).Create(tooMany); err == nil {
		t.Error("a record of too many GPUs was written")
	}
}

func TestRow(t *testing.T) {
	for _, c := range []struct {
		row   Row
		moves uint64
		want  uint64
		known bool
	}{
		{Row{Bytes: 100, Moves: 4}, 4, 100, true},
		{Row{Bytes: 100, Moves: 4, Move: -30}, 4, 100, true},
		{Row{Bytes: 100, Moves: 4, Move: -30}, 5, 70, true},
		{Row{Bytes: 100, Moves: 4, Move: 30}, 4, 100, true},
		{Row{Bytes: 100, Moves: 4, Move: 30}, 5, 130, true},
		{Row{Bytes: 100, Moves: 4, Move: 30}, 6, 130, false},
		{Row{Bytes: 100, Moves: 4, Move: -30}, 3, 100, false},
	} {
		if got, known := c.row.After(c.moves); got != c.want || known != c.known {
			t.Errorf("%+v at %d: %d, %v", c.row, c.moves, got, known)
		}
	}
}

func TestDamagedRecordsAreReported(t *testing.T) {
	dir := t.TempDir()
	credits := OpenCredits(dir, boot)
	record, err := credits.Create(sampleRecord())
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	whole, err := os.ReadFile(record.path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range headerBytes + 4 {
		changed := append([]byte(nil), whole...)
		changed[i] ^= 0x10
		if _, _, err := decodeRecord(changed); err == nil {
			t.Fatalf("a change of byte %d went unnoticed", i)
		}
	}
	bad := filepath.Join(dir, "43-1-0123456789ab")
	for name, content := range map[string][]byte{
		"empty": {}, "cut": whole[:100], "long": append(whole, 0), "of another process": whole,
	} {
		if err := os.WriteFile(bad, content, 0o600); err != nil {
			t.Fatal(err)
		}
		got, damaged, err := credits.Load()
		if err != nil || len(damaged) != 1 || !strings.Contains(damaged[0].Error(), bad) {
			t.Errorf("%s: the error does not name the file: %v, %v", name, damaged, err)
		}
		if len(got) != 1 {
			t.Errorf("%s: %d records, want the whole one", name, len(got))
		}
		if _, err := os.Stat(bad); err == nil {
			t.Errorf("%s: the damaged record is still there", name)
		}
	}
}

func TestStaleRecordsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	record, err := OpenCredits(dir, "an earlier boot").Create(sampleRecord())
	if err != nil {
		t.Fatal(err)
	}
	record.Close()
	if err := os.WriteFile(filepath.Join(dir, "9-9-0123456789ab.new"), []byte("cut"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, damaged, err := OpenCredits(dir, boot).Load()
	if len(got) != 0 || damaged != nil || err != nil {
		t.Errorf("got %v, %v, %v", got, damaged, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("still there: %v", entries)
	}
}

func BenchmarkSet(b *testing.B) {
	record, err := OpenCredits(b.TempDir(), boot).Create(sampleRecord())
	if err != nil {
		b.Fatal(err)
	}
	defer record.Close()
	for b.Loop() {
		if err := record.Set(1, Row{Bytes: 4096}); err != nil {
			b.Fatal(err)
		}
	}
}
