package placement

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/stretchr/testify/require"
)

// openb is where the public trace of a cluster of shared devices lies, if it does.
const openb = "../../shared/traces/openb/"

// rowsOf reads a table by the names in its head.
func rowsOf(t testing.TB, name string) (out []map[string]string) {
	f, err := os.Open(openb + name)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the trace is not here: ", openb+name)
	}
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	rows, err := csv.NewReader(z).ReadAll()
	require.NoError(t, err)
	for _, row := range rows[1:] {
		m := map[string]string{}
		for i, v := range row {
			m[rows[0][i]] = v
		}
		out = append(out, m)
	}
	return out
}

func number(t testing.TB, s string) int {
	v, err := strconv.ParseFloat(s, 64)
	if s != "" {
		require.NoError(t, err)
	}
	return int(v)
}

// openbState returns the cluster of the trace, in the order of its file.
func openbState(t testing.TB, cfg Config) *State {
	shapes := map[int]*topology.Shape{}
	var nodes []topology.Node
	for _, row := range rowsOf(t, "node_list_gpu.csv.gz") {
		n := number(t, row["gpu"])
		if shapes[n] == nil {
			var err error
			shapes[n], err = topology.UniformShape(n, topology.NVLink(1))
			require.NoError(t, err)
		}
		nodes = append(nodes, topology.Node{ID: lockstep.NodeID(row["sn"]), Shape: shapes[n]})
		cfg.Nodes = append(cfg.Nodes, Node{ID: lockstep.NodeID(row["sn"]), CPU: lockstep.MilliCPU(number(t, row["cpu_milli"])), Class: lockstep.DeviceClass(row["model"])})
	}
	tree, err := topology.New(nil, nodes)
	require.NoError(t, err)
	s, err := New(tree, cfg)
	require.NoError(t, err)
	return s
}

// openbGangs returns the tasks of a list as gangs of one member, shuffled, with more
// drawn until they ask for 130 % of the devices.
func openbGangs(t testing.TB, list string, devices int, seed uint64) (out []*lockstep.Gang) {
	var demands []lockstep.Demand
	for _, row := range rowsOf(t, list) {
		d := lockstep.Demand{GPUs: number(t, row["num_gpu"]), CPU: lockstep.MilliCPU(number(t, row["cpu_milli"]))}
		if d.GPUs > 0 {
			d.Share = lockstep.MilliGPU(number(t, row["gpu_milli"]))
			if spec := row["gpu_spec"]; spec != "" {
				for _, c := range strings.Split(spec, "|") {
					if !slices.Contains(d.Classes, lockstep.DeviceClass(c)) {
						d.Classes = append(d.Classes, lockstep.DeviceClass(c))
					}
				}
			}
		}
		demands = append(demands, d)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	all, sum := demands, 0
	for _, d := range all {
		sum += d.GPUs * int(d.Share)
	}
	for sum < devices*1300 {
		d := demands[rng.IntN(len(demands))]
		all = append(all, d)
		sum += d.GPUs * int(d.Share)
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, d := range all {
		out = append(out, &lockstep.Gang{ID: lockstep.JobID(fmt.Sprint("t", i)), Roles: []lockstep.Role{{Min: 1, Demand: d}}})
	}
	return out
}

// replay submits gangs, each applied where it fits and dropped where not, and returns
// how many thousandths of the devices were had when so many per cent had been asked for.
func replay(t testing.TB, s *State, gangs []*lockstep.Gang, at []int) (out []float64) {
	devices := s.Usage().Devices
	var plan lockstep.Plan
	asked, had := 0, 0
	for _, g := range gangs {
		d := &g.Roles[0].Demand
		require.NoError(t, s.Arrived(g))
		v, err := s.Fit(&lockstep.Request{Gang: g}, &plan)
		require.NoError(t, err)
		asked += d.GPUs * int(d.Share)
		if v.Feasible {
			require.NoError(t, s.Apply(&plan))
			had += d.GPUs * int(d.Share)
		}
		for len(out) < len(at) && asked >= devices*at[len(out)]*10-500 {
			out = append(out, float64(had)/float64(devices)/10)
		}
	}
	return out
}

// TestOpenb replays lists of the trace: more of the cluster is had than FGD had as published,
// when 100 % of it and when 130 % had been asked for.
func TestOpenb(t *testing.T) {
	for _, test := range []struct {
		list      string
		published [2]float64 // means of ten orders of arrival
	}{
		{"default", [2]float64{95.23, 95.39}},
		{"multigpu20", [2]float64{95.53, 95.65}},
		{"gpushare100", [2]float64{86.64, 86.90}},
		{"gpuspec33", [2]float64{87.84, 94.55}},
		{"cpu100", [2]float64{95.21, 95.35}},
	} {
		for seed := range uint64(2) {
			if testing.Short() && (seed > 0 || test.list != "default") {
				continue
			}
			s := openbState(t, Config{RankAll: true, Views: 1024})
			gangs := openbGangs(t, "pod_list_"+test.list+".csv.gz", s.Usage().Devices, seed)
			got := replay(t, s, gangs, []int{90, 95, 100, 110, 130})
			f := s.Fragmentation()
			t.Logf("%s, order %d: %.2f, idle %v, unused %v", test.list, seed, got, f.Idle, f.Unused)
			require.Greater(t, got[2], test.published[0])
			require.Greater(t, got[4], test.published[1])
		}
	}
}
