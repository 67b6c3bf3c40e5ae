// Package top is what `weir top` shows, without a terminal: samples of the agent become rows, a model takes keys and
// samples, and a page of text is made of it. Invariants:
//   - nothing here has a clock, a terminal or a connection: samples carry their time, keys come as text;
//   - a page fits the terminal: no line is longer, and there are no more of them;
//   - what a container is called reaches the page without control characters.
package top

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/agent/control"
)

// Sample is what the agent has told at one time.
type Sample struct {
	At         time.Time
	Info       control.AgentInfo
	Containers []control.Container
	Flows      []control.Flow
}

// Row is a container on one GPU that it uses. What is not known is nil; rates are bytes a second since the sample before.
type Row struct {
	ID         string   `json:"id"`
	Container  string   `json:"container"`
	Namespace  string   `json:"namespace"`
	GPU        string   `json:"gpu"` // as people name it; empty: it uses none
	UUID       string   `json:"gpu_uuid"`
	Resident   int64    `json:"resident_bytes"` // on the card
	Cap        *int64   `json:"cap_bytes"`
	Swapped    *int64   `json:"swapped_bytes"` // on the host
	Swap       *int64   `json:"swap_limit_bytes"`
	In         *float64 `json:"in_bytes_per_second"`  // to the card, by plan
	Out        *float64 `json:"out_bytes_per_second"` // to the host, by plan
	FaultIn    *float64 `json:"fault_in_bytes_per_second"`
	FaultOut   *float64 `json:"fault_out_bytes_per_second"`
	Got        *float64 `json:"share_got_ratio"` // of the last second
	Asked      *float64 `json:"share_asked_ratio"`
	Waits      *int64   `json:"waiting_ns"`   // by now; null: it does not wait
	WaitMean   *int64   `json:"wait_mean_ns"` // for a lease
	State      string   `json:"state"`
	Mode       string   `json:"mode"`
	Enforced   bool     `json:"enforced"`
	EnforcedBy string   `json:"enforced_by"`
	Reason     string   `json:"reason"`
	Known      bool     `json:"known"` // false: weir has no part in it, so what it holds is not known
}

// place names a row from one sample to the next.
type place struct{ id, uuid string }

// Rows makes the rows of a sample; before is the one before it, nil if there is none.
func Rows(now, before *Sample) []Row {
	flows := make(map[place]*control.Flow)
	for i := range now.Flows {
		f := &now.Flows[i]
		flows[place{f.ContainerID, f.UUID}] = f
	}
	earlier := swapsOf(before)
	rows := []Row{}
	for i := range now.Containers {
		c := &now.Containers[i]
		there := len(rows)
		for j := range c.GPUs {
			u := &c.GPUs[j]
			at := place{c.ID, u.UUID}
			if len(c.GPUs) > 1 && u.ChargedBytes == 0 && flows[at] == nil {
				continue
			}
			r := rowOf(c)
			r.memory(u)
			if was := earlier[at]; was != nil {
				r.rates(u.Swap, was, now.At.Sub(before.At))
			}
			r.time(flows[at])
			rows = append(rows, r)
		}
		if len(rows) == there {
			rows = append(rows, rowOf(c))
		}
	}
	return rows
}

func swapsOf(s *Sample) map[place]*control.SwapUse {
	swaps := make(map[place]*control.SwapUse)
	if s == nil {
		return swaps
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		for j := range c.GPUs {
			swaps[place{c.ID, c.GPUs[j].UUID}] = c.GPUs[j].Swap
		}
	}
	return swaps
}

func rowOf(c *control.Container) Row {
	r := Row{ID: c.ID, Container: c.Name, Namespace: c.Namespace, State: c.State, Enforced: c.Enforced, Reason: c.Reason,
		Known: c.Identity != ""}
	if c.State == "running" {
		r.State = ""
	}
	if c.EnforcedBy != nil {
		r.EnforcedBy = *c.EnforcedBy
	}
	return r
}

func (r *Row) memory(u *control.GPUUse) {
	r.GPU, r.UUID, r.Resident, r.Cap = control.GPUName(u.Index, u.MIG), u.UUID, u.OnCard(), u.CapBytes
	if u.Swap != nil {
		r.Swapped, r.Swap = u.Swap.SwappedBytes, &u.Swap.LimitBytes
	}
}

// rates tells what has moved since. A counter that has fallen is another agent's.
func (r *Row) rates(now, was *control.SwapUse, passed time.Duration) {
	if now == nil || passed <= 0 {
		return
	}
	rate := func(now, was *int64) *float64 {
		if now == nil || was == nil || *now < *was {
			return nil
		}
		value := float64(*now-*was) / passed.Seconds()
		return &value
	}
	r.In, r.Out = rate(now.MovedInBytes, was.MovedInBytes), rate(now.MovedOutBytes, was.MovedOutBytes)
	r.FaultIn, r.FaultOut = rate(now.FaultedBytes, was.FaultedBytes), rate(now.DisplacedBytes, was.DisplacedBytes)
}

func (r *Row) time(f *control.Flow) {
	if f == nil {
		return
	}
	r.Got, r.Asked, r.Waits, r.WaitMean, r.Mode = f.ShareGot1s, f.ShareAsked, f.WaitingNS, f.WaitMeanNS, f.Mode
	if r.State == "" {
		r.State = f.State
	}
}

// Orders are by what rows can be sorted.
var Orders = []string{"memory", "swapped", "moved", "time", "wait", "name"}

// sortRows sorts by an order, the most first; names from a to z.
func sortRows(rows []Row, order string) {
	slices.SortStableFunc(rows, func(a, b Row) int {
		name := cmp.Or(strings.Compare(a.Container, b.Container), strings.Compare(a.ID, b.ID), strings.Compare(a.GPU, b.GPU))
		return cmp.Or(cmp.Compare(weightOf(b, order), weightOf(a, order)), name)
	})
}

// Sorted are the rows of a sample in an order.
func Sorted(now, before *Sample, order string) []Row {
	rows := Rows(now, before)
	sortRows(rows, order)
	return rows
}

func weightOf(r Row, order string) float64 {
	switch order {
	case "memory":
		return float64(r.Resident)
	case "swapped":
		return float64(orZero(r.Swapped))
	case "moved":
		return orZero(r.In) + orZero(r.Out) + orZero(r.FaultIn) + orZero(r.FaultOut)
	case "time":
		return orZero(r.Got)
	case "wait":
		return float64(orZero(r.Waits))
	}
	return 0
}

func orZero[T int64 | float64](n *T) T {
	if n == nil {
		return 0
	}
	return *n
}

// printable keeps control characters off the page, and what is wider than one cell, so that columns hold.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) || r >= 0x300 {
			return '?'
		}
		return r
	}, text)
}
