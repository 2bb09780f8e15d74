package etcd

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// noServer is a KV for readers of values that name no parts.
type noServer struct{ clientv3.KV }

func (noServer) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return &clientv3.GetResponse{}, nil
}

// fuzzed frames what the fuzzer made, so that it gets past the checksum, or takes
// it as it is.
func fuzzed(format string, text []byte, framed bool) []byte {
	if !framed {
		return text
	}
	line, data, _ := bytes.Cut(text, []byte{'\n'})
	value, err := frame(format, raw(line), data)
	if err != nil {
		return text
	}
	return value
}

// raw is JSON that is written as it is.
type raw []byte

func (r raw) MarshalJSON() ([]byte, error) { return r, nil }

// FuzzBatch reads batches that nobody wrote: they are refused as corrupt, or are
// whole.
func FuzzBatch(f *testing.F) {
	f.Add([]byte(`{"first":1,"last":2,"prev":"","sizes":[1,2]}`+"\nabc"), true)
	f.Add([]byte(`{"first":1,"last":1,"prev":"","sizes":[1]}`+"\nabc"), true)
	f.Add([]byte(`{"first":1,"last":0,"prev":"","sizes":[]}`+"\n"), true)
	f.Add([]byte(`{"first":1,"last":1,"prev":"","sizes":[-1]}`+"\n"), true)
	f.Add([]byte(`{"first":1,"last":1,"prev":"","sizes":[9],"parts":{"gen":"g","count":1,"size":9,"sum":""}}`+"\n"), true)
	f.Add([]byte("lockstep/etcd-batch 1 00\n{}"), false)
	j := &Journal{space: &Space{cfg: Config{Client: &clientv3.Client{KV: noServer{}}, Timeout: DefaultTimeout}}, dir: "/j/"}
	f.Fuzz(func(t *testing.T, text []byte, framed bool) {
		value := fuzzed(batchFormat, text, framed)
		var b batch
		key := j.logKey(1)
		if _, reason := unframe(batchFormat, value, &b); reason == "" {
			key = j.logKey(b.Last)
		}
		r, got := &reading{}, 0
		err := j.readBatch(t.Context(), "fuzz", r, key, value, func(r Record) error {
			got++
			require.EqualValues(t, got, r.Seq)
			return nil
		})
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		require.EqualValues(t, got, r.seq)
		require.Equal(t, sumText(value), r.chain)
	})
}

// FuzzValue reads values of a store that nobody wrote.
func FuzzValue(f *testing.F) {
	f.Add([]byte(`{"nonce":"n"}`+"\nabc"), true)
	f.Add([]byte(`{"nonce":"n","parts":{"gen":"g","count":1,"size":9,"sum":""}}`+"\n"), true)
	f.Add([]byte(`{"nonce":"n","parts":{"gen":"g","count":-1,"size":9,"sum":""}}`+"\n"), true)
	f.Add([]byte(`{"nonce":"n","parts":{"gen":"","count":0,"size":0,"sum":""}}`+"\nx"), true)
	f.Add([]byte(strings.Repeat("x", 300)), false)
	st := (&Space{cfg: Config{Client: &clientv3.Client{KV: noServer{}}, Timeout: DefaultTimeout}}).Store(nil)
	f.Fuzz(func(t *testing.T, text []byte, framed bool) {
		data, err := st.decode(t.Context(), "fuzz", "k", fuzzed(valueFormat, text, framed), 1)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		require.NotNil(t, data)
	})
}

// FuzzToken reads tokens that nobody wrote.
func FuzzToken(f *testing.F) {
	f.Add([]byte(tokenText(7)))
	f.Add([]byte("99999999999999999999"))
	f.Add([]byte("+0000000000000000007"))
	f.Fuzz(func(t *testing.T, text []byte) {
		token, err := parseToken("k", text)
		if err == nil {
			require.Equal(t, string(text), tokenText(token))
		}
	})
}
