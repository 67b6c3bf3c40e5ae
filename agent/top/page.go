package top

// The page.

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"weir/agent/control"
)

// Escape sequences of the few colours that there are.
const (
	plainText = "\x1b[m"
	bold      = "\x1b[1m"
	inverse   = "\x1b[7m"
	red       = "\x1b[31m"
	green     = "\x1b[32m"
	yellow    = "\x1b[33m"
)

// Page is what the terminal shows: Height lines at most.
func (m Model) Page() string {
	if m.Help {
		return m.help()
	}
	lines := []string{m.head()}
	if m.now == nil {
		lines = append(lines, "", m.cut("waiting for the agent ..."))
	} else {
		lines = append(lines, m.gpus()...)
		columns := columnsFor(m.Width)
		lines = append(lines, m.paint(inverse, pad(header(columns), m.Width)))
		last := min(len(m.rows), m.top+m.room())
		for i := m.top; i < last; i++ {
			lines = append(lines, m.row(&m.rows[i], columns))
		}
		if len(m.rows) == 0 {
			lines = append(lines, m.cut("no containers; `weir run --memory 8GiB -- PROGRAM` starts one"))
		}
	}
	if len(lines) >= m.Height {
		lines = lines[:max(0, m.Height-1)]
	}
	return strings.Join(append(lines, m.foot()), "\n")
}

// head is the first line.
func (m Model) head() string {
	if m.now == nil {
		return m.paint(bold, m.cut("weir top"))
	}
	loose := map[string]bool{}
	for i := range m.now.Containers {
		if c := &m.now.Containers[i]; !c.Enforced {
			loose[c.Namespace+"/"+c.ID] = true
		}
	}
	containers := fmt.Sprintf("%d containers", len(m.now.Containers))
	if len(m.now.Containers) == 1 {
		containers = "1 container"
	}
	text := fmt.Sprintf("weir %s  %s  %s", printable(m.now.Info.Version), m.now.At.Format("15:04:05"), containers)
	if len(loose) > 0 {
		text += fmt.Sprintf("  %d not enforced", len(loose))
	}
	text += "  by " + m.Order
	if m.Reversed {
		text += ", reversed"
	}
	if m.Frozen {
		text += "  FROZEN"
	}
	return m.paint(bold, m.cut(text))
}

// foot is the last line: keys, or what is wrong.
func (m Model) foot() string {
	if m.trouble != "" {
		return m.paint(red, m.cut(printable(m.trouble)))
	}
	text := "q quit  s sort  r reverse  space freeze  h help"
	if more := len(m.rows) - m.room(); more > 0 {
		text += fmt.Sprintf("  arrows scroll, %d-%d of %d", m.top+1, min(m.top+m.room(), len(m.rows)), len(m.rows))
	}
	return m.cut(text)
}

// gpus are the lines of the GPUs.
func (m Model) gpus() (lines []string) {
	shown := m.gpuLines()
	for i := range shown {
		g := &m.now.Info.GPUs[i]
		name := printable(g.Name)
		if g.Simulated && !strings.HasPrefix(strings.ToLower(name), "simulated") {
			name = "simulated " + name
		}
		used, ratio := "?", 0.0
		if g.UsedBytes != nil {
			used, ratio = short(float64(*g.UsedBytes)), float64(*g.UsedBytes)/float64(max(1, g.MemoryBytes))
		}
		wide := max(8, min(30, m.Width/7))
		text := fmt.Sprintf("GPU %-3s [%s] %s/%s  busy %s  link in %s out %s  %s", control.GPUName(g.Index, g.MIG),
			bar(wide, ratio, 0), used, short(float64(g.MemoryBytes)), percent(g.UtilisationRatio), shortOr(g.LinkInBytesPerSecond),
			shortOr(g.LinkOutBytesPerSecond), name)
		if left := len(m.now.Info.GPUs) - shown; i == shown-1 && left > 0 {
			text = fmt.Sprintf("(+%d GPUs) ", left) + text
		}
		lines = append(lines, m.cut(text))
	}
	return lines
}

// row is the line of one row.
func (m Model) row(r *Row, columns []column) string {
	var line strings.Builder
	for i, c := range columns {
		if i > 0 {
			line.WriteByte(' ')
		}
		text := fit(c.text(r, c.width), c.width, c.right)
		if colour := c.colour; colour != nil {
			text = m.paint(colour(r), text)
		}
		line.WriteString(text)
	}
	return line.String()
}

func (m Model) help() string {
	lines := []string{
		"weir top: one row a container and GPU that it uses",
		"",
		"MEMORY   | on the card, s on the host, of cap and swap   CARD/CAP  the figures",
		"SWAP     on the host            IN, OUT  moved by plan, bytes a second",
		"FLT      moved by page faults and by the driver, both ways, bytes a second",
		"GOT ASK  share of GPU time had in the last second, and its due by weight",
		"WAIT     for a lease: by now if it waits, else in the mean",
		"STATE    as `weir queue` has it; ending, prepared",
		"ENF      caps hold by the library (yes), by the driver (drv), or not (NO)",
		"",
		"s        sort by " + strings.Join(Orders, ", ") + ": now " + m.Order,
		"r        reverse               space, p  freeze the view, and go on",
		"arrows, pgup, pgdn, home, end  scroll",
		"h, ?     this help             q, esc    quit",
		"",
		"any key goes back",
	}
	for i := range lines {
		lines[i] = m.cut(lines[i])
	}
	return strings.Join(lines[:min(len(lines), max(1, m.Height))], "\n")
}

// paint gives a text a colour, where there are colours.
func (m Model) paint(colour, text string) string {
	if !m.Colour || colour == "" {
		return text
	}
	return colour + text + plainText
}

func (m Model) cut(text string) string { return cut(text, m.Width) }

// cut shortens a text to a width. All letters are one cell wide: see printable.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(0, width)])
}

func pad(text string, width int) string {
	return cut(text, width) + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

// fit makes a text exactly so wide.
func fit(text string, width int, right bool) string {
	if !right {
		return pad(text, width)
	}
	text = cut(text, width)
	return strings.Repeat(" ", width-utf8.RuneCountInString(text)) + text
}
