package standalone

import (
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

func TestConfigReportsEveryFault(t *testing.T) {
	client := fake.NewClientset()
	for _, c := range []struct {
		name  string
		cfg   Config
		field string // "" means that it is right
	}{
		{"zero but for the client", Config{Client: client}, ""},
		{"no client", Config{}, "Client"},
		{"rule", Config{Client: client, Rule: "luck"}, "Rule"},
		{"rule of the composition", Config{Client: client, Rule: scheduler.LAS}, ""},
		{"negative time", Config{Client: client, Repair: -1}, "Repair"},
		{"parallel", Config{Client: client, Parallel: -1}, "Parallel"},
		{"election", Config{Client: client, Election: Election{Term: time.Second, Renew: 2 * time.Second}}, "Election"},
		{"election that is off", Config{Client: client, Election: Election{Disable: true, Term: time.Second, Renew: 2 * time.Second}}, ""},
		{"view", Config{Client: client, View: view.Config{Aliases: []view.Dialect{"latin"}}}, "Aliases[0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(c.cfg)
			if c.field == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var e *lockstep.Error
			if !errors.As(err, &e) || e.Field != c.field {
				t.Errorf("got %v, want a fault of %s", err, c.field)
			}
		})
	}
	_, err := New(Config{Rule: "luck", Parallel: -1})
	if n := len(err.(interface{ Unwrap() []error }).Unwrap()); n != 3 {
		t.Errorf("%d faults, want 3: %v", n, err)
	}
}

func TestPlanTextIsReadBack(t *testing.T) {
	p := &lockstep.Plan{}
	for _, n := range []lockstep.NodeID{"a", "a", "b:1", "a", "c", "c", "c"} {
		p.Members = append(p.Members, lockstep.Member{Node: n})
	}
	text := planText(p)
	if text != "a:2,b:1:1,a:1,c:3" {
		t.Errorf("text is %q", text)
	}
	ids, ok := parsePlan(text)
	if !ok || len(ids) != len(p.Members) {
		t.Fatalf("read back %v, %v", ids, ok)
	}
	for i := range ids {
		if ids[i] != p.Members[i].Node {
			t.Errorf("member %d is on %q, want %q", i, ids[i], p.Members[i].Node)
		}
	}
}

func FuzzParsePlan(f *testing.F) {
	for _, s := range []string{"", "a:1", "a:2,b:3", "a:0", ":1", "a:", "a:99999999999", "a:1048576,b:1", "a:1,,b:1", "a:-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids, ok := parsePlan(text)
		if !ok {
			return
		}
		if len(ids) == 0 || len(ids) > lockstep.MaxMembers {
			t.Fatalf("%d members", len(ids))
		}
		p := &lockstep.Plan{}
		for _, id := range ids {
			p.Members = append(p.Members, lockstep.Member{Node: id})
		}
		again, ok := parsePlan(planText(p))
		if !ok || len(again) != len(ids) {
			t.Fatalf("%q does not come back: %d of %d", text, len(again), len(ids))
		}
	})
}

func TestFenceEndsWithTheLease(t *testing.T) {
	f := newFence(false)
	if f.left() > 0 {
		t.Error("it is open before a lease was granted")
	}
	f.extend(time.Now().Add(time.Minute))
	if f.left() <= 0 {
		t.Error("it is shut within the lease")
	}
	f.extend(time.Now().Add(-time.Millisecond))
	if f.left() > 0 {
		t.Error("it is open behind the lease")
	}
	wrote := false
	err := f.guard(t.Context(), time.Second, func(ctxOf) error { wrote = true; return nil })
	if !errors.Is(err, errFenced) || wrote {
		t.Errorf("guard returned %v, and wrote: %v", err, wrote)
	}
	if newFence(true).left() <= 0 {
		t.Error("without a lease it is shut")
	}
}

func TestLedgerNeverLetsANodeOverflow(t *testing.T) {
	l := newLedger()
	if l.fits("a", 1) {
		t.Error("a node that is not there has room")
	}
	l.offer("a", 8)
	l.put("p", seat{"a", 6})
	l.put("p", seat{"a", 6}) // told twice
	if !l.fits("a", 2) || l.fits("a", 3) {
		t.Error("of 8, with 6 taken, 2 are left")
	}
	l.put("p", seat{"b", 6}) // it was somewhere else after all
	if !l.fits("a", 8) || l.crowded("a") {
		t.Error("a has nobody any more")
	}
	if !l.crowded("b") {
		t.Error("b, which offers nothing, has too much")
	}
	l.put("p", seat{})
	if l.crowded("b") || !l.fits("b", 0) {
		t.Error("b has nobody any more")
	}
}
