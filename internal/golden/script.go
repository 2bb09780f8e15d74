package golden

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// script is a parsed file. Joining the items' lines in order gives the file back.
type script struct {
	items []item
	eol   string // "\n" or "\r\n", taken from the first line
}

// item is either one raw line (a comment or a blank) or a command with its expected output.
type item struct {
	raw    string   // the line as written; for a command, the command line
	cmd    *Command // nil for a raw line
	output []string // expected output, still escaped
}

func parse(path string, src []byte) (script, error) {
	text := string(src)
	s := script{eol: "\n"}
	if i := strings.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		s.eol = "\r\n"
	}
	var errs []error
	open := false // whether an output line would belong to the last item
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		raw := strings.TrimRight(line, "\r")
		line = strings.TrimRight(raw, " \t\r")
		switch {
		case line == "" || line[0] == '#':
			s.items = append(s.items, item{raw: raw})
			open = false
		case line[0] == '>':
			cmd, err := parseCommand(path, i+1, line[1:])
			if err != nil {
				errs = append(errs, err)
			}
			s.items = append(s.items, item{raw: raw, cmd: cmd})
			open = true
		case !open:
			errs = append(errs, fmt.Errorf("%s:%d: output %q follows no command", path, i+1, line))
		default:
			last := &s.items[len(s.items)-1]
			last.output = append(last.output, line)
		}
	}
	return s, errors.Join(errs...)
}

// render returns the file with the outputs replaced by answers, which run parallel to the items.
func (s script) render(answers [][]string) []byte {
	var b strings.Builder
	for i, it := range s.items {
		if len(s.items) == 1 && it.raw == "" {
			break // an empty file stays empty
		}
		b.WriteString(it.raw + s.eol)
		for _, line := range answers[i] {
			b.WriteString(line + s.eol)
		}
	}
	return []byte(b.String())
}

func parseCommand(path string, line int, text string) (*Command, error) {
	cmd := &Command{Text: strings.TrimSpace(text), File: path, Line: line}
	rest := cmd.Text
	for first := true; ; first = false {
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" {
			break
		}
		key, val, keyed, tail, err := token(rest)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s:%d: > %s: %w", path, line, cmd.Text, err)
		case first && keyed:
			return nil, fmt.Errorf("%s:%d: > %s: want a command's name before key %q", path, line, cmd.Text, key)
		case first:
			cmd.Name = val
		case !keyed:
			cmd.Args = append(cmd.Args, val)
		default:
			if cmd.Has(key) {
				return nil, fmt.Errorf("%s:%d: > %s: key %q occurs twice", path, line, cmd.Text, key)
			}
			if cmd.Keys == nil {
				cmd.Keys = make(map[string]string)
			}
			cmd.Keys[key] = val
		}
		rest = tail
	}
	if cmd.Name == "" {
		return nil, fmt.Errorf("%s:%d: command without a name", path, line)
	}
	return cmd, nil
}

// token takes one argument off the front of s. A quote may begin anywhere in a token, so key="a b" and pre"fix" both
// hold together; only an '=' outside quotes, with something before it, makes a key.
func token(s string) (key, val string, keyed bool, rest string, err error) {
	var b strings.Builder
	quoted := false
	for s != "" && s[0] != ' ' && s[0] != '\t' {
		switch c := s[0]; {
		case c == '"' || c == '`':
			q, err := strconv.QuotedPrefix(s)
			if err != nil {
				return "", "", false, "", fmt.Errorf("bad quoting at %s", s)
			}
			u, err := strconv.Unquote(q)
			if err != nil {
				return "", "", false, "", fmt.Errorf("bad quoting at %s", s)
			}
			b.WriteString(u)
			s = s[len(q):]
			quoted = true
		case c == '=' && !keyed && !quoted && b.Len() > 0:
			key, keyed = b.String(), true
			b.Reset()
			s = s[1:]
		default:
			b.WriteByte(c)
			s = s[1:]
		}
	}
	return key, b.String(), keyed, s, nil
}

// escape turns an answer into the lines that stand for it in a script.
func escape(answer string) []string {
	answer = strings.TrimSuffix(answer, "\n")
	if answer == "" {
		return nil
	}
	lines := strings.Split(answer, "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, " \t\r") // no trace of these survives an editor
		if line == "" || strings.ContainsRune(`#>\`, rune(line[0])) {
			line = `\` + line
		}
		lines[i] = line
	}
	return lines
}

// diff lists the lines of a and b in order, marked '-' where only a has them and '+' where only b has.
func diff(a, b []string) string {
	// common[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out strings.Builder
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out.WriteString("  " + a[i] + "\n")
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common[i+1][j] >= common[i][j+1]):
			out.WriteString("- " + a[i] + "\n")
			i++
		default:
			out.WriteString("+ " + b[j] + "\n")
			j++
		}
	}
	return out.String()
}
