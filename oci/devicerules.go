package oci

// What a specification's device rules let a container open.

import "strings"

// Rule is a device rule of a specification. A number that is nil or below 0 stands for all.
type Rule struct {
	Allow        bool
	Type         string // "c", "b"; "a" or none: both
	Major, Minor *int64
	Access       string // of "rwm"; none: all
}

// allowed tells whether rules, of which later ones go before earlier ones, allow all devices, and whether they name
// cards of NVIDIA. Nodes of these need not be listed: a bind of /dev has them, an image can, programs can make them.
func allowed(rules []Rule) (all, cards bool) {
	for _, r := range rules {
		if r.Type == "b" || !r.opens() {
			continue
		}
		switch {
		case every(r.Major) && (every(r.Minor) || r.Allow):
			all, cards = r.Allow, false
		case every(r.Major) || *r.Major != nvidia:
		case r.Allow:
			cards = cards || every(r.Minor) || *r.Minor < modeset
		case every(r.Minor):
			all, cards = false, false
		}
	}
	return all, cards
}

// opens tells whether the rule is about opening devices, at all if it allows, and in every way if it denies. Most
// specifications allow to make any node, which opens none.
func (r Rule) opens() bool {
	read, write := strings.Contains(r.Access, "r"), strings.Contains(r.Access, "w")
	return r.Access == "" || read && write || r.Allow && (read || write)
}

func every(number *int64) bool { return number == nil || *number < 0 }
