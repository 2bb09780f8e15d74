package view

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/sharing"
)

// A node counts its MIG instances by profile and does not say which devices have
// them. They are put onto devices made up for them, all alike, with a memory slice
// for each instance: as many devices as divide all counts, so that the placer can
// hand out exactly what there is.

// kind is how many instances of a profile a node has.
type kind struct {
	profile lockstep.Profile
	n       int64
}

// kinds returns the MIG instances that n counts, by profile.
func (b *builder) kinds(n *corev1.Node) (out []kind) {
	for name := range n.Status.Allocatable { // sorted below
		if suffix, ok := strings.CutPrefix(string(name), b.cfg.mig()); ok {
			if c := count(n, name); c > 0 {
				out = append(out, kind{profileOf(suffix), c})
			}
		}
	}
	slices.SortFunc(out, func(a, b kind) int { return strings.Compare(string(a.profile), string(b.profile)) })
	return out
}

// maxSlices is how many instances one made up device can have.
const maxSlices = 8

// instances gives p the MIG instances of n on devices from first on, and returns how
// many devices they take.
func (b *builder) instances(n *corev1.Node, p *placement.Node, first int) int {
	all := b.kinds(n)
	if len(all) == 0 {
		return 0
	}
	if !b.cfg.Layouts {
		b.fault(n, "status.allocatable", b.cfg.mig()+string(all[0].profile), noLayouts)
		return 0
	}
	if p.MIG != "" {
		b.fault(n, "status.allocatable", b.cfg.mig()+string(all[0].profile), "instances are published by a driver too, and a node has them in one way")
		return 0
	}
	total, common := int64(0), int64(0)
	for _, k := range all {
		if k.profile.Validate() != nil {
			b.fault(n, "status.allocatable", b.cfg.mig()+string(k.profile), "it names no MIG profile")
			return 0
		}
		total += k.n
		common = gcd(common, k.n)
	}
	// The fewest devices that divide the counts and have room for the parts.
	devices := int64(0)
	for d := int64(1); d <= min(common, lockstep.MaxDevicesPerNode); d++ {
		if common%d == 0 && total/d <= maxSlices {
			devices = d
			break
		}
	}
	if devices == 0 || int64(first)+devices > lockstep.MaxDevicesPerNode {
		b.fault(n, "status.allocatable", b.cfg.mig()+string(all[0].profile), "counts of MIG instances that cannot be told apart by device: want at most 8 on each of up to 64 that are alike")
		return 0
	}
	name, layout := layoutOf(all, devices)
	b.layout(name, layout)
	p.MIG = name
	for i := range int(devices) {
		p.Partitioned |= 1 << (first + i)
	}
	return int(devices)
}

// layoutOf returns a device with the instances' part on it, and a name that says
// which they are.
func layoutOf(all []kind, devices int64) (string, sharing.GeometryConfig) {
	var name strings.Builder
	name.WriteString("k8s")
	cfg := sharing.GeometryConfig{}
	for _, k := range all {
		n := int(k.n / devices)
		name.WriteString("_" + strconv.Itoa(n) + "x" + string(k.profile))
		pr := sharing.Profile{Name: k.profile, Compute: 1, Slices: 1, Memory: memoryOf(k.profile)}
		for range n {
			pr.Starts |= 1 << cfg.Slices
			cfg.Slices++
		}
		cfg.Profiles = append(cfg.Profiles, pr)
	}
	cfg.Compute = cfg.Slices
	return name.String(), cfg
}

// memoryOf reads the memory in the name of a profile, such as 10gb of "1g.10gb"; a name
// that does not say gives a byte, which meets only demands for none.
func memoryOf(p lockstep.Profile) lockstep.Bytes {
	_, rest, _ := strings.Cut(string(p), ".")
	digits := run(rest)
	n, err := strconv.ParseUint(digits, 10, 20)
	if err != nil || !strings.HasPrefix(rest[len(digits):], "gb") || n == 0 {
		return 1
	}
	return lockstep.Bytes(n) * lockstep.GiB
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
