// Tests of weights: what is accepted, and that each refusal says so.

package config

import (
	"strings"
	"testing"
)

func TestParseWeight(t *testing.T) {
	for text, want := range map[string]float64{
		"1": 1, "2": 2, "0.5": 0.5, "0.001": 0.001, "1000": 1000, "1000.0": 1000, "007": 7, "0.25": 0.25,
	} {
		if got, err := ParseWeight(text); err != nil || got != want {
			t.Errorf("ParseWeight(%q) = %g, %v; want %g", text, got, err, want)
		}
	}
}

func TestParseWeightRefuses(t *testing.T) {
	for _, text := range []string{
		"", "0", "0.0", "-1", "-0", "+1", "0.0009", "1000.1", "1e30", "1e3", "NaN", "nan", "inf", "-Inf", "Infinity", "0x1p1",
		"1_0", ".5", "5.", "1,5", " 1", "1 ", "1\n", "٣", "two", "1/2", "50%", strings.Repeat("9", 1000),
		"0." + strings.Repeat("0", 1000) + "1",
	} {
		weight, err := ParseWeight(text)
		switch {
		case err == nil:
			t.Errorf("ParseWeight(%q) = %g, want an error", text, weight)
		case !strings.HasSuffix(err.Error(), "is no weight: want a number from 0.001 to 1000 in digits, such as 2 or 0.5"):
			t.Errorf("ParseWeight(%q): %v; want it to say what is accepted", text, err)
		case len(err.Error()) > 200 || strings.Contains(err.Error(), "\n"):
			t.Errorf("ParseWeight(%.20q): not one short line", text)
		}
	}
}
