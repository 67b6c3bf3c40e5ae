package residency

// What can be set of a GPU, with its defaults and what is refused.

import (
	"fmt"
	"math"
)

const (
	// Never is later than any time.
	Never int64 = math.MaxInt64

	ms  int64 = 1_000_000
	sec int64 = 1_000 * ms

	mib int64 = 1 << 20
	gib int64 = 1 << 30

	// Unlimited is the cap of a container without one. It is finite so that sums cannot overflow.
	Unlimited int64 = 1 << 60
	// SizeMax bounds one allocation and one card.
	SizeMax int64 = 1 << 50
	// MovesMax bounds how many pieces are under way in one direction.
	MovesMax = 64
	// timeMax bounds every duration: an hour.
	timeMax = 3600 * sec
)

// Config is one GPU's. New refuses what is not as said here.
type Config struct {
	// Card is the card's memory. Reserve is what of it is left free, for what the driver takes by itself.
	Card, Reserve int64
	// Pressure: below this part of the card nothing is swapped out for others.
	Pressure float64
	// Recent: so much of what a flow has used in its last leases is brought back before its next one. What is beyond
	// 1 fills free room only, and never displaces others.
	Recent float64
	// In and Out are the link's bandwidths to and from the card, in bytes a second.
	In, Out int64
	// Piece is the most that one move brings. It is what a plan that changes cannot take back, at Ahead of them.
	Piece int64
	// Ahead is how much is under way each way at most.
	Ahead int64
	// Part is how much of the time moving may take: 0.05 is 5 %.
	Part float64
	// Alpha: an idle flow's memory is kept for Alpha times the mean time between its returns, KeepMax at most.
	Alpha   float64
	KeepMax int64
	// Linger: a flow that was active, or has allocated, until so long ago counts for what fits together, so that programs
	// with gaps do not open and close the gates of all, and gates are closed before what does not fit is used.
	Linger int64
	// Round: a lease that lasts for longer counts as several, so that what it used long ago is not recent.
	Round int64
	// Retry: a process of which a move failed has none for so long.
	Retry int64
}

// Default is for a card of this size behind a link of these bandwidths. A piece takes about 1.5 ms of the link, which
// is 100 times what starting one takes.
func Default(card, in, out int64) Config {
	piece := min(in, out) / 1000 * 3 / 2 / (2 * mib) * (2 * mib)
	piece = min(max(piece, 2*mib), gib)
	return Config{
		Card: card, Reserve: card / 64, Pressure: 0.8, Recent: 1.2, In: in, Out: out,
		Piece: piece, Ahead: 4 * piece, Part: 0.05, Alpha: 4, KeepMax: 60 * sec, Linger: sec, Round: 60 * sec, Retry: 100 * ms,
	}
}

// room is what flows and others may use of the card.
func (c *Config) room() int64 { return c.Card - c.Reserve }

// pressed is where pressure begins.
func (c *Config) pressed() int64 { return int64(c.Pressure * float64(c.Card)) }

func (c *Config) check(gpu int) error {
	for _, v := range []struct {
		key             string
		value, from, to int64
	}{
		{"card", c.Card, 1, SizeMax}, {"reserve", c.Reserve, 0, c.Card / 2}, {"in", c.In, 1, SizeMax},
		{"out", c.Out, 1, SizeMax}, {"piece", c.Piece, 1, SizeMax}, {"ahead", c.Ahead, c.Piece, SizeMax},
		{"keep_max", c.KeepMax, 0, timeMax}, {"linger", c.Linger, 0, timeMax}, {"round", c.Round, 1, timeMax}, {"retry", c.Retry, 0, timeMax},
	} {
		if v.value < v.from || v.value > v.to {
			return fmt.Errorf("GPU %d: %s: %d; give %d to %d", gpu, v.key, v.value, v.from, v.to)
		}
	}
	for _, v := range []struct {
		key             string
		value, from, to float64
	}{
		{"pressure", c.Pressure, 0, float64(c.room()) / float64(c.Card)}, {"recent", c.Recent, 1, 10},
		{"part", c.Part, 0.001, 1}, {"alpha", c.Alpha, 0, 1000},
	} {
		if !(v.value >= v.from && v.value <= v.to) {
			return fmt.Errorf("GPU %d: %s: %g; give %g to %g", gpu, v.key, v.value, v.from, v.to)
		}
	}
	return nil
}
