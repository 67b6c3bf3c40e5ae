package store

// Credit records.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"time"
)

// A credit record says what a process's session was granted: a head with a checksum, and one row a
// GPU, of which there are as many as the agent knows, in its order. The head is written with all
// rows when the session begins; then one row at a time changes.
//
// A row says what the session was granted, and what it will be granted once the agent has changed
// the credit in the session's usage page. Which of the two is the case, the page itself tells: it
// counts the agent's changes. So whatever instruction the agent is killed at, not a byte is in
// doubt.
const (
	creditsMagic = 0x3344524352494557 // "WEIRCRD3"
	// RecordGPUs is the number of GPUs that a record has room for.
	RecordGPUs = 64
	// CreditsMax is how many sessions are recorded at most.
	CreditsMax = 1 << 17

	rowBytes = 4 * 8
	// movableAt is where a row has what movable memory the session has.
	movableAt = 3 * 8
)

// creditHead is the constant part of a record as it lies in the file, little-endian.
type creditHead struct {
	Check     uint32 // of what follows
	ABI       uint32
	Container [12]byte
	PID       uint32
	Start     uint64
	Image     uint64
	Session   uint64
	Inode     uint64
	Since     int64
	UID       uint32
	_         uint32
	Program   [64]byte
	Library   [32]byte
}

var creditHeadBytes = binary.Size(creditHead{})

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
	Movable uint64 // bytes of movable memory, beside the grant
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

// owner is whose record one is.
type owner struct {
	container string
	pid       int
	start     uint64
}

// Credits is the file of credit records. Its methods may be called at the same time.
type Credits struct {
	uuids [][16]byte

	mu      sync.Mutex
	slots   *slots
	records map[owner]*Credit
}

// Credit is the record of one session. Its methods must not be called at the same time.
type Credit struct {
	credits *Credits
	owner   owner
	place   int
	over    bool // removed, or replaced by a newer record of the process
}

// errOver is returned for a record that is removed or replaced.
var errOver = errors.New("the credit record is over")

// LoadCredits reads the records that an earlier agent has left; boot is the machine's boot id (36
// characters). None of an earlier boot is left. A damaged one is left out, with an error in damaged.
func LoadCredits(path, boot string) (records []Record, damaged []error) {
	head, rows, err := readSlots(path, creditsMagic, boot, CreditsMax)
	if err != nil {
		return nil, []error{fmt.Errorf("reading the credit records: %w", err)}
	}
	if head.Count > RecordGPUs {
		return nil, []error{fmt.Errorf("credit records of %d GPUs", head.Count)}
	}
	uuids := make([][16]byte, head.Count)
	for i := range uuids {
		copy(uuids[i][:], head.Note[16*i:])
	}
	for place, row := range rows {
		r, err := decodeRecord(row, uuids)
		if err != nil {
			damaged = append(damaged, fmt.Errorf("credit record %d is damaged: %w", place, err))
			continue
		}
		records = append(records, r)
	}
	return records, damaged
}

// NewCredits makes a new file of records, for a node with these GPUs. The older file stays where it is
// until Commit: until then, what an earlier agent has left can be taken over record by record.
func NewCredits(path, boot string, uuids [][16]byte) (*Credits, error) {
	if len(uuids) > RecordGPUs {
		return nil, fmt.Errorf("%d GPUs, where a credit record has room for %d", len(uuids), RecordGPUs)
	}
	head := slotsHead{Magic: creditsMagic, Count: uint32(len(uuids))}
	for i, uuid := range uuids {
		copy(head.Note[16*i:], uuid[:])
	}
	size := creditHeadBytes + rowBytes*len(uuids)
	s, err := newSlots(path, head, boot, size, CreditsMax, nil)
	if err != nil {
		return nil, fmt.Errorf("writing the credit records: %w", err)
	}
	return &Credits{uuids: uuids, slots: s, records: make(map[owner]*Credit)}, nil
}

// Commit puts the new file in the place of the older one.
func (c *Credits) Commit() error {
	if err := c.slots.commit(); err != nil {
		return fmt.Errorf("writing the credit records: %w", err)
	}
	return nil
}

// Close lets go of the file and leaves it for the next agent.
func (c *Credits) Close() error { return c.slots.close() }

// Create writes r as the record of its process in its container, in place of one that it had, in
// one step. Its GPUs are those of the node, in the node's order.
func (c *Credits) Create(r Record) (*Credit, error) {
	content, err := c.encode(r)
	if err != nil {
		return nil, fmt.Errorf("writing the credit record of process %d: %w", r.PID, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	record := &Credit{credits: c, owner: owner{r.Container, r.PID, r.Start}}
	former := c.records[record.owner]
	if former != nil {
		record.place = former.place
	} else if record.place, err = c.slots.take(); err != nil {
		return nil, fmt.Errorf("writing a credit record: %w", err)
	}
	if err := c.slots.write(record.place, 0, content); err != nil {
		if former == nil {
			c.slots.give(record.place)
		}
		return nil, fmt.Errorf("writing a credit record: %w", err)
	}
	if former != nil {
		former.over = true
	}
	c.records[record.owner] = record
	return record, nil
}

// Set writes the row of the GPU at this place of Record.GPUs.
func (r *Credit) Set(gpu int, row Row) error {
	if r.over {
		return errOver
	}
	if err := r.credits.slots.write(r.place, creditHeadBytes+rowBytes*gpu, row.append(nil)); err != nil {
		return fmt.Errorf("writing a credit record: %w", err)
	}
	return nil
}

// SetMovable writes what movable memory the session has on the GPU at this place of Record.GPUs, in bytes.
func (r *Credit) SetMovable(gpu int, bytes uint64) error {
	if r.over {
		return errOver
	}
	at := creditHeadBytes + rowBytes*gpu + movableAt
	if err := r.credits.slots.write(r.place, at, binary.LittleEndian.AppendUint64(nil, bytes)); err != nil {
		return fmt.Errorf("writing a credit record: %w", err)
	}
	return nil
}

// Remove removes the record: its process has ended.
func (r *Credit) Remove() error {
	c := r.credits
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.over {
		return errOver
	}
	if err := c.slots.clear(r.place); err != nil {
		return fmt.Errorf("removing a credit record: %w", err)
	}
	r.over = true
	delete(c.records, r.owner)
	return nil
}

// append writes the head behind b. Package binary would take ten times as long, for each process of a
// crowd.
func (h *creditHead) append(b []byte) []byte {
	order := binary.LittleEndian
	b = order.AppendUint32(b, h.Check)
	b = order.AppendUint32(b, h.ABI)
	b = append(b, h.Container[:]...)
	b = order.AppendUint32(b, h.PID)
	for _, word := range [...]uint64{h.Start, h.Image, h.Session, h.Inode, uint64(h.Since)} {
		b = order.AppendUint64(b, word)
	}
	b = order.AppendUint32(b, h.UID)
	b = order.AppendUint32(b, 0)
	b = append(b, h.Program[:]...)
	return append(b, h.Library[:]...)
}

func (r Row) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, r.Bytes)
	b = binary.LittleEndian.AppendUint64(b, r.Moves)
	return binary.LittleEndian.AppendUint64(b, uint64(r.Move))
}

func decodeRow(b []byte) Row {
	return Row{
		Bytes: binary.LittleEndian.Uint64(b[0:]),
		Moves: binary.LittleEndian.Uint64(b[8:]),
		Move:  int64(binary.LittleEndian.Uint64(b[16:])),
	}
}

func (c *Credits) encode(r Record) ([]byte, error) {
	if len(r.GPUs) != len(c.uuids) {
		return nil, fmt.Errorf("%d GPUs, where the node has %d", len(r.GPUs), len(c.uuids))
	}
	h := creditHead{
		ABI: uint32(r.ABI), PID: uint32(r.PID), Start: r.Start, Image: r.Image, Session: r.Session,
		Inode: r.Inode, Since: r.Since.UnixNano(), UID: r.UID,
	}
	copy(h.Container[:], r.Container)
	copy(h.Program[:], r.Program)
	copy(h.Library[:], r.Library)
	content := h.append(make([]byte, 0, creditHeadBytes+rowBytes*len(r.GPUs)))
	binary.LittleEndian.PutUint32(content, crc32.ChecksumIEEE(content[4:]))
	for i, g := range r.GPUs {
		if g.UUID != c.uuids[i] {
			return nil, fmt.Errorf("GPU %d is not the node's", i)
		}
		content = binary.LittleEndian.AppendUint64(g.append(content), g.Movable)
	}
	return content, nil
}

func decodeRecord(content []byte, uuids [][16]byte) (r Record, err error) {
	if len(content) < creditHeadBytes+rowBytes*len(uuids) {
		return r, fmt.Errorf("%d bytes long", len(content))
	}
	var h creditHead
	if _, err := binary.Decode(content, binary.LittleEndian, &h); err != nil {
		return r, err
	}
	if h.Check != crc32.ChecksumIEEE(content[4:creditHeadBytes]) {
		return r, errors.New("wrong checksum")
	}
	r = Record{
		Container: text(h.Container[:]), PID: int(h.PID), Start: h.Start, UID: h.UID,
		Image: h.Image, Session: h.Session, Inode: h.Inode, Since: time.Unix(0, h.Since),
		ABI: int(h.ABI), Program: text(h.Program[:]), Library: text(h.Library[:]),
	}
	for i, uuid := range uuids {
		row := content[creditHeadBytes+rowBytes*i:]
		r.GPUs = append(r.GPUs, Grant{uuid, decodeRow(row), binary.LittleEndian.Uint64(row[movableAt:])})
	}
	return r, nil
}

// text is a zero-terminated string.
func text(field []byte) string {
	s, _, _ := bytes.Cut(field, []byte{0})
	return string(s)
}
