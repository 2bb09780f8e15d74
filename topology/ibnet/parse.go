package ibnet

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

// Bounds on a fabric.
const (
	maxSwitches = 1 << 16
	maxAdapters = source.MaxHosts
	maxCables   = 1 << 21
	maxPort     = 1 << 16
)

// parser reads the lines of a text.
type parser struct {
	text    *source.Text
	block   int // the node that the lines are about, -1 for none
	nodes   []node
	index   map[key]int
	cables  map[end]cable
	order   []end // of cables, as the text has them
	counts  [256]int
	started bool
}

// key names a node.
type key struct {
	kind byte // 'S', 'H' or 'R'
	guid GUID
}

// node is a switch, adapter or router.
type node struct {
	key
	at        source.Pos // where it was first named
	name      string
	ports     int
	described bool // by a block
}

// end is a port of a node.
type end struct{ node, port int }

// cable is what is at the other end.
type cable struct {
	end
	at   source.Pos
	rate lockstep.BytesPerSecond
}

// heads are the words that begin a block, and the letter of what they describe.
// The table is immutable.
var heads = [...]struct {
	word string
	kind byte
}{{"Switch", 'S'}, {"Ca", 'H'}, {"Rt", 'R'}}

// line takes a line.
func (p *parser) line(line string) {
	if !p.started {
		p.block, p.started = -1, true
	}
	s := scanner{text: line}
	s.blanks()
	switch {
	case s.end() || s.text[s.at] == '#':
		if s.end() {
			p.block = -1
		}
		return
	case s.text[s.at] == '[':
		p.port(&s)
		return
	}
	word, _, _ := strings.Cut(line[s.at:], "=")
	switch word {
	case "vendid", "devid", "sysimgguid", "switchguid", "caguid", "rtguid":
		return
	}
	word, _, _ = strings.Cut(strings.ReplaceAll(line[s.at:], "\t", " "), " ")
	if word == "Chassis" || word == "Non-Chassis" {
		return // headings of -g
	}
	for _, h := range heads {
		if h.word == word {
			s.at += len(word)
			p.head(&s, h.kind)
			return
		}
	}
	p.text.Fault(lockstep.ErrInvalid, s.at+1, line[s.at:], "want a block or a line with a port")
}

// fault notes what a scanner met.
func (p *parser) fault(s *scanner, reason string) {
	p.text.Fault(lockstep.ErrInvalid, s.at+1, s.text[s.at:], reason)
}

// head begins a block.
func (p *parser) head(s *scanner, kind byte) {
	p.block = -1
	column := s.at + 1
	ports, ok1 := s.number()
	k, ok2 := s.name()
	if !ok1 || !ok2 || k.kind != kind || ports > maxPort {
		p.fault(s, `want the number of ports and a name such as "S-0002c90000000001"`)
		return
	}
	i, ok := p.node(k, s)
	if !ok {
		return
	}
	n := &p.nodes[i]
	if n.described {
		p.text.Fault(lockstep.ErrDuplicate, column, k.guid.String(), "has a block already")
		return
	}
	n.described, n.ports = true, ports
	if name := s.quoted(); name != "" {
		n.name = name
	}
	p.block = i
}

// node returns a node, which it makes where there is none.
func (p *parser) node(k key, s *scanner) (int, bool) {
	i, ok := p.index[k]
	if ok {
		return i, true
	}
	limit := maxAdapters
	if k.kind == 'S' {
		limit = maxSwitches
	}
	if p.counts[k.kind]++; p.counts[k.kind] > limit {
		p.fault(s, "at most "+strconv.Itoa(maxSwitches)+" switches and "+strconv.Itoa(maxAdapters)+" adapters")
		p.text.Stop()
		return 0, false
	}
	i = len(p.nodes)
	p.index[k] = i
	p.nodes = append(p.nodes, node{key: k, at: p.text.Pos(1)})
	return i, true
}

// port takes the line of a port.
func (p *parser) port(s *scanner) {
	if p.block < 0 {
		if !p.text.Faulty() {
			p.fault(s, "want a block first")
		}
		return
	}
	at := p.text.Pos(s.at + 1)
	from, ok := p.near(s, at)
	if !ok {
		return
	}
	to, ok := p.far(s)
	if !ok {
		return
	}
	switch _, twice := p.cables[from]; {
	case twice:
		p.text.FaultAt(lockstep.ErrDuplicate, at, strconv.Itoa(from.port), "the port has a line already")
	case from == to:
		p.text.FaultAt(lockstep.ErrInvalid, at, strconv.Itoa(from.port), "the port leads to itself")
	case len(p.order) == maxCables:
		p.text.FaultAt(lockstep.ErrInvalid, at, "", "at most "+strconv.Itoa(maxCables)+" ports")
		p.text.Stop()
	default:
		p.cables[from] = cable{end: to, at: at, rate: parseRate(s.last())}
		p.order = append(p.order, from)
	}
}

// near reads the port of the block's own node.
func (p *parser) near(s *scanner, at source.Pos) (end, bool) {
	n, ok := s.bracket()
	if !ok {
		p.fault(s, "want the number of a port in brackets")
		return end{}, false
	}
	if ports := p.nodes[p.block].ports; n < 1 || n > ports {
		p.text.FaultAt(lockstep.ErrInvalid, at, strconv.Itoa(n), "want a port of 1 to "+strconv.Itoa(ports))
		return end{}, false
	}
	s.group()
	return end{p.block, n}, true
}

// far reads the port at the other end, and up to the comment.
func (p *parser) far(s *scanner) (end, bool) {
	k, ok := s.name()
	if !ok {
		p.fault(s, `want a name such as "H-0002c90000000001"`)
		return end{}, false
	}
	n, ok := s.bracket()
	if !ok || n < 1 || n > maxPort {
		p.fault(s, "want the number of a port in brackets")
		return end{}, false
	}
	s.group()
	s.blanks()
	if !s.end() && s.text[s.at] != '#' {
		p.fault(s, "want # or the end of the line")
		return end{}, false
	}
	i, ok := p.node(k, s)
	if !ok {
		return end{}, false
	}
	if p.nodes[i].name == "" {
		p.nodes[i].name = s.quoted()
	}
	return end{i, n}, true
}

// check holds both ends of each cable to each other, and the names of adapters.
func (p *parser) check() {
	if len(p.nodes) == 0 {
		p.text.FaultAt(lockstep.ErrInvalid, source.Pos{Line: 1}, "", "want at least one block")
		return
	}
	taken := make(map[end]end) // by the far end of a node without block
	for _, from := range p.order {
		c := p.cables[from]
		far := &p.nodes[c.node]
		back, ok := p.cables[c.end]
		other, twice := taken[c.end]
		switch name := string(far.kind) + "-" + far.guid.String() + "[" + strconv.Itoa(c.port) + "]"; {
		case ok && back.end != from:
			p.text.FaultAt(lockstep.ErrInvalid, c.at, name, "the line of that port, "+back.at.String()+", names another port")
		case !ok && far.described:
			p.text.FaultAt(lockstep.ErrInvalid, c.at, name, "the block there has no line of that port")
		case !ok && twice:
			p.text.FaultAt(lockstep.ErrDuplicate, c.at, name, p.cables[other].at.String()+" leads to that port already")
		}
		taken[c.end] = from
	}
	p.names()
}

// names reports adapters of one host and name.
func (p *parser) names() {
	type name struct {
		host lockstep.NodeID
		hca  string
	}
	seen := make(map[name]GUID)
	for i := range p.nodes {
		n := &p.nodes[i]
		host, hca, ok := parseHost(n.name)
		if n.kind != 'H' || !ok || hca == "" {
			continue
		}
		if other, ok := seen[name{host, hca}]; ok {
			p.text.FaultAt(lockstep.ErrDuplicate, n.at, n.name, "is the description of adapter "+other.String()+" too")
			continue
		}
		seen[name{host, hca}] = n.guid
	}
}

// fabric makes the fabric of what was read.
func (p *parser) fabric() *Fabric {
	f := &Fabric{}
	switches := make([]int, len(p.nodes))
	for i := range p.nodes {
		n := &p.nodes[i]
		switch n.kind {
		case 'S':
			switches[i] = len(f.Switches)
			f.Switches = append(f.Switches, Switch{GUID: n.guid, Name: n.name, Ports: n.ports})
		case 'H':
			if _, _, ok := parseHost(n.name); !ok {
				f.Others++
			}
		}
	}
	trunks := make(map[[2]int]int)
	for _, from := range p.order {
		c := p.cables[from]
		a, b := from, c.end
		if _, both := p.cables[b]; both && (b.node < a.node || b.node == a.node && b.port < a.port) {
			continue // seen from the other end
		}
		if p.nodes[a.node].kind != 'S' {
			a, b = b, a
		}
		if p.nodes[a.node].kind != 'S' {
			continue
		}
		switch n := &p.nodes[b.node]; n.kind {
		case 'S':
			f.trunk(trunks, switches[a.node], switches[b.node], c.rate)
		case 'H':
			if host, hca, ok := parseHost(n.name); ok {
				f.Ports = append(f.Ports, Port{Host: host, HCA: hca, GUID: n.guid, Number: b.port, Switch: switches[a.node], Rate: c.rate})
			}
		}
	}
	return f
}

// trunk adds a cable between two switches.
func (f *Fabric) trunk(index map[[2]int]int, a, b int, rate lockstep.BytesPerSecond) {
	k := [2]int{min(a, b), max(a, b)}
	i, ok := index[k]
	if !ok {
		i = len(f.Trunks)
		index[k] = i
		f.Trunks = append(f.Trunks, Trunk{A: k[0], B: k[1]})
	}
	f.Trunks[i].Cables++
	f.Trunks[i].Rate += rate
}

// natural compares names such that numbers in them count as numbers; names that
// differ only in leading zeros are ordered as texts.
func natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		n, m := digits(x), digits(y)
		if n == 0 || m == 0 {
			if c := cmp.Compare(x[0], y[0]); c != 0 {
				return c
			}
			x, y = x[1:], y[1:]
			continue
		}
		u, v := strings.TrimLeft(x[:n], "0"), strings.TrimLeft(y[:m], "0")
		if c := cmp.Or(cmp.Compare(len(u), len(v)), cmp.Compare(u, v)); c != 0 {
			return c
		}
		x, y = x[n:], y[m:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

// digits returns how many digits s begins with.
func digits(s string) int {
	if i := slices.IndexFunc([]byte(s), func(c byte) bool { return c < '0' || c > '9' }); i >= 0 {
		return i
	}
	return len(s)
}
