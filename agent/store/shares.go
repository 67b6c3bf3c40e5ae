package store

// Records of shared memory.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// SharesMax is how many holds the node keeps at most: a process that has one piece of shared memory
// is one hold.
const SharesMax = 1 << 18

// Shares is the file of all holds of shared memory, one row each. Not for concurrent use.
type Shares struct{ slots *slots }

// Hold says that a process has a piece of shared memory. All holds of a piece agree in its key,
// home, GPU, size and whether it was exported.
type Hold struct {
	Key      [32]byte
	Home     string // id of the container that is charged
	UUID     [16]byte
	Bytes    uint64
	Exported bool // by a process that the agent knows of

	Container string // of the process
	PID       int
	Start     uint64
	Exporter  bool
}

const sharesMagic = 0x3148534852494557 // "WEIRHSH1"

// sharesRow is a hold as it lies in the file, little-endian.
type sharesRow struct {
	Check     uint32 // of what follows
	PID       uint32
	Key       [32]byte
	UUID      [16]byte
	Home      [12]byte
	Container [12]byte
	Start     uint64
	Bytes     uint64
	Exported  bool
	Exporter  bool
	_         [6]byte
}

// OpenShares opens the file and returns the holds in it, each with its place. What is of an earlier
// boot is forgotten. Damaged rows are too, each with an error in damaged.
func OpenShares(path, boot string) (s *Shares, holds map[int]Hold, damaged []error, err error) {
	_, rows, err := readSlots(path, sharesMagic, boot, SharesMax)
	if err != nil {
		damaged = append(damaged, fmt.Errorf("reading the holds of shared memory: %w", err))
	}
	holds, keep := make(map[int]Hold), make(map[int][]byte)
	for place, row := range rows {
		h, err := decodeHold(row)
		if err != nil {
			damaged = append(damaged, fmt.Errorf("hold %d of shared memory is damaged: %w", place, err))
			continue
		}
		holds[place], keep[place] = h, row
	}
	head := slotsHead{Magic: sharesMagic}
	s = &Shares{}
	if s.slots, err = newSlots(path, head, boot, sharesRowBytes, SharesMax, keep); err == nil {
		err = s.slots.commit()
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("writing the holds of shared memory: %w", err)
	}
	return s, holds, damaged, nil
}

// Add writes a hold and returns its place.
func (s *Shares) Add(h Hold) (place int, err error) {
	if place, err = s.slots.take(); err == nil {
		if err = s.slots.write(place, 0, encodeHold(h)); err == nil {
			return place, nil
		}
		s.slots.give(place)
	}
	return 0, fmt.Errorf("writing a hold of shared memory: %w", err)
}

// Set writes a hold anew in its place.
func (s *Shares) Set(place int, h Hold) error {
	if err := s.slots.write(place, 0, encodeHold(h)); err != nil {
		return fmt.Errorf("writing a hold of shared memory: %w", err)
	}
	return nil
}

// Remove clears a place: the process has the piece no more.
func (s *Shares) Remove(place int) error {
	if err := s.slots.clear(place); err != nil {
		return fmt.Errorf("removing a hold of shared memory: %w", err)
	}
	return nil
}

// Close lets go of the file and leaves it for the next agent.
func (s *Shares) Close() error { return s.slots.close() }

var sharesRowBytes = binary.Size(sharesRow{})

func encodeHold(h Hold) []byte {
	row := sharesRow{
		PID: uint32(h.PID), Key: h.Key, UUID: h.UUID, Start: h.Start, Bytes: h.Bytes,
		Exported: h.Exported, Exporter: h.Exporter,
	}
	copy(row.Home[:], h.Home)
	copy(row.Container[:], h.Container)
	b := make([]byte, sharesRowBytes)
	binary.Encode(b, binary.LittleEndian, &row) // of a fixed size that fits
	binary.LittleEndian.PutUint32(b, crc32.ChecksumIEEE(b[4:]))
	return b
}

func decodeHold(b []byte) (h Hold, err error) {
	var row sharesRow
	if _, err := binary.Decode(b, binary.LittleEndian, &row); err != nil {
		return h, err
	}
	if row.Check != crc32.ChecksumIEEE(b[4:sharesRowBytes]) {
		return h, errors.New("wrong checksum")
	}
	return Hold{
		Key: row.Key, Home: text(row.Home[:]), UUID: row.UUID, Bytes: row.Bytes,
		Exported: row.Exported, Container: text(row.Container[:]), PID: int(row.PID),
		Start: row.Start, Exporter: row.Exporter,
	}, nil
}
