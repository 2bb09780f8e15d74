package slurm

import (
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
)

// gres is one kind of generic resource: "gpu:a100:4(IDX:0-3)" is {gpu, a100, 4, 0-3}.
type gres struct {
	name, kind string
	count      int64
	devices    lockstep.DeviceSet // by IDX; empty where not told
}

// parseGRES reads a list as Slurm prints it of nodes and jobs: "gpu:a100:8(S:0-1),shard:16", "gres:gpu:2",
// "gres/gpu:a100=8". What it cannot read is reported by false, and the rest is returned.
func parseGRES(s string) ([]gres, bool) {
	var out []gres
	ok := true
	for _, item := range splitOutside(s) {
		if item == "" || item == "(null)" || item == "N/A" {
			continue
		}
		g, good := parseOneGRES(item)
		if !good {
			ok = false
			continue
		}
		out = append(out, g)
	}
	return out, ok
}

// splitOutside cuts at commas that are in no parentheses and no brackets.
func splitOutside(s string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case ',':
			if depth <= 0 {
				out = append(out, strings.TrimSpace(s[from:i]))
				from = i + 1
			}
		}
	}
	return append(out, strings.TrimSpace(s[from:]))
}

func parseOneGRES(item string) (gres, bool) {
	var g gres
	if i := strings.IndexByte(item, '('); i >= 0 {
		inside := strings.TrimSuffix(item[i+1:], ")")
		item = item[:i]
		if list, ok := strings.CutPrefix(inside, "IDX:"); ok && list != "N/A" {
			if g.devices.UnmarshalText([]byte(list)) != nil {
				return g, false
			}
		}
	}
	item = strings.TrimPrefix(strings.TrimPrefix(item, "gres:"), "gres/")
	item = strings.ReplaceAll(item, "=", ":")
	parts := strings.Split(item, ":")
	g.name = parts[0]
	g.count = 1
	switch len(parts) {
	case 1:
	case 2:
		n, ok := parseCount(parts[1])
		switch {
		case ok:
			g.count = n
		case strings.Trim(parts[1], "+-0123456789") == "": // a number that is none, and no kind
			return g, false
		default:
			g.kind = parts[1]
		}
	case 3, 4: // name:type:count, and name:no_consume:type:count of old
		n, ok := parseCount(parts[len(parts)-1])
		if !ok {
			return g, false
		}
		g.kind, g.count = parts[len(parts)-2], n
	default:
		return g, false
	}
	return g, g.name != ""
}

// parseCount reads a whole number with one of Slurm's suffixes, in powers of 1024.
func parseCount(s string) (int64, bool) {
	shift := 0
	if n := len(s); n > 1 {
		if i := strings.IndexByte("KMGTP", s[n-1]&^0x20); i >= 0 && s[n-1] > '9' {
			shift, s = 10*(i+1), s[:n-1]
		}
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < 0 || v > (1<<50)>>shift {
		return 0, false
	}
	return v << shift, true
}

// gpus returns the devices of a list, how many and of which kind, where all are of one; kinds are how many kinds.
func gpus(list []gres) (count int64, kind string, devices lockstep.DeviceSet, kinds int) {
	for _, g := range list {
		if g.name != "gpu" || g.count == 0 {
			continue
		}
		count = min(count+g.count, 1<<50) // each is at most that
		devices |= g.devices
		if kinds == 0 || g.kind != kind {
			kinds++
			kind = g.kind
		}
	}
	if kinds > 1 {
		kind = ""
	}
	return count, kind, devices, kinds
}

// tres is a list of trackable resources, "cpu=8,mem=64G,node=2,gres/gpu:a100=8".
type tres struct {
	cpu, node, gpu int64
	kind           string         // of the devices, where one is told
	mem            lockstep.Bytes // of all nodes together
}

// parseTRES reads what it knows of a list; entries of other kinds are passed over, malformed ones reported by false.
func parseTRES(s string) (t tres, ok bool) {
	ok = true
	typed := int64(0)
	for _, item := range split(s) {
		key, value, found := strings.Cut(item, "=")
		if !found {
			ok = false
			continue
		}
		var dst *int64
		switch {
		case key == "cpu":
			dst = &t.cpu
		case key == "node":
			dst = &t.node
		case key == "gres/gpu":
			dst = &t.gpu
		case key == "mem":
			mem, good := parseMemory(value)
			t.mem, ok = mem, ok && good
			continue
		case strings.HasPrefix(key, "gres/gpu:"):
			t.kind = strings.TrimPrefix(key, "gres/gpu:")
			dst = &typed
		default:
			continue
		}
		n, good := parseCount(value)
		*dst, ok = n, ok && good
	}
	t.gpu = max(t.gpu, typed)
	return t, ok
}

// parseMemory reads "64G", "500M", "1.5T" or a number of MiB.
func parseMemory(s string) (lockstep.Bytes, bool) {
	unit := lockstep.MiB
	if n := len(s); n > 1 {
		if i := strings.IndexByte("KMGTP", s[n-1]&^0x20); i >= 0 && s[n-1] > '9' {
			unit, s = lockstep.Bytes(1)<<(10*(i+1)), s[:n-1]
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0) || f*float64(unit) > float64(1<<50) {
		return 0, false
	}
	return lockstep.Bytes(f * float64(unit)), true
}
