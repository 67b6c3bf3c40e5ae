// Package oci edits the OCI runtime specification of a container so that what runs in it is capped.
// It is pure: text in, text out. Invariants: what it does not edit keeps its bytes, fields that it
// does not know survive, and editing twice is editing once.
package oci

// The names of weir's annotations.

import "strings"

const (
	// Prefix is what the name of every annotation of weir's begins with.
	Prefix = "weir/"
	// Marker is the annotation that Edit leaves in a specification: the id under which the agent has
	// the container. It is no proof of anything, since whoever may set annotations can set it.
	Marker = "weir/injected"
)

// Applies tells whether an annotation is one of weir's that speaks of the container with this name,
// and gives it without prefix and container: both "weir/memory" and "weir/memory.web" are "memory"
// for the container "web". own is true for the second form, which comes before the first.
func Applies(annotation, container string) (name string, own, ok bool) {
	rest, ours := strings.CutPrefix(annotation, Prefix)
	if !ours || annotation == Marker {
		return "", false, false
	}
	name, of, named := strings.Cut(rest, ".")
	if named && of != container {
		return "", false, false
	}
	return name, named, true
}

// IsRequest tells whether an annotation is one of weir's by which somebody may ask, for whichever container.
func IsRequest(annotation string) bool {
	return strings.HasPrefix(annotation, Prefix) && annotation != Marker
}

// Mentions tells whether any of the annotations is weir's, for whichever container.
func Mentions(annotations map[string]string) bool {
	for annotation := range annotations {
		if strings.HasPrefix(annotation, Prefix) {
			return true
		}
	}
	return false
}

// Requests are those of the annotations that are requests of weir for the container.
func Requests(annotations map[string]string, container string) map[string]string {
	ours := make(map[string]string)
	for annotation, value := range annotations {
		if _, _, ok := Applies(annotation, container); ok {
			ours[annotation] = value
		}
	}
	return ours
}

// Asks tells whether any of the annotations is a request of weir for the container, be it a good one
// or not.
func Asks(annotations map[string]string, container string) bool {
	for annotation := range annotations {
		if _, _, ok := Applies(annotation, container); ok {
			return true
		}
	}
	return false
}
