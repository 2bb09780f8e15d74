package imagestore

import "encoding/binary"

// errWire is what a decoder says of bytes that are no record.
var errWire = malformed("is cut short or malformed")

// decoder reads a record. After the first fault every read gives zero.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail() {
	d.err = errWire
	d.b = nil
}

func (d *decoder) bytes(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.fail()
		return nil
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// size reads a length that has to fit an int64.
func (d *decoder) size() int64 {
	v := d.uvarint()
	if v > 1<<63-1 {
		d.fail()
		return 0
	}
	return int64(v)
}

// count reads the number of items that follow, each of at least min bytes: a
// count that the rest cannot hold is refused before anything is allocated.
func (d *decoder) count(least int) int {
	v := d.uvarint()
	if v > uint64(len(d.b)/least) {
		d.fail()
		return 0
	}
	return int(v)
}

func (d *decoder) text(limit int) string {
	n := d.uvarint()
	if n > uint64(limit) {
		d.fail()
		return ""
	}
	return string(d.bytes(int(n)))
}

func (d *decoder) sum() (s regionID) {
	copy(s[:], d.bytes(len(s)))
	return s
}

func putText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}
