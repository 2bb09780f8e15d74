package snapshottest

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// Frame returns body behind the header that suits it, so that what lies behind the
// checksum is reached.
func Frame(t testing.TB, format string, version int, body []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, snapshot.Write(&b, format, version, body))
	return b.Bytes()
}

// Save returns what a Snapshot method writes.
func Save(t testing.TB, save func(io.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, save(&b))
	return b.Bytes()
}

// Body returns what stands behind the header of image.
func Body(t testing.TB, image []byte) []byte {
	t.Helper()
	_, body, found := bytes.Cut(image, []byte{'\n'})
	require.True(t, found, "no header")
	return body
}

// RefusesDamage requires that restore accepts image, and refuses with ErrInvalid
// each part of it, each flip of one bit of it, and more than it.
func RefusesDamage(t testing.TB, image []byte, restore func(io.Reader) error) {
	t.Helper()
	require.NoError(t, restore(bytes.NewReader(image)))
	for i := range image {
		require.ErrorIs(t, restore(bytes.NewReader(image[:i])), lockstep.ErrInvalid, "cut off at %d", i)
		damaged := bytes.Clone(image)
		damaged[i] ^= 1 << (i % 8)
		require.ErrorIs(t, restore(bytes.NewReader(damaged)), lockstep.ErrInvalid, "changed at %d", i)
	}
	require.ErrorIs(t, restore(io.MultiReader(bytes.NewReader(image), strings.NewReader("\n"))), lockstep.ErrInvalid, "one more")
}

// RefusesForgeries requires that restore accepts image, which is of this format and
// version, and refuses it with ErrInvalid, under a header that suits, where each
// text that equals the first of a pair became the second.
func RefusesForgeries(t testing.TB, format string, version int, image []byte, restore func(io.Reader) error, forgeries [][2]string) {
	t.Helper()
	require.NoError(t, restore(bytes.NewReader(image)))
	body := string(Body(t, image))
	for _, f := range forgeries {
		from, to := f[0], f[1]
		forged := strings.ReplaceAll(body, from, to)
		require.NotEqual(t, body, forged, "%s is not in %s", from, body)
		err := restore(bytes.NewReader(Frame(t, format, version, []byte(forged))))
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%s to %s in %s", from, to, body)
	}
}

// PassesFaultsOn requires that errors of the writer come out of save, and those of
// the reader out of restore.
func PassesFaultsOn(t testing.TB, save func(io.Writer) error, restore func(io.Reader) error) {
	t.Helper()
	fail := errors.New("disk full")
	require.ErrorIs(t, save(broken{fail}), fail)
	require.ErrorIs(t, restore(iotest.ErrReader(fail)), fail)
}

// broken is a writer that fails.
type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }
