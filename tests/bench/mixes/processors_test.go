package mixes

// The clock that programs and books have, and how busy the machine's processors were.

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// processors are the ticks that the machine's processors have spent: in all, idle, and taken away.
type processors struct{ all, idle, stolen float64 }

func readProcessors() (p processors) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return p
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line) {
		var ticks float64
		if _, err := fmt.Sscan(field, &ticks); err != nil || i > 8 {
			continue
		}
		p.all += ticks
		switch i {
		case 4, 5:
			p.idle += ticks
		case 8:
			p.stolen += ticks
		}
	}
	return p
}

func (p processors) since(before processors) string {
	all := max(1, p.all-before.all)
	return fmt.Sprintf("%.0f %% busy, of it %.0f %% taken by other guests of this host",
		100*(1-(p.idle-before.idle)/all), 100*(p.stolen-before.stolen)/all)
}
