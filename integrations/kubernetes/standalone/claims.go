package standalone

import (
	"context"
	"errors"
	"maps"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/dra"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
)

// shelf is what a desk knows of devices that drivers publish and pods claim.
type shelf struct {
	slices    map[string]*resourcev1.ResourceSlice
	classes   map[string]*resourcev1.DeviceClass
	claims    map[string]*resourcev1.ResourceClaim
	claimants map[string]bool // pods with claims
	inventory *dra.Inventory  // nil while it is to be made anew
	changed   bool            // pods with claims are to be read again
}

func newShelf() *shelf {
	return &shelf{
		slices: make(map[string]*resourcev1.ResourceSlice), classes: make(map[string]*resourcev1.DeviceClass),
		claims: make(map[string]*resourcev1.ResourceClaim), claimants: make(map[string]bool),
	}
}

// put stores an object, or removes it where there is none.
func put[T any](m map[string]*T, key string, obj *T) {
	if obj == nil {
		delete(m, key)
	} else {
		m[key] = obj
	}
}

// resource takes note of how an object about devices is; nil means that it is gone.
func (d *desk) resource(key string, obj any) {
	switch o := obj.(type) {
	case *resourcev1.ResourceSlice:
		put(d.shelf.slices, key, o)
		d.shelf.inventory = nil
		d.stir(d.grouped.Add(d.cfg.Regroup))
	case *resourcev1.DeviceClass:
		put(d.shelf.classes, key, o)
		d.shelf.inventory = nil
	case *resourcev1.ResourceClaim:
		put(d.shelf.claims, key, o)
	}
	d.shelf.changed = true
}

// devicesOf returns the inventory, made anew if need be.
func (d *desk) published() *dra.Inventory {
	s := d.shelf
	if s.inventory == nil {
		var all []*resourcev1.ResourceSlice
		for _, k := range slices.Sorted(maps.Keys(s.slices)) {
			all = append(all, s.slices[k])
		}
		var classes []*resourcev1.DeviceClass
		for _, k := range slices.Sorted(maps.Keys(s.classes)) {
			classes = append(classes, s.classes[k])
		}
		s.inventory = dra.New(d.cfg.Drivers, all, classes)
		for _, err := range s.inventory.Faults() {
			d.cfg.Logger.Warn("device left out", zap.Error(err))
		}
	}
	return s.inventory
}

// reread has pods with claims read again, as what they claim has changed.
func (d *desk) reread() {
	if d.shelf == nil || !d.shelf.changed {
		return
	}
	d.shelf.changed = false
	for _, key := range slices.Sorted(maps.Keys(d.shelf.claimants)) {
		if p := d.pods[key]; p != nil {
			d.pod(key, p)
		} else {
			delete(d.shelf.claimants, key)
		}
	}
}

// claimed returns the claims of a pod.
func (d *desk) claimed(p *corev1.Pod) ([]*resourcev1.ResourceClaim, error) {
	return dra.Claims(p, func(namespace, name string) (*resourcev1.ResourceClaim, bool) {
		c, ok := d.shelf.claims[namespace+"/"+name]
		return c, ok
	})
}

// demand is view.Config.Claims.
func (d *desk) demand(p *corev1.Pod) (lockstep.Demand, error) {
	list, err := d.claimed(p)
	if err != nil {
		return lockstep.Demand{}, err
	}
	return d.published().Demand(p, list)
}

// known tells view.Seats which devices a pod has by its claims.
func (d *desk) known(p *view.Pod) (devices lockstep.DeviceSet, start int32, ok bool) {
	if d.shelf == nil || !d.shelf.claimants[podKey(p)] {
		return 0, 0, false
	}
	full := d.pods[podKey(p)]
	if full == nil {
		return 0, 0, false
	}
	list, err := d.claimed(full)
	if err != nil {
		return 0, 0, false
	}
	m, ok := d.published().Member(list)
	return m.Devices, m.Start, ok
}

// grant is what is to be written about one claim before its pod is bound.
type grant struct {
	free     *resourcev1.ResourceClaim // first, where it is allocated otherwise
	finalize bool                      // then its finalizer
	claim    *resourcev1.ResourceClaim // then its allocation
}

// grants returns what is to be written about the claims of a pod that becomes m. A
// claim that was allocated for a place where the pod did not come to be is freed.
func (d *desk) grants(p *corev1.Pod, m lockstep.Member) ([]grant, error) {
	if d.shelf == nil || len(p.Spec.ResourceClaims) == 0 {
		return nil, nil
	}
	before, err := d.claimed(p)
	if err != nil {
		return nil, err
	}
	out := make([]grant, len(before))
	after, err := d.published().Allocate(p, before, m)
	if errors.Is(err, lockstep.ErrConflict) {
		free := slices.Clone(before)
		for i, c := range before {
			if c.Status.Allocation == nil {
				continue
			}
			if free[i], err = dra.Deallocate(p, c); err != nil {
				return nil, err
			}
			out[i].free = free[i]
		}
		after, err = d.published().Allocate(p, free, m)
	}
	if err != nil {
		return nil, err
	}
	for i := range after {
		if after[i] != before[i] {
			out[i].claim, out[i].finalize = after[i], dra.NeedsUpdate(before[i], after[i])
		}
	}
	return slices.DeleteFunc(out, func(g grant) bool { return g.claim == nil }), nil
}

// allocate writes what is to be written about claims.
func (w *writer) allocate(ctx context.Context, list []grant) error {
	for _, g := range list {
		api := w.client.ResourceV1().ResourceClaims(g.claim.Namespace)
		version := g.claim.ResourceVersion
		write := func(c *resourcev1.ResourceClaim, do func(context.Context, *resourcev1.ResourceClaim, metav1.UpdateOptions) (*resourcev1.ResourceClaim, error)) error {
			return w.fence.guard(ctx, callLimit, func(ctx context.Context) error {
				c = c.DeepCopy()
				c.ResourceVersion = version
				got, err := do(ctx, c, metav1.UpdateOptions{})
				if err == nil {
					version = got.ResourceVersion
				}
				return err
			})
		}
		if g.free != nil {
			if err := write(g.free, api.UpdateStatus); err != nil {
				return err
			}
		}
		if g.finalize {
			if err := write(g.claim, api.Update); err != nil {
				return err
			}
		}
		if err := write(g.claim, api.UpdateStatus); err != nil {
			return err
		}
	}
	return nil
}
