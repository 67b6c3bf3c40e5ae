package store

// How the small files of one JSON document each are read.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// readKept fills file from the JSON at path, if there is any, and refuses a schema that this version does not know. That
// nothing is there is no error, and leaves file as it is.
func readKept(path string, known int, file any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var head struct {
		Schema int `json:"schema"`
	}
	if err == nil {
		err = json.Unmarshal(text, &head)
	}
	if err == nil && head.Schema != known {
		err = fmt.Errorf("schema %d, where this version knows %d", head.Schema, known)
	}
	if err == nil {
		err = json.Unmarshal(text, file)
	}
	return err
}
