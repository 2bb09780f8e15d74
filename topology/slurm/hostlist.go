package slurm

import (
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

// maxBytes is the most that the names of one list may take together.
const maxBytes = 64 << 20

// maxDigits is the most digits of a number in a range.
const maxDigits = 18

// Expand returns the names that a host list stands for, in order: names with
// commas between them, in which brackets hold numbers and ranges. "n[08-10,12]"
// is n08, n09, n10 and n12; with several brackets the last runs fastest. Names
// may repeat. It returns ErrInvalid where a bracket is not closed or empty, a
// range runs backwards or its ends are padded differently, a name is none, or
// there are more than 1,048,576 names.
func Expand(list string) ([]string, error) {
	names, at, reason := expand(list, source.MaxHosts)
	if reason != "" {
		return nil, &lockstep.Error{
			Kind: lockstep.ErrInvalid, Op: "slurm: expand", Field: source.Pos{Line: 1, Column: at + 1}.String(),
			Value: source.Quote(list), Reason: reason,
		}
	}
	return names, nil
}

// tooMany is what is wrong with a list of more names than there may be.
const tooMany = "at most 1048576 names in all" // source.MaxHosts

// span is a range in brackets.
type span struct {
	lo, hi uint64
	width  int // digits to pad to; 0 means none
}

// part is a piece of a term: text, or what brackets hold.
type part struct {
	text  string
	spans []span // nil for text
}

// expand returns the names of list, at most limit. A reason says what is wrong at
// an offset.
func expand(list string, limit int) (names []string, at int, reason string) {
	left := maxBytes
	for i := 0; ; {
		parts, end, reason := term(list, i)
		if reason != "" {
			return nil, end, reason
		}
		n, bytes := size(parts, limit-len(names))
		if n > limit-len(names) {
			return nil, i, tooMany
		}
		if left -= n * bytes; left < 0 {
			return nil, i, "the names take more than " + strconv.Itoa(maxBytes) + " bytes"
		}
		if bytes > lockstep.MaxIDLength {
			return nil, i, "a name has at most " + strconv.Itoa(lockstep.MaxIDLength) + " bytes"
		}
		first := len(names)
		names = product(names, "", parts)
		if reason := source.NameFault(names[first]); reason != "" { // the others differ in digits only
			return nil, i, reason
		}
		if end == len(list) {
			return names, 0, ""
		}
		i = end + 1
	}
}

// term reads the term that begins at i and returns where it ends, at a comma or
// the end of the list; or where and why it is wrong.
func term(list string, i int) (parts []part, end int, reason string) {
	begin := i
	for i < len(list) && list[i] != ',' {
		n := strings.IndexAny(list[i:], ",[]")
		switch {
		case n < 0:
			parts = append(parts, part{text: list[i:]})
			i = len(list)
		case n > 0:
			parts = append(parts, part{text: list[i : i+n]})
			i += n
		case list[i] == ']':
			return nil, i, "no bracket is open"
		default:
			spans, end, reason := brackets(list, i+1)
			if reason != "" {
				return nil, end, reason
			}
			parts = append(parts, part{spans: spans})
			i = end
		}
	}
	if i == begin {
		return nil, i, "want a name"
	}
	return parts, i, ""
}

// brackets reads ranges up to the closing bracket and returns where it ends.
func brackets(list string, i int) (spans []span, end int, reason string) {
	for {
		s, next, reason := readSpan(list, i)
		if reason != "" {
			return nil, next, reason
		}
		spans = append(spans, s)
		if list[next] == ']' {
			return spans, next + 1, ""
		}
		i = next + 1
	}
}

// readSpan reads a number or range and returns where it ends, at a comma or the
// closing bracket.
func readSpan(list string, i int) (s span, end int, reason string) {
	lo, i := digits(list, i)
	hi := lo
	begin := i
	if i < len(list) && list[i] == '-' {
		hi, i = digits(list, i+1)
	}
	switch {
	case lo == "" || hi == "":
		return s, i, "want a number"
	case len(lo) > maxDigits || len(hi) > maxDigits:
		return s, begin, "at most " + strconv.Itoa(maxDigits) + " digits"
	case i == len(list):
		return s, i, "want the closing bracket"
	case list[i] != ',' && list[i] != ']':
		return s, i, "want a digit, -, comma or closing bracket"
	}
	if padded(lo) || padded(hi) {
		if s.width = len(lo); len(hi) != len(lo) {
			return s, begin, "want both ends of a padded range of one width"
		}
	}
	s.lo, _ = strconv.ParseUint(lo, 10, 64) // at most 18 digits
	s.hi, _ = strconv.ParseUint(hi, 10, 64)
	if s.hi < s.lo {
		return s, begin, "the range runs backwards"
	}
	return s, i, ""
}

// padded reports whether a number begins with zeros that it need not have.
func padded(number string) bool { return len(number) > 1 && number[0] == '0' }

// digits returns the digits from i on and where they end.
func digits(list string, i int) (string, int) {
	begin := i
	for i < len(list) && list[i] >= '0' && list[i] <= '9' {
		i++
	}
	return list[begin:i], i
}

// size returns how many names a term has, or more than limit, and how many bytes
// the longest takes.
func size(parts []part, limit int) (n, bytes int) {
	n = 1
	for _, p := range parts {
		bytes += len(p.text)
		if p.spans == nil {
			continue
		}
		sum, widest := uint64(0), 0
		for _, s := range p.spans {
			sum += min(s.hi-s.lo+1, uint64(limit)+1) // at most 2^22 spans of 2^20
			widest = max(widest, s.width, len(strconv.FormatUint(s.hi, 10)))
		}
		bytes += widest
		if sum > uint64(limit) || sum*uint64(n) > uint64(limit) {
			return limit + 1, bytes
		}
		n *= int(sum)
	}
	return n, bytes
}

// product appends the names of a term, each after prefix.
func product(dst []string, prefix string, parts []part) []string {
	if len(parts) == 0 {
		return append(dst, prefix)
	}
	rest := parts[1:]
	if parts[0].spans == nil {
		return product(dst, prefix+parts[0].text, rest)
	}
	for _, s := range parts[0].spans {
		for n := s.lo; n <= s.hi; n++ {
			dst = product(dst, prefix+pad(n, s.width), rest)
		}
	}
	return dst
}

// pad writes n with at least width digits.
func pad(n uint64, width int) string {
	s := strconv.FormatUint(n, 10)
	if len(s) < width {
		s = strings.Repeat("0", width-len(s)) + s
	}
	return s
}

// Fold returns a host list for names, each of which is valid by the rule of
// lockstep.NodeID.Validate: neighbours that differ only in a number at the end
// share brackets. Expand gives the same names in the same order; that holds for
// every list that Expand takes.
func Fold(names []string) string {
	var b strings.Builder
	for i := 0; i < len(names); {
		if i > 0 {
			b.WriteByte(',')
		}
		prefix, number := cut(names[i])
		end := i + 1
		for end < len(names) && number != "" {
			p, n := cut(names[end])
			if p != prefix || n == "" {
				break
			}
			end++
		}
		if number == "" || end == i+1 {
			b.WriteString(names[i])
			i++
			continue
		}
		b.WriteString(prefix)
		b.WriteByte('[')
		foldNumbers(&b, names[i:end], len(prefix))
		b.WriteByte(']')
		i = end
	}
	return b.String()
}

// foldNumbers writes the numbers behind the prefix of names, runs as ranges.
func foldNumbers(b *strings.Builder, names []string, prefix int) {
	for i := 0; i < len(names); {
		if i > 0 {
			b.WriteByte(',')
		}
		first := names[i][prefix:]
		width := 0
		if padded(first) {
			width = len(first)
		}
		n, _ := strconv.ParseUint(first, 10, 64) // cut sees to at most 18 digits
		last := first
		for i++; i < len(names); i++ {
			next := pad(n+1, width)
			// A padded range has both ends of one width.
			if names[i][prefix:] != next || width > 0 && len(next) != width {
				break
			}
			n, last = n+1, next
		}
		b.WriteString(first)
		if last != first {
			b.WriteByte('-')
			b.WriteString(last)
		}
	}
}

// cut parts a name from the number at its end, "" where there is none. A name
// that is all digits has none, since brackets alone would read badly.
func cut(name string) (prefix, number string) {
	i := len(name)
	for i > 0 && len(name)-i < maxDigits && name[i-1] >= '0' && name[i-1] <= '9' {
		i--
	}
	if i == 0 {
		return name, ""
	}
	return name[:i], name[i:]
}
