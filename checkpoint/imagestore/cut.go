package imagestore

import (
	"math/rand/v2"
)

// piece is a part of a stream that becomes a region, as offsets in a buffer.
type piece struct {
	from, to int
	zero     bool // all of it is zero and nothing is stored
}

// The bounds of regions. A region of device memory is 2 MiB at most, which is the
// granularity of CUDA's virtual memory; below 64 KiB the list of regions costs
// more than the repeats are worth.
const (
	minRegion = 64 << 10
	maxRegion = 2 << 20
	zeroRun   = 4 << 10 // zeros of a content-defined stream count in pages
)

// cutter finds where a stream is cut. What it finds depends on the bytes alone,
// never on how they arrive.
type cutter struct {
	fixed int // length of regions; 0 means content-defined
	least int // content-defined: the shortest region, the usual length and the longest
	usual int
	most  int
	strict,
	lax uint64 // masks before and behind the usual length
	h    uint64
	seen int // bytes from the region's start that h has seen or skipped
}

// gear is the table of the rolling hash: one fixed random word for each byte, 0
// for the zero byte, so that 64 zeros bring the hash to 0, which is always a cut:
// data and runs of zeros part. It is part of the format in so far as other tables
// cut elsewhere and find no repeats in what this one cut. Immutable.
var gear, gear2 = func() (g, g2 [256]uint64) {
	rng := rand.New(rand.NewPCG(0x6c6f636b73746570, 0x67656172))
	for i := 1; i < 256; i++ {
		g[i] = rng.Uint64()
		g2[i] = g[i] << 1
	}
	return
}()

func fixedCutter(region int) cutter { return cutter{fixed: region} }

// contentCutter cuts into regions of average bytes, a power of two, on random
// data: half of that is skipped, the other half is the mean wait for a cut. The
// masks before and behind the usual length are those of normalized chunking
// (FastCDC, Xia et al. 2016, section 3.4), two bits apart.
func contentCutter(average int) cutter {
	bits := 0
	for 1<<bits < average/2 {
		bits++
	}
	top := func(n int) uint64 { return ^uint64(0) << (64 - n) >> 1 } // the top bit is free for scan
	return cutter{least: average / 2, usual: average, most: 4 * average, strict: top(bits + 1), lax: top(bits - 1)}
}

// cut appends the pieces of b to dst and returns how many bytes they cover. The
// rest is to come again at the front of the next b, unless this is the last.
func (c *cutter) cut(dst []piece, b []byte, last bool) ([]piece, int) {
	at := 0
	for at < len(b) {
		n, zero := c.next(b[at:], last)
		if n == 0 {
			break
		}
		dst = append(dst, piece{from: at, to: at + n, zero: zero})
		at += n
		c.h, c.seen = 0, 0
	}
	return dst, at
}

// next returns the length of the region that b begins with, 0 if more has to be
// seen.
func (c *cutter) next(b []byte, last bool) (n int, zero bool) {
	if c.fixed > 0 {
		switch {
		case len(b) >= c.fixed:
			return c.fixed, isZero(b[:c.fixed])
		case last:
			return len(b), isZero(b)
		}
		return 0, false
	}
	if c.seen == 0 {
		z := zeros(b)
		switch {
		case z == len(b) && last:
			return z, true
		case z >= zeroRun:
			return z - z%zeroRun, true
		case z == len(b):
			return 0, false
		}
	}
	if n := c.roll(b); n > 0 {
		return n, false
	}
	if last {
		return len(b), false
	}
	return 0, false
}

// roll hashes on from where it was and returns the end of the region, 0 if it is
// not in b.
func (c *cutter) roll(b []byte) int {
	if c.seen == 0 {
		c.seen = c.least
	}
	end := min(len(b), c.usual)
	if n := c.scan(b, end, c.strict); n > 0 {
		return n
	}
	end = min(len(b), c.most)
	if n := c.scan(b, end, c.lax); n > 0 {
		return n
	}
	if end == c.most {
		return end
	}
	return 0
}

// scan looks for a cut up to end, two bytes a step: between them the hash stands
// one bit higher than it should, and so does the mask. Steps start at even places,
// so that two calls go on where one would have gone.
func (c *cutter) scan(b []byte, end int, mask uint64) int {
	i, h := c.seen, c.h
	p := b[:end]
	for i+1 < len(p) {
		h = h<<2 + gear2[p[i]]
		if h&(mask<<1) == 0 {
			return i + 1
		}
		h += gear[p[i+1]]
		if h&mask == 0 {
			return i + 2
		}
		i += 2
	}
	c.h, c.seen = h, i
	return 0
}
