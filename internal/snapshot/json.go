package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// WriteJSON writes image as JSON behind a header, as Write does. Errors are
// wrapped with op in front.
func WriteJSON(w io.Writer, op, format string, version int, image any) error {
	body, err := json.Marshal(image)
	if err == nil {
		err = Write(w, format, version, body)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// ReadJSON reads r to its end, decodes the body into image, a pointer, and
// returns the body too, for CheckJSON.
func ReadJSON(r io.Reader, op, format string, version int, image any) ([]byte, error) {
	body, err := Read(r, op, format, version)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, image); err != nil {
		return nil, fault(op, "snapshot", "", err.Error())
	}
	return body, nil
}

// CheckJSON says whether image, taken from the core that was made of body, is
// what WriteJSON writes as body. One core has one saved form: fields in another
// order, twice or unknown, and IDs that stand twice or out of order were not
// written by it.
func CheckJSON(op string, body []byte, image any) error {
	again, err := json.Marshal(image)
	if err != nil || !bytes.Equal(again, body) {
		return fault(op, "snapshot", "", "not in the form that Snapshot writes")
	}
	return nil
}
