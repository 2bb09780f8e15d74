package ibnet

import (
	"strconv"
	"strings"
)

// scanner reads the pieces of a line.
type scanner struct {
	text string
	at   int
}

func (s *scanner) end() bool { return s.at == len(s.text) }

func (s *scanner) blanks() {
	for !s.end() && (s.text[s.at] == ' ' || s.text[s.at] == '\t') {
		s.at++
	}
}

// skip goes past a text, if it comes next.
func (s *scanner) skip(text string) bool {
	if !strings.HasPrefix(s.text[s.at:], text) {
		return false
	}
	s.at += len(text)
	return true
}

// number reads a number after blanks.
func (s *scanner) number() (n int, ok bool) {
	s.blanks()
	begin := s.at
	for !s.end() && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	n, err := strconv.Atoi(s.text[begin:s.at])
	return n, err == nil && s.at-begin <= 9
}

// bracket reads a number in brackets.
func (s *scanner) bracket() (n int, ok bool) {
	if !s.skip("[") {
		return 0, false
	}
	n, ok = s.number()
	return n, ok && s.skip("]")
}

// group reads what may stand behind the number of a port: that of the socket on
// the outside, "[ext 5]", and the GUID of the port in parentheses.
func (s *scanner) group() {
	begin := s.at
	if s.skip("[ext") {
		if _, ok := s.number(); !ok || !s.skip("]") {
			s.at = begin
			return
		}
	}
	begin = s.at
	if s.skip("(") {
		if _, ok := s.guid(); !ok || !s.skip(")") {
			s.at = begin
		}
	}
}

// guid reads hexadecimal digits, with or without 0x.
func (s *scanner) guid() (GUID, bool) {
	s.skip("0x")
	begin := s.at
	for !s.end() && strings.IndexByte("0123456789abcdefABCDEF", s.text[s.at]) >= 0 {
		s.at++
	}
	n, err := strconv.ParseUint(s.text[begin:s.at], 16, 64)
	return GUID(n), err == nil
}

// name reads the name of a node in quotation marks, after blanks.
func (s *scanner) name() (k key, ok bool) {
	s.blanks()
	for _, kind := range [...]byte{'S', 'H', 'R'} {
		if s.skip(`"` + string(kind) + "-") {
			guid, ok := s.guid()
			return key{kind, guid}, ok && s.skip(`"`)
		}
	}
	return k, false
}

// quoted returns the description in the comment that comes, "" where there is none.
func (s *scanner) quoted() string {
	_, comment, _ := strings.Cut(s.text[s.at:], "#")
	_, rest, ok := strings.Cut(comment, `"`)
	i := strings.LastIndexByte(rest, '"')
	if !ok || i < 0 {
		return ""
	}
	return strings.TrimSpace(rest[:i])
}

// last returns the last word of the line.
func (s *scanner) last() string {
	text := strings.TrimRight(s.text[s.at:], " \t")
	return text[strings.LastIndexAny(text, " \t")+1:]
}
