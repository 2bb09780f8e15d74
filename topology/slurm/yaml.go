package slurm

import (
	"io"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

// maxDepth is the deepest that YAML may nest.
const maxDepth = 16

// value is a value of YAML: a scalar, or a list, or a mapping.
type value struct {
	at      source.Pos
	scalar  string
	quoted  bool
	items   []*value // of a list
	entries []entry  // of a mapping, in order
	kind    byte     // 's', 'l' or 'm'
}

// entry is a key of a mapping with its value.
type entry struct {
	key   string
	at    source.Pos
	value *value // nil where there is none
}

// yamlReader reads the part of YAML that the package documentation names.
type yamlReader struct {
	text *source.Text

	// The line that comes next, blank ones and comments left out.
	ok     bool
	indent int    // blanks before it, those of "- " included once that was read
	line   string // from the indent on, without comment
	left   int    // values that may still come
}

// readYAML returns the one value of a text, nil where it is empty or faulty.
func readYAML(op string, r io.Reader) (*value, *source.Text) {
	y := yamlReader{text: source.New(op, r), left: 4 * source.MaxHosts}
	y.next()
	if y.ok && y.indent == 0 && y.line == "---" {
		y.next()
	}
	if !y.ok {
		return nil, y.text
	}
	v := y.block(y.indent, 0)
	if y.ok && !y.text.Faulty() {
		y.fault(0, "want the end of the text, or a line with the indent of one before")
	}
	return v, y.text
}

// fault notes a fault at an offset of the line that comes next, and ends the text.
func (y *yamlReader) fault(offset int, reason string) {
	y.text.Fault(lockstep.ErrInvalid, y.indent+offset+1, y.line[min(offset, len(y.line)):], reason)
	y.stop()
}

func (y *yamlReader) stop() {
	y.text.Stop()
	y.ok, y.line = false, ""
}

// next goes to the next line that says something.
func (y *yamlReader) next() {
	for y.text.Next() {
		line := y.text.Line()
		rest := strings.TrimLeft(line, " ")
		y.indent = len(line) - len(rest)
		y.line = strings.TrimRight(cutComment(rest), " \t")
		if y.line == "" {
			continue
		}
		y.ok = true
		switch {
		case y.line[0] == '\t':
			y.fault(0, "want blanks for the indent")
		case y.indent == 0 && y.line == "...":
			y.stop()
		}
		return
	}
	y.stop()
}

// cutComment takes a comment off a line: # at the beginning or behind a blank,
// outside quotation marks.
func cutComment(s string) string {
	var quote byte
	for i := range len(s) {
		c := s[i]
		switch {
		case quote != 0:
			if c == quote && (quote == '\'' || s[i-1] != '\\') {
				quote = 0
			}
		case c == '#' && (i == 0 || s[i-1] == ' ' || s[i-1] == '\t'):
			return s[:i]
		case (c == '"' || c == '\'') && startsValue(s[:i]):
			quote = c
		}
	}
	return s
}

// startsValue reports whether a value begins behind s.
func startsValue(s string) bool {
	s = strings.TrimRight(s, " \t")
	return s == "" || strings.HasSuffix(s, ":") || strings.HasSuffix(s, "-") || strings.HasSuffix(s, "[") || strings.HasSuffix(s, ",")
}

// value returns a new value at an offset of the line.
func (y *yamlReader) value(kind byte, offset int) *value {
	if y.left--; y.left < 0 {
		y.fault(offset, "too many values")
	}
	return &value{kind: kind, at: y.text.Pos(y.indent + offset + 1)}
}

// block reads the value whose lines are indented by indent; the first comes next.
func (y *yamlReader) block(indent, depth int) *value {
	if depth > maxDepth {
		y.fault(0, "at most "+strconv.Itoa(maxDepth)+" levels of nesting")
		return nil
	}
	if y.line == "-" || strings.HasPrefix(y.line, "- ") {
		return y.list(indent, depth)
	}
	if _, _, ok := splitKey(y.line); ok {
		return y.mapping(indent, depth)
	}
	v := y.scalar(0)
	if y.ok {
		y.next()
	}
	return v
}

// list reads items of a list.
func (y *yamlReader) list(indent, depth int) *value {
	v := y.value('l', 0)
	for y.ok && y.indent == indent && (y.line == "-" || strings.HasPrefix(y.line, "- ")) {
		rest := strings.TrimLeft(y.line[1:], " ")
		if rest == "" {
			at := y.value('s', 0)
			y.next()
			if !y.ok || y.indent <= indent {
				v.items = append(v.items, at) // nothing, which no key takes
				continue
			}
		} else {
			y.indent += len(y.line) - len(rest)
			y.line = rest
		}
		v.items = append(v.items, y.block(y.indent, depth+1))
	}
	return v
}

// splitKey parts "key: value" or "key:".
func splitKey(line string) (key string, offset int, ok bool) {
	if line != "" && (line[0] == '"' || line[0] == '\'' || line[0] == '[') {
		return "", 0, false
	}
	i := strings.IndexByte(line, ':')
	for i >= 0 && i+1 < len(line) && line[i+1] != ' ' {
		n := strings.IndexByte(line[i+1:], ':')
		if n < 0 {
			return "", 0, false
		}
		i += 1 + n
	}
	if i < 0 {
		return "", 0, false
	}
	rest := strings.TrimLeft(line[i+1:], " ")
	return strings.TrimRight(line[:i], " "), len(line) - len(rest), true
}

// mapping reads keys of a mapping.
func (y *yamlReader) mapping(indent, depth int) *value {
	v := y.value('m', 0)
	seen := make(map[string]bool)
	for y.ok && y.indent == indent {
		key, offset, ok := splitKey(y.line)
		switch {
		case !ok:
			y.fault(0, "want a key and a colon")
			return v
		case !plainKey(key):
			y.fault(0, "want a key of letters, digits and _")
			return v
		case seen[key]:
			y.text.Fault(lockstep.ErrDuplicate, y.indent+1, key, "is given twice")
			y.stop()
			return v
		}
		seen[key] = true
		e := entry{key: key, at: y.text.Pos(y.indent + 1)}
		if offset < len(y.line) {
			e.value = y.scalar(offset)
			y.next()
		} else {
			y.next()
			// The items of a list may stand as far left as its key.
			if y.ok && (y.indent > indent || y.indent == indent && (y.line == "-" || strings.HasPrefix(y.line, "- "))) {
				e.value = y.block(y.indent, depth+1)
			}
		}
		v.entries = append(v.entries, e)
	}
	return v
}

func plainKey(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isKey(c) || c == '.' {
			return false
		}
	}
	return s != ""
}

// scalar reads what stands in the line from an offset on: a text, or a list in
// brackets.
func (y *yamlReader) scalar(offset int) *value {
	s := y.line[offset:]
	switch s[0] {
	case '[':
		return y.flow(offset)
	case '"', '\'':
		v := y.value('s', offset)
		text, n, reason := unquote(s)
		if reason == "" && n < len(s) {
			reason = "nothing may stand behind the closing quotation mark"
		}
		if reason != "" {
			y.fault(offset+n, reason)
			return v
		}
		v.scalar, v.quoted = text, true
		return v
	}
	v := y.value('s', offset)
	if reason := plainFault(s); reason != "" {
		y.fault(offset, reason)
		return v
	}
	v.scalar = s
	return v
}

// plainFault says why a text is none without quotation marks.
func plainFault(s string) string {
	switch {
	case strings.ContainsRune("&*!|>%@`{}],?#", rune(s[0])), s[0] == '-' && (len(s) == 1 || s[1] == ' '):
		return "this form of YAML is not read"
	case strings.Contains(s, ": "), strings.HasSuffix(s, ":"):
		return "one key in a line"
	}
	return ""
}

// unquote reads a text in quotation marks and returns how long it is with them.
func unquote(s string) (text string, n int, reason string) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[0] == '"' && s[i] == '\\':
			if i++; i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", i - 1, `want \" or \\`
			}
		case s[i] == s[0] && s[0] == '\'' && i+1 < len(s) && s[i+1] == '\'':
			i++
		case s[i] == s[0]:
			return b.String(), i + 1, ""
		}
		b.WriteByte(s[i])
	}
	return "", 0, "want the closing quotation mark"
}

// flow reads a list of texts in brackets.
func (y *yamlReader) flow(offset int) *value {
	v := y.value('l', offset)
	s := y.line
	blanks := func(i int) int {
		for i < len(s) && s[i] == ' ' {
			i++
		}
		return i
	}
	i := blanks(offset + 1)
	for i == len(s) || s[i] != ']' {
		item, n, reason := y.flowItem(i)
		if reason != "" {
			y.fault(i, reason)
			return v
		}
		v.items = append(v.items, item)
		i = blanks(i + n)
		switch {
		case i < len(s) && s[i] == ',':
			i = blanks(i + 1) // and the bracket may come at once
		case i == len(s) || s[i] != ']':
			y.fault(i, "want a comma or the closing bracket")
			return v
		}
	}
	if i+1 < len(s) {
		y.fault(i+1, "nothing may stand behind the closing bracket")
	}
	return v
}

// flowItem reads a text of a list in brackets and returns how long it is, or why it
// is none.
func (y *yamlReader) flowItem(i int) (item *value, n int, reason string) {
	item = y.value('s', i)
	s := y.line[i:]
	if s != "" && (s[0] == '"' || s[0] == '\'') {
		item.scalar, n, reason = unquote(s)
		item.quoted = true
		return item, n, reason
	}
	if n = strings.IndexAny(s, ",]["); n < 0 {
		n = len(s)
	}
	if item.scalar = strings.TrimRight(s[:n], " "); item.scalar == "" {
		return item, n, "want a value"
	}
	return item, n, plainFault(item.scalar)
}
