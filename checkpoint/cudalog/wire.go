package cudalog

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"

	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// header is the first line of a log.
const header = "lockstep/cudalog 1\n"

// maxRecord is more than any record takes.
const maxRecord = MaxArgs + (MaxUses+10)*binary.MaxVarintLen64

// castagnoli is immutable.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendHeader appends the first line of a log.
func AppendHeader(dst []byte) []byte { return append(dst, header...) }

// AppendRecord appends a record in the form that Read takes. It does not check it.
func AppendRecord(dst []byte, r *Record) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0, byte(r.Op), byte(r.Kind))
	for _, v := range [...]uint64{uint64(r.Handle), uint64(r.Owner), r.Key, r.Addr, r.Size, uint64(r.Device), uint64(len(r.Uses))} {
		dst = binary.AppendUvarint(dst, v)
	}
	for _, u := range r.Uses {
		dst = binary.AppendUvarint(dst, uint64(u))
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.Args)))
	dst = append(dst, r.Args...)
	body := dst[at+8:]
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(body)))
	binary.LittleEndian.PutUint32(dst[at+4:], crc32.Checksum(body, castagnoli))
	return dst
}

// WriteTo writes the whole log.
func (l *Log) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, header)
	total := int64(n)
	var buf []byte
	for i := 0; err == nil && i < len(l.records); i++ {
		buf = AppendRecord(buf[:0], &l.records[i])
		n, err = w.Write(buf)
		total += int64(n)
	}
	if err != nil {
		return total, fmt.Errorf("cudalog: write: %w", err)
	}
	return total, nil
}

// Read reads a log to its end, or to where its writer stopped in the middle of a record: whole is how many bytes hold
// whole records. Bytes that no writer writes are checkpoint.ErrCorrupt.
func Read(r io.Reader) (l *Log, whole int64, err error) {
	br := bufio.NewReader(r)
	first := make([]byte, len(header))
	if n, err := io.ReadFull(br, first); err != nil || string(first) != header {
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, 0, fmt.Errorf("cudalog: read: %w", err)
		}
		return nil, 0, corrupt(0, "begins with "+strconv.Quote(string(first[:n])))
	}
	l, whole = new(Log), int64(len(header))
	var frame [8]byte
	for {
		if done, err := fill(br, frame[:]); done || err != nil {
			return l, whole, err
		}
		size := binary.LittleEndian.Uint32(frame[:])
		if size > maxRecord {
			return nil, 0, corrupt(whole, "has a record of "+strconv.FormatUint(uint64(size), 10)+" bytes")
		}
		body := make([]byte, size)
		if done, err := fill(br, body); done || err != nil {
			return l, whole, err
		}
		if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(frame[4:]) {
			return nil, 0, corrupt(whole, "fails its checksum")
		}
		rec, ok := parse(body)
		if !ok {
			return nil, 0, corrupt(whole, "has a record that is none")
		}
		if err := l.Append(rec); err != nil {
			return nil, 0, fmt.Errorf("cudalog: read: byte %d: %w: %w", whole, checkpoint.ErrCorrupt, err)
		}
		whole += int64(len(frame) + len(body))
	}
}

// fill reads all of buf; done says that the log ends here.
func fill(r io.Reader, buf []byte) (done bool, err error) {
	switch _, err := io.ReadFull(r, buf); {
	case err == nil:
		return false, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true, nil
	default:
		return true, fmt.Errorf("cudalog: read: %w", err)
	}
}

// parse reads a record, and reports whether it is one in the form that is written.
func parse(b []byte) (Record, bool) {
	var r Record
	if len(b) < 2 {
		return r, false
	}
	r.Op, r.Kind = Op(b[0]), Kind(b[1])
	b = b[2:]
	ok := true
	next := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 || n > 1 && b[n-1] == 0 { // none, or longer than it need be
			ok, b = false, nil
			return 0
		}
		b = b[n:]
		return v
	}
	r.Handle, r.Owner, r.Key = Handle(next()), Handle(next()), next()
	r.Addr, r.Size = next(), next()
	device, uses := next(), next()
	if device > 1<<32-1 || uses > MaxUses {
		return r, false
	}
	r.Device = uint32(device)
	for range uses {
		r.Uses = append(r.Uses, Handle(next()))
	}
	args := next()
	if !ok || args != uint64(len(b)) {
		return r, false
	}
	if args > 0 {
		r.Args = b
	}
	return r, true
}

// corrupt is the error of bytes that are no log.
func corrupt(at int64, what string) error {
	return fmt.Errorf("cudalog: read: byte %d: %w: %s", at, checkpoint.ErrCorrupt, what)
}
