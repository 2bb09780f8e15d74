package sharing

import (
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// model is a device model with MIG, as rows of one of two layouts.
type model struct {
	name     string
	quarters bool  // quarters: four memory slices and four compute slices, rather than eight and seven
	names    []int // gigabytes in the profiles' names, by row
	mib      []int // memory of one instance in MiB, by row
}

// row is a profile of a layout, without what differs from model to model.
type row struct {
	compute, slices int
	starts          Starts
	media           bool
}

// eighths is the layout of devices with eight memory and seven compute slices. It is immutable.
//
// Slices and starts: NVIDIA Multi-Instance GPU User Guide v580, sections Supported MIG Profiles (fractions and counts)
// and Getting Started (list of placements, nvidia-smi mig -lgipp), which is the same on A100, H100, H200 and B200.
var eighths = []row{
	{1, 1, 0b0111_1111, false},
	{1, 1, 0b0111_1111, true},
	{1, 2, 0b0101_0101, false},
	{2, 2, 0b0001_0101, false},
	{3, 4, 0b0001_0001, false},
	{4, 4, 0b0000_0001, false},
	{7, 8, 0b0000_0001, false},
}

// quarters is the layout of the A30, from the same guide. It is immutable.
var quarters = []row{
	{1, 1, 0b1111, false},
	{1, 1, 0b1111, true},
	{2, 2, 0b0101, false},
	{2, 2, 0b0101, true},
	{4, 4, 0b0001, false},
}

// models are the tables behind Models, by name. It is immutable.
//
// Names are the guide's, section Supported MIG Profiles. Memory is the least that the drivers' own lists (nvidia-smi mig
// -lgip), of which several were compared, give, since it differs from driver to driver by up to a tenth. Of the B200 only
// lists down to 2g.45gb could be had: for 3g, 4g and 7g it is twice and four times that, which on every other model is
// a little less than they have.
var models = []model{
	{"a100-40gb", false, []int{5, 5, 10, 10, 20, 20, 40}, []int{4864, 4864, 9856, 9856, 19968, 19968, 40192}},
	{"a100-80gb", false, []int{10, 10, 20, 20, 40, 40, 80}, []int{9728, 9728, 19968, 19968, 40192, 40192, 80384}},
	{"a30", true, []int{6, 6, 12, 12, 24}, []int{5952, 5952, 11968, 11968, 24000}},
	{"b200-180gb", false, []int{23, 23, 45, 45, 90, 90, 180}, []int{20992, 20992, 45312, 45312, 90624, 90624, 181248}},
	{"h100-80gb", false, []int{10, 10, 20, 20, 40, 40, 80}, []int{9984, 9984, 20096, 20096, 40448, 40448, 81152}},
	{"h100-94gb", false, []int{12, 12, 24, 24, 47, 47, 94}, []int{10880, 10880, 22016, 22016, 47232, 47232, 94848}},
	{"h100-96gb", false, []int{12, 12, 24, 24, 48, 48, 96}, []int{11264, 11264, 23552, 23552, 47616, 47616, 95232}},
	{"h200-141gb", false, []int{18, 18, 35, 35, 71, 71, 141}, []int{16384, 16384, 33024, 33024, 71168, 71168, 143104}},
}

// Models returns the names of the device models whose MIG layout is known, sorted:
// a100-40gb, a100-80gb, a30, b200-180gb, h100-80gb, h100-94gb, h100-96gb and
// h200-141gb.
func Models() []string {
	names := make([]string, len(models))
	for i := range models {
		names[i] = models[i].name
	}
	return names
}

// ModelConfig returns the MIG layout of one of Models, for NewGeometry, in memory
// of the caller's own; ok is false for any other name. A host that knows what its
// driver reports puts that into Memory.
func ModelConfig(name string) (cfg GeometryConfig, ok bool) {
	for i := range models {
		if models[i].name == name {
			return models[i].config(), true
		}
	}
	return GeometryConfig{}, false
}

func (m *model) config() GeometryConfig {
	cfg, rows := GeometryConfig{Slices: 8, Compute: 7}, eighths
	if m.quarters {
		cfg, rows = GeometryConfig{Slices: 4, Compute: 4}, quarters
	}
	cfg.Profiles = make([]Profile, len(rows))
	for i, r := range rows {
		cfg.Profiles[i] = Profile{
			Name:    profileName(r.compute, m.names[i], r.media),
			Compute: r.compute,
			Slices:  r.slices,
			Starts:  r.starts,
			Memory:  lockstep.Bytes(m.mib[i]) * lockstep.MiB,
			Media:   r.media,
		}
	}
	return cfg
}

func profileName(compute, gb int, media bool) lockstep.Profile {
	name := strconv.Itoa(compute) + "g." + strconv.Itoa(gb) + "gb"
	if media {
		name += "+me"
	}
	return lockstep.Profile(name)
}

// ParseProfile returns the driver's name of a MIG profile from any form in which
// it is met: "1g.10gb+me", "MIG 1g.10gb+me" as nvidia-smi prints it, and
// "mig-1g.10gb.me" or "nvidia.com/mig-1g.10gb.me" as Kubernetes counts it. The
// numbers have no leading zeros, and of attributes there is "+me", "+me.all",
// "+gfx" and "-me", in lower case.
func ParseProfile(s string) (lockstep.Profile, error) {
	rest := strings.TrimPrefix(s, "nvidia.com/")
	for _, prefix := range []string{"MIG ", "mig-"} {
		if cut, ok := strings.CutPrefix(rest, prefix); ok {
			rest = cut
			break
		}
	}
	compute, rest, ok := strings.Cut(rest, "g.")
	memory, attribute, found := strings.Cut(rest, "gb")
	if !ok || !found || !count(compute) || !count(memory) {
		return "", fault(lockstep.ErrInvalid, "sharing: profile", "", errtext.Quote(s), `want a name such as "1g.10gb+me"`)
	}
	switch attribute {
	case ".me", ".me.all", ".gfx":
		attribute = "+" + attribute[1:]
	case "", "+me", "+me.all", "+gfx", "-me":
	default:
		return "", fault(lockstep.ErrInvalid, "sharing: profile", "", errtext.Quote(s), `knows only the attributes "+me", "+me.all", "+gfx" and "-me"`)
	}
	return lockstep.Profile(compute + "g." + memory + "gb" + attribute), nil
}

// count says whether s is a number of 1 to 9999, in decimal and without leading zeros.
func count(s string) bool {
	if len(s) < 1 || len(s) > 4 || s[0] == '0' {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
