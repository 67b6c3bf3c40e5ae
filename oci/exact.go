package oci

// Texts of any bytes in JSON, which has only those of UTF-8.

import (
	"encoding/json"
	"unicode/utf8"
)

// Exact is a text that JSON keeps to the byte, such as a path or what is in a file: a string where it is UTF-8, and
// else an object with its base64.
type Exact string

// inBytes is how a text that is not UTF-8 is written.
type inBytes struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (e Exact) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(e)) {
		return json.Marshal(string(e))
	}
	return json.Marshal(inBytes{[]byte(e)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *Exact) UnmarshalJSON(text []byte) error {
	if len(text) == 0 || text[0] != '{' {
		return json.Unmarshal(text, (*string)(e))
	}
	var coded inBytes
	err := json.Unmarshal(text, &coded)
	*e = Exact(coded.Base64)
	return err
}
