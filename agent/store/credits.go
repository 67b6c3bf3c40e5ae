package store

// Credit records.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A credit record is one file for each process that has a session, of a fixed size: a header with a
// checksum, and one row a GPU. The header is written once, in a file that is then renamed into its
// place; a row is overwritten by one small pwrite, which a kill of the agent cannot tear, and which
// needs no fsync: a crash of the machine ends the processes too.
//
// A row says what the session was granted, and what it will be granted once the agent has changed
// the credit in the session's usage page. Which of the two is the case, the page itself tells: it
// counts the agent's changes. So whatever instruction the agent is killed at, not a byte is in
// doubt.
//
// The files are written, not mapped: in a run directory of an ordinary user the tenants could
// truncate them, and a mapping would then kill the agent.
const (
	recordMagic = 0x3144524352494557 // "WEIRCRD1"
	// RecordGPUs is the number of GPUs that a record has room for.
	RecordGPUs = 64

	programBytes = 64
	libraryBytes = 32
	headerBytes  = 208 + 16*RecordGPUs
	rowsAt       = headerBytes + 8 // after the checksum and its padding
	rowBytes     = 3 * 8
	recordBytes  = rowsAt + rowBytes*RecordGPUs
)

// recordHeader is the constant part of a record as it lies in the file, little-endian.
type recordHeader struct {
	Magic     uint64
	Boot      [36]byte
	Container [12]byte
	PID       uint32
	ABI       uint32
	Start     uint64
	Image     uint64
	Session   uint64
	Inode     uint64
	Since     int64
	UID       uint32
	GPUs      uint32
	Program   [programBytes]byte
	Library   [libraryBytes]byte
	UUIDs     [RecordGPUs][16]byte
}

// Record is what a credit record says of a session.
type Record struct {
	Container string    // id
	PID       int       // of the session's process
	Start     uint64    // its start time, in clock ticks since boot
	UID       uint32    // its user
	Image     uint64    // tells one program image of the process from the next
	Session   uint64    // id
	Inode     uint64    // of the session's usage page
	Since     time.Time // when the session began
	ABI       int
	Program   string
	Library   string
	GPUs      []Grant // in the node's order when the record was written
}

// Grant is what a session was granted on one GPU and has not given back.
type Grant struct {
	UUID [16]byte
	Row
}

// Row is a grant as it changes: Bytes while the usage page counts Moves moves of the agent, and
// Bytes+Move from the next one on.
type Row struct {
	Bytes uint64
	Moves uint64
	Move  int64
}

// Most is the larger of what the grant was before the move and after it.
func (r Row) Most() uint64 { return r.Bytes + uint64(max(r.Move, 0)) }

// After returns the grant in bytes, given the usage page's count of moves; false for a count that
// no agent has left there.
func (r Row) After(moves uint64) (uint64, bool) {
	switch moves {
	case r.Moves:
		return r.Bytes, true
	case r.Moves + 1:
		return r.Bytes + uint64(r.Move), true
	}
	return r.Most(), false
}

// Credits is the directory of credit records. Its methods may be called at the same time for
// different processes.
type Credits struct {
	dir  string
	boot string
}

// Credit is the open record of one session.
type Credit struct {
	file *os.File
	path string
}

// OpenCredits names the directory, which must exist; boot is the machine's boot id (36 characters).
func OpenCredits(dir, boot string) *Credits { return &Credits{dir: dir, boot: boot} }

// Create writes r as the record of its process in its container, in place of one that it had.
func (c *Credits) Create(r Record) (*Credit, error) {
	content, err := c.encode(r)
	if err != nil {
		return nil, fmt.Errorf("writing the credit record of process %d: %w", r.PID, err)
	}
	path := filepath.Join(c.dir, recordName(r.Container, r.PID, r.Start))
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("writing a credit record: %w", err)
	}
	if _, err = f.Write(content); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		os.Remove(path + ".new")
		return nil, errors.Join(fmt.Errorf("writing a credit record: %w", err), f.Close())
	}
	return &Credit{file: f, path: path}, nil
}

// Set writes the row of the GPU at this place of Record.GPUs.
func (c *Credit) Set(gpu int, row Row) error {
	if _, err := c.file.WriteAt(row.encode(), int64(rowsAt+rowBytes*gpu)); err != nil {
		return fmt.Errorf("writing a credit record: %w", err)
	}
	return nil
}

func (r Row) encode() []byte {
	var b [rowBytes]byte
	binary.LittleEndian.PutUint64(b[0:], r.Bytes)
	binary.LittleEndian.PutUint64(b[8:], r.Moves)
	binary.LittleEndian.PutUint64(b[16:], uint64(r.Move))
	return b[:]
}

func decodeRow(b []byte) Row {
	return Row{
		Bytes: binary.LittleEndian.Uint64(b[0:]),
		Moves: binary.LittleEndian.Uint64(b[8:]),
		Move:  int64(binary.LittleEndian.Uint64(b[16:])),
	}
}

// Close lets go of the record and leaves it in the directory.
func (c *Credit) Close() error { return c.file.Close() }

// Remove lets go of the record and removes it: its process has ended. A record that has been
// replaced by a newer one of the same process must be closed instead.
func (c *Credit) Remove() error { return errors.Join(os.Remove(c.path), c.file.Close()) }

// Load reads all records. Those that a kill left unfinished, or that are of an earlier boot, are
// removed. A damaged one is removed too, with an error in damaged that names it.
func (c *Credits) Load() (records []Record, damaged []error, err error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("reading credit records: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(c.dir, entry.Name())
		r, boot, err := readRecord(path, entry.Name())
		stale := strings.HasSuffix(path, ".new") || err == nil && boot != c.boot
		if err == nil && !stale {
			records = append(records, r)
			continue
		}
		if err != nil && !stale {
			damaged = append(damaged, fmt.Errorf("credit record %s is damaged: %w", path, err))
		}
		if err := os.RemoveAll(path); err != nil {
			damaged = append(damaged, fmt.Errorf("removing a credit record: %w", err))
		}
	}
	return records, damaged, nil
}

// Remove removes the record of a process that has ended.
func (c *Credits) Remove(container string, pid int, start uint64) error {
	err := os.Remove(filepath.Join(c.dir, recordName(container, pid, start)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a credit record: %w", err)
	}
	return nil
}

func (c *Credits) encode(r Record) ([]byte, error) {
	if len(r.GPUs) > RecordGPUs {
		return nil, fmt.Errorf("%d GPUs, where a record has room for %d", len(r.GPUs), RecordGPUs)
	}
	h := recordHeader{
		Magic: recordMagic, PID: uint32(r.PID), ABI: uint32(r.ABI), Start: r.Start, Image: r.Image,
		Session: r.Session, Inode: r.Inode, Since: r.Since.UnixNano(), UID: r.UID,
		GPUs: uint32(len(r.GPUs)),
	}
	copy(h.Boot[:], c.boot)
	copy(h.Container[:], r.Container)
	copy(h.Program[:], r.Program)
	copy(h.Library[:], r.Library)
	for i, g := range r.GPUs {
		h.UUIDs[i] = g.UUID
	}
	content := make([]byte, recordBytes)
	if _, err := binary.Encode(content, binary.LittleEndian, &h); err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(content[headerBytes:], crc32.ChecksumIEEE(content[:headerBytes]))
	for i, g := range r.GPUs {
		copy(content[rowsAt+rowBytes*i:], g.encode())
	}
	return content, nil
}

// readRecord reads the record at path, whose name must be that of its process.
func readRecord(path, name string) (r Record, boot string, err error) {
	// Without blocking, and through no link: only a plain file is ever there, unless by tampering.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return r, "", err
	}
	defer f.Close()
	content := make([]byte, recordBytes+1)
	n, err := io.ReadFull(f, content)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return r, "", err
	}
	r, boot, err = decodeRecord(content[:n])
	if err == nil && name != recordName(r.Container, r.PID, r.Start) {
		err = fmt.Errorf("it is of process %d of container %s", r.PID, r.Container)
	}
	return r, boot, err
}

func recordName(container string, pid int, start uint64) string {
	return fmt.Sprintf("%d-%d-%s", pid, start, container)
}

func decodeRecord(content []byte) (r Record, boot string, err error) {
	if len(content) != recordBytes {
		return r, "", fmt.Errorf("not %d bytes long", recordBytes)
	}
	var h recordHeader
	if _, err := binary.Decode(content, binary.LittleEndian, &h); err != nil {
		return r, "", err
	}
	sum := binary.LittleEndian.Uint32(content[headerBytes:])
	if h.Magic != recordMagic || sum != crc32.ChecksumIEEE(content[:headerBytes]) {
		return r, "", errors.New("wrong checksum")
	}
	if h.GPUs > RecordGPUs {
		return r, "", fmt.Errorf("%d GPUs", h.GPUs)
	}
	r = Record{
		Container: text(h.Container[:]), PID: int(h.PID), Start: h.Start, UID: h.UID,
		Image: h.Image, Session: h.Session, Inode: h.Inode, Since: time.Unix(0, h.Since),
		ABI: int(h.ABI), Program: text(h.Program[:]), Library: text(h.Library[:]),
	}
	for i := range int(h.GPUs) {
		row := decodeRow(content[rowsAt+rowBytes*i:])
		r.GPUs = append(r.GPUs, Grant{UUID: h.UUIDs[i], Row: row})
	}
	return r, text(h.Boot[:]), nil
}

// text is a zero-terminated string.
func text(field []byte) string {
	s, _, _ := bytes.Cut(field, []byte{0})
	return string(s)
}
