package pollux

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// values returns what a lookup can be over all ways to cut the cell that it lies in, by brute force: for every four
// points with a sphere that no other point is inside of, and the place between them, the figures at the place.
func (p *Profile) values(nodes, gpus, batch int64) (out []timing) {
	s := corner{points: p.points, target: [4]float64{1, float64(nodes), float64(gpus), float64(batch)}}
	cell := p.cell(&s)
	for a := range cell {
		for b := range a {
			for c := range b {
				for d := range c {
					s.basis = [4]int{cell[a], cell[b], cell[c], cell[d]}
					if t, ok := s.at(p); ok {
						out = append(out, t)
					}
				}
			}
		}
	}
	return out
}

// cell returns the points on the sphere around the place.
func (p *Profile) cell(s *corner) (cell []int) {
	for i := range s.basis {
		s.basis[i] = -1 - i
	}
	for _, s.first = range []bool{true, false} {
		if !s.solve() {
			return nil
		}
	}
	m, cost := s.matrix()
	adj, det := adjugate(&m)
	price := prices(&adj, &cost)
	for j := range p.points {
		a, c := s.column(j)
		if c*det == dot(&price, &a) {
			cell = append(cell, j)
		}
	}
	return cell
}

// at returns the timing at the target on the line through the basis, if it lies between its points.
func (s *corner) at(p *Profile) (t timing, ok bool) {
	m, _ := s.matrix()
	adj, det := adjugate(&m)
	if det == 0 {
		return t, false
	}
	for i, j := range s.basis {
		share := dot(&adj[i], &s.target) / det
		if share < -1e-12 {
			return t, false
		}
		t.step += share * p.points[j].step
		t.sync += share * p.points[j].sync
	}
	return t, true
}

func (t timing) near(o timing) bool {
	return math.Abs(t.step-o.step) < 1e-9 && math.Abs(t.sync-o.sync) < 1e-9
}

func size(place string) (nodes, gpus int64) {
	for _, c := range place {
		gpus += int64(c - '0')
	}
	return min(int64(len(place)), maxNodes), gpus
}

const traces = "../../../shared/traces/pollux-osdi21"

// What the authors' runs looked up is what we look up where it was measured, or lies on a line between two
// batches, and elsewhere a value that a cut of the cell allows, as ours is. So are the cuts in testdata.
func TestLookupsAgreeUpToTheCut(t *testing.T) {
	for _, path := range []string{filepath.Join(traces, "golden", "step_times.csv"), filepath.Join("testdata", "cuts.csv")} {
		f, err := os.Open(path)
		if os.IsNotExist(err) {
			t.Skipf("no traces beside the repository, so lookups are not compared with the authors': %v", err)
		}
		require.NoError(t, err)
		defer f.Close()
		wanted, err := ReadTimings(f)
		require.NoError(t, err)
		profiles := map[string]*Profile{}
		measured, same := 0, 0
		for k, want := range wanted {
			if testing.Short() && k.batch%8 != 0 {
				continue
			}
			p := profiles[k.app]
			if p == nil {
				if p, err = ReadProfile(os.DirFS(filepath.Join(traces, "profiles")), k.app); os.IsNotExist(err) {
					t.Skipf("no traces beside the repository, so lookups are not compared with the authors': %v", err)
				}
				require.NoError(t, err)
				profiles[k.app] = p
			}
			got, ok := p.lookup(k.place, k.batch)
			require.True(t, ok, k)
			if len(p.layouts[k.place]) > 0 {
				measured++
				require.InEpsilon(t, want.step, got.step, 1e-12)
				require.InDelta(t, want.sync, got.sync, 1e-12)
				continue
			}
			nodes, gpus := size(k.place)
			ours, theirs := false, false
			for _, v := range p.values(nodes, gpus, k.batch) {
				ours, theirs = ours || v.near(got), theirs || v.near(want)
			}
			require.True(t, ours, k)
			require.True(t, theirs, k)
			if got.near(want) {
				same++
			}
		}
		t.Logf("%s: %d lookups, %d measured, %d others the same", filepath.Base(path), len(wanted), measured, same)
	}
}

// On points in general position the triangulation is unique, and a linear function comes out as itself.
func TestInterpolationIsLinearInCells(t *testing.T) {
	f := func(n, g, b int64) timing {
		return timing{step: 1 + float64(3*n) + float64(2*g) + float64(b), sync: float64(n)}
	}
	p := &Profile{}
	for n := int64(1); n <= 4; n++ {
		for g := n; g <= 4*n; g++ {
			for _, b := range []int64{8, 16, 40} {
				p.points = append(p.points, point{nodes: n, gpus: g, batch: b, timing: f(n, g, b)})
			}
		}
	}
	for n := int64(1); n <= 4; n++ {
		for g := n; g <= 4*n; g++ {
			for _, b := range []int64{8, 9, 15, 16, 33, 40} {
				got, ok := p.interpolate(n, g, b)
				require.True(t, ok)
				require.True(t, got.near(f(n, g, b)), "%d %d %d: %v", n, g, b, got)
			}
		}
	}
	for _, out := range [][3]int64{{1, 5, 8}, {5, 8, 8}, {2, 4, 7}, {2, 4, 41}, {4, 3, 8}} {
		_, ok := p.interpolate(out[0], out[1], out[2])
		require.False(t, ok, out)
	}
	_, ok := (&Profile{}).interpolate(1, 1, 1)
	require.False(t, ok)
}
