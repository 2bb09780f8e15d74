package detect

import (
	"io"
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

const matchedFormat = "lockstep/detect.matched"

// matchedImage is the saved form of a MatchedTest.
type matchedImage struct {
	Config   MatchedConfig `json:"config"`
	Warm     []float64     `json:"warm,omitempty"`
	Series   *seriesImage  `json:"series,omitempty"` // nil while learning
	Branches []branchImage `json:"branches,omitempty"`
	Moments  []momentImage `json:"moments,omitempty"` // nil before the first iteration
	Seen     int           `json:"seen,omitempty"`
	Standing bool          `json:"standing,omitempty"`
	Total    float64       `json:"total,omitempty"`
}

// seriesImage is the saved form of a series: what ready does not work out.
type seriesImage struct {
	Level  float64 `json:"level"`
	Unsure float64 `json:"unsure"`
	Top    float64 `json:"top"`
	Last   float64 `json:"last"`
	Noise  float64 `json:"noise"`
	Cov    float64 `json:"cov"`
	Square float64 `json:"square"`
	N      int     `json:"n"`
}

// branchImage holds odds, level, last, age, size and rough.
type branchImage [6]float64

// momentImage holds mean, square, product, fourth and before.
type momentImage [5]float64

// Snapshot writes configuration and state for RestoreMatched. Equal tests give equal bytes.
func (t *MatchedTest) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "detect: snapshot", matchedFormat, version, t.image())
}

// RestoreMatched reads what Snapshot of a MatchedTest wrote, configuration included. The test goes
// on as the one that was saved. ErrInvalid for bytes that are cut short, changed, of another
// version or of no possible test.
func RestoreMatched(r io.Reader) (*MatchedTest, error) {
	const op = "detect: restore"
	var img matchedImage
	body, err := snapshot.ReadJSON(r, op, matchedFormat, version, &img)
	if err != nil {
		return nil, err
	}
	t, err := matchedOf(&img)
	if err != nil {
		return nil, err
	}
	if err := snapshot.CheckJSON(op, body, t.image()); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *MatchedTest) image() *matchedImage {
	img := &matchedImage{Config: t.cfg, Warm: slices.Clone(t.warm), Seen: t.seen, Standing: t.standing, Total: t.total}
	if t.seen > 0 {
		for _, m := range t.moments {
			img.Moments = append(img.Moments, momentImage{m.mean, m.square, m.product, m.fourth, m.before})
		}
	}
	if !t.learning() {
		img.Series = t.series.image()
		img.Branches = imagesOf(nil, t.branches)
	}
	return img
}

// matchedOf returns the test that img is of.
func matchedOf(img *matchedImage) (*MatchedTest, error) {
	t, err := NewMatched(img.Config)
	if err != nil {
		return nil, err
	}
	if reason := t.restore(img); reason != "" {
		return nil, invalid("restore", "state", "", reason)
	}
	return t, nil
}

// restore takes the state of img, whose configuration t has, in; or says what is impossible about
// it.
func (t *MatchedTest) restore(img *matchedImage) string {
	known := img.Series != nil
	switch {
	case len(img.Warm) >= t.cfg.Warmup || known && len(img.Warm) > 0 || !allKnown(img.Warm):
		return "warm: is not what a test keeps"
	case img.Seen < len(img.Warm) || img.Seen > meanMemory || !known && img.Seen != min(len(img.Warm), meanMemory):
		return "seen: does not suit the samples"
	case len(img.Moments) != 0 && len(img.Moments) != len(t.moments) || (len(img.Moments) > 0) != (img.Seen > 0):
		return "moments: want one a place and factor"
	case known && len(img.Branches) != len(t.branches) || !known && (len(img.Branches) > 0 || img.Standing || img.Total != 0):
		return "branches: do not suit the samples"
	case !(img.Total >= 0 && img.Total <= t.limit*oddsRoom*(1+1e-9)):
		return "total: out of range"
	}
	for i, m := range img.Moments {
		if !allKnown(m[:]) || m[0] < 0 || m[1] < 0 || m[3] < 0 {
			return "moments: out of range"
		}
		t.moments[i] = moments{m[0], m[1], m[2], m[3], m[4]}
	}
	if known {
		if reason := t.series.restore(img.Series); reason != "" {
			return "series " + reason
		}
	}
	if !restoreBranches(t.branches, img.Branches) {
		return "branches: out of range"
	}
	t.warm = append(t.warm, img.Warm...)
	t.seen, t.standing, t.total = img.Seen, img.Standing, img.Total
	return ""
}

func (s *series) image() *seriesImage {
	return &seriesImage{Level: s.level, Unsure: s.unsure, Top: s.top, Last: s.last, Noise: s.noise, Cov: s.cov, Square: s.square, N: s.n}
}

// restore takes a saved series in, or says what is impossible about it.
func (s *series) restore(img *seriesImage) string {
	switch {
	case !allKnown([]float64{img.Level, img.Unsure, img.Top, img.Last, img.Noise, img.Cov, img.Square}):
		return "is not finite"
	case img.N < 8 || img.N > levelMemory:
		return "samples do not add up"
	case img.Unsure <= 0 || img.Noise < leastScale*leastScale*(1-1e-9) || img.Square <= 0 || math.Abs(img.Cov) > img.Square*1e6:
		return "out of range"
	}
	*s = series{
		level: img.Level, unsure: img.Unsure, top: img.Top, last: img.Last, noise: img.Noise,
		cov: img.Cov, square: img.Square, n: img.N,
		keep: min(max(img.Cov/img.Square, 0), maxRho),
	}
	s.ready()
	return ""
}

func imagesOf(dst []branchImage, branches []branch) []branchImage {
	for _, b := range branches {
		dst = append(dst, branchImage{b.odds, b.level, b.last, b.age, b.size, b.rough})
	}
	return dst
}

// restoreBranches takes saved branches in; false where one is out of range.
func restoreBranches(dst []branch, from []branchImage) bool {
	for i, b := range from {
		if !allKnown(b[:]) || b[0] < 0 || b[3] < 0 || b[4] < leastSize || b[4] > mostSize || b[5] < 0 || b[5] > roughSize*(1+1e-9) {
			return false
		}
		dst[i] = branch{odds: b[0], level: b[1], last: b[2], age: b[3], size: b[4], rough: b[5]}
	}
	return true
}

// allKnown says that all figures are finite.
func allKnown(xs []float64) bool {
	return !slices.ContainsFunc(xs, func(x float64) bool { return !(math.Abs(x) <= math.MaxFloat64) })
}
