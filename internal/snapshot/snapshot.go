package snapshot

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
)

// MaxBody is the longest body in bytes that Write and Read accept, so that a
// reader without end is refused before memory is.
const MaxBody = 1 << 30

// maxHeader is longer than any header.
const maxHeader = 256

// Write writes body to w behind a header with its format, version and checksum.
// The format is one word; it panics if it is not, or is too long for a header.
func Write(w io.Writer, format string, version int, body []byte) error {
	return write(w, format, version, body, MaxBody)
}

// Read reads r to its end and returns the body of a snapshot of this format and
// version. Errors name op.
func Read(r io.Reader, op, format string, version int) ([]byte, error) {
	return read(r, op, format, version, MaxBody)
}

func write(w io.Writer, format string, version int, body []byte, limit int) error {
	if w == nil {
		return fault("snapshot: write", "w", "nil", "no writer")
	}
	if len(body) > limit {
		return fault("snapshot: write", "snapshot", strconv.Itoa(len(body))+" bytes", "want at most "+strconv.Itoa(limit))
	}
	if _, err := io.WriteString(w, header(format, version, body)); err != nil {
		return err
	}
	_, err := w.Write(body)
	return err
}

// header returns the first line. It panics if format is not one short word, which is a programmer's error.
func header(format string, version int, body []byte) string {
	head := fmt.Sprintf("%s %d %x\n", format, version, sha256.Sum256(body))
	if len(strings.Fields(head)) != 3 || len(head) > maxHeader {
		panic("snapshot: write: format " + strconv.Quote(format) + " is not one short word")
	}
	return head
}

func read(r io.Reader, op, format string, version, limit int) ([]byte, error) {
	if r == nil {
		return nil, fault(op, "r", "nil", "no reader")
	}
	in := bufio.NewReaderSize(r, maxHeader)
	line, err := in.ReadSlice('\n')
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, bufio.ErrBufferFull):
		return nil, fault(op, "snapshot", "", "has no header")
	case err != nil:
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	sum, err := checkHeader(string(line[:len(line)-1]), op, format, version)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(in, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if len(body) > limit {
		return nil, fault(op, "snapshot", "", "is longer than "+strconv.Itoa(limit)+" bytes")
	}
	if have := sha256.Sum256(body); hex.EncodeToString(have[:]) != sum {
		return nil, fault(op, "snapshot", "", "is cut short or changed: its checksum differs")
	}
	return body, nil
}

// checkHeader returns the checksum that line states.
func checkHeader(line, op, format string, version int) (string, error) {
	words := strings.Split(line, " ")
	if len(words) != 3 {
		return "", fault(op, "snapshot", "", "has no header")
	}
	if words[0] != format {
		return "", fault(op, "format", strconv.Quote(words[0]), "want "+strconv.Quote(format))
	}
	if words[1] != strconv.Itoa(version) {
		return "", fault(op, "version", strconv.Quote(words[1]), "want "+strconv.Itoa(version))
	}
	return words[2], nil
}

func fault(op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: op, Field: field, Value: value, Reason: reason}
}
