package harness

import (
	"bytes"
	"errors"
	"flag"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckFailsOnlyWhenATargetIsMissed(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		t    []Target
		want int
	}{
		{"none", []string{"-check"}, nil, 0},
		{"met at the limit", []string{"-check"}, []Target{{Name: "a", Value: 5, Limit: 5}, {Name: "b", Value: 5, Limit: 5, AtLeast: true}}, 0},
		{"above", []string{"-check"}, []Target{{Name: "a", Value: 5.1, Limit: 5}, {Name: "b"}}, 1},
		{"below", []string{"-check"}, []Target{{Name: "a", Value: 4.9, Limit: 5, AtLeast: true}}, 1},
		{"not a number", []string{"-check"}, []Target{{Name: "a", Value: math.NaN(), Limit: 5}}, 1},
		{"missed without -check", nil, []Target{{Name: "a", Value: 9, Limit: 5}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			b, err := New("demo", tc.args, &out, nil)
			require.NoError(t, err)
			for _, target := range tc.t {
				b.Target(target)
			}
			require.Equal(t, tc.want, b.Close(), out.String())
		})
	}
}

func TestOutputIsWhatScriptsRead(t *testing.T) {
	var out bytes.Buffer
	b, err := New("demo", []string{"-quick", "-seed", "7"}, &out, nil)
	require.NoError(t, err)
	require.True(t, b.Quick)
	require.EqualValues(t, 7, b.Seed)
	out.Reset()
	b.Result("n=10/p50", 2.34567, "us")
	b.Target(Target{Name: "n=10/p50", Value: 2.34567, Unit: "us", Limit: 2})
	b.Close()
	require.Equal(t, "result n=10/p50 2.346 us\ntarget n=10/p50 MISSED 2.346 us want <= 2\n# demo: missed n=10/p50\n", out.String())
}

func TestFlags(t *testing.T) {
	var out bytes.Buffer
	_, err := New("demo", []string{"-h"}, &out, nil)
	require.ErrorIs(t, err, flag.ErrHelp)
	require.Equal(t, 0, ExitCode(err))
	require.Contains(t, out.String(), "-quick")

	_, err = New("demo", []string{"extra"}, &out, nil)
	require.ErrorContains(t, err, "extra")
	require.Equal(t, 2, ExitCode(err))
	require.Equal(t, 2, ExitCode(errors.New("x")))

	size := 0
	b, err := New("demo", []string{"-size", "3"}, &out, func(f *flag.FlagSet) { f.IntVar(&size, "size", 1, "") })
	require.NoError(t, err)
	require.Equal(t, 3, size)
	require.Greater(t, b.Rounds(), 7)
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{ // order: each case stands alone
		0: "0", 1: "1", 1.23456: "1.235", 12.3456: "12.35", 123.456: "123.5", 1234.56: "1235", 1e9: "1000000000",
		-2.5: "-2.5", 0.0004: "0.0004", 0.00004: "0", 0.12344: "0.1234", 1e300: "1e+300", 100: "100",
	} {
		require.Equal(t, want, Number(v))
	}
	require.Equal(t, "NaN", Number(math.NaN()))
}

func TestPercentile(t *testing.T) {
	hundred := make([]int64, 100)
	for i := range hundred {
		hundred[i] = int64(i + 1)
	}
	for _, tc := range []struct {
		sorted []int64
		p      float64
		want   int64
	}{
		{nil, 50, 0},
		{[]int64{7}, 50, 7},
		{[]int64{7}, 99, 7},
		{[]int64{1, 2}, 50, 1},
		{[]int64{1, 2, 3}, 50, 2},
		{[]int64{1, 2}, 100, 2},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
		{hundred, 0.1, 1},
	} {
		require.Equal(t, tc.want, Percentile(tc.sorted, tc.p), "%v of %v", tc.p, len(tc.sorted))
	}
	values := []float64{3, 1, 2}
	require.EqualValues(t, 2, Median(values))
	require.Equal(t, []float64{3, 1, 2}, values)
}

func TestCalibrationIsTheSameWorkEverywhere(t *testing.T) {
	c := NewCalibration(NewClock())
	require.Equal(t, uint64(calibrationSum), c.work())
	require.Equal(t, uint64(calibrationSum), c.work(), "a second run starts from the same table")
	require.Zero(t, testing.AllocsPerRun(1, func() { c.Slowness() }))
	require.Positive(t, c.Slowness())
}

// calibrationSum is the checksum of the fixed work: should it change, the unit
// of every figure printed so far has changed.
const calibrationSum = 0x779af7562e192283

func TestTable(t *testing.T) {
	table := Table{Head: []string{"what", "µs"}}
	table.Add("a", "10")
	table.Add("long one", "5")
	var b strings.Builder
	require.NoError(t, table.Print(&b))
	require.Equal(t, "\nwhat      µs\n------------\na         10\nlong one   5\n\n", b.String())
}

func TestPeersSayWhatDiffers(t *testing.T) {
	for _, p := range Peers() {
		require.NotEmpty(t, p.Commit, p.Name)
		require.NotEmpty(t, p.Input, p.Name)
		require.NotEmpty(t, p.Differs, p.Name)
		require.Positive(t, p.PerCPU, p.Name)
	}
}

func TestCPUTimeGrows(t *testing.T) {
	before, ok := CPUTime()
	if !ok {
		t.Skip("this system does not tell the processor time")
	}
	c := NewCalibration(NewClock())
	c.work()
	after, _ := CPUTime()
	require.GreaterOrEqual(t, after, before)
}
