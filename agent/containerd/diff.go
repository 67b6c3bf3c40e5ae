package containerd

// What has to be told for the agent to know what we know, in messages that are no longer than it takes.

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"weir/agent/control/ociapi"
)

// Whole is all there is.
func Whole(all map[ociapi.Key]ociapi.Listed) []ociapi.Listing {
	messages := Changes(nil, all)
	if len(messages) == 0 {
		messages = make([]ociapi.Listing, 1)
	}
	messages[0].Begin, messages[len(messages)-1].End = true, true
	return messages
}

// Changes is what makes the one set of containers out of the other; nothing where they are the same.
func Changes(before, after map[ociapi.Key]ociapi.Listed) []ociapi.Listing {
	var messages []ociapi.Listing
	room := 0
	// take makes room for as much in the last message, or in a new one.
	take := func(size int) *ociapi.Listing {
		if size > room {
			messages = append(messages, ociapi.Listing{})
			room = ociapi.ListingBytesMax
		}
		room -= size
		return &messages[len(messages)-1]
	}
	for _, key := range sorted(before) {
		if _, there := after[key]; !there {
			m := take(len(encode(ociapi.Listed{Key: key})))
			m.Gone = append(m.Gone, key)
		}
	}
	for _, key := range sorted(after) {
		if was, there := before[key]; !there || !reflect.DeepEqual(was, after[key]) {
			m := take(len(encode(after[key])))
			m.Containers = append(m.Containers, after[key])
		}
	}
	return messages
}

// sorted are the keys in their order, so that the same is told in the same way.
func sorted(all map[ociapi.Key]ociapi.Listed) []ociapi.Key {
	return slices.SortedFunc(maps.Keys(all), func(a, b ociapi.Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ID, b.ID))
	})
}
