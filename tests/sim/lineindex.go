// Where the keys of a machine file stand. It only serves messages: a text that it misunderstands
// gets a wrong line number, never a wrong machine.

package sim

import (
	"fmt"
	"regexp"
	"strings"
)

// lineIndex tells where a table or key of a machine file stands, for messages: the decoder knows
// it only of what it refuses itself.
type lineIndex map[string]int

var (
	listHeader  = regexp.MustCompile(`^\s*\[\[\s*"?(gpu|nvlink)"?\s*\]\]`)
	otherHeader = regexp.MustCompile(`^\s*\[`)
	keyStart    = regexp.MustCompile(`^\s*"?([A-Za-z0-9_-]+)"?\s*[=.]`)
)

// findLines goes over the text line by line: one table header or key a line, as TOML has it.
func findLines(data []byte) lineIndex {
	lines := lineIndex{}
	table, tables := "", map[string]int{}
	for i, line := range strings.Split(string(data), "\n") {
		list := listHeader.FindStringSubmatch(line)
		switch key := keyStart.FindStringSubmatch(line); {
		case list != nil:
			table = fmt.Sprintf("%s[%d]", list[1], tables[list[1]])
			tables[list[1]]++
			lines.note("", table, i+1)
			lines.note("", list[1], i+1)
		case otherHeader.MatchString(line):
			table = strings.Trim(strings.TrimSpace(line), "[] \t")
			lines.note("", strings.SplitN(table, ".", 2)[0], i+1)
		case key != nil:
			lines.note(table, key[1], i+1)
		}
	}
	return lines
}

func (l lineIndex) note(table, key string, line int) {
	if _, known := l[table+"/"+key]; !known {
		l[table+"/"+key] = line
	}
}

// of is the line of a key, else of its table, else 1.
func (l lineIndex) of(table, key string) int {
	for _, place := range []string{table + "/" + key, "/" + table} {
		if line, known := l[place]; known {
			return line
		}
	}
	return 1
}

// key is the key that stands in a line; empty where there is none.
func (l lineIndex) key(line int) string {
	for place, at := range l {
		if _, key, _ := strings.Cut(place, "/"); at == line && !strings.HasSuffix(key, "]") {
			return key
		}
	}
	return ""
}
