package smi

import (
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

// state says what the lines that come are.
type state int

const (
	outside  state = iota // between the parts
	inMatrix              // rows
	inLegend              // codes
	inNICs                // names of network cards
	skipping              // the rest of a matrix that has a fault
)

// parser reads the lines of a text.
type parser struct {
	text   *source.Text
	report *Report
	state  state
	matrix matrix
	p2p    bool     // the last matrix was one of -p2p
	named  []string // by card of report: its head, where the legend named it
}

// matrix is a matrix being read.
type matrix struct {
	head    source.Pos
	devices []string // heads, GPUs first
	gpus    int
	columns []column // behind the devices
	tabs    bool     // cells are parted by tabs
	rows    []row
}

// column is a head behind the devices.
type column struct {
	name  string
	begin int // where it begins in the line, 1 for the first byte
}

// row is a row: the name of its device, and its cells.
type row struct {
	line   int
	device int // index in devices
	cells  []source.Word
	rest   []string // one a column of the matrix
	places []int    // of rest
}

// line takes a line.
func (p *parser) line(line string) {
	words := source.Words(line)
	switch {
	case len(words) == 0:
		if p.state == inMatrix || p.state == skipping {
			p.finish()
		}
	case words[0].Text[0] == '#':
	case p.beginsLegend(words):
	case isHead(words, p.state):
		p.finish()
		p.head(words, strings.Contains(line, "\t"))
	default:
		p.member(words, line)
	}
}

// beginsLegend takes the head of a legend, and reports whether words are one.
func (p *parser) beginsLegend(words []source.Word) bool {
	switch {
	case len(words) == 1 && words[0].Text == "Legend:":
		p.finish()
		if p.report.GPUs == nil && !p.text.Faulty() {
			p.fault(words[0], "a legend goes with a matrix")
		}
		p.state = inLegend
		return true
	case len(words) == 2 && words[0].Text == "NIC" && words[1].Text == "Legend:":
		p.finish()
		p.state = inNICs
		return true
	}
	return false
}

// member takes a line of a matrix or legend.
func (p *parser) member(words []source.Word, line string) {
	switch p.state {
	case inMatrix:
		p.row(words, line)
	case inLegend:
		p.legend(words)
	case inNICs:
		p.card(words)
	case outside:
		p.fault(words[0], "want the head of a matrix, a row, a legend or a line that begins with #")
	case skipping:
	}
}

func (p *parser) fault(w source.Word, reason string) {
	p.text.Fault(lockstep.ErrInvalid, w.Column, w.Text, reason)
}

// isHead reports whether words are the head of a matrix and no row of it.
func isHead(words []source.Word, s state) bool {
	if !isGPU(words[0].Text) {
		return false
	}
	if s != inMatrix && s != skipping {
		return true
	}
	return len(words) > 1 && (isGPU(words[1].Text) || words[1].Text == "CPU")
}

// isGPU reports whether s is the head of a GPU, such as "GPU0".
func isGPU(s string) bool {
	digits, ok := strings.CutPrefix(s, "GPU")
	_, number := parseNumber(digits)
	return ok && number
}

// head begins a matrix.
func (p *parser) head(words []source.Word, tabs bool) {
	m := matrix{head: p.text.Pos(words[0].Column), tabs: tabs}
	seen := make(map[string]bool, len(words))
	for len(words) > 0 && !startsColumn(words) {
		w := words[0]
		words = words[1:]
		reason := source.NameFault(w.Text)
		switch {
		case seen[w.Text]:
			p.text.Fault(lockstep.ErrDuplicate, w.Column, w.Text, "heads two columns")
			p.state = skipping
			return
		case reason != "":
		case isGPU(w.Text) && m.gpus < len(m.devices):
			reason = "GPUs come before other devices"
		case isGPU(w.Text) && m.gpus == lockstep.MaxDevicesPerNode:
			reason = "at most " + strconv.Itoa(lockstep.MaxDevicesPerNode) + " GPUs"
		case isGPU(w.Text):
			m.gpus++
		case len(m.devices)-m.gpus == maxNICs:
			reason = "at most " + strconv.Itoa(maxNICs) + " network cards"
		}
		if reason != "" {
			p.fault(w, reason)
			p.state = skipping
			return
		}
		seen[w.Text] = true
		m.devices = append(m.devices, w.Text)
	}
	if !p.columns(&m, words) {
		p.state = skipping
		return
	}
	p.matrix, p.state = m, inMatrix
}

// The heads behind the devices.
const (
	cpuAffinity  = "CPU Affinity"
	numaAffinity = "NUMA Affinity"
	gpuNUMA      = "GPU NUMA ID"
)

// startsColumn reports whether words go on with a head that is no device.
func startsColumn(words []source.Word) bool {
	return words[0].Text == "CPU" || words[0].Text == "NUMA" || words[0].Text == "GPU"
}

// columns reads the heads behind the devices.
func (p *parser) columns(m *matrix, words []source.Word) bool {
	for len(words) > 0 {
		found := false
		for _, name := range [...]string{cpuAffinity, numaAffinity, gpuNUMA} {
			if !begins(words, name) {
				continue
			}
			if slices.ContainsFunc(m.columns, func(c column) bool { return c.name == name }) {
				p.text.Fault(lockstep.ErrDuplicate, words[0].Column, name, "heads two columns")
				return false
			}
			m.columns = append(m.columns, column{name, words[0].Column})
			words = words[strings.Count(name, " ")+1:]
			found = true
			break
		}
		if !found {
			p.fault(words[0], "want "+cpuAffinity+", "+numaAffinity+" or "+gpuNUMA)
			return false
		}
	}
	return true
}

// begins reports whether words begin with those of name.
func begins(words []source.Word, name string) bool {
	for part := range strings.SplitSeq(name, " ") {
		if len(words) == 0 || words[0].Text != part {
			return false
		}
		words = words[1:]
	}
	return true
}

// row takes a row of the matrix.
func (p *parser) row(words []source.Word, line string) {
	m := &p.matrix
	next := 0
	if n := len(m.rows); n > 0 {
		next = m.rows[n-1].device + 1
	}
	device := next
	for device < len(m.devices) && m.devices[device] != words[0].Text {
		device++
	}
	p.state = skipping
	switch {
	case next == len(m.devices):
		p.fault(words[0], "the matrix has a row for each of its "+strconv.Itoa(next)+" heads already")
		return
	case device > next && next < m.gpus, device == len(m.devices):
		p.fault(words[0], "want the row of "+m.devices[next])
		return
	case len(words) <= len(m.devices):
		last := words[len(words)-1]
		p.text.Fault(lockstep.ErrInvalid, last.Column+len(last.Text), strconv.Itoa(len(words)-1)+" cells", "want one for each head, "+strconv.Itoa(len(m.devices)))
		return
	}
	r := row{line: p.text.Pos(0).Line, device: device, cells: words[1 : len(m.devices)+1]}
	if device < m.gpus && !p.affinity(&r, words[len(m.devices)+1:], line) {
		return
	}
	m.rows = append(m.rows, r)
	p.state = inMatrix
}

// affinity sorts what stands behind the links of a GPU's row into the columns.
// Where there is less than one word for each column, tabs say where the words
// belong, or else the heads that they stand under; but N/A says nothing anywhere.
func (p *parser) affinity(r *row, words []source.Word, line string) bool {
	m := &p.matrix
	r.rest, r.places = make([]string, len(m.columns)), make([]int, len(m.columns))
	switch {
	case len(words) > len(m.columns):
		p.fault(words[len(m.columns)], "no head stands above it")
		return false
	case len(words) == len(m.columns):
		for i, w := range words {
			r.rest[i], r.places[i] = w.Text, w.Column
		}
		return true
	}
	for _, w := range words {
		if w.Text == "N/A" {
			continue
		}
		i := slices.IndexFunc(m.columns, func(c column) bool { return c.begin == w.Column })
		if m.tabs {
			i = m.cell(r, line, w)
		}
		if i < 0 || i >= len(m.columns) || r.rest[i] != "" {
			p.fault(w, "it does not stand under one of the heads, "+strconv.Itoa(len(m.columns)))
			return false
		}
		r.rest[i], r.places[i] = w.Text, w.Column
	}
	return true
}

// cell returns the column of a word behind the links, by the tabs between them.
// Some versions put an empty cell before the last column.
func (m *matrix) cell(r *row, line string, w source.Word) int {
	last := r.cells[len(r.cells)-1]
	from := last.Column - 1 + len(last.Text)
	n := strings.Count(line[from:w.Column-1], "\t") - 1
	cells := strings.Count(strings.TrimRight(line[from:], " \t"), "\t")
	if cells == len(m.columns)+1 && n == len(m.columns) {
		n--
	}
	return n
}

// legend takes a line of the legend of codes.
func (p *parser) legend(words []source.Word) {
	known := false
	if p.p2p {
		_, known = parseStatus(words[0].Text)
	} else {
		_, known = parseLink(words[0].Text)
		known = known && !strings.HasPrefix(words[0].Text, "NV") || words[0].Text == "NV#"
	}
	switch {
	case len(words) < 3 || words[1].Text != "=":
		p.fault(words[0], `want a code, "=" and what it means`)
	case !known:
		p.fault(words[0], "the legend names a code that a matrix of this kind does not have")
	}
}

// card takes a line of the legend of network cards.
func (p *parser) card(words []source.Word) {
	head, ok := strings.CutSuffix(words[0].Text, ":")
	if !ok || len(words) != 2 {
		p.fault(words[0], "want a head with a colon, and the name of its device")
		return
	}
	i := slices.Index(p.named, head)
	switch {
	case i < 0:
		p.fault(words[0], "no column of a network card has that head")
	case p.report.NICs[i] != head:
		p.text.Fault(lockstep.ErrDuplicate, words[0].Column, head, "is named twice")
	case words[1].Text != head && slices.Contains(p.report.NICs, words[1].Text):
		p.text.Fault(lockstep.ErrDuplicate, words[1].Column, words[1].Text, "names two network cards")
	case source.NameFault(words[1].Text) != "":
		p.fault(words[1], source.NameFault(words[1].Text))
	default:
		p.report.NICs[i] = words[1].Text
	}
}

// finish ends the part that is being read.
func (p *parser) finish() {
	was := p.state
	p.state = outside
	if was != inMatrix {
		return
	}
	m := &p.matrix
	if len(m.rows) < m.gpus {
		p.text.FaultAt(lockstep.ErrInvalid, m.head, strconv.Itoa(len(m.rows))+" rows", "want one for each GPU, "+strconv.Itoa(m.gpus))
		return
	}
	gpus := m.devices[:m.gpus]
	switch {
	case p.report.GPUs != nil && !slices.Equal(gpus, p.report.GPUs):
		p.text.FaultAt(lockstep.ErrInvalid, m.head, strings.Join(gpus, " "), "want the GPUs of the matrix before, "+strings.Join(p.report.GPUs, " "))
		return
	case p.report.GPUs == nil:
		p.report.GPUs = gpus
	}
	if p.p2p = m.isP2P(p.report.Links != nil); p.p2p {
		p.status(m)
	} else {
		p.links(m)
	}
}

// isP2P tells which kind a matrix is of: only topo -m has other columns than
// those of devices, and codes differ. One GPU alone says nothing.
func (m *matrix) isP2P(haveLinks bool) bool {
	if len(m.columns) > 0 || len(m.devices) > m.gpus {
		return false
	}
	if m.gpus == 1 {
		return haveLinks
	}
	_, ok := parseStatus(m.rows[0].cells[1].Text)
	return ok
}

// status reads the codes of a matrix of topo -p2p.
func (p *parser) status(m *matrix) {
	if len(p.report.P2P) == maxP2P {
		p.text.FaultAt(lockstep.ErrInvalid, m.head, "", "at most "+strconv.Itoa(maxP2P)+" matrices of topo -p2p")
		return
	}
	all := make([][]Status, m.gpus)
	for i, r := range m.rows {
		all[i] = make([]Status, m.gpus)
		for j, c := range r.cells {
			st, ok := parseStatus(c.Text)
			if !ok || (st == Self) != (i == j) {
				p.text.FaultAt(lockstep.ErrInvalid, source.Pos{Line: r.line, Column: c.Column}, c.Text, "want X for a GPU and itself, else OK, CNS, GNS, TNS, NS, DR or U")
			}
			all[i][j] = st
		}
	}
	p.report.P2P = append(p.report.P2P, all)
}

// noLink stands where a code is no link.
const noLink = topology.SYS + 1

// links reads the codes of a matrix of topo -m.
func (p *parser) links(m *matrix) {
	if p.report.Links != nil {
		p.text.FaultAt(lockstep.ErrDuplicate, m.head, "", "a second matrix of topo -m")
		return
	}
	n := len(m.devices)
	all := make([][]topology.Link, n) // nil for a card without a row
	for _, r := range m.rows {
		all[r.device] = make([]topology.Link, n)
		for j, c := range r.cells {
			at := source.Pos{Line: r.line, Column: c.Column}
			l, ok := parseLink(c.Text)
			switch {
			case !ok || (l == topology.Self) != (r.device == j):
				p.text.FaultAt(lockstep.ErrInvalid, at, c.Text, "want X for a device and itself, else NV1 to NV63, PIX, PXB, PHB, NODE or SYS")
				l = noLink
			case j < r.device && all[j] != nil && all[j][r.device] != l && all[j][r.device] != noLink:
				p.text.FaultAt(lockstep.ErrInvalid, at, c.Text, "the other way from "+m.devices[j]+" it is "+all[j][r.device].String())
			}
			all[r.device][j] = l
		}
	}
	p.report.NICs = slices.Clone(m.devices[m.gpus:])
	p.named = m.devices[m.gpus:]
	for i := range m.gpus {
		p.report.Links = append(p.report.Links, all[i][:m.gpus:m.gpus])
		p.report.Cards = append(p.report.Cards, all[i][m.gpus:])
		p.near(m, &m.rows[i])
	}
}

// near reads the affinity of a GPU.
func (p *parser) near(m *matrix, r *row) {
	var cpus, numa []Span
	own := -1
	for i, c := range m.columns {
		text := r.rest[i]
		if text == "" {
			continue
		}
		spans, ok := parseSpans(text)
		want := "want numbers and ranges such as 0-31,64-95, or N/A"
		switch c.name {
		case cpuAffinity:
			cpus = spans
		case numaAffinity:
			numa = spans
		case gpuNUMA:
			if want = "want a number or N/A"; len(spans) > 0 {
				own, ok = spans[0].First, ok && len(spans) == 1 && spans[0].First == spans[0].Last
			}
		}
		if !ok {
			p.text.FaultAt(lockstep.ErrInvalid, source.Pos{Line: r.line, Column: r.places[i]}, text, want)
		}
	}
	p.report.CPUs = append(p.report.CPUs, cpus)
	p.report.NUMA = append(p.report.NUMA, numa)
	p.report.Own = append(p.report.Own, own)
}
