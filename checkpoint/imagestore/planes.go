package imagestore

import "encoding/binary"

// planeLen is how many of n bytes are in plane i of width.
func planeLen(n, width, i int) int { return (n - i + width - 1) / width }

// split returns the planes of b: plane i holds every byte whose place is i modulo
// width. Numbers of one width have their exponents in one plane, which is what
// codes well. The result is valid until the next call.
func (c *coder) split(b []byte, width int) (planes [][]byte) {
	n := len(b)
	switch width {
	case 1:
		return [][]byte{b}
	case 2:
		c.planes = grow(c.planes, n)
		even := planeLen(n, 2, 0)
		unzip(c.planes[:even], c.planes[even:], b)
		return [][]byte{c.planes[:even], c.planes[even:]}
	}
	c.planes, c.half = grow(c.planes, n), grow(c.half, n)
	even := planeLen(n, 2, 0)
	unzip(c.half[:even], c.half[even:], b)
	p := c.quarters(n)
	unzip(p[0], p[2], c.half[:even])
	unzip(p[1], p[3], c.half[even:])
	return p[:]
}

// join is the inverse of split, from c.planes.
func (c *coder) join(dst []byte, width int) {
	n := len(dst)
	switch width {
	case 1:
		copy(dst, c.planes)
		return
	case 2:
		even := planeLen(n, 2, 0)
		zip(dst, c.planes[:even], c.planes[even:n])
		return
	}
	c.half = grow(c.half, n)
	even := planeLen(n, 2, 0)
	p := c.quarters(n)
	zip(c.half[:even], p[0], p[2])
	zip(c.half[even:], p[1], p[3])
	zip(dst, c.half[:even], c.half[even:])
}

// quarters returns the four planes of n bytes in c.planes.
func (c *coder) quarters(n int) (p [4][]byte) {
	at := 0
	for i := range p {
		k := planeLen(n, 4, i)
		p[i] = c.planes[at : at+k : at+k]
		at += k
	}
	return p
}

const (
	every2 = 0x00ff00ff00ff00ff
	every4 = 0x0000ffff0000ffff
)

// pack moves the even bytes of x together.
func pack(x uint64) uint64 {
	x &= every2
	x = (x | x>>8) & every4
	return (x | x>>16) & 0xffffffff
}

// spread is the inverse of pack.
func spread(x uint64) uint64 {
	x = (x | x<<16) & every4
	return (x | x<<8) & every2
}

// unzip deals the bytes of b out to even and odd, sixteen at a time.
func unzip(even, odd, b []byte) {
	i := 0
	for ; i+16 <= len(b) && i/2+8 <= len(odd); i += 16 {
		x, y := binary.LittleEndian.Uint64(b[i:]), binary.LittleEndian.Uint64(b[i+8:])
		binary.LittleEndian.PutUint64(even[i/2:], pack(x)|pack(y)<<32)
		binary.LittleEndian.PutUint64(odd[i/2:], pack(x>>8)|pack(y>>8)<<32)
	}
	for ; i < len(b); i++ {
		if i&1 == 0 {
			even[i/2] = b[i]
		} else {
			odd[i/2] = b[i]
		}
	}
}

// zip is the inverse of unzip.
func zip(b, even, odd []byte) {
	i := 0
	for ; i+16 <= len(b) && i/2+8 <= len(odd); i += 16 {
		x, y := binary.LittleEndian.Uint64(even[i/2:]), binary.LittleEndian.Uint64(odd[i/2:])
		binary.LittleEndian.PutUint64(b[i:], spread(x&0xffffffff)|spread(y&0xffffffff)<<8)
		binary.LittleEndian.PutUint64(b[i+8:], spread(x>>32)|spread(y>>32)<<8)
	}
	for ; i < len(b); i++ {
		if i&1 == 0 {
			b[i] = even[i/2]
		} else {
			b[i] = odd[i/2]
		}
	}
}
