package main

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const header = "job_id,tenant,submit_s,duration_s,gpus,state\n"

func TestReadJobs(t *testing.T) {
	want := []job{
		{ID: "a", Tenant: "t1", Submit: 5 * time.Second, Duration: 1500 * time.Millisecond, GPUs: 8},
		{ID: "c", Tenant: "", Submit: 5 * time.Second, Duration: time.Second, GPUs: 1},
		{ID: "b", Tenant: "t2", Submit: 7 * time.Second, Duration: 3 * time.Second, GPUs: 2},
	}
	text := header + "b,t2,7,3,2,X\na,t1,5,1.5,8,X\nc,,5,1,1,\n"
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())

	for name, in := range map[string]string{ // order: each case stands alone
		"plain":         text,
		"gzip":          packed.String(),
		"CRLF":          strings.ReplaceAll(text, "\n", "\r\n"),
		"BOM":           "\ufeff" + text,
		"other columns": "x,gpus,duration_s,submit_s,tenant,job_id\n,2,3,7,t2,b\n,8,1.5,5,t1,a\n,1,1,5,,c\n",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readJobs(strings.NewReader(in), 0)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
	got, err := readJobs(strings.NewReader(text), 1)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.EqualValues(t, "b", got[0].ID, "a limit counts lines, as they stand")
}

func TestReadJobsNamesTheLineOfAFault(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"empty", "", "line 1: want a header"},
		{"no header", "a,t,1,2,3,X\n", "line 1: the header lacks job_id"},
		{"header only", header, "no jobs"},
		{"short row", header + "a,t,1,2,3,X\nb,t,1\n", "line 3"},
		{"quote", header + "a,\"t,1,2,3,X\n", "line"},
		{"id", header + ",t,1,2,3,X\n", "line 2: "},
		{"id with space", header + "a b,t,1,2,3,X\n", "line 2: "},
		{"twice", header + "a,t,1,2,3,X\nb,t,1,2,3,X\na,t,1,2,3,X\n", `line 4: job_id "a" is already on line 2`},
		{"submit", header + "a,t,-1,2,3,X\n", `line 2: submit_s "-1"`},
		{"submit unit", header + "a,t,1h,2,3,X\n", `line 2: submit_s "1h"`},
		{"two dots", header + "a,t,1.2.3,2,3,X\n", `line 2: submit_s "1.2.3"`},
		{"duration", header + "a,t,1,,3,X\n", `line 2: duration_s ""`},
		{"duration 0", header + "a,t,1,0,3,X\n", `line 2: duration_s "0": must be above 0`},
		{"too long", header + "a,t,1,99999999999999999999,3,X\n", "line 2: duration_s"},
		{"gpus", header + "\n\na,t,1,2,none,X\n", `line 4: gpus "none"`},
		{"gpus 0", header + "a,t,1,2,0,X\n", `line 2: gpus "0"`},
		{"gpus huge", header + "a,t,1,2,9999999,X\n", "line 2: gpus"},
		{"broken gzip", "\x1f\x8b\x08", "EOF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := readJobs(strings.NewReader(tc.in), 0)
			require.ErrorContains(t, err, tc.want)
		})
	}
}
