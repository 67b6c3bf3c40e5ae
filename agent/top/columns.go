package top

// The columns of a row, and how figures are written in few letters.

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// column is one of a row.
type column struct {
	name   string
	width  int
	right  bool
	text   func(r *Row, width int) string
	colour func(r *Row) string
}

// leastWidth is what all columns take together, with a blank between them: what a terminal of 80 letters has.
const leastWidth = 80

// columnsFor lays the columns out for a terminal: what is left goes to names and bars.
func columnsFor(width int) []column {
	more := max(0, width-leastWidth)
	name := min(more/2, 30)
	rate := func(of func(r *Row) *float64) func(*Row, int) string {
		return func(r *Row, _ int) string { return rateText(of(r)) }
	}
	return []column{
		{"CONTAINER", 10 + name, false, func(r *Row, _ int) string { return printable(r.Container) }, nil},
		{"GPU", 3, false, func(r *Row, _ int) string { return orDash(r.GPU) }, nil},
		{"MEMORY", 7 + min(more-name, 25), false, memoryBar, nil},
		{"CARD/CAP", 9, true, memoryText, nil},
		{"SWAP", 4, true, func(r *Row, _ int) string { return shortOr(r.Swapped) }, nil},
		{"IN", 4, true, rate(func(r *Row) *float64 { return r.In }), nil},
		{"OUT", 4, true, rate(func(r *Row) *float64 { return r.Out }), nil},
		{"FLT", 4, true, rate(faults), func(r *Row) string {
			if f := faults(r); f != nil && *f > 0 {
				return yellow
			}
			return ""
		}},
		{"GOT", 4, true, func(r *Row, _ int) string { return percent(r.Got) }, nil},
		{"ASK", 4, true, func(r *Row, _ int) string { return percent(r.Asked) }, nil},
		{"WAIT", 4, true, waitText, nil},
		{"STATE", 8, false, func(r *Row, _ int) string { return orDash(r.State) }, nil},
		{"ENF", 3, false, enforcedText, func(r *Row) string {
			if !r.Enforced {
				return red
			}
			return green
		}},
	}
}

func header(columns []column) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = fit(c.name, c.width, c.right)
	}
	return strings.Join(names, " ")
}

// memoryBar shows what lies on the card and on the host, of all that it may have. Without a cap there is no bar.
func memoryBar(r *Row, width int) string {
	if r.Cap == nil || !r.Known {
		return ""
	}
	all := float64(max(1, *r.Cap+orZero(r.Swap)))
	return "[" + bar(width-2, float64(r.Resident)/all, float64(orZero(r.Swapped))/all) + "]"
}

// bar draws two parts of a whole: any part that is there shows.
func bar(width int, first, second float64) string {
	cells := func(part float64, room int) int {
		n := int(math.Round(part * float64(width)))
		if n == 0 && part > 0 {
			n = 1
		}
		return min(max(0, n), room)
	}
	a := cells(first, width)
	b := cells(second, width-a)
	return strings.Repeat("|", a) + strings.Repeat("s", b) + strings.Repeat(".", width-a-b)
}

func memoryText(r *Row, _ int) string {
	if !r.Known {
		return "?"
	}
	return short(float64(r.Resident)) + "/" + shortOr(r.Cap)
}

// faults is what came and went by faults, nil where it is not known.
func faults(r *Row) *float64 {
	if r.FaultIn == nil || r.FaultOut == nil {
		return nil
	}
	sum := *r.FaultIn + *r.FaultOut
	return &sum
}

func waitText(r *Row, _ int) string {
	if r.Waits != nil {
		return span(*r.Waits)
	}
	if r.WaitMean != nil {
		return span(*r.WaitMean)
	}
	return "-"
}

func enforcedText(r *Row, _ int) string {
	switch {
	case !r.Enforced:
		return "NO"
	case r.EnforcedBy == "driver":
		return "drv"
	}
	return "yes"
}

func rateText(rate *float64) string {
	if rate == nil {
		return "-"
	}
	return short(*rate)
}

func shortOr(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	return short(float64(*bytes))
}

// short writes a size in four letters, in units of 1024: 0, 512B, 1.5M, 24G.
func short(bytes float64) string {
	if bytes < 1 {
		return "0"
	}
	unit := 0
	for bytes >= 999.5 && unit < 6 {
		bytes /= 1024
		unit++
	}
	letter := "BKMGTPE"[unit : unit+1]
	if unit > 0 && bytes < 9.95 {
		return fmt.Sprintf("%.1f%s", bytes, letter)
	}
	return fmt.Sprintf("%.0f%s", bytes, letter)
}

// span writes a time in four letters: 250u, 20m, 1.5s, 30s, 5min.
func span(ns int64) string {
	switch d := time.Duration(ns); {
	case d < 999500*time.Nanosecond:
		return fmt.Sprintf("%du", d.Round(time.Microsecond).Microseconds())
	case d < 999500*time.Microsecond:
		return fmt.Sprintf("%dm", d.Round(time.Millisecond).Milliseconds())
	case d < 9950*time.Millisecond:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 1000*time.Second:
		return fmt.Sprintf("%.0fs", d.Seconds())
	}
	return ">16m"
}

func percent(ratio *float64) string {
	if ratio == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", *ratio*100)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return printable(text)
}
