package nccl

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

// Bounds on a text.
const (
	maxBytes = 16 << 20
	maxDepth = 64
	maxAttrs = 64
	maxNICs  = 1024
	maxCPUs  = 4096
)

// parser reads the elements of a text.
type parser struct {
	faults  *source.Text
	in      *limited
	decoder *xml.Decoder
	stopped bool // nothing more can be read
	hosts   []*host
	cpus    int
}

// limited reads at most maxBytes and remembers how the reader failed.
type limited struct {
	r    io.Reader
	left int
	err  error
}

var errLong = errors.New("too long")

func (l *limited) Read(b []byte) (int, error) {
	if l.left == 0 {
		return 0, errLong
	}
	n, err := l.r.Read(b[:min(len(b), l.left)])
	l.left -= n
	if err != nil && !errors.Is(err, io.EOF) {
		l.err = err
	}
	return n, err
}

func newParser(r io.Reader) *parser {
	in := &limited{r: r, left: maxBytes}
	return &parser{faults: source.New("nccl: parse", strings.NewReader("")), in: in, decoder: xml.NewDecoder(in)}
}

// err returns what went wrong so far.
func (p *parser) err() error {
	if p.in.err != nil {
		return fmt.Errorf("nccl: parse: %w", p.in.err)
	}
	return p.faults.Err()
}

func (p *parser) fault(kind error, at source.Pos, value, reason string) {
	p.faults.FaultAt(kind, at, value, reason)
}

// element is an element whose start was read.
type element struct {
	at    source.Pos
	name  string
	attrs []xml.Attr
}

// next returns the next child of an element, and false at its end. The element ""
// is the document.
func (p *parser) next(of string) (element, bool) {
	for !p.stopped {
		line, column := p.decoder.InputPos()
		at := source.Pos{Line: line, Column: column}
		token, err := p.decoder.Token()
		if err != nil {
			p.stop(at, of, err)
			break
		}
		switch t := token.(type) {
		case xml.StartElement:
			return p.start(at, t), true
		case xml.EndElement:
			return element{}, false
		case xml.CharData:
			if text := strings.TrimSpace(strings.TrimPrefix(string(t), "\ufeff")); text != "" {
				p.fault(lockstep.ErrInvalid, at, text, "want elements, not text")
			}
		case xml.Directive:
			p.fault(lockstep.ErrInvalid, at, "", "directives are not read")
		}
	}
	return element{}, false
}

// stop ends the reading at an error of the decoder.
func (p *parser) stop(at source.Pos, of string, err error) {
	p.stopped = true
	var syntax *xml.SyntaxError
	switch {
	case p.in.err != nil:
	case errors.Is(err, errLong):
		p.fault(lockstep.ErrInvalid, at, "", "a topology takes at most 16 MiB")
	case errors.As(err, &syntax):
		line, column := p.decoder.InputPos()
		p.fault(lockstep.ErrInvalid, source.Pos{Line: line, Column: column}, "", syntax.Msg)
	case errors.Is(err, io.EOF) && of == "":
	default:
		p.fault(lockstep.ErrInvalid, at, "", err.Error())
	}
}

func (p *parser) start(at source.Pos, t xml.StartElement) element {
	e := element{at: at, name: t.Name.Local, attrs: t.Attr[:min(len(t.Attr), maxAttrs)]}
	if len(t.Attr) > maxAttrs {
		p.fault(lockstep.ErrInvalid, at, e.name, "at most "+strconv.Itoa(maxAttrs)+" attributes")
	}
	for i, a := range e.attrs {
		if slices.ContainsFunc(e.attrs[:i], func(o xml.Attr) bool { return o.Name == a.Name }) {
			p.fault(lockstep.ErrDuplicate, at, a.Name.Local, "is given twice")
		}
	}
	return e
}

// skip reads to the end of an element. Of what is in it only the form counts.
func (p *parser) skip(e element) {
	for depth := 1; depth > 0 && !p.stopped; {
		line, column := p.decoder.InputPos()
		token, err := p.decoder.Token()
		switch token.(type) {
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		}
		if err != nil {
			p.stop(source.Pos{Line: line, Column: column}, e.name, err)
		}
	}
}

// text returns an attribute, "" where it is not there.
func (e *element) text(name string) string {
	for _, a := range e.attrs {
		if a.Name.Local == name && a.Name.Space == "" {
			return a.Value
		}
	}
	return ""
}

// number returns a whole number of 0 to most, and none where the attribute is not
// there, is empty or is negative.
func (p *parser) number(e element, name string, most int64, none int) int {
	s := e.text(name)
	if s == "" {
		return none
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > most {
		p.fault(lockstep.ErrInvalid, e.at, name+"="+s, "want a whole number, at most "+strconv.FormatInt(most, 10))
		return none
	}
	if n < 0 {
		return none
	}
	return int(n)
}

// document reads the whole text.
func (p *parser) document() {
	found := false
	for {
		e, ok := p.next("")
		if !ok {
			break
		}
		if e.name != "system" || found {
			p.fault(lockstep.ErrInvalid, e.at, e.name, "want one element system")
			return
		}
		found = true
		if v := e.text("version"); v != "1" {
			p.fault(lockstep.ErrInvalid, e.at, v, "want version 1")
			return
		}
		p.system()
	}
	if !found && !p.faults.Faulty() && p.in.err == nil {
		p.fault(lockstep.ErrInvalid, source.Pos{Line: 1}, "", "want an element system")
	}
}

func (p *parser) system() {
	for {
		e, ok := p.next("system")
		if !ok {
			break
		}
		if e.name != "cpu" {
			p.skip(e)
			continue
		}
		if p.cpus++; p.cpus > maxCPUs {
			p.fault(lockstep.ErrInvalid, e.at, "", "at most "+strconv.Itoa(maxCPUs)+" elements cpu")
			p.stopped = true
			return
		}
		hash := e.text("host_hash")
		i := slices.IndexFunc(p.hosts, func(h *host) bool { return h.hash == hash })
		if i < 0 {
			i = len(p.hosts)
			p.hosts = append(p.hosts, &host{hash: hash, buses: make(map[string]bool)})
		}
		h := p.hosts[i]
		h.cpus++
		root := &device{cpu: h.cpus, numa: p.number(e, "numaid", maxNUMA, -1)}
		p.children(h, root, e)
	}
	if len(p.hosts) == 0 && !p.faults.Faulty() && p.in.err == nil {
		p.fault(lockstep.ErrInvalid, source.Pos{Line: 1}, "", "want an element cpu")
	}
}

// maxNUMA is the greatest NUMA node that topology.NewShape takes.
const maxNUMA = 1 << 16

// host is a host being read.
type host struct {
	hash  string
	cpus  int
	buses map[string]bool
	gpus  []*device
	nics  []*device
}

// device is a PCI device, or a NUMA node where it has no parent.
type device struct {
	parent *device
	depth  int
	cpu    int // which cpu element it is below
	numa   int
	at     source.Pos
	bus    string
	rate   lockstep.BytesPerSecond

	// Of a GPU.
	number     int
	capability int
	nvlinks    []nvlink
	described  bool // by an element gpu

	nic NIC // of a network card
}

// nvlink is some NVLinks of a GPU to one target.
type nvlink struct {
	at     source.Pos
	target string
	class  string
	count  int
}

// children reads what is in a NUMA node or PCI device, and reports whether a GPU
// or network card was among it.
func (p *parser) children(h *host, d *device, of element) (gpu, nic bool) {
	for {
		e, ok := p.next(of.name)
		switch {
		case !ok:
			return gpu, nic
		case e.name == "pci":
			p.pci(h, d, e)
		case e.name == "nic":
			nic = true
			p.nic(h, d, e)
		case e.name == "gpu" && d.parent != nil:
			if gpu {
				p.fault(lockstep.ErrDuplicate, e.at, "gpu", "is given twice in a device")
			}
			gpu = true
			p.gpu(d, e)
		default:
			p.skip(e)
		}
	}
}

// pci reads a PCI device.
func (p *parser) pci(h *host, parent *device, e element) {
	d := &device{parent: parent, depth: parent.depth + 1, cpu: parent.cpu, numa: parent.numa, at: e.at, number: -1}
	if d.depth > maxDepth {
		p.fault(lockstep.ErrInvalid, e.at, "", "at most "+strconv.Itoa(maxDepth)+" devices below each other")
		p.stopped = true
		return
	}
	bus, ok := parseBus(e.text("busid"))
	switch d.bus = bus; {
	case !ok:
		p.fault(lockstep.ErrInvalid, e.at, e.text("busid"), "want a PCI address as busid, such as 0000:0f:00.0")
	case h.buses[bus]:
		p.fault(lockstep.ErrDuplicate, e.at, bus, "is the address of another device")
	}
	h.buses[bus] = true
	d.rate = parseRate(e.text("link_speed"), p.number(e, "link_width", 64, 0))
	gpu, nic := p.children(h, d, e)
	class := e.text("class")
	if gpu || strings.HasPrefix(class, "0x03") {
		if len(h.gpus) == lockstep.MaxDevicesPerNode {
			p.fault(lockstep.ErrInvalid, e.at, bus, "at most "+strconv.Itoa(lockstep.MaxDevicesPerNode)+" GPUs in a host")
			p.stopped = true
			return
		}
		d.described = gpu
		h.gpus = append(h.gpus, d)
	}
	if !nic && strings.HasPrefix(class, "0x02") {
		p.addNIC(h, d, e.at, NIC{Name: bus, Rail: -1})
	}
}

// gpu reads what NCCL says of a GPU.
func (p *parser) gpu(d *device, of element) {
	d.number = p.number(of, "dev", 1<<16, -1)
	d.capability = p.number(of, "sm", 1<<16, 0)
	for {
		e, ok := p.next("gpu")
		if !ok {
			return
		}
		if e.name == "nvlink" {
			l := nvlink{at: e.at, target: e.text("target"), class: e.text("tclass"), count: p.number(e, "count", topology.MaxNVLinks, 0)}
			if bus, ok := parseBus(l.target); ok {
				l.target = bus
			}
			switch {
			case l.count == 0:
				p.fault(lockstep.ErrInvalid, e.at, e.text("count"), "want a count of 1 to "+strconv.Itoa(topology.MaxNVLinks))
			case slices.ContainsFunc(d.nvlinks, func(o nvlink) bool { return o.target == l.target }):
				p.fault(lockstep.ErrDuplicate, e.at, l.target, "is the target of NVLinks named before")
			case len(d.nvlinks) == topology.MaxNVLinks:
				p.fault(lockstep.ErrInvalid, e.at, "", "at most "+strconv.Itoa(topology.MaxNVLinks)+" NVLinks")
				p.stopped = true
			default:
				d.nvlinks = append(d.nvlinks, l)
			}
		}
		p.skip(e)
	}
}

// nic reads the ports of a network card.
func (p *parser) nic(h *host, d *device, of element) {
	for {
		e, ok := p.next(of.name)
		if !ok {
			return
		}
		if e.name == "net" && e.text("net") != "0" { // 0 marks one that is part of another
			p.addNIC(h, d, e.at, NIC{
				Name: e.text("name"), GUID: e.text("guid"),
				Port: p.number(e, "port", 1<<16, 0), Rail: p.number(e, "rail", math.MaxInt32, -1),
				Speed: lockstep.BytesPerSecond(p.number(e, "speed", 1<<30, 0)) * 125_000, // Mbit/s
			})
		}
		p.skip(e)
	}
}

// maxRail is the greatest rail that topology.NewShape takes; NCCL marks those that
// it made up itself by a high bit.
const maxRail = 1<<16 - 1

func (p *parser) addNIC(h *host, d *device, at source.Pos, n NIC) {
	n.Bus, n.NUMA = d.bus, d.numa
	if n.Rail > maxRail {
		n.Rail = -1
	}
	switch reason := source.NameFault(n.Name); {
	case reason != "":
		p.fault(lockstep.ErrInvalid, at, n.Name, "want a name: "+reason)
	case slices.ContainsFunc(h.nics, func(o *device) bool { return o.nic.Name == n.Name && o.nic.Port == n.Port }):
		p.fault(lockstep.ErrDuplicate, at, n.Name, "names two network cards")
	case len(h.nics) == maxNICs:
		p.fault(lockstep.ErrInvalid, at, n.Name, "at most "+strconv.Itoa(maxNICs)+" network cards in a host")
		p.stopped = true
	default:
		h.nics = append(h.nics, &device{parent: d, depth: d.depth + 1, cpu: d.cpu, numa: d.numa, nic: n})
	}
}

// finish makes the host of what was read.
func (h *host) finish(p *parser) Host {
	numbered := !slices.ContainsFunc(h.gpus, func(d *device) bool { return d.number < 0 })
	slices.SortFunc(h.gpus, func(a, b *device) int {
		if numbered && a.number != b.number {
			return cmp.Compare(a.number, b.number)
		}
		return cmp.Or(cmp.Compare(len(a.bus), len(b.bus)), cmp.Compare(a.bus, b.bus)) // longer domains are greater
	})
	out := Host{Hash: h.hash}
	for i, d := range h.gpus {
		if i > 0 && numbered && d.number == h.gpus[i-1].number {
			p.fault(lockstep.ErrDuplicate, d.at, "dev="+strconv.Itoa(d.number), "is the number of another GPU")
		}
		out.GPUs = append(out.GPUs, GPU{Bus: d.bus, Number: d.number, NUMA: d.numa, Capability: d.capability, PCIe: d.rate})
	}
	for _, d := range h.nics {
		out.NICs = append(out.NICs, d.nic)
	}
	out.Links = make([][]topology.Link, len(h.gpus))
	out.Cards = make([][]topology.Link, len(h.gpus))
	for i, a := range h.gpus {
		out.Links[i] = make([]topology.Link, len(h.gpus))
		for j, b := range h.gpus[:i] {
			out.Links[i][j] = p.link(a, b, h)
			out.Links[j][i] = out.Links[i][j]
		}
		out.Cards[i] = make([]topology.Link, len(h.nics))
		for j, c := range h.nics {
			out.Cards[i][j] = way(a, c.parent)
		}
	}
	return out
}

// link returns how two GPUs are joined.
func (p *parser) link(a, b *device, h *host) topology.Link {
	ab, ba := a.to(b), b.to(a)
	switch {
	case ab == nil && ba == nil:
	case ab == nil && b.described && a.described:
		p.fault(lockstep.ErrInvalid, ba.at, ba.target, "the GPU there names no NVLinks back")
	case ba == nil && b.described && a.described:
		p.fault(lockstep.ErrInvalid, ab.at, ab.target, "the GPU there names no NVLinks back")
	case ab != nil && ba != nil && ab.count != ba.count:
		p.fault(lockstep.ErrInvalid, ab.at, "count="+strconv.Itoa(ab.count), "the GPU there names "+strconv.Itoa(ba.count)+" NVLinks back")
	case ab != nil:
		return topology.NVLink(ab.count)
	default:
		return topology.NVLink(ba.count)
	}
	if n := min(a.switched(h), b.switched(h)); n > 0 {
		return topology.NVLink(n)
	}
	return way(a, b)
}

// to returns the NVLinks of a GPU to another, nil where there are none.
func (d *device) to(o *device) *nvlink {
	for i := range d.nvlinks {
		if d.nvlinks[i].target == o.bus {
			return &d.nvlinks[i]
		}
	}
	return nil
}

// switched returns how many NVLinks of a GPU go to switches. Where the class of a
// target is not told, it is a switch unless it is a device of the host.
func (d *device) switched(h *host) (n int) {
	for _, l := range d.nvlinks {
		if strings.HasPrefix(l.class, "0x068000") || l.class == "" && !h.buses[l.target] {
			n += l.count
		}
	}
	return min(n, topology.MaxNVLinks)
}

// way returns the link over PCI between two devices of a host, or a device and a
// NUMA node.
func way(a, b *device) topology.Link {
	if a.cpu != b.cpu {
		return topology.SYS
	}
	bridges := -1 // below the closest common one, which is to come on top, less the ends
	for a != b {
		if a.depth < b.depth {
			a, b = b, a
		}
		a = a.parent
		bridges++
	}
	switch {
	case a.parent == nil:
		return topology.PHB
	case bridges <= 1:
		return topology.PIX
	}
	return topology.PXB
}

// parseBus reads a PCI address, domain:bus:device.function in hexadecimal digits,
// and writes the domain with at least 4.
func parseBus(s string) (string, bool) {
	s = strings.ToLower(s)
	domain, rest, ok := strings.Cut(s, ":")
	if !ok || domain == "" || len(domain) > 8 || len(rest) != len("0f:00.0") || rest[2] != ':' || rest[5] != '.' {
		return s, false
	}
	for _, c := range []byte(domain + rest[:2] + rest[3:5] + rest[6:]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return s, false
		}
	}
	domain = strings.TrimLeft(domain, "0")
	for len(domain) < 4 {
		domain = "0" + domain
	}
	return domain + ":" + rest, true
}

// parseRate returns the rate of a slot by its transfers, such as "16.0 GT/s PCIe",
// and lanes; 0 where they are not known. Up to 5 GT/s a byte takes 10 bits.
func parseRate(speed string, lanes int) lockstep.BytesPerSecond {
	words := strings.Fields(speed)
	if len(words) < 2 || words[1] != "GT/s" {
		return 0
	}
	whole, tenths, _ := strings.Cut(words[0], ".")
	if len(tenths) != 1 {
		tenths = "0"
	}
	n, err := strconv.ParseUint(whole+tenths, 10, 16)
	if err != nil {
		return 0
	}
	rate := lockstep.BytesPerSecond(n) * 100e6 * lockstep.BytesPerSecond(lanes) / 8
	if n <= 50 {
		rate = rate / 10 * 8
	}
	return rate
}
