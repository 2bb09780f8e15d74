package imagestore

import (
	"encoding/binary"
	"hash/crc32"

	"lukechampine.com/blake3/guts"
)

// regionID is the BLAKE3-256 of a region's bytes, keyed where Config.IDKey says
// so. It alone decides whether two regions are the same.
type regionID [32]byte

// castagnoli guards frames at rest: it finds damage without decoding, which the
// identity does not. Immutable.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// hasher computes BLAKE3 on the calling goroutine. The hasher of the blake3
// package starts goroutines of its own and allocates for every call, which would
// take more cores than Config.Workers.
type hasher struct {
	key   [8]uint32
	flags uint32
}

// newHasher returns a hasher; a nil key is the plain hash.
func newHasher(key *[32]byte) hasher {
	if key == nil {
		return hasher{key: guts.IV}
	}
	h := hasher{flags: guts.FlagKeyedHash}
	for i := range h.key {
		h.key[i] = binary.LittleEndian.Uint32(key[4*i:])
	}
	return h
}

// group is how many bytes the assembly takes at once: sixteen chunks, one for
// each lane of a vector register.
const group = guts.MaxSIMD * guts.ChunkSize

// sum returns the hash of b. Groups of sixteen chunks are complete subtrees; they
// join with those to their left as soon as both are of one size, and the last
// group, whole or not, joins what is left along the right edge (BLAKE3 paper,
// section 2.1: a left subtree holds the largest power of two of chunks that
// leaves something to its right).
func (h hasher) sum(b []byte) regionID {
	var stack [40][8]uint32 // roots of complete subtrees, largest first
	top, done := 0, uint64(0)
	for ; len(b) > group; b = b[group:] {
		stack[top] = guts.ChainingValue(guts.CompressBuffer((*[group]byte)(b), group, &h.key, done*guts.MaxSIMD, h.flags))
		top++
		done++
		for n := done; n&1 == 0; n >>= 1 {
			stack[top-2] = guts.ChainingValue(guts.ParentNode(stack[top-2], stack[top-1], &h.key, h.flags))
			top--
		}
	}
	var n guts.Node
	switch {
	case len(b) <= guts.ChunkSize:
		n = guts.CompressChunk(b, &h.key, done*guts.MaxSIMD, h.flags)
	default:
		// The assembly loads sixteen chunks, whatever it uses of them.
		var last [group]byte
		copy(last[:], b)
		n = guts.CompressBuffer(&last, len(b), &h.key, done*guts.MaxSIMD, h.flags)
	}
	for top--; top >= 0; top-- {
		n = guts.ParentNode(stack[top], guts.ChainingValue(n), &h.key, h.flags)
	}
	n.Flags |= guts.FlagRoot
	words := guts.CompressNode(n)
	var id regionID
	for i := range 8 {
		binary.LittleEndian.PutUint32(id[4*i:], words[i])
	}
	return id
}

// isZero reports whether all of b is zero, a word at a time.
func isZero(b []byte) bool { return zeros(b) == len(b) }

// zeros returns how many zero bytes b begins with.
func zeros(b []byte) int {
	i := 0
	for ; i+64 <= len(b); i += 64 {
		p := b[i : i+64 : i+64]
		x := binary.LittleEndian.Uint64(p) | binary.LittleEndian.Uint64(p[8:]) |
			binary.LittleEndian.Uint64(p[16:]) | binary.LittleEndian.Uint64(p[24:])
		y := binary.LittleEndian.Uint64(p[32:]) | binary.LittleEndian.Uint64(p[40:]) |
			binary.LittleEndian.Uint64(p[48:]) | binary.LittleEndian.Uint64(p[56:])
		if x|y != 0 {
			break
		}
	}
	for ; i < len(b); i++ {
		if b[i] != 0 {
			break
		}
	}
	return i
}
