package main

// What was found, as a table for the terminal and for docs/GPU-CHECK.md.

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// machine is what a table was taken on.
type machine struct {
	gpu, driver, cuda, weir string
	simulated               bool
	date                    time.Time
	capBytes                int64
}

func (m machine) title() string {
	text := fmt.Sprintf("%s, driver %s, CUDA %s, weir %s, %s", m.gpu, m.driver, m.cuda, m.weir,
		m.date.Format("2006-01-02"))
	if m.simulated {
		text = "SIMULATED (says nothing about a real driver): " + text
	}
	return text
}

// failures counts them.
func failures(results []result) (count int) {
	for _, row := range results {
		if row.outcome == fail {
			count++
		}
	}
	return count
}

// printHead and printRow show rows as they come; a reason may be long, a row is one line.
func printHead(out io.Writer, m machine) {
	fmt.Fprintf(out, "\n%s\ncaps of %s\n\n", m.title(), size(m.capBytes))
}

func printRow(out io.Writer, row result) {
	w := tabwriter.NewWriter(out, 26, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\t%-7s %5.1fs  %s\n", row.check, row.outcome, row.took.Seconds(), oneLine(row.text, 200))
	_ = w.Flush()
}

func oneLine(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}

// markdown is the whole table.
func markdown(m machine, results []result) string {
	var text strings.Builder
	fmt.Fprintf(&text, "## %s\n\nCaps of %s. %d of %d checks failed.\n\n", m.title(), size(m.capBytes),
		failures(results), len(results))
	text.WriteString("| check | result | figure, or reason | seconds |\n|---|---|---|---|\n")
	for _, row := range results {
		fmt.Fprintf(&text, "| %s | %s | %s | %.1f |\n", row.check, row.outcome,
			strings.ReplaceAll(oneLine(row.text, 600), "|", "\\|"), row.took.Seconds())
	}
	return text.String()
}

func writeTable(path string, m machine, results []result) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(markdown(m, results)), 0o644)
}

// size writes bytes for a reader.
func size(bytes int64) string {
	switch {
	case bytes%mib == 0 || bytes > 16*mib:
		return fmt.Sprintf("%dMiB", (bytes+mib/2)/mib)
	case bytes > 16*1024:
		return fmt.Sprintf("%dKiB", bytes/1024)
	}
	return fmt.Sprintf("%dB", bytes)
}
