package etcd

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// maxBlob is the longest thing that is read or written, so that a damaged size is
// refused before memory is.
const maxBlob = snapshot.MaxBody

// page is how many values are read at once.
const page = 8

// parts says where bytes lie that are too many for one request: in Count values of
// their own under Gen, which nobody else ever writes to. They count from the moment
// at which a value that names them is written.
type parts struct {
	Gen   string `json:"gen"`
	Count int    `json:"count"`
	Size  int64  `json:"size"`
	Sum   string `json:"sum"` // SHA-256 of all, in hex
}

// frame returns a value: one line with format, version and checksum, one line of
// JSON, and then data as it is.
func frame(format string, meta any, data []byte) ([]byte, error) {
	body, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	body = append(append(body, '\n'), data...)
	var b bytes.Buffer
	b.Grow(len(body) + 128)
	err = snapshot.Write(&b, format, 1, body)
	return b.Bytes(), err
}

// unframe reads what frame wrote and returns data, or says what is wrong with it.
func unframe(format string, value []byte, meta any) (data []byte, reason string) {
	body, err := snapshot.Read(bytes.NewReader(value), "etcd: read", format, 1)
	if err != nil {
		return nil, err.Error()
	}
	line, data, ok := bytes.Cut(body, []byte{'\n'})
	if !ok {
		return nil, "has no description"
	}
	if err := strict(line, meta); err != nil {
		return nil, err.Error()
	}
	return data, ""
}

// strict reads one value of JSON. A field that v does not have was written by a
// version of this library that knows more: what is left would be another input.
func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one value")
	}
	return nil
}

// generation returns a name that nothing else was ever written under.
func generation() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// writer cuts what it is given into values under one directory.
type writer struct {
	ctx   context.Context // of the one call that the writer lives in
	put   func(ctx context.Context, key string, value []byte) error
	dir   string
	limit int
	most  int64 // the longest that may be written
	buf   []byte
	parts parts
	sum   hash.Hash
	err   error
}

// newWriter returns a writer of values of up to limit bytes, which put stores.
func newWriter(ctx context.Context, dir string, limit int, put func(ctx context.Context, key string, value []byte) error) *writer {
	w := &writer{ctx: ctx, put: put, limit: limit, most: maxBlob, sum: sha256.New()}
	w.parts.Gen = generation()
	w.dir = dir + w.parts.Gen + "/"
	return w
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	n := 0
	if w.err == nil && int64(len(p)) > w.most-w.parts.Size-int64(len(w.buf)) {
		// Nobody could read it again, and it would take the place of what can be read.
		w.err = fault(lockstep.ErrInvalid, "write", "size", "", "at most "+strconv.FormatInt(w.most, 10)+" bytes")
	}
	for w.err == nil && len(p) > 0 {
		k := min(w.limit-len(w.buf), len(p))
		w.buf = append(w.buf, p[:k]...)
		p, n = p[k:], n+k
		if len(w.buf) == w.limit {
			w.flush()
		}
	}
	return n, w.err
}

func (w *writer) flush() {
	if w.err = w.put(w.ctx, partKey(w.dir, w.parts.Count), w.buf); w.err != nil {
		return
	}
	w.sum.Write(w.buf)
	w.parts.Count++
	w.parts.Size += int64(len(w.buf))
	w.buf = w.buf[:0]
}

// close writes what is left and returns what was written.
func (w *writer) close() (*parts, error) {
	if w.err == nil && len(w.buf) > 0 {
		w.flush()
	}
	if w.err != nil {
		return nil, w.err
	}
	w.parts.Sum = hex.EncodeToString(w.sum.Sum(nil))
	return &w.parts, nil
}

func partKey(dir string, n int) string { return fmt.Sprintf("%s%07d", dir, n) }

// read returns the bytes of p under dir as they were at revision rev.
func (s *Space) read(ctx context.Context, op, dir string, p *parts, rev int64) ([]byte, error) {
	dir += p.Gen + "/"
	if p.Gen == "" || p.Count < 0 || p.Size < int64(p.Count) || p.Size > maxBlob {
		return nil, corrupt(op, dir, "size out of range")
	}
	var data []byte
	for n := 0; n < p.Count; {
		resp, err := s.get(ctx, partKey(dir, n), rev, clientv3.WithRange(clientv3.GetPrefixRangeEnd(dir)), clientv3.WithLimit(page))
		if err != nil {
			return nil, failed(op, err)
		}
		if len(resp.Kvs) == 0 {
			return nil, corrupt(op, partKey(dir, n), "is missing")
		}
		for _, kv := range resp.Kvs {
			if n == p.Count || string(kv.Key) != partKey(dir, n) {
				return nil, corrupt(op, partKey(dir, n), "is missing")
			}
			if int64(len(data)+len(kv.Value)) > p.Size {
				return nil, corrupt(op, string(kv.Key), "is longer than it was")
			}
			data = append(data, kv.Value...)
			n++
		}
	}
	if sum := sha256.Sum256(data); int64(len(data)) != p.Size || hex.EncodeToString(sum[:]) != p.Sum {
		return nil, corrupt(op, dir, "is cut short or changed: its checksum differs")
	}
	return data, nil
}
