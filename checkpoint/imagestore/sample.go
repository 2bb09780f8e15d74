package imagestore

import (
	"math"

	"github.com/klauspost/compress/zstd"
)

// A sample is four runs of a region, two KiB each.
const (
	sampleRuns = 4
	sampleRun  = 2 << 10
)

// sampler guesses from a sample how a region codes best.
type sampler struct {
	count [4][256]uint16 // by place modulo four
	run   []byte
	coded []byte
}

// bitsTable has n·log2(n) in sixteenths, for the counts that a sample can give.
// Immutable.
var bitsTable = func() (t [sampleRuns*sampleRun + 1]uint32) {
	for n := 2; n < len(t); n++ {
		t[n] = uint32(math.Round(16 * float64(n) * math.Log2(float64(n))))
	}
	return
}()

// look returns the width of the planes that pay most, 0 if none do, and whether
// zstd pays more. The order-0 entropy of a plane is what a Huffman code comes
// close to; repeats, which it does not see, are zstd's to find by trial.
func (s *sampler) look(b []byte, width int, repeats bool, enc *zstd.Encoder) (planes int, zstdPays bool) {
	n := s.gather(b)
	// Sizes in bits; the table of a plane's code is about 64 bytes, and hardly
	// counts in a whole region.
	raw := n * 8
	best := raw - raw/32
	for _, w := range [...]int{2, 4, 1} {
		if width > 0 && w > 1 && w != width {
			continue // the caller knows how wide numbers are
		}
		if size := s.entropy(w); size < best {
			best, planes = size, w
		}
	}
	if !repeats || n < 64 {
		return planes, false
	}
	s.coded = enc.EncodeAll(s.run[:n], s.coded[:0])
	if size := len(s.coded) * 8; size < best-raw/64 {
		return 0, true
	}
	return planes, false
}

// gather counts bytes by place and keeps the sample. Runs start at multiples of
// four from the region's start, so that all are in step.
func (s *sampler) gather(b []byte) int {
	s.count = [4][256]uint16{}
	s.run = s.run[:0]
	if len(b) <= sampleRuns*sampleRun {
		s.run = append(s.run, b...)
	} else {
		step := (len(b) - sampleRun) / (sampleRuns - 1) &^ 3
		for i := range sampleRuns {
			s.run = append(s.run, b[i*step:i*step+sampleRun]...)
		}
	}
	p := s.run
	for len(p) >= 4 {
		s.count[0][p[0]]++
		s.count[1][p[1]]++
		s.count[2][p[2]]++
		s.count[3][p[3]]++
		p = p[4:]
	}
	return len(s.run) &^ 3
}

// entropy returns the bits of the sample, coded by planes of a width.
func (s *sampler) entropy(width int) int {
	total := 0
	for i := range width {
		n, sum := 0, 0
		for v := range 256 {
			k := 0
			for j := i; j < 4; j += width {
				k += int(s.count[j][v])
			}
			n += k
			sum += int(bitsTable[k])
		}
		total += (int(bitsTable[n]) - sum) / 16
	}
	return total
}
