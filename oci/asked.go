package oci

// What weir's annotations ask for the container that facts are of.

import (
	"maps"
	"slices"
	"strings"
)

// podNameKeys are the annotations that name a container in its pod.
var podNameKeys = []string{"io.kubernetes.cri.container-name", "io.kubernetes.container.name"}

// InPod tells whether the container has others beside it, whose names nobody knows when it is made.
func (f Facts) InPod() bool {
	said := func(key string) bool { return f.Annotations[key] != "" }
	return f.Pod != "" || f.PodUID != "" || slices.ContainsFunc(typeKeys, said) || slices.ContainsFunc(podNameKeys, said)
}

// Requests are those of weir's annotations that are for the container. In a pod they are those that speak
// of it; elsewhere there is no other container, so that one with another's name is for it, too: as a mistake.
func (f Facts) Requests() map[string]string {
	requests := Requests(f.Annotations, f.Name)
	if !f.InPod() {
		for _, annotation := range Strangers(f.Annotations, f.Name) {
			requests[annotation] = f.Annotations[annotation]
		}
	}
	return requests
}

// Asks tells whether there are any, be they good or not.
func (f Facts) Asks() bool { return len(f.Requests()) > 0 }

// Strangers are those of weir's annotations that name another container than this, in order.
func Strangers(annotations map[string]string, container string) (names []string) {
	for _, annotation := range slices.Sorted(maps.Keys(annotations)) {
		if of, named := NamedBy(annotation); named && of != container {
			names = append(names, annotation)
		}
	}
	return names
}

// NamedBy is the container that an annotation of weir's names, if it does. A mistake may name the empty one.
func NamedBy(annotation string) (of string, named bool) {
	rest, ours := strings.CutPrefix(annotation, Prefix)
	if !ours || annotation == Marker {
		return "", false
	}
	_, of, named = strings.Cut(rest, ".")
	return of, named
}
