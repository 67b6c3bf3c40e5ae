package top

// The model: what is shown now, and what keys and samples make of it.

import "slices"

// Model is the state of the view. Its zero value has nothing to show yet; New sets it up.
type Model struct {
	Width, Height int
	Colour        bool

	Order    string
	Reversed bool
	Frozen   bool
	Help     bool
	Quit     bool

	now, before *Sample
	rows        []Row
	trouble     string // why there is no news
	top         int    // the first row that is shown
}

// New makes a model of a terminal of that size.
func New(width, height int, colour bool, order string) Model {
	return Model{Width: width, Height: height, Colour: colour, Order: order}
}

// Resize takes another size of the terminal.
func (m Model) Resize(width, height int) Model {
	m.Width, m.Height = width, height
	return m.scroll(0)
}

// Take takes a sample, or why there is none. A frozen view stays as it is.
func (m Model) Take(s *Sample, trouble error) Model {
	if trouble != nil {
		m.trouble = trouble.Error()
		return m
	}
	m.trouble = ""
	if m.Frozen {
		return m
	}
	m.before, m.now = m.now, s
	if m.before != nil && !m.before.Info.Started.Equal(s.Info.Started) {
		m.before = nil // of another agent
	}
	m.rows = Rows(m.now, m.before)
	return m.sorted()
}

func (m Model) sorted() Model {
	m.rows = slices.Clone(m.rows)
	sortRows(m.rows, m.Order)
	if m.Reversed {
		slices.Reverse(m.rows)
	}
	return m.scroll(0)
}

// Press takes a key.
func (m Model) Press(key string) Model {
	if m.Help && key != "q" && key != "ctrl+c" {
		m.Help = false
		return m
	}
	switch key {
	case "q", "esc", "ctrl+c":
		m.Quit = true
	case "h", "?":
		m.Help = true
	case "space", " ", "p":
		m.Frozen = !m.Frozen
	case "s":
		m.Order = Orders[(slices.Index(Orders, m.Order)+1)%len(Orders)]
		return m.sorted()
	case "r":
		m.Reversed = !m.Reversed
		return m.sorted()
	case "down", "j":
		return m.scroll(1)
	case "up", "k":
		return m.scroll(-1)
	case "pgdown":
		return m.scroll(m.room())
	case "pgup":
		return m.scroll(-m.room())
	case "home":
		return m.scroll(-len(m.rows))
	case "end":
		return m.scroll(len(m.rows))
	}
	return m
}

// scroll moves the first row that is shown, as far as there are rows.
func (m Model) scroll(by int) Model {
	m.top = max(0, min(m.top+by, len(m.rows)-m.room()))
	return m
}

// room is how many rows there is place for: beside the first line, GPUs, the header and the last line.
func (m Model) room() int {
	return max(1, m.Height-3-m.gpuLines())
}

// gpuLines is how many GPUs are shown: half of the page at most.
func (m Model) gpuLines() int {
	if m.now == nil {
		return 0
	}
	return min(len(m.now.Info.GPUs), max(1, m.Height/2-2))
}
