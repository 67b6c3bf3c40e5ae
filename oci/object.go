package oci

// JSON that keeps the bytes of what is not changed: an object as the list of its members, each with the
// text of its value.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// member is one "key": value, as it was written.
type member struct {
	key     string
	written []byte // the key with its quotes
	value   json.RawMessage
}

type object []member

var errNoObject = errors.New("it is no JSON object")

// parseObject parts an object; null is an empty one.
func parseObject(text []byte) (object, error) {
	in := json.NewDecoder(bytes.NewReader(text))
	open, err := in.Token()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoObject, err)
	}
	if open == nil {
		return nil, end(in)
	}
	if open != json.Delim('{') {
		return nil, errNoObject
	}
	var o object
	for in.More() {
		begin := in.InputOffset()
		token, err := in.Token()
		if err != nil {
			return nil, err
		}
		key, ok := token.(string)
		if !ok {
			return nil, errNoObject
		}
		m := member{key: key, written: bytes.TrimLeft(text[begin:in.InputOffset()], ", \t\r\n")}
		if err := in.Decode(&m.value); err != nil {
			return nil, fmt.Errorf("%.70q: %w", key, err)
		}
		o = append(o, m)
	}
	if _, err := in.Token(); err != nil {
		return nil, err
	}
	return o, end(in)
}

// end makes sure that nothing follows.
func end(in *json.Decoder) error {
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is text after its end")
	}
	return nil
}

// find returns a member, or nil. Readers of JSON differ in what they make of a key that is there twice
// or in another case, so neither is accepted.
func (o object) find(key string) (*member, error) {
	var found *member
	for i := range o {
		if !strings.EqualFold(o[i].key, key) {
			continue
		}
		if found != nil || o[i].key != key {
			return nil, fmt.Errorf("%q is ambiguous: %q is there, too", key, o[i].key)
		}
		found = &o[i]
	}
	return found, nil
}

// change replaces the value of a key by what edit makes of it; edit is given null where it is missing.
// What edit returns as null is not added.
func (o *object) change(key string, edit func(json.RawMessage) (json.RawMessage, error)) error {
	m, err := o.find(key)
	if err != nil {
		return err
	}
	value := json.RawMessage("null")
	if m != nil {
		value = m.value
	}
	if value, err = edit(value); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	switch {
	case m != nil:
		m.value = value
	case !isNull(value):
		*o = append(*o, member{key, encode(key), value})
	}
	return nil
}

func isNull(value json.RawMessage) bool { return len(value) == 0 || string(value) == "null" }

// text writes the object, with the values as they are.
func (o object) text() json.RawMessage {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(m.written)
		out.WriteByte(':')
		out.Write(m.value)
	}
	out.WriteByte('}')
	return out.Bytes()
}

// inObject makes an edit of a value out of one of the object that it is.
func inObject(edit func(*object) error) func(json.RawMessage) (json.RawMessage, error) {
	return func(value json.RawMessage) (json.RawMessage, error) {
		o, err := parseObject(value)
		if err == nil {
			err = edit(&o)
		}
		if err != nil {
			return nil, err
		}
		return o.text(), nil
	}
}

// inArray makes an edit of a value out of one of the list that it is, which keeps the elements' text.
func inArray(edit func([]json.RawMessage) ([]json.RawMessage, error)) func(json.RawMessage) (
	json.RawMessage, error) {
	return func(value json.RawMessage) (json.RawMessage, error) {
		var list []json.RawMessage
		if err := json.Unmarshal(value, &list); err != nil {
			return nil, errors.New("it is no JSON list")
		}
		list, err := edit(list)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 && isNull(value) {
			return value, nil
		}
		return append(append([]byte{'['}, bytes.Join(asBytes(list), []byte{','})...), ']'), nil
	}
}

func asBytes(list []json.RawMessage) [][]byte {
	out := make([][]byte, len(list))
	for i, element := range list {
		out[i] = element
	}
	return out
}

// encode writes a value of ours. Paths keep their < and &: HTML is not where they go.
func encode(value any) json.RawMessage {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(fmt.Sprintf("a value of ours has no JSON: %v", err)) // none holds functions or channels
	}
	return bytes.TrimRight(out.Bytes(), "\n")
}

// Set returns a JSON object with one member, named by its path through objects, set to a value; a nil
// value takes it out. Objects on the way are made where they are missing; all else keeps its text. It is
// for configuration files of container runtimes.
func Set(text []byte, value any, path ...string) ([]byte, error) {
	if len(path) == 0 {
		return encode(value), nil
	}
	return inObject(func(o *object) error {
		if value == nil && len(path) == 1 {
			m, err := o.find(path[0])
			if m != nil {
				*o = slices.DeleteFunc(*o, func(m member) bool { return m.key == path[0] })
			}
			return err
		}
		return o.change(path[0], func(inner json.RawMessage) (json.RawMessage, error) {
			return Set(inner, value, path[1:]...)
		})
	})(text)
}
