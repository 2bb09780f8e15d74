package trace_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sim/trace"
)

func ExampleReadCSV() {
	t, err := trace.ReadCSV(strings.NewReader("job_id,tenant,submit_s,duration_s,gpus,state\nb,vision,60,3600,12,Pass\na,nlp,0,90.5,1,\n"))
	if err != nil {
		panic(err)
	}
	for i := range t.Jobs {
		j := &t.Jobs[i]
		fmt.Println(j.ID, j.Tenant, j.Submit, j.Duration, j.GPUs, len(j.Gang(8).Roles))
	}
	fmt.Println(t.Work())
	// Output:
	// a nlp 0s 1m30.5s 1 1
	// b vision 1m0s 1h0m0s 12 2
	// 12h1m30.5s
}

func ExampleSynthetic() {
	t, err := trace.Synthetic(trace.SyntheticConfig{Seed: 1})
	if err != nil {
		panic(err)
	}
	fmt.Println(len(t.Jobs), "jobs of", len(t.Tenants()), "tenants, load", float64(t.Work())/float64(192*72*time.Hour) > 0.9)
	// Output: 3147 jobs of 11 tenants, load true
}

const header = "job_id,tenant,submit_s,duration_s,gpus,state\n"

func TestMalformedRowsNameLineAndField(t *testing.T) {
	for name, tc := range map[string]struct{ in, field string }{ // each case stands alone, so their order does not matter
		"empty":             {"", "line 1: header"},
		"missing column":    {"job_id,tenant,submit_s,gpus\n", "line 1: duration_s"},
		"short row":         {header + "a,t,0,1,1,\nb,t,0\n", "line 3: row"},
		"bad number":        {header + "a,t,0,1,1,\nb,t,0,1,one,\n", "line 3: gpus"},
		"negative gpus":     {header + "a,t,0,1,-1,\n", "line 2: gpus"},
		"huge gpus":         {header + "a,t,0,1,99999999,\n", "line 2: gpus"},
		"negative time":     {header + "a,t,-5,1,1,\n", "line 2: submit_s"},
		"not a number":      {header + "a,t,NaN,1,1,\n", "line 2: submit_s"},
		"endless":           {header + "a,t,0,99999999999,1,\n", "line 2: duration_s"},
		"century":           {header + "a,t,0,3155760000,1,\n", "line 2: duration"},
		"no id":             {header + ",t,0,1,1,\n", "line 2: job_id"},
		"no tenant":         {header + "a,,0,1,1,\n", "line 2: tenant"},
		"id with space":     {header + "a b,t,0,1,1,\n", "line 2: job_id"},
		"quote left open":   {header + "\"a,t,0,1,1,\n", "line 2: row"},
		"truncated in half": {header + "a,t,0,1,1,\nb,t,3,", "line 3: row"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := trace.ReadCSV(strings.NewReader(tc.in))
			require.Nil(t, got)
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, tc.field, e.Field)
		})
	}
}

func TestDuplicateIDIsRefused(t *testing.T) {
	_, err := trace.ReadCSV(strings.NewReader(header + "a,t,0,1,1,\na,t,5,1,1,\n"))
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
}

func TestRowsWithoutWorkAreCounted(t *testing.T) {
	got, err := trace.ReadCSV(strings.NewReader(header + "a,t,0,0,1,\nb,t,5,1,0,\nc,t,9,1,1,\n"))
	require.NoError(t, err)
	require.Equal(t, 2, got.Skipped)
	require.Len(t, got.Jobs, 1)
}

func TestCSVRoundTrip(t *testing.T) {
	want, err := trace.Synthetic(trace.SyntheticConfig{Seed: 7, Span: 6 * time.Hour})
	require.NoError(t, err)
	want.Jobs[0].Duration += 1500 * time.Microsecond
	var buf bytes.Buffer
	require.NoError(t, trace.WriteCSV(&buf, want))
	got, err := trace.ReadCSV(&buf)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestByteOrderMarkAndCRLF(t *testing.T) {
	got, err := trace.ReadCSV(strings.NewReader("\ufeff" + strings.ReplaceAll(header+"a,t,0,1,1,\n", "\n", "\r\n")))
	require.NoError(t, err)
	require.Len(t, got.Jobs, 1)
}

const phillyLog = `[
  {"status": "Pass", "vc": "v1", "jobid": "j2", "user": "u", "submitted_time": "2017-10-09 07:11:00",
   "attempts": [
     {"start_time": "2017-10-09 07:13:19", "end_time": "2017-10-09 07:13:29", "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]},
     {"start_time": "2017-10-09 08:00:00", "end_time": "2017-10-09 09:00:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}, {"ip": "m2", "gpus": ["gpu5", "gpu6"]}]},
     {"start_time": "2017-10-09 10:00:00", "end_time": null, "detail": []}]},
  {"status": "Killed", "vc": "v2", "jobid": "j1", "user": "u", "submitted_time": "2017-10-09 00:00:05", "attempts": []}
]`

func TestPhillyLog(t *testing.T) {
	got, err := trace.ReadPhilly(strings.NewReader(phillyLog))
	require.NoError(t, err)
	require.Equal(t, &trace.Trace{Skipped: 1, Jobs: []trace.Job{{
		ID: "j2", Tenant: "v1", Submit: 7*time.Hour + 11*time.Minute, Duration: time.Hour + 10*time.Second, GPUs: 3, State: "Pass",
	}}}, got)
}

func TestPhillyFaultsNameTheLine(t *testing.T) {
	for name, tc := range map[string]struct{ in, field string }{ // each case stands alone, so their order does not matter
		"not an array": {`{}`, "line 1: json"},
		"cut off":      {phillyLog[:len(phillyLog)-3], "line 7: json"},
		"bad date":     {strings.Replace(phillyLog, "2017-10-09 07:11:00", "yesterday", 1), "line 6: submitted_time"},
		"ends early":   {strings.Replace(phillyLog, "07:13:29", "07:13:09", 1), "line 6: attempts[0].end_time"},
		"wrong type":   {strings.Replace(phillyLog, `"v2"`, "7", 1), "line 7: json"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := trace.ReadPhilly(strings.NewReader(tc.in))
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, tc.field, e.Field)
		})
	}
}

func TestHeliosLog(t *testing.T) {
	const in = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n" +
		"7,u1,vcA,8.0,64,1,COMPLETED,2020-04-02 00:00:10,2020-04-02 00:01:00,2020-04-02 00:02:00,60,50\n" +
		"6,u1,vcB,0,4,1,FAILED,2020-04-01 23:59:00,2020-04-01 23:59:00,2020-04-01 23:59:30,30,0\n" +
		"5,u2,vcB,1,4,1,CANCELLED,2020-04-01 12:00:00,2020-04-01 12:00:00,2020-04-01 12:00:30,30,0\n"
	got, err := trace.ReadHelios(strings.NewReader(in))
	require.NoError(t, err)
	require.Equal(t, &trace.Trace{Skipped: 1, Jobs: []trace.Job{
		{ID: "5", Tenant: "vcB", Submit: 12 * time.Hour, Duration: 30 * time.Second, GPUs: 1, State: "CANCELLED"},
		{ID: "7", Tenant: "vcA", Submit: 24*time.Hour + 10*time.Second, Duration: time.Minute, GPUs: 8, State: "COMPLETED"},
	}}, got)
	_, err = trace.ReadHelios(strings.NewReader(strings.Replace(in, "2020-04-01 12:00:00", "noon", 1)))
	var e *lockstep.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "line 4: submit_time", e.Field)
}

func TestSyntheticIsSeededAndOffersItsLoad(t *testing.T) {
	for seed := range uint64(20) {
		cfg := trace.SyntheticConfig{Seed: seed, Span: 48 * time.Hour, GPUs: 64, Load: 1100, Tenants: 5}
		a, err := trace.Synthetic(cfg)
		require.NoError(t, err)
		b, err := trace.Synthetic(cfg)
		require.NoError(t, err)
		require.Equal(t, a, b)
		offered := a.Work().Seconds() / (48 * 3600 * 64)
		require.GreaterOrEqual(t, offered, 1.1)
		require.Less(t, offered, 1.1+16*32*86400.0/(48*3600*64), "at most the last burst beyond the load")
		for i := range a.Jobs {
			j := &a.Jobs[i]
			require.LessOrEqual(t, j.GPUs, 64)
			require.Positive(t, j.Duration)
			require.Less(t, j.Submit, 48*time.Hour)
			require.NoError(t, j.Gang(8).Validate())
			require.EqualValues(t, j.GPUs*1000, j.Gang(8).GPUs(nil))
		}
	}
}

func TestSyntheticRefusesBadConfig(t *testing.T) {
	_, err := trace.Synthetic(trace.SyntheticConfig{Span: -1, GPUs: -1, Load: -1, Tenants: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok)
	require.Len(t, joined.Unwrap(), 4)
}

func FuzzReadCSV(f *testing.F) {
	f.Add(header + "a,t,0,1,1,\n")
	f.Add(header + "a,t,0.25,1.5,64,Pass\nb,u,9,1,1,\"x,y\"\n")
	f.Fuzz(func(t *testing.T, in string) {
		got, err := trace.ReadCSV(strings.NewReader(in))
		if err != nil {
			require.Nil(t, got)
			return
		}
		got.Skipped = 0
		var buf bytes.Buffer
		require.NoError(t, trace.WriteCSV(&buf, got))
		again, err := trace.ReadCSV(&buf)
		require.NoError(t, err)
		require.Equal(t, len(got.Jobs), len(again.Jobs))
		for i := range got.Jobs {
			require.Equal(t, strings.ReplaceAll(got.Jobs[i].State, "\r\n", "\n"), strings.ReplaceAll(again.Jobs[i].State, "\r\n", "\n"))
			got.Jobs[i].State, again.Jobs[i].State = "", ""
			require.Equal(t, got.Jobs[i], again.Jobs[i])
		}
	})
}

func FuzzReadPhilly(f *testing.F) {
	f.Add(phillyLog)
	f.Add("[]")
	f.Fuzz(func(t *testing.T, in string) {
		if _, err := trace.ReadPhilly(strings.NewReader(in)); err != nil {
			var e *lockstep.Error
			require.True(t, errors.As(err, &e))
		}
	})
}

func TestDuplicatesAndLateJobsNameTheLine(t *testing.T) {
	field := func(_ *trace.Trace, err error) string {
		var e *lockstep.Error
		require.ErrorAs(t, err, &e)
		return e.Field
	}
	require.Equal(t, "line 4: job_id", field(trace.ReadCSV(strings.NewReader(header+"a,t,0,1,1,\nb,t,1,1,1,\na,t,5,1,1,\n"))))
	require.Equal(t, "line 4: job_id", field(trace.ReadCSV(strings.NewReader(header+"a,t,9,1,1,\nb,t,1,0,1,\na,t,5,1,1,\n"))), "whatever their order in time")
	const helios = "job_id,vc,gpu_num,state,submit_time,duration\n1,v,8,C,2020-04-01 00:00:03,5\n"
	require.Equal(t, "line 3: job_id", field(trace.ReadHelios(strings.NewReader(helios+"1,v,8,C,2020-04-01 00:00:03,5\n"))))
	require.Equal(t, "line 3: submit", field(trace.ReadHelios(strings.NewReader(helios+"2,v,8,C,2099-04-01 00:00:03,5\n"))))
	require.Equal(t, "line 8: json", field(trace.ReadPhilly(strings.NewReader(strings.TrimRight(phillyLog, "\n")+" []"))), "something follows")
}

func TestGangOnNodesOfNoSize(t *testing.T) {
	j := trace.Job{ID: "a", GPUs: 3, Duration: time.Second}
	require.Equal(t, 3, j.Gang(0).MinMembers())
}
