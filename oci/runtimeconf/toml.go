package runtimeconf

// TOML as trees, and the one change that is made within a file of others: its imports.

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

type table = map[string]any

// parse reads a file of TOML; one that is not there is empty. A mistake in it is named with its line.
func parse(file File) (table, error) {
	tree := table{}
	err := toml.Unmarshal(file.Text, &tree)
	var decode *toml.DecodeError
	if errors.As(err, &decode) {
		line, _ := decode.Position()
		return nil, fmt.Errorf("%s:%d: %s; nothing is written: correct it, and try again", file.Path, line,
			strings.TrimPrefix(decode.Error(), "toml: "))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; nothing is written: correct it, and try again", file.Path, err)
	}
	return tree, nil
}

// sub is the table at the end of a path, nil if there is none.
func sub(tree table, keys ...string) table {
	for _, key := range keys {
		tree, _ = tree[key].(table)
	}
	return tree
}

// nest is a table of tables that ends with one.
func nest(value table, keys ...string) table {
	for _, key := range slices.Backward(keys) {
		value = table{key: value}
	}
	return value
}

// clone copies tables and lists.
func clone(value any) any {
	switch v := value.(type) {
	case table:
		copied := make(table, len(v))
		for key, inner := range v {
			copied[key] = clone(inner)
		}
		return copied
	case []any:
		copied := make([]any, len(v))
		for i, inner := range v {
			copied[i] = clone(inner)
		}
		return copied
	}
	return value
}

// pruned is a copy of a table without what says nothing: what is empty, false or zero.
func pruned(tree table) table {
	kept := table{}
	for key, value := range tree {
		switch v := value.(type) {
		case table:
			if inner := pruned(v); len(inner) > 0 {
				kept[key] = inner
			}
		case []any:
			if len(v) > 0 {
				kept[key] = v
			}
		case string:
			if v != "" {
				kept[key] = v
			}
		case bool:
			if v {
				kept[key] = v
			}
		case int64:
			if v != 0 {
				kept[key] = v
			}
		default:
			kept[key] = v
		}
	}
	return kept
}

// addString adds to a list of strings of a table, unless it is there.
func addString(tree table, key, value string) (added bool) {
	list, _ := tree[key].([]any)
	if slices.Contains(list, any(value)) {
		return false
	}
	tree[key] = append(slices.Clone(list), value)
	return true
}

// render writes a file of weir's own.
func render(tree table) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString(header)
	encoder := toml.NewEncoder(&out)
	encoder.SetIndentTables(true)
	if err := encoder.Encode(tree); err != nil {
		return nil, fmt.Errorf("writing TOML: %w", err)
	}
	return out.Bytes(), nil
}

// bare is a key that needs no quotes.
var bare = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// renderTable writes a table and those in it, each by its full name: so it can stand at the end of a file
// that has the tables above it.
func renderTable(tree table, keys ...string) ([]byte, error) {
	plain, inner := table{}, table{}
	for key, value := range tree {
		if t, ok := value.(table); ok {
			inner[key] = t
		} else {
			plain[key] = value
		}
	}
	var out bytes.Buffer
	if len(plain) > 0 {
		text, err := toml.Marshal(plain)
		if err != nil {
			return nil, fmt.Errorf("writing TOML: %w", err)
		}
		fmt.Fprintf(&out, "[%s]\n%s", dotted(keys), text)
	}
	for _, key := range slices.Sorted(maps.Keys(inner)) {
		text, err := renderTable(inner[key].(table), append(slices.Clone(keys), key)...)
		if err != nil {
			return nil, err
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

// dotted is a table's full name.
func dotted(keys []string) string {
	quoted := make([]string, len(keys))
	for i, key := range keys {
		quoted[i] = key
		if !bare.MatchString(key) {
			quoted[i] = "'" + key + "'"
		}
	}
	return strings.Join(quoted, ".")
}

// imports are the files that a main configuration takes in.
func imports(tree table) []string {
	var list []string
	values, _ := tree["imports"].([]any)
	for _, value := range values {
		if pattern, ok := value.(string); ok {
			list = append(list, pattern)
		}
	}
	return list
}

// imported tells whether a file is among them. Patterns are relative to the main file.
func imported(tree table, main, file string) bool {
	return slices.ContainsFunc(imports(tree), func(pattern string) bool {
		if !path.IsAbs(pattern) {
			pattern = path.Join(path.Dir(main), pattern)
		}
		matches, err := path.Match(pattern, file)
		return pattern == file || err == nil && matches
	})
}

// importsForm is a list of imports at the beginning of a line.
var importsForm = regexp.MustCompile(`(?m)^[ \t]*imports[ \t]*=[ \t]*\[[^\]]*\]`)

// importsLine is an empty list of them that has a line for itself.
var importsLine = regexp.MustCompile(`(?m)^[ \t]*imports[ \t]*=[ \t]*\[\][ \t]*(?:\r?\n|\z)`)

// withImport adds an entry to the imports of a file's text. All else keeps its bytes, which is proven by
// reading the result.
func withImport(main File, entry string) ([]byte, error) {
	before, err := parse(main)
	if err != nil {
		return nil, err
	}
	return changeImports(main, append(imports(before), entry))
}

// Imports tells whether a main configuration names a file among its imports.
func Imports(main File, entry string) (bool, error) {
	tree, err := parse(main)
	return slices.Contains(imports(tree), entry), err
}

// WithoutImport is the text of a main configuration without an entry of its imports. All else keeps its
// bytes.
func WithoutImport(main File, entry string) ([]byte, error) {
	before, err := parse(main)
	if err != nil || !slices.Contains(imports(before), entry) {
		return main.Text, err
	}
	return changeImports(main, slices.DeleteFunc(imports(before), func(i string) bool { return i == entry }))
}

// withoutLine is the text without a line of imports in which there is nothing, and nothing is said.
func withoutLine(main File) ([]byte, error) {
	before, err := parse(main)
	at := importsLine.FindIndex(main.Text)
	if err != nil || at == nil {
		return main.Text, err
	}
	after := slices.Concat(main.Text[:at[0]], main.Text[at[1]:])
	got, err := parse(File{main.Path, after})
	if list, ok := before["imports"].([]any); ok && len(list) == 0 {
		delete(before, "imports")
	}
	if err != nil || !reflect.DeepEqual(got, before) {
		return main.Text, nil // the line was something else's
	}
	return after, nil
}

func changeImports(main File, list []string) ([]byte, error) {
	before, err := parse(main)
	if err != nil {
		return nil, err
	}
	quoted := make([]string, len(list))
	for i, entry := range list {
		quoted[i] = strconv.Quote(entry)
	}
	line := "imports = [" + strings.Join(quoted, ", ") + "]"
	var after []byte
	if at := importsForm.FindIndex(main.Text); at != nil {
		after = slices.Concat(main.Text[:at[0]], []byte(line), main.Text[at[1]:])
	} else {
		after = append([]byte(line+"\n"), main.Text...)
	}
	got, err := parse(File{main.Path, after})
	want := maps.Clone(before)
	want["imports"] = nil
	if got != nil {
		if !slices.Equal(imports(got), list) {
			err = errors.New("its imports are written in a way that is not understood")
		}
		got["imports"] = nil
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		return nil, fmt.Errorf("%s: cannot change its imports; nothing is written: make them %s by hand, and try "+
			"again", main.Path, line)
	}
	return after, nil
}
