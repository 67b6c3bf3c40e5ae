package mixes

// The harness itself: what it makes of a trace, and how it puts runs together.

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Messages are counted once each, by when their call began, also where strace tells of begin and end on two lines;
// what moved nothing, and what was no socket, is none.
func TestMessagesOfATrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace")
	text := `100 1796032020.000001 read(14<socket:[7941617]>, "\21\0"..., 2305) = 24
101 1796032020.000004 sendmsg(31<UNIX-STREAM:[1->2]>, {msg_name=NULL}, 0 <unfinished ...>
100 1796032020.000005 read(14<socket:[7941617]>, 0xc000, 2305) = -1 EAGAIN (Resource temporarily unavailable)
100 1796032020.000006 read(9</proc/1/stat>, "1"..., 512) = 300
101 1796032020.000009 <... sendmsg resumed>) = 24
102 1796032020.000010 read(15<socket:[7941618]>,  <unfinished ...>
102 1796032020.000011 <... read resumed>"", 2305) = 0
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	times, err := readMessages(file)
	if err != nil || len(times) != 2 || times[1]-times[0] != 3*time.Microsecond {
		t.Errorf("messages at %v, %v; want two, 3 us apart", times, err)
	}
}

// No batch has more runs than there is time for, nor more programs that wait often; all groups are played whole.
func TestBatchesKeepTheirBounds(t *testing.T) {
	var groups [][]*run
	runs := 0
	for _, c := range throughputs() {
		groups = append(groups, c.runs)
		runs += len(c.runs)
	}
	for _, batch := range batches(groups) {
		runs -= len(batch)
		if len(batch) > atATime || quick(batch) > quickMost {
			t.Errorf("a batch of %d runs, with %d programs that wait often", len(batch), quick(batch))
		}
		for _, group := range groups {
			if slices.Contains(batch, group[0]) != slices.Contains(batch, group[len(group)-1]) {
				t.Errorf("%s is not played whole", group[0].name)
			}
		}
	}
	if runs != 0 {
		t.Errorf("%d runs are not played", runs)
	}
}
