package etcd

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// entry is as long as a scheduler's entry for a gang that was submitted.
var entry = bytes.Repeat([]byte("e"), 300)

// durable is an etcd of the benchmark's own that syncs its log as one in use does.
func durable(b *testing.B) (*clientv3.Client, *Space) {
	s := &server{dir: b.TempDir(), sync: true}
	require.NoError(b, s.start())
	b.Cleanup(s.close)
	c := newClient(b, s.addr)
	space, err := New(Config{Client: c, Prefix: "/" + b.Name(), TTL: time.Minute, Every: -1})
	require.NoError(b, err)
	return c, space
}

func ready(b *testing.B, s *Space) *Journal {
	j, err := s.Journal("j", lead(b, s))
	require.NoError(b, err)
	require.NoError(b, j.Recover(b.Context(), func(io.Reader) error { return nil }, func(Record) error { return nil }))
	return j
}

// BenchmarkFencedAppend appends one entry at a time, and after each puts as many
// bytes into the same etcd with nothing around them. The ratio is that of medians,
// so that a slow disk is in both.
func BenchmarkFencedAppend(b *testing.B) {
	c, s := durable(b)
	j := ready(b, s)
	var fenced, bare []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if err := j.Add(Record{Seq: j.Seq() + 1, Data: entry}); err != nil {
			b.Fatal(err)
		}
		if err := j.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		if _, err := c.Put(b.Context(), fmt.Sprint("/bare/", len(bare)), string(entry)); err != nil {
			b.Fatal(err)
		}
		fenced, bare = append(fenced, middle.Sub(start)), append(bare, time.Since(middle))
	}
	slices.Sort(fenced)
	slices.Sort(bare)
	n := len(bare)
	b.ReportMetric(0, "ns/op") // which would be of both
	b.ReportMetric(float64(fenced[n/2].Microseconds()), "fenced-µs")
	b.ReportMetric(float64(bare[n/2].Microseconds()), "bare-µs")
	b.ReportMetric(float64(fenced[n*99/100].Microseconds()), "fenced-p99-µs")
	b.ReportMetric(float64(bare[n*99/100].Microseconds()), "bare-p99-µs")
	b.ReportMetric(float64(fenced[n/2])/float64(bare[n/2]), "ratio")
}

// BenchmarkBatchedAppend appends many entries at a time.
func BenchmarkBatchedAppend(b *testing.B) {
	for _, size := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("entries=%d", size), func(b *testing.B) {
			_, s := durable(b)
			j := ready(b, s)
			b.ReportAllocs()
			for b.Loop() {
				for range size {
					if err := j.Add(Record{Seq: j.Seq() + uint64(j.Pending()) + 1, Data: entry}); err != nil {
						b.Fatal(err)
					}
				}
				if err := j.Flush(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size*b.N)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// BenchmarkRecover reads a journal back.
func BenchmarkRecover(b *testing.B) {
	for _, entries := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			_, s := durable(b)
			j := ready(b, s)
			for i := range entries {
				require.NoError(b, j.Add(Record{Seq: uint64(i + 1), Data: entry}))
				if i%100 == 99 {
					require.NoError(b, j.Flush(b.Context()))
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				read := 0
				if err := j.Recover(b.Context(), func(io.Reader) error { return nil }, func(Record) error { read++; return nil }); err != nil || read != entries {
					b.Fatal(read, err)
				}
			}
		})
	}
}

// BenchmarkSnapshot writes a state in parts.
func BenchmarkSnapshot(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20, 4 << 20} {
		b.Run(fmt.Sprintf("KiB=%d", size>>10), func(b *testing.B) {
			c, s := durable(b)
			j := ready(b, s)
			core := blobCore(bytes.Repeat([]byte("s"), size))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := j.Snapshot(b.Context(), core); err != nil {
					b.Fatal(err)
				}
				b.StopTimer() // as an etcd in use does by itself: else its quota is soon used up
				if _, err := c.Compact(b.Context(), j.rev); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// blobCore is a Core without inputs.
type blobCore []byte

func (c blobCore) Seq() uint64 { return 0 }
func (c blobCore) Snapshot(w io.Writer) error {
	_, err := w.Write(c)
	return err
}
