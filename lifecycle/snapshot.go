package lifecycle

import (
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// format and version of the saved form; others are refused.
const (
	format  = "lockstep/lifecycle"
	version = 1
)

// image is the saved form of a Machine.
type image struct {
	Config  Config `json:"config"`
	Now     int64  `json:"now"`
	Dropped int64  `json:"dropped"`
	Jobs    []*job `json:"jobs"` // by ID
}

// Snapshot writes the whole machine: one line with format, version and SHA-256,
// then JSON. Equal machines give equal bytes.
func (m *Machine) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "lifecycle: snapshot", format, version, m.image())
}

// Restore reads what Snapshot wrote, configuration included. Bytes that are cut
// short, changed, of another version or of no possible machine are ErrInvalid.
func Restore(r io.Reader) (*Machine, error) {
	const op = "lifecycle: restore"
	var img image
	body, err := snapshot.ReadJSON(r, op, format, version, &img)
	if err != nil {
		return nil, err
	}
	m, err := machine(&img)
	if err != nil {
		return nil, err
	}
	if err := snapshot.CheckJSON(op, body, m.image()); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Machine) image() *image {
	img := &image{Config: m.cfg, Now: m.now, Dropped: m.dropped, Jobs: make([]*job, 0, len(m.jobs))}
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		img.Jobs = append(img.Jobs, m.jobs[id])
	}
	return img
}

// machine returns the machine that img is of.
func machine(img *image) (*Machine, error) {
	m, err := New(img.Config)
	if err != nil {
		return nil, err
	}
	m.now, m.dropped = img.Now, img.Dropped
	for i, j := range img.Jobs {
		if reason := m.checkSaved(j); reason != "" {
			return nil, fault(lockstep.ErrInvalid, "restore", "jobs["+strconv.Itoa(i)+"]", "", reason)
		}
		m.jobs[j.ID] = j
		j.timer = never
		m.set(j)
	}
	return m, nil
}

// checkSaved says what is impossible about j.
func (m *Machine) checkSaved(j *job) string {
	if j == nil || j.ID.Validate() != nil || m.jobs[j.ID] != nil {
		return "is no job, or stands twice"
	}
	switch {
	case !slices.Contains(States(), j.State):
		return "state is unknown"
	case j.Submitted < 0 || j.Submitted > j.At || j.At > m.now:
		return "times out of order"
	case j.State == Cleaning && j.To != Held && !Legal(Cleaning, j.To):
		return "is bound for no state"
	case mustEnd(j.State) && j.Deadline == never && m.now < never-int64(lockstep.MaxWalltime):
		return "has no deadline"
	case j.attempting() && j.Attempt == 0:
		return "has no attempt"
	case j.Charges < 0 || slices.ContainsFunc(j.Used, func(u used) bool { return u.N <= 0 }):
		return "budgets are negative"
	}
	if reason := j.checkDevices(); reason != "" {
		return reason
	}
	return j.checkLedger()
}

// checkDevices says what is impossible about what j holds and does.
func (j *job) checkDevices() string {
	switch {
	case j.GPUs < 0 || j.Clean < 0 || j.Clean > j.GPUs || j.Target < 0 || j.Target > j.GPUs:
		return "devices out of range"
	case j.GPUs > 0 && !j.attempting(), j.Clean > 0 && j.State != Cleaning:
		return "devices do not suit the state"
	case j.Saving && j.State != Running, j.Target > 0 && j.State != Running && j.State != Lost:
		return "flags do not suit the state"
	}
	return ""
}

// checkLedger says what is impossible about j's ledger.
func (j *job) checkLedger() string {
	total, _ := j.Ledger.Total()
	switch {
	case total != time.Duration(j.At-j.Submitted):
		return "ledger does not sum to the wall time"
	case slices.Min(j.Ledger.Time[:]) < 0, j.Risk < 0, j.Ledger.Time[PartProductive] < time.Duration(j.Risk), j.Ran < 0:
		return "ledger is negative"
	case j.RiskGPU.Sign() < 0, slices.ContainsFunc(j.Ledger.GPU[:], func(g lockstep.GPUTime) bool { return g.Sign() < 0 }):
		return "device time out of range"
	case j.RiskGPU.Cmp(j.Ledger.GPU[PartProductive]) > 0:
		return "more device time is at risk than was productive"
	}
	return ""
}

// mustEnd reports whether time alone must move a job out of s.
func mustEnd(s State) bool {
	return s != Held && s != Running && s != Suspended && !s.Terminal()
}
