package reconfig

import (
	"encoding/json"
	"testing"
)

// FuzzPlan gives plans of any form to everything that reads one: there may be errors,
// but no panic, and what Verify accepts can be evaluated and followed.
func FuzzPlan(f *testing.F) {
	job := jobOf(2, 2, 2, 6, 8)
	job.Allow.AllowMigration = true
	devs := fleet(10, 2)
	seal := func(p *Plan) string { p.Digest = p.Sum(); return describe(p) }
	good := healthy(f, job, devs)
	f.Add([]byte(describe(good)), uint16(0))
	q := *good
	q.Migrations = []Migration{{Stage: 1, Owner: 0, Host: 1, Micro: 2}}
	f.Add([]byte(seal(&q)), uint16(3))
	f.Add([]byte(`{"replicas":[{"stages":[{"devices":["gpu-00000"],"spans":[{"first":0,"layers":6}]}]}],"split":[8]}`), uint16(1))
	f.Add([]byte(`{"replicas":[{"stages":[{"devices":["gpu-00000","gpu-00000"],"spans":[{"first":-1,"layers":9223372036854775807}]}]}],"split":[-8]}`), uint16(1))
	f.Add([]byte(`{"replicas":[{"stages":[]}],"split":[8],"migrations":[{"stage":-1}]}`), uint16(1))
	f.Fuzz(func(t *testing.T, data []byte, dead uint16) {
		var p Plan
		if json.Unmarshal(data, &p) != nil {
			return
		}
		now := fleet(10, 2)
		for i := range now {
			if dead>>i&1 != 0 {
				now[i].Speed = 0
			}
		}
		_, evaluated := Evaluate(job, now, &p)
		if Verify(job, now, &p) == nil && evaluated != nil {
			t.Fatalf("verified, but cannot be evaluated: %v", evaluated)
		}
		p.Digest = p.Sum()
		next, err := Replan(job, now, &p, Options{Budget: 20_000})
		if err == nil {
			if err := Verify(job, now, next); err != nil && next != &p {
				t.Fatal(err)
			}
		}
	})
}
