package snapshot

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func image(t testing.TB, format string, version int, body string) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, format, version, []byte(body)))
	return b.String()
}

func TestReadReturnsWhatWasWritten(t *testing.T) {
	for _, body := range []string{"", "{}", "two\nlines\n", strings.Repeat("x", 1<<20), "\x00\xff"} {
		got, err := Read(iotest.OneByteReader(strings.NewReader(image(t, "lockstep/x", 7, body))), "x: restore", "lockstep/x", 7)
		require.NoError(t, err)
		require.Equal(t, body, string(got))
	}
	require.Equal(t, "lockstep/x 1 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\ntest", image(t, "lockstep/x", 1, "test"))
}

func TestReadRefusesDamage(t *testing.T) {
	whole := image(t, "lockstep/x", 1, `{"a":1}`)
	refuse := func(data, field, reason string) {
		t.Helper()
		_, err := Read(strings.NewReader(data), "x: restore", "lockstep/x", 1)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		var e *lockstep.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "x: restore", e.Op)
		require.True(t, field == "" || field == e.Field, e.Field)
		require.ErrorContains(t, err, reason)
	}
	for i := range whole {
		refuse(whole[:i], "", "")
		damaged := []byte(whole)
		damaged[i] ^= 1 << (i % 8)
		refuse(string(damaged), "", "")
	}
	refuse(whole+"\n", "snapshot", "checksum")
	refuse("", "snapshot", "no header")
	refuse(strings.Repeat("x", 1<<16), "snapshot", "no header")
	refuse("\n", "snapshot", "no header")
	refuse(" "+whole, "snapshot", "no header")
	refuse(strings.ToUpper(whole), "format", `want "lockstep/x"`)
	refuse(image(t, "lockstep/y", 1, "{}"), "format", `"lockstep/y"`)
	refuse(image(t, "lockstep/x", 2, "{}"), "version", `version = "2": want 1`)
	refuse(strings.Replace(whole, " 1 ", " 01 ", 1), "version", `"01"`)
}

func TestSizeIsLimited(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, write(&b, "x", 1, make([]byte, 10), 10))
	whole := b.Bytes()
	_, err := read(bytes.NewReader(whole), "x: restore", "x", 1, 10)
	require.NoError(t, err)
	_, err = read(bytes.NewReader(whole), "x: restore", "x", 1, 9)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorContains(t, err, "longer than 9 bytes")
	require.ErrorIs(t, write(io.Discard, "x", 1, make([]byte, 10), 9), lockstep.ErrInvalid)
}

// endless never ends, and counts.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	e.n += len(p)
	return len(p), nil
}

func TestForeignStreamIsRefusedEarly(t *testing.T) {
	var e endless
	_, err := Read(&e, "x: restore", "x", 1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.LessOrEqual(t, e.n, maxHeader)
}

type brokenWriter struct {
	err error
	ok  int // writes that succeed before
}

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.ok--; w.ok < 0 {
		return 0, w.err
	}
	return len(p), nil
}

func TestFaultsOfCollaborators(t *testing.T) {
	fail := errors.New("disk full")
	for ok := range 2 {
		require.ErrorIs(t, Write(&brokenWriter{fail, ok}, "x", 1, []byte("y")), fail)
	}
	for _, head := range []string{"", "x 1", image(t, "x", 1, "y")} {
		_, err := Read(io.MultiReader(strings.NewReader(head), iotest.ErrReader(fail)), "x: restore", "x", 1)
		require.ErrorIs(t, err, fail)
		require.ErrorContains(t, err, "x: restore: ")
	}
	_, err := Read(nil, "x: restore", "x", 1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorIs(t, Write(nil, "x", 1, nil), lockstep.ErrInvalid)
	require.Panics(t, func() { _ = Write(io.Discard, "two words", 1, nil) })
	require.Panics(t, func() { _ = Write(io.Discard, strings.Repeat("x", 256), 1, nil) })
}

// saved is the saved form of a made-up core.
type saved struct {
	Now int64    `json:"now"`
	IDs []string `json:"ids"`
}

func TestJSONHasOneForm(t *testing.T) {
	var b bytes.Buffer
	in := saved{7, []string{"a", "b"}}
	require.NoError(t, WriteJSON(&b, "x: snapshot", "x", 1, &in))
	require.Equal(t, image(t, "x", 1, `{"now":7,"ids":["a","b"]}`), b.String())

	back := func(body string) (out saved, err error) {
		raw, err := ReadJSON(strings.NewReader(image(t, "x", 1, body)), "x: restore", "x", 1, &out)
		if err != nil {
			return out, err
		}
		return out, CheckJSON("x: restore", raw, &out)
	}
	out, err := back(`{"now":7,"ids":["a","b"]}`)
	require.NoError(t, err)
	require.Equal(t, in, out)
	for _, body := range []string{
		``, `[]`, `{"now":"7"}`, `{"now":7,"ids":["a","b"]} `, `{"ids":["a","b"],"now":7}`, `{"now":7,"now":7,"ids":["a","b"]}`,
		`{"now":7,"ids":["a","b"],"more":1}`, `{"Now":7,"ids":["a","b"]}`, `{"now":7}`, `{"now":7,"ids":["\u0061"]}`, `{"now":1e1,"ids":null}`,
	} {
		_, err := back(body)
		require.ErrorIs(t, err, lockstep.ErrInvalid, body)
		require.ErrorContains(t, err, "x: restore: snapshot", body)
	}

	fail := errors.New("disk full")
	err = WriteJSON(&brokenWriter{fail, 1}, "x: snapshot", "x", 1, in)
	require.ErrorIs(t, err, fail)
	require.ErrorContains(t, err, "x: snapshot: ")
	require.ErrorContains(t, WriteJSON(&b, "x: snapshot", "x", 1, func() {}), "x: snapshot: ")
	require.ErrorIs(t, CheckJSON("x: restore", nil, func() {}), lockstep.ErrInvalid)
	_, err = ReadJSON(iotest.ErrReader(fail), "x: restore", "x", 1, &out)
	require.ErrorIs(t, err, fail)
}

// FuzzRead: what Read accepts is exactly what Write writes.
func FuzzRead(f *testing.F) {
	f.Add([]byte(image(f, "x", 1, "{}")))
	f.Add([]byte("x 1 \n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		body, err := Read(bytes.NewReader(data), "x: restore", "x", 1)
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			return
		}
		require.Equal(t, string(data), image(t, "x", 1, string(body)))
	})
}
