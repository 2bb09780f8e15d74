package reconfig

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"
)

// leaves appends the settable numbers and strings under v, with their paths.
func leaves(v reflect.Value, path string, out *[]leaf) {
	switch v.Kind() {
	case reflect.Pointer:
		leaves(v.Elem(), path, out)
	case reflect.Struct:
		for i := range v.NumField() {
			leaves(v.Field(i), path+"."+v.Type().Field(i).Name, out)
		}
	case reflect.Slice:
		*out = append(*out, leaf{path, v})
		for i := range v.Len() {
			leaves(v.Index(i), path, out)
		}
	case reflect.Int, reflect.Int64, reflect.String:
		*out = append(*out, leaf{path, v})
	}
}

type leaf struct {
	path string
	v    reflect.Value
}

// forge changes one thing of a plan, and returns what.
func forge(r *rand.Rand, p *Plan, devs []Device) string {
	var all []leaf
	leaves(reflect.ValueOf(p), "", &all)
	for {
		l := all[r.IntN(len(all))]
		switch l.v.Kind() {
		case reflect.String:
			s := string(devs[r.IntN(len(devs))].ID)
			if r.IntN(4) == 0 {
				s = "gone"
			}
			if s == l.v.String() {
				continue
			}
			l.v.SetString(s)
		case reflect.Slice:
			n := l.v.Len()
			switch {
			case n == 0:
				continue
			case r.IntN(2) == 0: // one less
				l.v.Set(l.v.Slice(0, n-1))
			default: // one twice
				l.v.Set(reflect.AppendSlice(reflect.MakeSlice(l.v.Type(), 0, n+1), l.v))
				l.v.Set(reflect.Append(l.v, l.v.Index(r.IntN(n))))
			}
		default:
			was := l.v.Int()
			l.v.SetInt([]int64{was + 1, was - 1, -was - 1, math.MaxInt, math.MinInt, 0, was * 2}[r.IntN(7)])
			if l.v.Int() == was {
				continue
			}
		}
		return l.path
	}
}

// free are what a plan says that cannot be told wrong from it alone.
var free = map[string]bool{".Restore": true, ".Restore.First": true, ".Restore.Layers": true, ".Replicas.Number": true}

func TestVerifyFindsEveryChangeOfAPlan(t *testing.T) {
	n := 60
	if testing.Short() {
		n = 15
	}
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 21))
		job, devs := harsh(r)
		p, err := Replan(job, devs, nil, Options{})
		if err != nil {
			continue
		}
		for range 60 {
			q := copied(t, p)
			what := forge(r, q, devs)
			q.Digest = q.Sum()
			if !free[what] {
				require.Error(t, Verify(job, devs, q), "seed %d: %s", seed, what)
			}
		}
	}
}

func TestForgedPlansDoNoHarm(t *testing.T) {
	n := 60
	if testing.Short() {
		n = 15
	}
	refused, planned := 0, 0
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 22))
		job, devs := harsh(r)
		p, err := Replan(job, devs, nil, Options{})
		if err != nil {
			continue
		}
		for range 10 {
			q, what := copied(t, p), ""
			for range 1 + r.IntN(3) {
				what += forge(r, q, devs) + " "
			}
			if r.IntN(8) > 0 {
				q.Digest = q.Sum()
			}
			now := devs
			if r.IntN(2) == 0 {
				now = shaken(r, devs)
			}
			name := fmt.Sprintf("seed %d: %s", seed, what)
			_, _ = Evaluate(job, now, q)
			_, _ = Timeline(job, now, q)
			_ = Verify(job, now, q)
			next, err := Replan(job, now, q, Options{Budget: 1000})
			if err != nil {
				refused++
				require.True(t, isTyped(err), "%s: %v", name, err)
				continue
			}
			planned++
			require.NoError(t, Verify(job, now, next), name)
		}
	}
	t.Logf("%d refused, %d planned from", refused, planned)
}

func TestAForgedPlanOfOverflowingSpansIsRefused(t *testing.T) {
	job, devs := jobOf(1, 1, 4, 8, 8), fleet(4, 4)
	p := copied(t, healthy(t, job, devs))
	at := 0
	for i, n := range []int{math.MaxInt, math.MaxInt, 2, 8} { // 8 in sum, once it has overflowed
		p.Replicas[0].Stages[i].Spans[0] = Span{at, n}
		at += n
	}
	require.Equal(t, 8, at)
	p.Digest = p.Sum()
	_, err := Replan(job, with(devs, .5, 1), p, Options{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	p = copied(t, healthy(t, job, devs))
	p.Version = math.MaxUint64
	p.Digest = p.Sum()
	_, err = Replan(job, with(devs, .5, 1), p, Options{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestAFalseEstimateIsNotTakenForThePlanInForce(t *testing.T) {
	job, devs := jobOf(2, 2, 2, 8, 8), fleet(8, 2)
	p := copied(t, healthy(t, job, devs))
	p.Estimate.Iteration, p.Estimate.Memory = 1, 7 // the digest does not cover it
	q, err := Replan(job, devs, p, Options{})
	require.NoError(t, err)
	require.NotSame(t, p, q)
	require.NoError(t, Verify(job, devs, q))
}

func isTyped(err error) bool {
	var no *Infeasible
	var bad *lockstep.Error
	return errors.As(err, &no) || errors.As(err, &bad)
}
