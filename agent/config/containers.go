package config

// What the configuration says of containers that a container runtime starts: defaults and ceilings by
// namespace and image, and what becomes of those that have a GPU and ask for nothing.

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"weir/agent/sched"
)

// What becomes of a container that has a GPU and asked for nothing.
const (
	UnaskedPass    = "pass"    // it runs untouched, and is shown as not enforced
	UnaskedDefault = "default" // it is given what the rules give by default
	UnaskedRefuse  = "refuse"  // it does not start
)

// What Config.Containerd is besides a socket.
const (
	ContainerdAuto = "auto" // that of the usual place, if it is there
	ContainerdOff  = "off"
)

// usualContainerd is where a containerd listens that nobody has configured otherwise.
const usualContainerd = "/run/containerd/containerd.sock"

// ContainerdSocket is where to ask for containers, whether or not anybody listens there; empty: nowhere.
func (c *Config) ContainerdSocket() string {
	switch c.Containerd {
	case ContainerdOff:
		return ""
	case ContainerdAuto:
		return usualContainerd
	}
	return c.Containerd
}

// rulesMax bounds the rules: each is looked at for each container that starts.
const rulesMax = 256

// Pattern is a text in which * stands for any run of characters, slashes too.
type Pattern string

// Matches tells whether the pattern is for all of text.
func (p Pattern) Matches(text string) bool {
	first, rest, star := strings.Cut(string(p), "*")
	text, ok := strings.CutPrefix(text, first)
	if !ok || !star {
		return ok && text == ""
	}
	parts := strings.Split(rest, "*")
	last := len(parts) - 1
	for _, part := range parts[:last] {
		// The earliest place leaves the most for what follows.
		_, after, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = after
	}
	return strings.HasSuffix(text, parts[last])
}

// ContainerRule is one [[containers]] table: what holds for containers of a namespace and an image.
// Sizes are bytes; nil is "says nothing".
type ContainerRule struct {
	Namespace, Image  Pattern
	Memory, MemoryMax *int64 // what is given where nothing is asked, and the most that can be
	Swap, SwapMax     *int64
	Weight, WeightMax *float64
}

// Matches tells whether the rule is for containers of this namespace and image.
func (r *ContainerRule) Matches(namespace, image string) bool {
	return r.Namespace.Matches(namespace) && r.Image.Matches(image)
}

// ByImage tells whether the rule is for some images only.
func (r ContainerRule) ByImage() bool { return r.Image != "*" }

// ruleKeys is a [[containers]] table as it is written: all strings.
type ruleKeys struct {
	Namespace *string `toml:"namespace"`
	Image     *string `toml:"image"`
	Memory    *string `toml:"memory"`
	MemoryMax *string `toml:"memory_max"`
	Swap      *string `toml:"swap"`
	SwapMax   *string `toml:"swap_max"`
	Weight    *string `toml:"weight"`
	WeightMax *string `toml:"weight_max"`
}

// wantOfRule is what a key of the table may be, for messages.
func wantOfRule(key string) string {
	switch key {
	case "weight", "weight_max":
		return fmt.Sprintf(`a number from %g to %d in quotes, such as "2"`, sched.WeightMin, sched.WeightMax)
	case "namespace", "image":
		return `a pattern in quotes, such as "team-*"`
	}
	return `a size in quotes, such as "8GiB"`
}

// rule judges the table. key is the one at fault.
func (k *ruleKeys) rule() (rule ContainerRule, key string, err error) {
	for _, pattern := range []struct {
		key  string
		from *string
		to   *Pattern
	}{{"namespace", k.Namespace, &rule.Namespace}, {"image", k.Image, &rule.Image}} {
		*pattern.to = "*"
		if pattern.from == nil {
			continue
		}
		if *pattern.to = Pattern(*pattern.from); *pattern.from == "" {
			return rule, pattern.key, errors.New(`"": want a pattern, such as "team-*", or leave it out`)
		}
	}
	for _, size := range []struct {
		key   string
		from  *string
		to    **int64
		least int64
	}{
		{"memory", k.Memory, &rule.Memory, 1}, {"memory_max", k.MemoryMax, &rule.MemoryMax, 1},
		{"swap", k.Swap, &rule.Swap, 0}, {"swap_max", k.SwapMax, &rule.SwapMax, 0},
	} {
		if size.from == nil {
			continue
		}
		bytes, err := ParseSize(*size.from)
		if err == nil && bytes < size.least {
			err = fmt.Errorf("%q: want a size above 0", *size.from)
		}
		if err != nil {
			return rule, size.key, err
		}
		*size.to = &bytes
	}
	for _, weight := range []struct {
		key  string
		from *string
		to   **float64
	}{{"weight", k.Weight, &rule.Weight}, {"weight_max", k.WeightMax, &rule.WeightMax}} {
		if weight.from == nil {
			continue
		}
		number, err := ParseWeight(*weight.from)
		if err != nil {
			return rule, weight.key, err
		}
		*weight.to = &number
	}
	return rule, "", nil
}

// tableForm is the head of a table of the array.
var tableForm = regexp.MustCompile(`(?m)^[ \t]*\[\[[ \t]*["']?containers["']?[ \t]*\]\]`)

// readRules judges the tables. Of a mistake it gives the line and the key.
func readRules(text []byte, tables []ruleKeys) (rules []ContainerRule, line int, key string, err error) {
	heads := tableForm.FindAllIndex(text, -1)
	if len(tables) > rulesMax {
		return nil, lineOf(text, "containers"), "containers",
			fmt.Errorf("%d tables are more than %d", len(tables), rulesMax)
	}
	for i := range tables {
		rule, key, err := tables[i].rule()
		if err != nil {
			line := 1
			if len(heads) == len(tables) {
				line = strings.Count(string(text[:heads[i][0]]), "\n") + lineOf(text[heads[i][0]:], key)
			}
			return nil, line, key, err
		}
		rules = append(rules, rule)
	}
	return rules, 0, "", nil
}
