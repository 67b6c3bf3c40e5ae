// Tables, documents, sizes and ages: how all commands print. Invariant: what a tenant can choose,
// such as its command, reaches the terminal without control characters.

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"
	"sigs.k8s.io/yaml"

	"weir/agent/config"
	"weir/agent/control"
)

// The forms of output. Not every command has all of them.
const (
	formTable = "table"
	formWide  = "wide"
	formJSON  = "json"
	formYAML  = "yaml"
)

// outputFlag is --output with the forms that a command has, the first being the default.
func outputFlag(forms ...string) cli.Flag {
	return &cli.StringFlag{
		Name: "output", Aliases: []string{"o"}, Value: forms[0],
		Usage: "print as `FORM`: " + strings.Join(forms, ", "),
	}
}

func outputForm(c *cli.Context, forms ...string) (string, error) {
	form := c.String("output")
	if !slices.Contains(forms, form) {
		return "", usageError("--output %q: want one of %s", form, strings.Join(forms, ", "))
	}
	return form, nil
}

// printDoc writes a document of the API as JSON or YAML.
func printDoc(w io.Writer, form string, doc any) error {
	text, err := json.MarshalIndent(doc, "", "  ")
	if err == nil && form == formYAML {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("encoding the output: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", strings.TrimRight(string(text), "\n"))
	return err
}

// printTable aligns rows under a header, two blanks between columns.
func printTable(w io.Writer, header []string, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		// The last cell ends its line without a tab, so that nothing is padded to the right.
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}

// sizeOr writes a size, or what stands for one that is not set.
func sizeOr(bytes *int64, none string) string {
	if bytes == nil {
		return none
	}
	return config.FormatSize(*bytes)
}

func weightOr(weight *float64, none string) string {
	if weight == nil {
		return none
	}
	return strconv.FormatFloat(*weight, 'g', -1, 64)
}

// age writes how long ago something was, in its largest unit.
func age(since, now time.Time) string {
	span := max(now.Sub(since), 0)
	switch {
	case span < time.Minute:
		return strconv.Itoa(int(span.Seconds())) + "s"
	case span < time.Hour:
		return strconv.Itoa(int(span.Minutes())) + "m"
	case span < 48*time.Hour:
		return strconv.Itoa(int(span.Hours())) + "h"
	}
	return strconv.Itoa(int(span.Hours())/24) + "d"
}

// shorten cuts a text to at most limit letters for a table.
func shorten(text string, limit int, whole bool) string {
	if letters := []rune(text); !whole && len(letters) > limit {
		return string(letters[:limit-1]) + "…"
	}
	return text
}

// printable keeps control characters, which a container's program may put into its command, out
// of the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// orDash shows that there is nothing to show.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return printable(text)
}

// enforced says whether a container's caps hold, by what, and what else there is to know.
func enforced(container control.Container) string {
	text := "no"
	if container.Enforced {
		text = "yes"
	}
	if container.EnforcedBy != nil {
		text += " (" + printable(*container.EnforcedBy) + ")"
	}
	if container.Reason != "" {
		text += ": " + printable(container.Reason)
	}
	return text
}
