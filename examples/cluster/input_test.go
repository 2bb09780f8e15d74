package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func weightsOf(text string) (map[lockstep.TenantID]int64, error) {
	return readWeights(bufio.NewReader(strings.NewReader(text)))
}

func TestWeightsAreReadInAnyOrderOfColumns(t *testing.T) {
	w, err := weightsOf("\ufefftenant,weight\nt01,2690\nt02,0\n")
	require.NoError(t, err)
	require.Equal(t, map[lockstep.TenantID]int64{"t01": 2690, "t02": 0}, w)
	w, err = weightsOf("weight,name,tenant\n7,x,t01\n")
	require.NoError(t, err)
	require.Equal(t, map[lockstep.TenantID]int64{"t01": 7}, w)
}

func TestFaultsOfWeightsNameTheLine(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "line 1: the file is empty"},
		{"header", "tenant,share\nt01,1\n", "line 1: header"},
		{"word", "tenant,weight\nt01,1\nt02,much\n", `line 3: weight "much" of "t02"`},
		{"negative", "tenant,weight\nt01,-1\n", "line 2: weight"},
		{"huge", "tenant,weight\nt01,99999999999\n", "line 2: weight"},
		{"fraction", "tenant,weight\nt01,1.5\n", "line 2: weight"},
		{"twice", "tenant,weight\nt01,1\nt02,1\nt01,2\n", `line 4: tenant "t01" occurs twice`},
		{"bad name", "tenant,weight\na b,1\n", "line 2:"},
		{"short row", "tenant,weight\nt01,1\nt02\n", "line 3"},
		{"open quote", "tenant,weight\n\"t01,1\n", "line 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := weightsOf(c.text)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestGzipIsReadWhateverItsName(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte("tenant,weight\nt01,3\n"))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	path := filepath.Join(t.TempDir(), "weights.csv")
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	w, err := readFile(path, readWeights)
	require.NoError(t, err)
	require.Equal(t, int64(3), w["t01"])

	require.NoError(t, os.WriteFile(path, b.Bytes()[:b.Len()-6], 0o600))
	_, err = readFile(path, readWeights)
	require.ErrorContains(t, err, path)
}

func TestFormsOfTracesAreGuessed(t *testing.T) {
	for text, want := range map[string]string{ // order: independent cases
		"job_id,tenant,submit_s,duration_s,gpus\n":        formatCSV,
		"\n  [{\"status\": \"Pass\"":                      formatPhilly,
		"job_id,user,vc,jobname,gpu_num,submit_time\n1,2": formatHelios,
		"": formatCSV,
	} {
		require.Equal(t, want, guess(bufio.NewReader(strings.NewReader(text))), text)
	}
}

func TestFaultsOfTracesNameFileAndLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.csv")
	require.NoError(t, os.WriteFile(path, []byte("job_id,tenant,submit_s,duration_s,gpus\nj1,t1,0,5,1\nj2,t1,0,5,many\n"), 0o600))
	o, err := parse([]string{"-trace", path}, &bytes.Buffer{})
	require.NoError(t, err)
	_, err = o.load()
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "line 3")

	o.trace = filepath.Join(t.TempDir(), "none.csv")
	_, err = o.load()
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "looked for from")

	require.NoError(t, os.WriteFile(path, []byte("job_id,tenant,submit_s,duration_s,gpus\n"), 0o600))
	o.trace = path
	_, err = o.load()
	require.ErrorContains(t, err, "there are no jobs")
}

func TestTenantsWithoutWeightAreNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights.csv")
	require.NoError(t, os.WriteFile(path, []byte("tenant,weight\nbio,1\n"), 0o600))
	o, err := parse([]string{"-trace", filepath.Join("testdata", "tiny.csv"), "-weights", path}, &bytes.Buffer{})
	require.NoError(t, err)
	_, err = o.load()
	require.ErrorContains(t, err, `"art", "car"`)
}
