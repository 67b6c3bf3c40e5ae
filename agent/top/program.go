package top

// The model on a terminal, by Bubble Tea: this file only passes messages on.

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"
)

// Fetch gets a sample. It has a deadline of its own.
type Fetch func(ctx context.Context) (*Sample, error)

// Run shows samples, one each interval, until the user quits or ctx ends.
func Run(ctx context.Context, m Model, interval time.Duration, fetch Fetch) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err := tea.NewProgram(program{m, interval, func() tea.Msg {
		s, err := fetch(ctx)
		return news{s, err}
	}}, tea.WithContext(ctx), tea.WithFPS(20)).Run()
	return err
}

type program struct {
	Model
	interval time.Duration
	fetch    tea.Cmd
}

// news is a sample, or why there is none; due says that it is time for the next.
type (
	news struct {
		sample *Sample
		err    error
	}
	due struct{}
)

func (p program) Init() tea.Cmd { return p.fetch }

func (p program) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		p.Model = p.Resize(msg.Width, msg.Height)
	case tea.KeyPressMsg:
		if p.Model = p.Press(msg.String()); p.Quit {
			return p, tea.Quit
		}
	case news:
		p.Model = p.Take(msg.sample, msg.err)
		return p, tea.Tick(p.interval, func(time.Time) tea.Msg { return due{} })
	case due:
		return p, p.fetch
	}
	return p, nil
}

func (p program) View() tea.View {
	v := tea.NewView(p.Page())
	v.AltScreen = true
	return v
}
