package smi

import (
	"io"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

// Report is what nvidia-smi topo printed on one host.
type Report struct {
	GPUs []string // GPUs are the heads of the GPUs, such as "GPU0", in the order of the matrix.
	NICs []string // NICs are the network cards, by the legend's names where it has them, else by their heads.

	Links [][]topology.Link // Links are between GPUs, by their order; nil where the text has no matrix of topo -m.
	Cards [][]topology.Link // Cards are the links of each GPU to each network card; nil like Links.
	CPUs  [][]Span          // CPUs are the CPUs near each GPU; empty where unknown. Nil like Links.
	NUMA  [][]Span          // NUMA are the NUMA nodes near each GPU; empty where unknown. Nil like Links.
	Own   []int             // Own is the NUMA node that is each GPU's own memory, -1 where there is none. Nil like Links.

	P2P [][][]Status // P2P are the matrices of topo -p2p, in order, each by GPU and GPU.
}

// Span is a run of numbers, both ends included.
type Span struct {
	First int // First is at least 0.
	Last  int // Last is at least First.
}

// Status says whether one GPU reaches another's memory. The words are those of
// nvidia-smi topo -p2p.
type Status string

// The statuses.
const (
	Self                 Status = "X"   // Self is a GPU and itself.
	OK                   Status = "OK"  // OK: it does.
	ChipsetNotSupported  Status = "CNS" // ChipsetNotSupported: the chipset is in the way.
	GPUNotSupported      Status = "GNS" // GPUNotSupported: one of the GPUs cannot.
	TopologyNotSupported Status = "TNS" // TopologyNotSupported: the way between them does not allow it.
	NotSupported         Status = "NS"  // NotSupported: it does not, for another reason.
	Disabled             Status = "DR"  // Disabled: it is switched off in the driver's settings.
	Unknown              Status = "U"   // Unknown: the driver does not say.
)

// Bounds on a matrix.
const (
	maxNICs = 1024
	maxP2P  = 16 // there are five kinds
)

// Parse reads what nvidia-smi topo -m printed, what nvidia-smi topo -p2p printed,
// or both. It returns ErrInvalid or ErrDuplicate for each fault that it finds,
// joined.
func Parse(r io.Reader) (*Report, error) {
	p := parser{text: source.New("smi: parse", r), report: new(Report)}
	for p.text.Next() {
		p.line(plain(p.text.Line()))
	}
	p.finish()
	if !p.text.Faulty() && p.report.GPUs == nil {
		p.text.FaultAt(lockstep.ErrInvalid, source.Pos{Line: 1}, "", "want a matrix of nvidia-smi topo")
	}
	if err := p.text.Err(); err != nil {
		return nil, err
	}
	return p.report, nil
}

// Config returns what topology.NewShape makes a shape of: the links, the nearest
// card of each GPU and its NUMA node where there is exactly one. Equally near
// cards are shared out evenly, by the order of both. ok is false where the text
// had no matrix of topo -m.
func (r *Report) Config() (cfg topology.ShapeConfig, ok bool) {
	if r.Links == nil {
		return topology.ShapeConfig{}, false
	}
	cfg.Links = r.Links
	for i := range r.GPUs {
		node := -1
		if s := r.NUMA[i]; len(s) == 1 && s[0].First == s[0].Last {
			node = s[0].First
		}
		cfg.NUMA = append(cfg.NUMA, node)
	}
	if len(r.NICs) > 0 {
		for _, c := range source.Nearest(r.Cards) {
			cfg.NICs = append(cfg.NICs, r.NICs[c])
		}
	}
	return cfg, true
}

// plain takes the codes for underlining and colour out of a line, which the tool
// also writes into files.
func plain(line string) string {
	if !strings.Contains(line, "\x1b[") {
		return line
	}
	var out []byte
	for {
		text, rest, ok := strings.Cut(line, "\x1b[")
		out = append(out, text...)
		if !ok {
			return string(out)
		}
		n := 0
		for n < len(rest) && (rest[n] == ';' || '0' <= rest[n] && rest[n] <= '9') {
			n++
		}
		if n < len(rest) && rest[n] == 'm' {
			rest = rest[n+1:]
		} else {
			out = append(out, "\x1b["...) // some other code, for the reader to trip over
		}
		line = rest
	}
}

// parseSpans reads a list such as "0-31,64-95". N/A is an empty one.
func parseSpans(s string) (spans []Span, ok bool) {
	if s == "N/A" {
		return nil, true
	}
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, ok1 := parseNumber(first)
		b, ok2 := parseNumber(last)
		if !ok1 || !ok2 || b < a {
			return nil, false
		}
		spans = append(spans, Span{a, b})
	}
	return spans, true
}

// parseNumber reads a number of at most 5 digits, as NUMA nodes and CPUs have.
func parseNumber(s string) (n int, ok bool) {
	if s == "" || len(s) > 5 || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// parseStatus reads a code of topo -p2p.
func parseStatus(s string) (Status, bool) {
	switch st := Status(s); st {
	case Self, OK, ChipsetNotSupported, GPUNotSupported, TopologyNotSupported, NotSupported, Disabled, Unknown:
		return st, true
	}
	return "", false
}

// parseLink reads a code of topo -m. Old drivers wrote SOC for SYS.
func parseLink(s string) (l topology.Link, ok bool) {
	if s == "SOC" {
		return topology.SYS, true
	}
	return l, l.UnmarshalText([]byte(s)) == nil
}
