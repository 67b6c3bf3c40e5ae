// Tests of sizes: a table, and a fuzz target that holds the parser against exact arithmetic.

package config

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
)

func TestParseSize(t *testing.T) {
	const gib = 1 << 30
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "512": 512, "512B": 512, "512b": 512, "007": 7,
		"8GiB": 8 * gib, "8Gi": 8 * gib, "8G": 8 * gib, "8g": 8 * gib, "8GB": 8 * gib, "8gib": 8 * gib,
		"8 GiB": 8 * gib, "1.5GiB": gib + gib/2, "0.5K": 512, "1.0": 1, "64M": 64 << 20, "2k": 2048,
		"3TiB": 3 << 40, "1P": 1 << 50, "8191P": 8191 << 50,
		"9223372036854775807": math.MaxInt64, "9007199254740993": 1<<53 + 1,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestParseSizeRefuses(t *testing.T) {
	for text, because := range map[string]string{
		"": "empty", "-1": "negative", "-8GiB": "negative", "+8G": "not a size", "8X": "not a size",
		"0.5": "whole number of bytes", "0.3KiB": "whole number of bytes", "1.5B": "whole number",
		"9223372036854775808": "too large", "8192P": "too large", "GiB": "not a size",
		"8GiBs": "not a size", "8  G": "not a size", " 8G": "not a size", "8G ": "not a size",
		"1e9": "not a size", "0x10": "not a size", "1_000": "not a size", "1,5G": "not a size",
		".5G": "not a size", "5.G": "not a size", "8iB": "not a size", "8G\n": "not a size",
		"٣G": "not a size", "NaN": "not a size", "Inf": "not a size",
		strings.Repeat("9", 1000): "not a size",
	} {
		got, err := ParseSize(text)
		if err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", text, got)
		} else if !strings.Contains(err.Error(), because) || !strings.HasSuffix(err.Error(), sizeWanted) {
			t.Errorf("ParseSize(%q): %v; want it to say %q, and what is accepted", text, err, because)
		} else if len(err.Error()) > 200 {
			t.Errorf("ParseSize(%.20q…): message of %d bytes", text, len(err.Error()))
		}
	}
}

func TestFormatSize(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0B", 512: "512B", 64 << 20: "64MiB", 3 << 29: "1.5GiB", 6549825126: "6.1GiB",
	} {
		if got := FormatSize(bytes); got != want {
			t.Errorf("FormatSize(%d) = %q, want %q", bytes, got, want)
		}
	}
}

// FuzzParseSize holds the parser against the definition: the number times the unit, exactly.
func FuzzParseSize(f *testing.F) {
	for _, seed := range []string{"8GiB", "1.5g", "0.3KiB", "-1", "9223372036854775807", "8192P", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseSize(text)
		if err != nil {
			return
		}
		if got < 0 {
			t.Fatalf("ParseSize(%q) = %d", text, got)
		}
		digits := strings.TrimRight(text, "bBiIkKmMgGtTpP ")
		unit := strings.ToLower(strings.TrimLeft(text[len(digits):], " "))
		shift := 0
		if unit != "" && unit != "b" {
			shift = 10 * (1 + strings.IndexByte("kmgtp", unit[0]))
		}
		want, ok := new(big.Rat).SetString(digits)
		if !ok {
			t.Fatalf("ParseSize took %q", text)
		}
		want.Mul(want, new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(shift))))
		if want.Cmp(new(big.Rat).SetInt64(got)) != 0 {
			t.Fatalf("ParseSize(%q) = %d, want %s", text, got, want)
		}
		if again, err := ParseSize(strconv.FormatInt(got, 10)); err != nil || again != got {
			t.Fatalf("%d does not read back: %d, %v", got, again, err)
		}
	})
}
