package store

// Files of many small records that change all the time.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// slots is a file of records of one size, each in a place of its own; all zeros is a free place. A
// record is written and cleared by one small pwrite within a page, which a kill of the agent cannot
// tear, and which needs no fsync: what it tells of ends with the machine. Places are used again, so
// the file is as long as the most records that there ever were. One file is much cheaper than one
// file a record.
//
// It is written, not mapped: in a run directory of an ordinary user the tenants could truncate it,
// and a mapping would then kill the agent. Not for concurrent use.
type slots struct {
	file *os.File
	path string
	size int // of a place
	most int // places
	free []int
	used int // places that ever were in use
}

// errFull is returned where all places are taken.
var errFull = errors.New("there are as many records as are kept")

const (
	slotsHeadBytes = 4096
	slotsNoteBytes = 2048
)

// slotsHead is what the file begins with, little-endian.
type slotsHead struct {
	Magic uint64
	Boot  [40]byte
	Size  uint32
	Count uint32               // of what the note tells
	Note  [slotsNoteBytes]byte // the file's user's
}

// readSlots reads a file: its head and its records by place. There are none where there is no file,
// or one of another kind or boot. It reads without blocking, through no link, and no more than the
// file can hold: only a plain file is ever there, unless by tampering.
func readSlots(path string, magic uint64, boot string, most int) (head slotsHead,
	records map[int][]byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return head, nil, nil
	}
	if err != nil {
		return head, nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, slotsHeadBytes+slotsHeadBytes*int64(most)))
	if err != nil {
		return head, nil, err
	}
	if len(content) < slotsHeadBytes {
		return head, nil, fmt.Errorf("%s is damaged: %d bytes long", path, len(content))
	}
	binary.Decode(content, binary.LittleEndian, &head) // it is long enough
	size := int(head.Size)
	// The last byte of the magic is the version of the form.
	if head.Magic != magic && head.Magic<<8 == magic<<8 && text(head.Boot[:]) == boot && len(content) > slotsHeadBytes {
		return slotsHead{}, nil, fmt.Errorf("%s is of form %q, and this agent reads form %q only: start the programs again that "+
			"have run since before the upgrade", path, byte(head.Magic>>56), byte(magic>>56))
	}
	if head.Magic != magic || text(head.Boot[:]) != boot || size <= 0 || size > slotsHeadBytes {
		return slotsHead{}, nil, nil
	}
	records = make(map[int][]byte)
	free := make([]byte, size)
	// The last record may not fill its place.
	for place, rest := 0, append(content[slotsHeadBytes:], free[1:]...); len(rest) >= size; place++ {
		if !bytes.Equal(rest[:size], free) {
			records[place] = rest[:size]
		}
		rest = rest[size:]
	}
	return head, records, nil
}

// newSlots makes a file of records of at most size bytes, with some of them in their places already.
// It takes the place of an older file with commit.
func newSlots(path string, head slotsHead, boot string, size, most int,
	keep map[int][]byte) (*slots, error) {
	s := &slots{path: path, size: 64, most: most}
	for s.size < size { // a power of two, so that none lies in two pages
		s.size *= 2
	}
	for place := range keep {
		s.used = max(s.used, place+1)
	}
	for place := range s.used {
		if _, taken := keep[place]; !taken {
			s.free = append(s.free, place)
		}
	}
	copy(head.Boot[:], boot)
	head.Size = uint32(s.size)
	content := make([]byte, slotsHeadBytes+s.size*s.used)
	if _, err := binary.Encode(content, binary.LittleEndian, &head); err != nil {
		return nil, err
	}
	for place, record := range keep {
		copy(content[slotsHeadBytes+s.size*place:], record)
	}
	f, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(content); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.file = f
	return s, nil
}

// commit puts the file in the place of an older one.
func (s *slots) commit() error { return os.Rename(s.path+".new", s.path) }

// take finds a free place.
func (s *slots) take() (place int, err error) {
	if n := len(s.free); n > 0 {
		place, s.free = s.free[n-1], s.free[:n-1]
		return place, nil
	}
	if s.used >= s.most {
		return 0, errFull
	}
	s.used++
	return s.used - 1, nil
}

// give makes a place free that was not written, or is cleared.
func (s *slots) give(place int) { s.free = append(s.free, place) }

// write writes a part of a record.
func (s *slots) write(place, at int, part []byte) error {
	_, err := s.file.WriteAt(part, int64(slotsHeadBytes+s.size*place+at))
	return err
}

// clear makes a place free.
func (s *slots) clear(place int) error {
	if err := s.write(place, 0, make([]byte, s.size)); err != nil {
		return err
	}
	s.give(place)
	return nil
}

func (s *slots) close() error { return s.file.Close() }
