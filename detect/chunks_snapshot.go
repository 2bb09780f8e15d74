package detect

import (
	"io"
	"slices"

	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

const chunksFormat = "lockstep/detect.chunks"

// chunksImage is the saved form of a ChunkTest.
type chunksImage struct {
	Config ChunkConfig  `json:"config"`
	Places []placeImage `json:"places"` // by replica*stages+stage
	Joint  float64      `json:"joint,omitempty"`
	Square float64      `json:"square,omitempty"`
	Count  float64      `json:"count,omitempty"`
	Shared float64      `json:"shared"`
}

// placeImage is the saved form of a place.
type placeImage struct {
	Warm     []float64     `json:"warm,omitempty"`
	Series   *seriesImage  `json:"series,omitempty"` // nil while learning
	Branches []branchImage `json:"branches,omitempty"`
	Standing bool          `json:"standing,omitempty"`
	Odds     float64       `json:"odds,omitempty"`
}

// Snapshot writes configuration and state for RestoreChunks. Equal tests give equal bytes.
func (t *ChunkTest) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "detect: snapshot", chunksFormat, version, t.image())
}

// RestoreChunks reads what Snapshot of a ChunkTest wrote, configuration included. The test goes on
// as the one that was saved. ErrInvalid for bytes that are cut short, changed, of another version
// or of no possible test.
func RestoreChunks(r io.Reader) (*ChunkTest, error) {
	const op = "detect: restore"
	var img chunksImage
	body, err := snapshot.ReadJSON(r, op, chunksFormat, version, &img)
	if err != nil {
		return nil, err
	}
	t, err := chunksOf(&img)
	if err != nil {
		return nil, err
	}
	if err := snapshot.CheckJSON(op, body, t.image()); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *ChunkTest) image() *chunksImage {
	img := &chunksImage{
		Config: t.cfg, Places: make([]placeImage, len(t.places)),
		Joint: t.joint, Square: t.square, Count: t.count, Shared: t.shared,
	}
	for i := range t.places {
		p := &t.places[i]
		own := placeImage{Warm: slices.Clone(p.warm), Standing: p.standing, Odds: p.odds}
		if !p.learning() {
			own.Series = p.series.image()
			own.Branches = imagesOf(nil, p.branches[:])
		}
		img.Places[i] = own
	}
	return img
}

// chunksOf returns the test that img is of.
func chunksOf(img *chunksImage) (*ChunkTest, error) {
	t, err := NewChunks(img.Config)
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
func (t *ChunkTest) restore(img *chunksImage) string {
	most := commonMemory * float64(len(t.places)) * (1 + 1e-9)
	switch {
	case len(img.Places) != len(t.places):
		return "places: want one a stage of each replica"
	case !allKnown([]float64{img.Joint, img.Square}) || img.Square < 0 || !(img.Count >= 0 && img.Count <= most) || !(img.Shared >= 0 && img.Shared <= 1):
		return "shared: out of range"
	}
	for i := range img.Places {
		if reason := t.places[i].restore(&img.Places[i], t.cfg.Warmup, t.limit); reason != "" {
			return "places: " + reason
		}
	}
	t.joint, t.square, t.count, t.shared = img.Joint, img.Square, img.Count, img.Shared
	return ""
}

// restore takes a saved place in, or says what is impossible about it.
func (p *place) restore(img *placeImage, warmup int, limit float64) string {
	known := img.Series != nil
	switch {
	case len(img.Warm) >= warmup || known && len(img.Warm) > 0 || !allKnown(img.Warm):
		return "first samples are not what a test keeps"
	case known && len(img.Branches) != len(p.branches) || !known && (len(img.Branches) > 0 || img.Standing || img.Odds != 0):
		return "branches do not suit the samples"
	case !(img.Odds >= 0 && img.Odds <= limit*oddsRoom*(1+1e-9)):
		return "odds out of range"
	case !restoreBranches(p.branches[:], img.Branches):
		return "branches out of range"
	}
	if known {
		if reason := p.series.restore(img.Series); reason != "" {
			return "series " + reason
		}
	}
	p.warm = append(p.warm, img.Warm...)
	p.standing, p.odds = img.Standing, img.Odds
	return ""
}
