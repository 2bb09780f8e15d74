package interval

import (
	"io"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused.
const (
	format  = "lockstep/checkpoint/interval"
	version = 1
)

// image is the saved form of a Policy.
type image struct {
	Config   Config          `json:"config"`
	Failures Failures        `json:"failures"`
	Mean     time.Duration   `json:"mean"`
	Measured bool            `json:"measured,omitempty"`
	Seen     []time.Duration `json:"seen,omitempty"`
	Next     int             `json:"next,omitempty"`
	Last     time.Duration   `json:"last,omitempty"`
}

func (p *Policy) image() image {
	return image{p.given, p.failures, p.mean, p.measured, p.seen, p.next, p.last}
}

// Snapshot writes the whole policy: one line with format, version and SHA-256, then JSON. Equal policies give equal
// bytes.
func (p *Policy) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "interval: snapshot", format, version, p.image())
}

// Restore reads what Snapshot wrote, configuration included. Bytes that Snapshot did not write are ErrInvalid.
func Restore(r io.Reader) (*Policy, error) {
	const op = "interval: restore"
	var img image
	body, err := snapshot.ReadJSON(r, op, format, version, &img)
	if err != nil {
		return nil, err
	}
	p, err := New(img.Config)
	if err != nil {
		return nil, err
	}
	if err := img.check(); err != nil {
		return nil, err
	}
	p.failures, p.mean, p.measured = img.Failures, img.Mean, img.Measured
	p.seen, p.next, p.last = img.Seen, img.Next, img.Last
	if err := snapshot.CheckJSON(op, body, p.image()); err != nil {
		return nil, err
	}
	return p, nil
}

// check refuses what no policy can be in.
func (img *image) check() error {
	if errs := img.Failures.validate("restore", "failures."); len(errs) > 0 {
		return errs[0]
	}
	for _, d := range append([]time.Duration{img.Mean, img.Last}, img.Seen...) {
		if err := within("restore", "snapshot", d); err != nil {
			return err
		}
	}
	bad := img.Measured != (len(img.Seen) > 0) || len(img.Seen) > window ||
		img.Next < 0 || img.Next >= window || (len(img.Seen) < window && img.Next != 0) ||
		(!img.Measured && img.Mean != img.Config.Stall)
	if bad {
		return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "interval: restore", Field: "snapshot", Value: strconv.Itoa(len(img.Seen)) + " stalls", Reason: "do not fit the rest"}
	}
	return nil
}
