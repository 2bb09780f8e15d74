package slurm

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestNumbersComeInManyForms(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want number
		bad  bool
	}{
		{`7`, number{set: true, value: 7}, false},
		{`"7"`, number{set: true, value: 7}, false},
		{`7.9`, number{set: true, value: 7}, false},
		{`null`, number{}, false},
		{``, number{}, false},
		{`"N/A"`, number{}, false},
		{`"UNLIMITED"`, number{infinite: true}, false},
		{`-1`, number{infinite: true}, false},
		{`4294967294`, number{}, false},
		{`4294967295`, number{infinite: true}, false},
		{`{"set":true,"infinite":false,"number":60}`, number{set: true, value: 60}, false},
		{`{"set":false,"infinite":false,"number":0}`, number{}, false},
		{`{"set":false,"infinite":true,"number":0}`, number{infinite: true}, false},
		{`{"number":5}`, number{set: true, value: 5}, false},
		{`"soon"`, number{}, true},
		{`[1]`, number{}, true},
		{`true`, number{}, true},
		{`1e300`, number{}, true},
		{`{"set":1}`, number{}, true},
	} {
		r := record{op: "test", name: "job 1"}
		got := r.number("time_limit", json.RawMessage(tt.in))
		if tt.bad {
			require.ErrorIs(t, r.err, lockstep.ErrInvalid, tt.in)
			require.Equal(t, "job 1.time_limit", r.err.Field)
			continue
		}
		require.Nil(t, r.err, tt.in)
		require.Equal(t, tt.want, got, tt.in)
	}
}

func TestGRES(t *testing.T) {
	type want struct {
		count   int64
		kind    string
		devices string
		kinds   int
	}
	for _, tt := range []struct {
		in   string
		want want
		ok   bool
	}{
		{"", want{}, true},
		{"(null)", want{}, true},
		{"gpu", want{1, "", "", 1}, true},
		{"gpu:8", want{8, "", "", 1}, true},
		{"gpu:a100", want{1, "a100", "", 1}, true},
		{"gpu:a100:8", want{8, "a100", "", 1}, true},
		{"gpu:a100:8(S:0-1)", want{8, "a100", "", 1}, true},
		{"gpu:a100:4(IDX:0-2,7)", want{4, "a100", "0-2,7", 1}, true},
		{"gpu:a100:0(IDX:N/A)", want{}, true},
		{"gres:gpu:2", want{2, "", "", 1}, true},
		{"gres/gpu:h100:2", want{2, "h100", "", 1}, true},
		{"gres/gpu=4", want{4, "", "", 1}, true},
		{"gpu:fake1:1(IDX:0),gpu:fake2:1(IDX:1)", want{2, "", "0-1", 2}, true},
		{"gpu:4,shard:16(2/16)", want{4, "", "", 1}, true},
		{"tpu:2,gpu:1K", want{1024, "", "", 1}, true},
		{"gpu:a100:many", want{}, false},
		{"gpu:a:b:c:d", want{}, false},
		{"gpu:a100:4(IDX:0-99)", want{}, false},
		{":3", want{}, false},
	} {
		list, ok := parseGRES(tt.in)
		require.Equal(t, tt.ok, ok, tt.in)
		if !ok {
			continue
		}
		count, kind, devices, kinds := gpus(list)
		require.Equal(t, tt.want, want{count, kind, devices.String(), kinds}, tt.in)
	}
}

func TestTRES(t *testing.T) {
	got, ok := parseTRES("cpu=8,mem=64G,node=2,billing=8,gres/gpu=8,gres/gpu:a100=8")
	require.True(t, ok)
	require.Equal(t, tres{cpu: 8, node: 2, gpu: 8, kind: "a100", mem: 64 * lockstep.GiB}, got)
	got, ok = parseTRES("gres/gpu:a100=4,mem=1.5T,energy=3J")
	require.True(t, ok)
	require.Equal(t, tres{gpu: 4, kind: "a100", mem: 1536 * lockstep.GiB}, got)
	for _, bad := range []string{"cpu", "cpu=many", "mem=NaN", "mem=-1G", "node=99999999999999999999", "cpu=9999999P"} {
		_, ok := parseTRES(bad)
		require.False(t, ok, bad)
	}
}

func TestFeatures(t *testing.T) {
	has := func(f string) bool { return f == "a" || f == "b" }
	for expr, want := range map[string]bool{ // each is checked by itself, so order cannot matter
		"": true, "a": true, "c": false, "a&b": true, "a&c": false, "a|c": true, "c|d": false, "a,b": true, "!c": true, "!a": false,
		"[a|c]": true, "(c|a)&b": true, "c|a&b": true, "a*2": true, "[a*2&b*3]": true, "c&a|b": true, "(c&(a|b))|!d": true,
	} {
		got, ok := matches(expr, has)
		require.True(t, ok, expr)
		require.Equal(t, want, got, expr)
	}
	for _, expr := range []string{"&", "a&", "(a", "a)", "[a)", "a*", "|", "!", "a b&", "()"} {
		_, ok := matches(expr, has)
		require.False(t, ok, expr)
	}
	deep := ""
	for range 1000 {
		deep += "("
	}
	_, ok := matches(deep, has)
	require.False(t, ok)
}

func TestNeeds(t *testing.T) {
	for in, want := range map[string]needs{ // each is checked by itself, so order cannot matter
		"":                         {},
		"(null)":                   {},
		"afterok:12(unfulfilled)":  {jobs: []uint32{12}},
		"afterok:12:13,afterany:5": {jobs: []uint32{12, 13, 5}},
		"afterany:5_*(unfulfilled),aftercorr:7_3(unfulfilled)": {jobs: []uint32{5, 7}},
		"afterok:1(unfulfilled)?afterok:2(unfulfilled)":        {jobs: []uint32{1, 2}, any: true},
		"afterok:1(fulfilled)?afterok:2(unfulfilled)":          {},
		"afterok:1(fulfilled),afterok:2(unfulfilled)":          {jobs: []uint32{2}},
		"singleton(unfulfilled)":                               {never: true},
		"afternotok:4(unfulfilled)":                            {never: true},
		"after:4+30(unfulfilled)":                              {jobs: []uint32{4}},
		"afterok:x":                                            {never: true},
	} {
		require.Equal(t, want, parseNeeds(in), in)
	}
}

func TestTasksAreCounted(t *testing.T) {
	for in, want := range map[string]int{"0-9": 10, "0-9%3": 10, "0-9:3": 4, "1,3,5-6": 4, "7": 1, "0-3,8,...": 5} { // order cannot matter
		n, ok := countTasks(in)
		require.True(t, ok, in)
		require.Equal(t, want, n, in)
	}
	for _, in := range []string{"a", "3-1", "0-9:0", "0-99999999", "1-"} {
		_, ok := countTasks(in)
		require.False(t, ok, in)
	}
}

func TestStates(t *testing.T) {
	for _, tt := range []struct {
		words []string
		want  State
	}{
		{[]string{"PENDING"}, Pending},
		{[]string{"RUNNING"}, Running},
		{[]string{"RUNNING", "CONFIGURING"}, Running},
		{[]string{"COMPLETED", "COMPLETING"}, Ending},
		{[]string{"COMPLETING"}, Ending},
		{[]string{"SUSPENDED"}, Suspended},
		{[]string{"PENDING", "REQUEUED"}, Pending},
		{[]string{"CANCELLED"}, Ended},
		{[]string{"OUT_OF_MEMORY"}, Ended},
		{nil, Ended},
	} {
		require.Equal(t, tt.want, stateOf(tt.words), tt.words)
	}
	for _, tt := range []struct {
		words, flags []string
		open         bool
		want         string
	}{
		{[]string{"idle"}, nil, true, "idle"},
		{[]string{"IDLE", "DRAIN"}, nil, false, "idle+drain"},
		{[]string{"mixed"}, []string{"DRAIN"}, false, "mixed+drain"},
		{[]string{"MIXED", "PLANNED"}, nil, true, "mixed+planned"},
		{[]string{"IDLE+POWERED_DOWN"}, nil, true, "idle+powered_down"},
		{[]string{"down*"}, nil, false, "down"},
		{[]string{"IDLE", "MAINTENANCE", "RESERVED"}, nil, false, "idle+maintenance+reserved"},
		{nil, nil, false, ""},
	} {
		var n Node
		n.state(tt.words, tt.flags)
		require.Equal(t, tt.open, n.Open, tt.words)
		require.Equal(t, tt.want, n.State)
	}
}
