package imagestore

import (
	"errors"

	"github.com/klauspost/compress/huff0"
	"github.com/klauspost/compress/zstd"
)

// codec says how the bytes of a frame stand for those of a region. Its numbers
// are part of the format.
type codec uint8

const (
	codecRaw   codec = iota // as they are
	codecZstd               // a zstd frame
	codecPlane              // planes of every byte of 1, 2 or 4
)

// The codings of a piece of a plane; part of the format.
const (
	pieceRaw   = iota // as it is
	pieceSame         // one byte, repeated
	pieceHuff         // a huff0 table and four streams
	pieceHead  = 4    // coding and length
	pieceBytes = 64 << 10
)

var errDecode = errors.New("does not decode")

// coder codes and decodes regions on one goroutine at a time; its buffers are
// used again.
type coder struct {
	level  Level
	enc    *zstd.Encoder // of levels that use zstd
	dec    *zstd.Decoder // nil until it is needed
	huff   huff0.Scratch
	unhuff *huff0.Scratch
	planes []byte // a region's planes, one behind the other
	half   []byte // between the two steps of a split in four
	extra  []byte // another try
	sample sampler
}

// newCoder returns a coder. What zstd needs is made when it is first needed: it is
// large, and most regions do without.
func newCoder(l Level) (*coder, error) {
	c := &coder{level: l}
	c.huff.Reuse = huff0.ReusePolicyNone
	if l != LevelDefault && l != LevelSmall {
		return c, nil
	}
	var err error
	c.enc, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(l.zstd()), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(maxRegion), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	return c, err
}

// unzstd decodes a zstd frame into dst. The window covers a region and no more: a
// frame that asks for more is refused.
func (c *coder) unzstd(dst, coded []byte) error {
	if c.dec == nil {
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxRegion),
			zstd.WithDecoderMaxWindow(maxRegion), zstd.WithDecoderLowmem(true))
		if err != nil {
			return err
		}
		c.dec = dec
	}
	out, err := c.dec.DecodeAll(coded, dst[:0:len(dst)])
	// An output that did not fit was moved elsewhere, and is too long.
	if err != nil || len(out) != len(dst) || &out[0] != &dst[0] {
		return errDecode
	}
	return nil
}

// encode appends the coded region to dst, which has room before it for a header.
// If nothing is gained it returns codecRaw and dst as it was.
func (c *coder) encode(dst, b []byte, width int) (codec, []byte) {
	if c.level == LevelFastest || len(b) < 64 {
		return codecRaw, dst
	}
	if c.level == LevelSmall {
		return c.smallest(dst, b)
	}
	w, z := c.sample.look(b, width, c.level != LevelFast, c.enc)
	// A part in thirty-two is what reading it twice is worth.
	start, limit := len(dst), len(b)-len(b)/32
	switch {
	case w > 0:
		if out, ok := c.encodePlanes(dst, b, w, limit); ok {
			return codecPlane, out
		}
	case z:
		if out := c.enc.EncodeAll(b, dst); len(out)-start < limit {
			return codecZstd, out
		}
	}
	return codecRaw, dst[:start]
}

// smallest tries all codings.
func (c *coder) smallest(dst, b []byte) (codec, []byte) {
	start, best := len(dst), len(b)
	kind := codecRaw
	for _, w := range [...]int{1, 2, 4} {
		out, ok := c.encodePlanes(c.extra[:0], b, w, best)
		c.extra = out[:0]
		if ok {
			kind, best = codecPlane, len(out)
			dst = append(dst[:start], out...)
		}
	}
	out := c.enc.EncodeAll(b, c.extra[:0])
	c.extra = out[:0]
	if len(out) < best {
		kind = codecZstd
		dst = append(dst[:start], out...)
	}
	if kind == codecRaw {
		return codecRaw, dst[:start]
	}
	return kind, dst
}

// encodePlanes appends the width and the coded planes of b; ok is false if they
// are not shorter than limit.
func (c *coder) encodePlanes(dst, b []byte, width, limit int) (out []byte, ok bool) {
	start := len(dst)
	dst = append(dst, byte(width))
	for _, plane := range c.split(b, width) {
		for len(plane) > 0 {
			n := min(len(plane), pieceBytes)
			dst = c.encodePiece(dst, plane[:n])
			plane = plane[n:]
		}
		if len(dst)-start >= limit {
			return dst[:start], false
		}
	}
	return dst, true
}

func (c *coder) encodePiece(dst, p []byte) []byte {
	c.huff.Out = c.huff.Out[:0]
	out, _, err := huff0.Compress4X(p, &c.huff)
	switch {
	case errors.Is(err, huff0.ErrUseRLE):
		return append(dst, pieceSame, 1, 0, 0, p[0])
	case err != nil || len(out) >= len(p):
		return append(append(dst, pieceRaw, byte(len(p)), byte(len(p)>>8), byte(len(p)>>16)), p...)
	}
	return append(append(dst, pieceHuff, byte(len(out)), byte(len(out)>>8), byte(len(out)>>16)), out...)
}

// decode writes the region to dst, whose length it has to have.
func (c *coder) decode(dst []byte, kind codec, coded []byte) error {
	switch kind {
	case codecRaw:
		if len(coded) != len(dst) {
			return errDecode
		}
		copy(dst, coded)
		return nil
	case codecZstd:
		return c.unzstd(dst, coded)
	case codecPlane:
		return c.decodePlanes(dst, coded)
	}
	return errDecode
}

func (c *coder) decodePlanes(dst, coded []byte) error {
	if len(coded) == 0 {
		return errDecode
	}
	width := int(coded[0])
	if width != 1 && width != 2 && width != 4 {
		return errDecode
	}
	coded = coded[1:]
	c.planes = grow(c.planes, len(dst))
	at := 0
	for i := range width {
		for end := at + planeLen(len(dst), width, i); at < end; {
			n := min(end-at, pieceBytes)
			rest, err := c.decodePiece(c.planes[at:at+n:at+n], coded)
			if err != nil {
				return err
			}
			coded = rest
			at += n
		}
	}
	if len(coded) != 0 {
		return errDecode
	}
	c.join(dst, width)
	return nil
}

// decodePiece fills dst with the piece that coded begins with and returns what
// comes behind it.
func (c *coder) decodePiece(dst, coded []byte) ([]byte, error) {
	if len(coded) < pieceHead {
		return nil, errDecode
	}
	kind, n := coded[0], int(coded[1])|int(coded[2])<<8|int(coded[3])<<16
	coded = coded[pieceHead:]
	if n > len(coded) {
		return nil, errDecode
	}
	p, rest := coded[:n], coded[n:]
	switch {
	case kind == pieceRaw && n == len(dst):
		copy(dst, p)
	case kind == pieceSame && n == 1:
		for i := range dst {
			dst[i] = p[0]
		}
	case kind == pieceHuff:
		s, streams, err := huff0.ReadTable(p, c.unhuff)
		if err != nil {
			return nil, errDecode
		}
		c.unhuff = s
		out, err := s.Decoder().Decompress4X(dst, streams)
		if err != nil || len(out) != len(dst) {
			return nil, errDecode
		}
	default:
		return nil, errDecode
	}
	return rest, nil
}

// grow returns b with length n, reallocated if it has to be; what is in it does
// not matter.
func grow(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n, n+n/8)
	}
	return b[:n]
}
