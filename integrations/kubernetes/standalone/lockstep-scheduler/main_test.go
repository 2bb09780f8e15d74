package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/standalone"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
)

func TestFlags(t *testing.T) {
	o, err := parse([]string{
		"-topology=zone=topology.kubernetes.io/zone,example.com/rack", "-aliases=volcano,kueue", "-rule=las",
		"-queues=a/b", "-lease=c/d", "-leader-elect=false", "-scheduler-name=x",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	keys := o.cfg.View.Keys
	if len(keys) != 2 || keys[0].Level.Name != "zone" || keys[0].Label != "topology.kubernetes.io/zone" || keys[1].Level.Name != "" || keys[1].Label != "example.com/rack" {
		t.Errorf("keys are %+v", keys)
	}
	if a := o.cfg.View.Aliases; len(a) != 2 || a[0] != view.Volcano || a[1] != view.Kueue {
		t.Errorf("aliases are %v", a)
	}
	if o.cfg.Queues != (standalone.ObjectName{Namespace: "a", Name: "b"}) || o.cfg.Election.Lease != (standalone.ObjectName{Namespace: "c", Name: "d"}) {
		t.Errorf("names are %v and %v", o.cfg.Queues, o.cfg.Election.Lease)
	}
	if o.cfg.Rule != "las" || !o.cfg.Election.Disable || o.cfg.View.SchedulerName != "x" {
		t.Errorf("got %+v", o.cfg)
	}
}

func TestBadFlagsAreNamed(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-queues=b", "-queues"},
		{"-lease=/b", "-lease"},
		{"-topology=rack=", "-topology"},
		{"-repair=soon", "repair"},
		{"more", "no such argument"},
		{"-log-level=loud", "-log-level"},
		{"-kubeconfig=/nowhere/at/all", "/nowhere/at/all"},
	} {
		t.Run(c.args, func(t *testing.T) {
			err := run(context.Background(), []string{c.args}, io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want something about %s", err, c.want)
			}
		})
	}
	var out bytes.Buffer
	if err := run(context.Background(), []string{"-h"}, &out); err == nil || !strings.Contains(out.String(), "-scheduler-name") {
		t.Errorf("help is %q, %v", out.String(), err)
	}
}
