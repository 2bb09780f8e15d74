package slurm

import "strings"

// matches says whether a node with these features suits an expression: names joined by & (or a comma), | and
// parentheses or brackets, & binding tighter. Counts ("h100*4") are left out: a job that wants so many nodes of a kind
// is taken to want the kind. False, false is for what is no such expression.
func matches(expr string, has func(string) bool) (yes, ok bool) {
	p := features{text: strings.ReplaceAll(expr, " ", ""), has: has}
	if p.text == "" {
		return true, true
	}
	yes = p.any(0)
	return yes, !p.bad && p.at == len(p.text)
}

type features struct {
	text string
	at   int
	bad  bool
	has  func(string) bool
}

const deepest = 64

func (p *features) peek() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

func (p *features) any(depth int) bool {
	yes := p.all(depth)
	for p.peek() == '|' {
		p.at++
		more := p.all(depth)
		yes = yes || more
	}
	return yes
}

func (p *features) all(depth int) bool {
	yes := p.one(depth)
	for p.peek() == '&' || p.peek() == ',' {
		p.at++
		more := p.one(depth)
		yes = yes && more
	}
	return yes
}

func (p *features) one(depth int) bool {
	if c := p.peek(); c == '(' || c == '[' {
		end := byte(')')
		if c == '[' {
			end = ']'
		}
		p.at++
		if depth >= deepest {
			p.bad = true
			return false
		}
		yes := p.any(depth + 1)
		if p.peek() != end {
			p.bad = true
			return false
		}
		p.at++
		p.count()
		return yes
	}
	not := p.peek() == '!'
	if not {
		p.at++
	}
	from := p.at
	for p.at < len(p.text) && !strings.ContainsRune("&|,()[]*!", rune(p.text[p.at])) {
		p.at++
	}
	name := p.text[from:p.at]
	if name == "" {
		p.bad = true
		return false
	}
	p.count()
	return p.has(name) != not
}

// count passes over "*4".
func (p *features) count() {
	if p.peek() != '*' {
		return
	}
	p.at++
	from := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	if p.at == from {
		p.bad = true
	}
}
