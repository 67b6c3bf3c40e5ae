// Weights as people write them: on the command line, in annotations and in the configuration file.

package config

import (
	"fmt"
	"regexp"
	"strconv"

	"weir/agent/sched"
)

// WeightWanted is what a weight may be, for messages.
var WeightWanted = fmt.Sprintf("want a number from %g to %d in digits, such as 2 or 0.5", sched.WeightMin, sched.WeightMax)

var weightForm = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+)?$`)

// ParseWeight reads a weight, the part of GPU time that a container gets beside others: 2 is twice what 1 is. What the
// scheduler would not take is refused.
func ParseWeight(text string) (float64, error) {
	weight, err := strconv.ParseFloat(text, 64)
	if !weightForm.MatchString(text) || err != nil || sched.CheckWeight(weight) != nil {
		return 0, fmt.Errorf("%.70q is no weight: %s", text, WeightWanted)
	}
	return weight, nil
}
