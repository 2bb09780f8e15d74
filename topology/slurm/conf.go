package slurm

import (
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

// Parse reads a topology.conf for the plugins topology/tree and topology/block.
// Keys may be in any case, # begins a comment, and a \ at the end of a line joins
// the next one. It returns ErrInvalid, ErrDuplicate or, for a switch that is not
// there, ErrUnknown, for each fault that it finds, joined.
func Parse(r io.Reader) (*Topology, error) { return parse(r, source.MaxHosts) }

func parse(r io.Reader, limit int) (*Topology, error) {
	p := confParser{text: source.New("slurm: parse", r), topology: new(Topology), limit: limit}
	for p.text.Next() {
		p.line()
	}
	if len(p.logical) > 0 {
		p.entry() // the text ends in a line that wants to be joined
	}
	t := p.topology
	switch {
	case p.text.Faulty():
	case t.Kind == "":
		p.text.FaultAt(lockstep.ErrInvalid, source.Pos{Line: 1}, "", "want SwitchName or BlockName")
	default:
		c := checker{text: p.text, topology: t, positions: p.positions, sizes: p.sizes}
		c.check()
	}
	if err := p.text.Err(); err != nil {
		return nil, err
	}
	return t, nil
}

// confParser reads the lines of a topology.conf.
type confParser struct {
	text     *source.Text
	topology *Topology
	limit    int // names that may still come

	logical []byte    // lines joined
	joints  []joint   // where its lines begin
	keys    []confKey // of the entry being read

	positions []position // of the switches or blocks
	sizes     source.Pos // of BlockSizes
}

// joint is where a line begins in joined ones.
type joint struct{ offset, line int }

// confKey is a key with its value.
type confKey struct {
	name, value string
	at, valueAt int // offsets
}

// line takes a line and reads an entry where it ends there.
func (p *confParser) line() {
	line, _, comment := strings.Cut(p.text.Line(), "#")
	p.joints = append(p.joints, joint{len(p.logical), p.text.Pos(0).Line})
	if !comment {
		var joined bool
		if line, joined = strings.CutSuffix(line, `\`); joined {
			p.logical = append(p.logical, line...)
			if len(p.logical) > source.MaxLine {
				p.fault(lockstep.ErrInvalid, len(p.logical)-1, "", "joined lines have at most "+strconv.Itoa(source.MaxLine)+" bytes")
				p.text.Stop()
				p.logical = p.logical[:0]
			}
			return
		}
	}
	p.logical = append(p.logical, line...)
	p.entry()
}

// pos returns the place of an offset in the joined lines.
func (p *confParser) pos(offset int) source.Pos {
	i := sort.Search(len(p.joints), func(i int) bool { return p.joints[i].offset > offset }) - 1
	return source.Pos{Line: p.joints[i].line, Column: offset - p.joints[i].offset + 1}
}

func (p *confParser) fault(kind error, offset int, value, reason string) {
	p.text.FaultAt(kind, p.pos(offset), value, reason)
}

// entry reads the joined lines.
func (p *confParser) entry() {
	if p.scan(string(p.logical)) && len(p.keys) > 0 {
		first := p.keys[0]
		switch strings.ToLower(first.name) {
		case "switchname":
			p.item(KindTree, "nodes", "switches", "linkspeed")
		case "blockname":
			p.item(KindBlock, "nodes")
		case "blocksizes":
			p.item(KindBlock)
		default:
			p.fault(lockstep.ErrInvalid, first.at, first.name, "want SwitchName, BlockName or BlockSizes; rings are not read")
		}
	}
	p.logical, p.joints, p.keys = p.logical[:0], p.joints[:0], p.keys[:0]
}

// scan splits an entry into keys and values.
func (p *confParser) scan(s string) bool {
	blank := func(i int) int {
		for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
			i++
		}
		return i
	}
	for i := blank(0); i < len(s); i = blank(i) {
		k := confKey{at: i}
		for i < len(s) && isKey(s[i]) {
			i++
		}
		k.name = s[k.at:i]
		if i = blank(i); k.name == "" || i == len(s) || s[i] != '=' {
			p.fault(lockstep.ErrInvalid, k.at, s[k.at:], "want a key, = and a value")
			return false
		}
		i = blank(i + 1)
		k.valueAt = i
		if i < len(s) && s[i] == '"' {
			end := strings.IndexByte(s[i+1:], '"')
			if end < 0 {
				p.fault(lockstep.ErrInvalid, i, s[i:], "want the closing quotation mark")
				return false
			}
			k.valueAt++
			k.value = s[i+1 : i+1+end]
			i += end + 2
		} else {
			n := strings.IndexAny(s[i:], " \t")
			if n < 0 {
				n = len(s) - i
			}
			k.value = s[i : i+n]
			i += n
		}
		if k.value == "" {
			p.fault(lockstep.ErrInvalid, k.at, k.name, "want a value")
			return false
		}
		p.keys = append(p.keys, k)
	}
	return true
}

func isKey(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.'
}

// item reads an entry of a topology of a kind; others are the keys that may
// follow the first.
func (p *confParser) item(kind Kind, others ...string) {
	t := p.topology
	first := p.keys[0]
	if t.Kind != "" && t.Kind != kind {
		p.fault(lockstep.ErrInvalid, first.at, first.name, "a topology has either switches or blocks")
		return
	}
	t.Kind = kind
	seen := make(map[string]confKey, len(p.keys))
	for _, k := range p.keys[1:] {
		name := strings.ToLower(k.name)
		if !slices.Contains(others, name) {
			p.fault(lockstep.ErrInvalid, k.at, k.name, "no such key goes with "+first.name)
			return
		}
		if _, ok := seen[name]; ok {
			p.fault(lockstep.ErrDuplicate, k.at, k.name, "is given twice")
			return
		}
		seen[name] = k
	}
	if p.limit--; p.limit < 0 {
		p.fault(lockstep.ErrInvalid, first.at, first.name, tooMany)
		p.text.Stop()
		return
	}
	at := position{name: p.pos(first.valueAt)}
	nodes, nodesAt := p.list(seen["nodes"])
	switch strings.ToLower(first.name) {
	case "blocksizes":
		p.readSizes(first)
		return
	case "blockname":
		at.list = nodesAt
		t.Blocks = append(t.Blocks, Block{Name: first.value, Nodes: nodes})
	default:
		switches, switchesAt := p.list(seen["switches"])
		if at.list = nodesAt; at.list.Line == 0 {
			at.list = switchesAt
		}
		t.Switches = append(t.Switches, Switch{Name: first.value, Switches: switches, Nodes: nodes, LinkSpeed: p.speed(seen["linkspeed"])})
	}
	p.positions = append(p.positions, at)
}

// list expands the value of a key, if it is given, and says where it stands.
func (p *confParser) list(k confKey) (names []string, at source.Pos) {
	if k.name == "" {
		return nil, at
	}
	names, offset, reason := expand(k.value, p.limit)
	if reason != "" {
		p.fault(lockstep.ErrInvalid, k.valueAt+offset, k.value[offset:], reason)
		return nil, p.pos(k.valueAt)
	}
	p.limit -= len(names)
	return names, p.pos(k.valueAt)
}

// speed reads a LinkSpeed, if it is given.
func (p *confParser) speed(k confKey) uint32 {
	if k.name == "" {
		return 0
	}
	n, err := strconv.ParseUint(k.value, 10, 32)
	if err != nil {
		p.fault(lockstep.ErrInvalid, k.valueAt, k.value, "want a number of 32 bits")
	}
	return uint32(n)
}

// readSizes reads BlockSizes.
func (p *confParser) readSizes(k confKey) {
	if p.sizes.Line != 0 {
		p.fault(lockstep.ErrDuplicate, k.at, k.name, "is given twice")
		return
	}
	p.sizes = p.pos(k.valueAt)
	for s := range strings.SplitSeq(k.value, ",") {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			p.fault(lockstep.ErrInvalid, k.valueAt, s, "want numbers with commas between them")
			return
		}
		p.topology.Sizes = append(p.topology.Sizes, int(n))
	}
}
