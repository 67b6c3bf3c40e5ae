// Package config holds what an operator writes down: sizes, durations, directories and the agent's
// configuration file.
package config

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"github.com/docker/go-units"
)

// sizeForm is a decimal number with an optional unit. Units are powers of 1024 however they are
// spelled: a card of 24 GB has 24 GiB, and one meaning for `G` is worth more than two.
var sizeForm = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?(?:([kmgtpKMGTP])[iI]?)?[bB]?$`)

// sizeCharsMax bounds what the exact arithmetic below is fed.
const sizeCharsMax = 64

const sizeWanted = "want a size such as 8GiB, 512M, 64MB, or a number of bytes (K, M, G, T and P are powers of 1024)"

// ParseSize reads a size in bytes: `8GiB`, `8Gi`, `8GB`, `8G`, `8 g`, `1.5GiB` or a plain number of bytes.
// It is exact, and refuses what is negative, empty, not a whole number of bytes, or 8EiB and more.
func ParseSize(text string) (int64, error) {
	if text == "" {
		return 0, errors.New("an empty size: " + sizeWanted)
	}
	parts := sizeForm.FindStringSubmatch(text)
	if len(text) > sizeCharsMax || parts == nil {
		return 0, sizeError(text)
	}
	bytes, ok := new(big.Rat).SetString(parts[1])
	if !ok {
		return 0, sizeError(text)
	}
	power := strings.Index("KMGTP", strings.ToUpper(parts[2])) + 1
	if parts[2] == "" {
		power = 0
	}
	unit := new(big.Int).Lsh(big.NewInt(1), uint(10*power))
	bytes.Mul(bytes, new(big.Rat).SetInt(unit))
	if !bytes.IsInt() {
		return 0, fmt.Errorf("%q is not a whole number of bytes: %s", text, sizeWanted)
	}
	if !bytes.Num().IsInt64() {
		return 0, fmt.Errorf("%q is too large, sizes end below 8EiB: %s", text, sizeWanted)
	}
	return bytes.Num().Int64(), nil
}

func sizeError(text string) error {
	if strings.HasPrefix(text, "-") {
		return fmt.Errorf("%.70q is negative: %s", text, sizeWanted)
	}
	return fmt.Errorf("%.70q is not a size: %s", text, sizeWanted)
}

// FormatSize writes bytes for people, in IEC units with up to four digits: "1.5GiB", "64MiB".
func FormatSize(bytes int64) string {
	return units.BytesSize(float64(bytes))
}
