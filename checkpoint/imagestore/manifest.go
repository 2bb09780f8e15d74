package imagestore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// A manifest of a rank, after its magic and version, is a sequence of varints,
// texts (length and bytes) and sums, in the order of the fields below, and the
// BLAKE3-256 of all that as the last 32 bytes. There is one encoding of a
// manifest; any other is refused.
const (
	rankMagic   = "lsrank"
	version     = 1
	hashBLAKE3  = 1
	maxMeta     = 64
	maxMetaText = 4 << 10
	maxName     = 255
	maxStreams  = 1 << 20
)

// ref is one region of a stream, or a run of zeros, which is not stored.
type ref struct {
	id   regionID
	n    uint64
	zero bool
}

// stream is one stream of a rank's image.
type stream struct {
	name  string
	size  uint64
	width int
	sum   regionID // of the list of regions, and so of every byte
	refs  []ref
}

// rankManifest says what a rank's image is made of.
type rankManifest struct {
	job     lockstep.JobID
	epoch   checkpoint.Epoch
	rank    int
	step    uint64
	parent  checkpoint.Epoch
	created int64
	keyed   bool // region IDs are keyed
	meta    map[string]string
	streams []stream // sorted by name
}

// size is the length of all streams.
func (m *rankManifest) size() (n uint64) {
	for i := range m.streams {
		n += m.streams[i].size
	}
	return n
}

// listSum is the sum of a stream: of the lengths and IDs of its regions. An ID
// stands for all bytes of a region, so this one stands for all of the stream.
func listSum(refs []ref) regionID {
	return newHasher(nil).sum(putRefs(nil, refs))
}

func putRefs(b []byte, refs []ref) []byte {
	b = binary.AppendUvarint(b, uint64(len(refs)))
	for i := range refs {
		r := &refs[i]
		if r.zero {
			b = binary.AppendUvarint(b, r.n<<1|1)
			continue
		}
		b = binary.AppendUvarint(b, r.n<<1)
		b = append(b, r.id[:]...)
	}
	return b
}

// encode returns the manifest's bytes.
func (m *rankManifest) encode() []byte {
	b := append([]byte{}, rankMagic...)
	b = append(b, version, hashBLAKE3)
	var flags uint64
	if m.keyed {
		flags = 1
	}
	b = binary.AppendUvarint(b, flags)
	b = putText(b, string(m.job))
	for _, v := range [...]uint64{uint64(m.epoch), uint64(m.rank), m.step, uint64(m.parent), uint64(m.created)} {
		b = binary.AppendUvarint(b, v)
	}
	b = binary.AppendUvarint(b, uint64(len(m.meta)))
	for _, k := range slices.Sorted(maps.Keys(m.meta)) {
		b = putText(b, k)
		b = putText(b, m.meta[k])
	}
	b = binary.AppendUvarint(b, uint64(len(m.streams)))
	for i := range m.streams {
		s := &m.streams[i]
		b = putText(b, s.name)
		b = binary.AppendUvarint(b, s.size)
		b = binary.AppendUvarint(b, uint64(s.width))
		b = append(b, s.sum[:]...)
		b = putRefs(b, s.refs)
	}
	return seal(b)
}

// seal appends the checksum.
func seal(b []byte) []byte {
	s := newHasher(nil).sum(b)
	return append(b, s[:]...)
}

// unseal checks magic, version and checksum and returns what is between.
func unseal(b []byte, magic string) ([]byte, error) {
	switch {
	case len(b) < len(magic)+1+len(regionID{}):
		return nil, malformed("is cut short")
	case string(b[:len(magic)]) != magic:
		return nil, malformed("is of another kind")
	}
	n := len(b) - len(regionID{})
	if s := newHasher(nil).sum(b[:n]); !bytes.Equal(s[:], b[n:]) {
		return nil, malformed("does not match its checksum")
	}
	if v := b[len(magic)]; v != version {
		return nil, malformed(fmt.Sprintf("is of version %d, not %d", v, version))
	}
	return b[len(magic)+1 : n], nil
}

// decodeRank reads a manifest. It allocates no more than a small multiple of
// what it is given.
func decodeRank(b []byte) (*rankManifest, error) {
	body, err := unseal(b, rankMagic)
	if err != nil {
		return nil, err
	}
	d := &decoder{b: body}
	if h := d.bytes(1); d.err == nil && h[0] != hashBLAKE3 {
		return nil, malformed(fmt.Sprintf("hash algorithm %d is unknown", h[0]))
	}
	m := &rankManifest{}
	flags := d.uvarint()
	if flags > 1 {
		d.fail()
	}
	m.keyed = flags == 1
	m.job = lockstep.JobID(d.text(lockstep.MaxIDLength))
	m.epoch = checkpoint.Epoch(d.uvarint())
	m.rank = int(uint32(d.uvarint()))
	m.step = d.uvarint()
	m.parent = checkpoint.Epoch(d.uvarint())
	m.created = int64(d.uvarint())
	m.readMeta(d)
	n := d.count(1 + 1 + 1 + 32 + 1)
	for i := 0; i < n && d.err == nil; i++ {
		m.streams = append(m.streams, readStream(d))
	}
	if d.err != nil || len(d.b) != 0 {
		return nil, errWire
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	if !bytes.Equal(m.encode(), b) {
		return nil, malformed("is not in its canonical form")
	}
	return m, nil
}

func (m *rankManifest) readMeta(d *decoder) {
	n := d.count(2)
	for i := 0; i < n && d.err == nil; i++ {
		if m.meta == nil {
			m.meta = map[string]string{}
		}
		k := d.text(maxMetaText)
		m.meta[k] = d.text(maxMetaText)
	}
}

func readStream(d *decoder) (s stream) {
	s.name = d.text(maxName)
	s.size = uint64(d.size())
	s.width = int(d.uvarint() & 0xff)
	s.sum = d.sum()
	n := d.count(1)
	for i := 0; i < n && d.err == nil; i++ {
		v := d.uvarint()
		r := ref{n: v >> 1, zero: v&1 == 1}
		if !r.zero {
			r.id = d.sum()
		}
		s.refs = append(s.refs, r)
	}
	return s
}

// check says what is wrong with the contents of a manifest.
func (m *rankManifest) check() error {
	switch {
	case m.job.Validate() != nil:
		return malformed("the job is no name")
	case m.epoch == 0:
		return malformed("epoch 0 is none")
	case m.parent >= m.epoch:
		return malformed("the parent is not an earlier epoch")
	case len(m.meta) > maxMeta || len(m.streams) > maxStreams:
		return malformed("there are too many streams or notes")
	}
	total := uint64(0)
	for i := range m.streams {
		s := &m.streams[i]
		if reason := streamNameFault(s.name); reason != "" {
			return malformed("a stream's name " + reason)
		}
		if i > 0 && s.name <= m.streams[i-1].name {
			return malformed("streams are not sorted, or one is there twice")
		}
		if err := s.check(); err != nil {
			return err
		}
		if total += s.size; total > 1<<63-1 {
			return malformed("the streams are too long together")
		}
	}
	return nil
}

func (s *stream) check() error {
	left := s.size
	for i := range s.refs {
		r := &s.refs[i]
		if r.n == 0 || r.n > left || (!r.zero && r.n > maxRegion) || (r.zero && i > 0 && s.refs[i-1].zero) {
			return malformed("the length of a region is out of bounds")
		}
		left -= r.n
	}
	if left != 0 {
		return malformed("the regions do not fill the stream")
	}
	if listSum(s.refs) != s.sum {
		return malformed("a stream does not match its checksum")
	}
	return nil
}

// streamNameFault says what keeps a text from naming a stream, or "".
func streamNameFault(s string) string {
	switch {
	case s == "":
		return "must not be empty"
	case len(s) > maxName:
		return "must be at most 255 bytes"
	case s == "." || s == "..":
		return "must not be a dot or two"
	case strings.ContainsAny(s, "/\\\x00"):
		return "must not hold a path separator"
	case !utf8.ValidString(s):
		return "must be valid UTF-8"
	}
	return ""
}
