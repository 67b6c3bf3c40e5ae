package session

// Tests of pools whose exporter has ended.

import (
	"testing"

	"weir/agent/control"
	"weir/agent/session/sessiontest"
)

// shareTwoPools has a process with two pools of 30 MiB in all, and 10 MiB beside them, and one importer of
// each, of its own and of the other container.
func shareTwoPools(t *testing.T, b *bench) (
	boxes []control.RunGrant, exporter, near, far *sessiontest.Process,
) {
	t.Helper()
	boxes = b.runs(2, 64*mib)
	exporter, near, far = b.tenant(boxes[0]), b.tenant(boxes[0]), b.tenant(boxes[1])
	exporter.Must("alloc 0 %d", 40*mib)
	exporter.Must("pooled 0 %d", 30*mib)
	for key, importer := range []*sessiontest.Process{near, far} {
		if got := exporter.Must("export 0 0 %d", key); got != "true" {
			t.Fatalf("exported: %s", got)
		}
		if got := importer.Must("import %d", key); got != "true" {
			t.Fatalf("imported: %s", got)
		}
	}
	b.wantCharged("imported", boxes, 40*mib, 0)
	return boxes, exporter, near, far
}

// TestPoolsOfTheDead: what they had reserved stays charged to their container until nobody has any.
func TestPoolsOfTheDead(t *testing.T) {
	b := start(t)
	boxes, exporter, near, far := shareTwoPools(t, b)
	exporter.Kill()
	b.eventually("what is left is charged", func() bool { return b.used(boxes[0].ID) == 30*mib })
	if got := b.container(boxes[0].ID).GPUs[0].SharedBytes; got != 30*mib {
		t.Errorf("%d shared", got)
	}
	if _, err := near.Do("alloc 0 %d", 40*mib); err == nil {
		t.Error("allocated over the cap beside what is left")
	}
	near.Must("alloc 0 %d", 34*mib)
	near.Must("free 0 %d", 34*mib)
	near.Must("drop 0")
	b.wantCharged("one is had no more", boxes, 30*mib, 0)
	far.Kill()
	b.eventually("nothing is charged", func() bool { return b.used(boxes[0].ID) == 0 })
}

// TestPoolsOfTheDeadThatNobodyHas: the end of the last importer before its exporter's leaves nothing.
func TestPoolsOfTheDeadThatNobodyHas(t *testing.T) {
	b := start(t)
	boxes, exporter, near, far := shareTwoPools(t, b)
	near.Must("drop 0")
	far.Must("drop 1")
	exporter.Kill()
	b.eventually("nothing is charged", func() bool { return b.used(boxes[0].ID) == 0 })
}

// TestPoolsOfTheDeadAreRecorded: a new agent goes on charging for what is left, whether the process ended
// before it or while there was none; then all that the process may have held is charged.
func TestPoolsOfTheDeadAreRecorded(t *testing.T) {
	for _, away := range []bool{false, true} {
		b := start(t)
		boxes, exporter, near, far := shareTwoPools(t, b)
		left := int64(30 * mib)
		if away {
			b.end()
			exporter.Kill()
			b.begin()
			left = 40 * mib
		} else {
			exporter.Kill()
			b.eventually("what is left is charged", func() bool { return b.used(boxes[0].ID) == left })
			b.restart()
		}
		b.eventually("it is charged by the new agent", func() bool {
			used := b.used(boxes[0].ID)
			return used >= left && used <= 64*mib && len(b.container(boxes[0].ID).Sessions) == 1
		})
		near.Kill()
		far.Kill()
		b.eventually("nothing is charged", func() bool { return b.used(boxes[0].ID) == 0 })
	}
}

// TestPoolsOfTheHostile: a process cannot leave more than it was granted.
func TestPoolsOfTheHostile(t *testing.T) {
	b := start(t)
	boxes, exporter, near, _ := shareTwoPools(t, b)
	exporter.Must("pooled 0 %d", uint64(1)<<63)
	exporter.Kill()
	b.eventually("no more than its grant is left", func() bool {
		used := b.used(boxes[0].ID)
		return used >= 40*mib && used <= 64*mib && len(b.container(boxes[0].ID).Sessions) == 1
	})
	near.Must("drop 0")
}
