package imagestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A pack is a head, frames one behind the other, an index of them and a tail.
// All numbers are little-endian:
//
//	head   magic 8, created 8, epoch 8, rank 4, job 16, flags 4, crc 4
//	frame  magic 4, codec 1, flags 1, zero 2, raw 4, stored 4, id 32, crc of the payload 4, crc of this 4; payload
//	index  for each frame: offset 8, raw 4, stored 4, id 32
//	tail   offset of the index 8, number of frames 4, sum of head and index 32, magic 8
const (
	packMagic  = "lspack\x00\x01"
	packTail   = "lspend\x00\x01"
	frameMagic = 0x5247534c // "LSGR"
	headLen    = 52
	frameLen   = 56
	entryLen   = 48
	tailLen    = 52
	maxSealed  = 64 << 10 // what sealing may add to a frame
	flagSealed = 1
)

// packHead says whose a pack is.
type packHead struct {
	created int64 // nanoseconds since 1970
	epoch   uint64
	rank    uint32
	job     [16]byte
	flags   uint32
}

func (h *packHead) encode() []byte {
	b := append(make([]byte, 0, headLen), packMagic...)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.created))
	b = binary.LittleEndian.AppendUint64(b, h.epoch)
	b = binary.LittleEndian.AppendUint32(b, h.rank)
	b = append(b, h.job[:]...)
	b = binary.LittleEndian.AppendUint32(b, h.flags)
	return binary.LittleEndian.AppendUint32(b, crc(b))
}

func decodeHead(b []byte) (h packHead, err error) {
	switch {
	case len(b) < headLen:
		return h, malformed("the head is cut short")
	case string(b[:6]) != packMagic[:6]:
		return h, malformed("is no pack")
	case string(b[6:8]) != packMagic[6:]:
		return h, malformed(fmt.Sprintf("is a pack of version %d", int(b[6])<<8|int(b[7])))
	case crc(b[:headLen-4]) != binary.LittleEndian.Uint32(b[headLen-4:]):
		return h, malformed("the head does not match its checksum")
	}
	h.created = int64(binary.LittleEndian.Uint64(b[8:]))
	h.epoch = binary.LittleEndian.Uint64(b[16:])
	h.rank = binary.LittleEndian.Uint32(b[24:])
	copy(h.job[:], b[28:])
	h.flags = binary.LittleEndian.Uint32(b[44:])
	if h.flags&^flagSealed != 0 {
		return h, malformed(fmt.Sprintf("unknown flags %#x", h.flags))
	}
	return h, nil
}

// entry is one frame in a pack's index.
type entry struct {
	id     regionID
	off    int64
	raw    uint32
	stored uint32
}

// end is where the next frame begins.
func (e *entry) end() int64 { return e.off + frameLen + int64(e.stored) }

// frame is the head of one region in a pack.
type frame struct {
	entry
	codec  codec
	sealed bool
	sum    uint32 // of the payload
}

// put writes the head of a frame to b, which has frameLen bytes.
func (f *frame) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, frameMagic)
	b[4], b[5], b[6], b[7] = byte(f.codec), 0, 0, 0
	if f.sealed {
		b[5] = flagSealed
	}
	le.PutUint32(b[8:], f.raw)
	le.PutUint32(b[12:], f.stored)
	copy(b[16:], f.id[:])
	le.PutUint32(b[48:], f.sum)
	le.PutUint32(b[52:], crc(b[:52]))
}

// getFrame reads the head of a frame and checks it.
func getFrame(b []byte, off int64) (f frame, err error) {
	le := binary.LittleEndian
	switch {
	case len(b) < frameLen:
		return f, malformed("a frame's head is cut short")
	case le.Uint32(b) != frameMagic:
		return f, malformed("no frame begins here")
	case crc(b[:52]) != le.Uint32(b[52:]):
		return f, malformed("a frame's head does not match its checksum")
	case b[5]&^flagSealed != 0 || b[6] != 0 || b[7] != 0 || codec(b[4]) > codecPlane:
		return f, malformed("a frame of an unknown kind")
	}
	f.off, f.raw, f.stored, f.sum = off, le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint32(b[48:])
	f.codec, f.sealed = codec(b[4]), b[5] == flagSealed
	copy(f.id[:], b[16:])
	if f.raw == 0 || f.raw > maxRegion || f.stored == 0 || f.stored > f.raw+maxSealed {
		return f, malformed("a frame's length is out of bounds")
	}
	return f, nil
}

// ad is what a sealed payload is bound to: its place in the order of regions is
// given by the manifest, its meaning by the codec, its identity by the ID.
func (f *frame) ad() []byte {
	b := make([]byte, 0, 64)
	b = append(b, "lockstep imagestore region 1\x00"...)
	b = append(b, byte(f.codec))
	b = binary.LittleEndian.AppendUint32(b, f.raw)
	return append(b, f.id[:]...)
}

// footer returns the index and the tail of a pack.
func footer(h *packHead, entries []entry, at int64, sum func([]byte) regionID) []byte {
	le := binary.LittleEndian
	head := h.encode()
	b := make([]byte, 0, headLen+len(entries)*entryLen+tailLen)
	b = append(b, head...)
	for i := range entries {
		e := &entries[i]
		b = le.AppendUint64(b, uint64(e.off))
		b = le.AppendUint32(b, e.raw)
		b = le.AppendUint32(b, e.stored)
		b = append(b, e.id[:]...)
	}
	b = le.AppendUint64(b, uint64(at))
	b = le.AppendUint32(b, uint32(len(entries)))
	s := sum(b)
	b = append(b, s[:]...)
	b = append(b, packTail...)
	return b[headLen:]
}

// readPack reads the head and the index of a pack that was finished, and checks
// that both are whole and that the frames fill what is between.
func readPack(f io.ReaderAt, size int64) (h packHead, entries []entry, err error) {
	if size < headLen+tailLen {
		return h, nil, malformed("is cut short")
	}
	var tail [tailLen]byte
	if err := readFull(f, tail[:], size-tailLen); err != nil {
		return h, nil, err
	}
	if string(tail[44:]) != packTail {
		return h, nil, malformed("has no tail: it is cut short or was never finished")
	}
	le := binary.LittleEndian
	at, n := le.Uint64(tail[:]), int64(le.Uint32(tail[8:]))
	if at > uint64(size) || int64(at) < headLen || int64(at)+n*entryLen+tailLen != size {
		return h, nil, malformed("the index does not fit into the file")
	}
	b := make([]byte, headLen+n*entryLen+12)
	if err := readFull(f, b[:headLen], 0); err != nil {
		return h, nil, err
	}
	if h, err = decodeHead(b); err != nil {
		return h, nil, err
	}
	if err := readFull(f, b[headLen:], int64(at)); err != nil {
		return h, nil, err
	}
	if sum := newHasher(nil).sum(b); !bytes.Equal(sum[:], tail[12:44]) {
		return h, nil, malformed("the index does not match its checksum")
	}
	entries, err = readEntries(b[headLen:headLen+n*entryLen], int64(at))
	return h, entries, err
}

func readEntries(b []byte, end int64) ([]entry, error) {
	le := binary.LittleEndian
	entries := make([]entry, len(b)/entryLen)
	next := int64(headLen)
	for i := range entries {
		e := &entries[i]
		e.off, e.raw, e.stored = int64(le.Uint64(b)), le.Uint32(b[8:]), le.Uint32(b[12:])
		copy(e.id[:], b[16:])
		b = b[entryLen:]
		if e.off != next || e.raw == 0 || e.raw > maxRegion || e.stored == 0 || e.stored > e.raw+maxSealed {
			return nil, malformed(fmt.Sprintf("entry %d of the index is out of bounds", i))
		}
		next = e.end()
	}
	if next != end {
		return nil, malformed("the frames do not fill the pack")
	}
	return entries, nil
}

// scanPack reads the frames of a pack that was not finished, up to the first that
// is not whole, and returns where that begins. check sees each payload, and ends
// the scan with an error.
func scanPack(f io.ReaderAt, size int64, check func(fr *frame, payload []byte) error) (h packHead, entries []entry, end int64, err error) {
	var b [frameLen]byte
	if size < headLen {
		return h, nil, 0, malformed("the head is cut short")
	}
	if err := readFull(f, b[:headLen], 0); err != nil {
		return h, nil, 0, err
	}
	if h, err = decodeHead(b[:headLen]); err != nil {
		return h, nil, 0, err
	}
	var buf []byte
	end = headLen
	for end+frameLen <= size {
		if err := readFull(f, b[:], end); err != nil {
			return h, entries, end, err
		}
		fr, err := getFrame(b[:], end)
		if err != nil || fr.end() > size {
			return h, entries, end, nil
		}
		buf = grow(buf, int(fr.stored))
		if err := readFull(f, buf, end+frameLen); err != nil {
			return h, entries, end, err
		}
		if crc(buf) != fr.sum || check(&fr, buf) != nil {
			return h, entries, end, nil
		}
		entries = append(entries, fr.entry)
		end = fr.end()
	}
	return h, entries, end, nil
}

// readFull fills b from off.
func readFull(f io.ReaderAt, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return malformed("is cut short")
	}
	return err
}
