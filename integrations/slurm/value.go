package slurm

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// maxDocument is how many bytes a reader takes: some hundred thousand jobs.
const maxDocument = 1 << 30

func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "slurm: " + op, Field: field, Value: value, Reason: reason}
}

func quote[T ~string](s T) string { return errtext.Quote(s) }

// record reads the fields of one object and keeps the first fault.
type record struct {
	op   string
	name string // such as "jobs[17]"
	err  *lockstep.Error
}

func (r *record) fail(field, value, reason string) {
	if r.err == nil {
		r.err = fault(lockstep.ErrInvalid, r.op, r.name+"."+field, value, reason)
	}
}

// wide is how newer Slurm writes a number that may be unset or infinite.
type wide struct {
	Set      *bool           `json:"set"`
	Infinite bool            `json:"infinite"`
	Number   json.RawMessage `json:"number"`
}

// number is a whole number that may be unset or infinite.
type number struct {
	set, infinite bool
	value         int64
}

// The values with which Slurm says "not set" and "infinite" in 16, 32 and 64 bits, where they leak into JSON.
const (
	noVal16, infinite16 = 0xfffe, 0xffff
	noVal32, infinite32 = 0xfffffffe, 0xffffffff
)

func isNull(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// number reads a number in any of Slurm's forms: plain, text, {set, infinite, number}, or null.
func (r *record) number(field string, raw json.RawMessage) number {
	raw = bytes.TrimSpace(raw)
	if isNull(raw) {
		return number{}
	}
	switch raw[0] {
	case '{':
		var w wide
		if err := json.Unmarshal(raw, &w); err != nil {
			r.fail(field, quote(clip(raw)), "want {set, infinite, number}")
			return number{}
		}
		if w.Infinite {
			return number{infinite: true}
		}
		if w.Set != nil && !*w.Set {
			return number{}
		}
		if inner := bytes.TrimSpace(w.Number); len(inner) > 0 && inner[0] == '{' {
			r.fail(field, quote(clip(raw)), "want {set, infinite, number}")
			return number{}
		}
		return r.number(field, w.Number)
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			r.fail(field, quote(clip(raw)), "want a number")
			return number{}
		}
		switch s = strings.TrimSpace(s); strings.ToUpper(s) {
		case "", "N/A", "(NULL)", "NONE":
			return number{}
		case "INFINITE", "UNLIMITED":
			return number{infinite: true}
		}
		return r.parse(field, s)
	}
	return r.parse(field, string(raw))
}

func (r *record) parse(field, s string) number {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(s, 64) // load averages and weights have decimals
		if ferr != nil || math.IsNaN(f) || f < -1<<62 || f > 1<<62 {
			r.fail(field, quote(clip([]byte(s))), "want a number")
			return number{}
		}
		n = int64(f)
	}
	switch n {
	case noVal32, -2:
		return number{}
	case infinite32, -1:
		return number{infinite: true}
	}
	return number{set: true, value: n}
}

// count reads a number from 0 to limit; unset and infinite are 0.
func (r *record) count(field string, raw json.RawMessage, limit int64) int64 {
	n := r.number(field, raw)
	if n.value < 0 || n.value > limit {
		r.fail(field, strconv.FormatInt(n.value, 10), "want 0 to "+strconv.FormatInt(limit, 10))
		return 0
	}
	return n.value
}

// maxEpoch is in the year 2242, before what int64 nanoseconds can say.
const maxEpoch = 1 << 33

// instant reads seconds since 1970; 0 and unset are the zero time.
func (r *record) instant(field string, raw json.RawMessage) time.Time {
	n := r.number(field, raw)
	if n.value == 0 {
		return time.Time{}
	}
	if n.value < 0 || n.value > maxEpoch {
		r.fail(field, strconv.FormatInt(n.value, 10), "want seconds since 1970")
		return time.Time{}
	}
	return time.Unix(n.value, 0).UTC()
}

// text reads a text, a number, or a list of texts, which it joins with commas.
func (r *record) text(field string, raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if isNull(raw) {
		return ""
	}
	switch raw[0] {
	case '"':
		var s string
		if json.Unmarshal(raw, &s) == nil {
			if s == "(null)" || s == "N/A" {
				return ""
			}
			return s
		}
	case '[':
		return strings.Join(r.list(field, raw), ",")
	case '{', 't', 'f':
	default:
		return string(raw)
	}
	r.fail(field, quote(clip(raw)), "want a text")
	return ""
}

// list reads a list of texts, or one text of them with commas.
func (r *record) list(field string, raw json.RawMessage) []string {
	raw = bytes.TrimSpace(raw)
	if isNull(raw) {
		return nil
	}
	if raw[0] != '[' {
		return split(r.text(field, raw))
	}
	var out []string
	if err := json.Unmarshal(raw, &out); err != nil {
		r.fail(field, quote(clip(raw)), "want a list of texts")
		return nil
	}
	return out
}

// flag reads a boolean, or whether a text or list says anything but no.
func (r *record) flag(field string, raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	if isNull(raw) {
		return false
	}
	switch raw[0] {
	case 't':
		return true
	case 'f':
		return false
	case '{':
		n := r.number(field, raw)
		return n.value != 0
	}
	s := strings.ToLower(r.text(field, raw))
	return s != "" && s != "false" && s != "no" && s != "0" && s != "null"
}

// split cuts a text at its commas, leaving out what is empty.
func split(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// clip keeps the beginning of what cannot be read.
func clip(raw []byte) string {
	if len(raw) > 80 {
		return string(raw[:80])
	}
	return string(raw)
}

// printable puts a question mark for what would break a line or move a cursor.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '?'
	}, s)
}

// complaints reads the errors at the head of a document, which commands of some versions print in place of jobs or
// nodes, and exit with 0. One that comes with nothing else is the error of the whole; what is there is read.
func complaints(op string, raw json.RawMessage, items int) ([]*lockstep.Error, error) {
	var list []json.RawMessage
	if isNull(raw) || json.Unmarshal(raw, &list) != nil {
		return nil, nil
	}
	var faults []*lockstep.Error
	for i, one := range list {
		said := clip(one)
		var e struct{ Description, Error string }
		if json.Unmarshal(one, &e) == nil && (e.Description != "" || e.Error != "") {
			said = strings.TrimSpace(e.Error + " " + e.Description)
		}
		faults = append(faults, fault(lockstep.ErrInvalid, op, "errors["+strconv.Itoa(i)+"]", strconv.Quote(clip([]byte(said))), "is an error of Slurm"))
	}
	if len(faults) > 0 && items == 0 {
		return nil, faults[0]
	}
	return faults, nil
}

// document reads a whole JSON document of Slurm into v.
func document(op string, r io.Reader, v any) error {
	data, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return fault(lockstep.ErrInvalid, op, "reader", "", err.Error())
	}
	if len(data) > maxDocument {
		return fault(lockstep.ErrInvalid, op, "document", "", "longer than "+strconv.Itoa(maxDocument)+" bytes")
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fault(lockstep.ErrInvalid, op, "document", quote(clip(bytes.TrimSpace(data))), "is no JSON document of Slurm: "+err.Error())
	}
	return nil
}
