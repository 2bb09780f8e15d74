package prometheus

import (
	"bytes"
	_ "embed"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// dashboard is for the default prefix.
//
//go:embed dashboard.json
var dashboard []byte

// Dashboard returns a dashboard for Grafana, as JSON to import, of metrics whose
// names begin with prefix; "" means DefaultPrefix. A prefix that Config would
// refuse is lockstep.ErrInvalid. It asks for a data source, and has rows for
// jobs, devices, fairness, decisions, serving, health and hardware; panels of
// what nobody records stay empty.
func Dashboard(prefix string) ([]byte, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if !prefixes.MatchString(prefix) {
		return nil, &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "prometheus: dashboard", Field: "prefix", Value: errtext.Quote(prefix), Reason: "want small letters, digits and single underscores, one at the end"}
	}
	return bytes.ReplaceAll(dashboard, []byte(DefaultPrefix), []byte(prefix)), nil
}
