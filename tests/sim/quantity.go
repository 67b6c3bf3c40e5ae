// Numbers with units, read exactly: no float is involved, so what a file says is what is used.

package sim

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"
)

// A quantity is a decimal number with a unit, such as "933GB/s" or "1.45us". It is read exactly
// and refused where it is not a whole number of the base unit.
type quantity struct {
	units  map[string]int64 // in base units
	base   string           // name of the base unit, for messages
	least  int64
	wanted string // what is accepted
}

var (
	// Rates are decimal, as vendors state them: 1GB/s is 10^9 bytes a second.
	rates = quantity{
		units:  map[string]int64{"B/s": 1, "KB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12},
		base:   "bytes a second",
		wanted: `a rate such as "24GB/s" (1GB is 10^9 bytes)`,
	}
	times = quantity{
		units:  map[string]int64{"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9},
		base:   "nanoseconds",
		wanted: `a time such as "1024us"`,
	}
	shortTimes = quantity{
		units:  map[string]int64{"ps": 1, "ns": 1e3, "us": 1e6},
		base:   "picoseconds",
		wanted: `a time such as "20ps"`,
	}
	frequencies = quantity{
		units:  map[string]int64{"kHz": 1, "MHz": 1e3, "GHz": 1e6},
		base:   "kHz",
		wanted: `a frequency such as "1440MHz"`,
	}
)

func atLeastOne(q quantity) quantity {
	return atLeast(q, 1)
}

func atLeast(q quantity, least int64) quantity {
	q.least = least
	return q
}

// quantityMax bounds every quantity, so that sums and products of a few stay within 64 bits.
const quantityMax = int64(1) << 50

var quantityForm = regexp.MustCompile(`^(-?[0-9]{1,19}(?:\.[0-9]{1,12})?) ?([A-Za-z/]+)$`)

// parse reads text in base units; the error says what is wrong with it.
func (q quantity) parse(text string) (int64, error) {
	parts := quantityForm.FindStringSubmatch(text)
	if parts == nil {
		return 0, fmt.Errorf("%.40q is not %s", text, q.wanted)
	}
	unit, known := q.units[parts[2]]
	if !known {
		return 0, fmt.Errorf("%.40q has an unknown unit; want %s", text, q.wanted)
	}
	if strings.HasPrefix(parts[1], "-") {
		return 0, fmt.Errorf("%.40q is negative; want %s", text, q.wanted)
	}
	value, _ := new(big.Rat).SetString(parts[1])
	value.Mul(value, new(big.Rat).SetInt64(unit))
	if !value.IsInt() {
		return 0, fmt.Errorf("%.40q is not a whole number of %s", text, q.base)
	}
	if value.Num().Cmp(big.NewInt(q.least)) < 0 {
		return 0, fmt.Errorf("%.40q is too small; want %s", text, q.wanted)
	}
	if value.Num().Cmp(big.NewInt(quantityMax)) > 0 {
		return 0, fmt.Errorf("%.40q is too large; want %s", text, q.wanted)
	}
	return value.Num().Int64(), nil
}
