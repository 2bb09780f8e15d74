package source_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

func Example() {
	t := source.New("demo: parse", strings.NewReader("\xef\xbb\xbfone two\r\n\r\nthree\tfour"))
	for t.Next() {
		for _, w := range source.Words(t.Line()) {
			fmt.Println(t.Pos(w.Column), w.Text)
			if w.Text == "two" {
				t.Fault(lockstep.ErrInvalid, w.Column, w.Text, "want an odd number")
			}
		}
	}
	fmt.Println(t.Err())
	// Output:
	// line 1, column 1 one
	// line 1, column 5 two
	// line 3, column 1 three
	// line 3, column 7 four
	// demo: parse: line 1, column 5 = "two": want an odd number
}

func lines(r io.Reader) (out []string, err error) {
	t := source.New("x", r)
	for t.Next() {
		out = append(out, t.Line())
	}
	return out, t.Err()
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", source.MaxLine)
	for _, c := range []struct {
		name, in string
		want     []string
		field    string
	}{
		{"empty", "", nil, ""},
		{"one line end", "\n", []string{""}, ""},
		{"no end", "a", []string{"a"}, ""},
		{"both ends", "a\nb\r\n", []string{"a", "b"}, ""},
		{"only one CR goes", "a\r\r\n", []string{"a\r"}, ""},
		{"CR at the end", "a\r", []string{"a"}, ""},
		{"mark only at the beginning", "\xef\xbb\xbfa\n\xef\xbb\xbfb", []string{"a", "\xef\xbb\xbfb"}, ""},
		{"longest", long + "\r\n" + long, []string{long, long}, ""},
		{"too long", "a\n" + long + "x\nb\n", []string{"a"}, "line 2, column 4194305"},
		{"too long at the end", long + "x", nil, "line 1, column 4194305"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(c.in), iotest.DataErrReader(strings.NewReader(c.in))} {
				got, err := lines(r)
				require.Equal(t, c.want, got)
				if c.field == "" {
					require.NoError(t, err)
					continue
				}
				var e *lockstep.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, c.field, e.Field)
			}
		})
	}
}

// endless gives one byte for ever and counts.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	e.n += len(p)
	return len(p), nil
}

func TestALineWithoutEndIsNotReadOn(t *testing.T) {
	var e endless
	_, err := lines(&e)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.Less(t, e.n, source.MaxLine+1<<20)
}

func TestAReaderThatFailsIsWrapped(t *testing.T) {
	broken := errors.New("cable out")
	got, err := lines(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)))
	require.Equal(t, []string{"a"}, got)
	require.ErrorIs(t, err, broken)
	require.EqualError(t, err, "x: line 2: cable out")
}

func TestFaultsAreCounted(t *testing.T) {
	x := source.New("x", strings.NewReader("a"))
	require.False(t, x.Faulty())
	for range 70 {
		x.FaultAt(lockstep.ErrDuplicate, source.Pos{Line: 3}, strings.Repeat("v", 50), "twice")
	}
	require.True(t, x.Faulty())
	err := x.Err()
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	require.Equal(t, 65, strings.Count(err.Error(), "\n")+1)
	require.Contains(t, err.Error(), `line 3 = "`+strings.Repeat("v", 40)+`...": twice`)
	require.Contains(t, err.Error(), "6 more faults")
	x.Stop()
	require.False(t, x.Next())
}

func TestNearestSharesEqualCards(t *testing.T) {
	const near, far = topology.PXB, topology.SYS
	require.Equal(t, []int{0, 1, 2, 2}, source.Nearest([][]topology.Link{{near, near, far}, {near, near, far}, {far, far, near}, {far, far, near}}))
	require.Equal(t, []int{0, 1, 0}, source.Nearest([][]topology.Link{{near, near}, {near, near}, {near, near}}))
	require.Equal(t, []int{-1, -1}, source.Nearest([][]topology.Link{{}, {}}))
	require.Empty(t, source.Nearest(nil))
}

func TestNames(t *testing.T) {
	require.Empty(t, source.NameFault("node-1"))
	require.NotEmpty(t, source.NameFault(""))
	require.NotEmpty(t, source.NameFault("a b"))
}
