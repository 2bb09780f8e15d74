package lifecycle

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	body, err := m.encode()
	if err == nil {
		err = snapshot.Write(w, format, version, body)
	}
	if err != nil {
		return fmt.Errorf("lifecycle: snapshot: %w", err)
	}
	return nil
}

// Restore reads what Snapshot wrote, configuration included. Bytes that are cut
// short, changed, of another version or of no possible machine are ErrInvalid.
func Restore(r io.Reader) (*Machine, error) {
	body, err := snapshot.Read(r, "lifecycle: restore", format, version)
	if err != nil {
		return nil, err
	}
	return decode(body)
}

func (m *Machine) encode() ([]byte, error) {
	img := image{Config: m.cfg, Now: m.now, Dropped: m.dropped, Jobs: make([]*job, 0, len(m.jobs))}
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		img.Jobs = append(img.Jobs, m.jobs[id])
	}
	return json.Marshal(img)
}

func decode(body []byte) (*Machine, error) {
	broken := func(field, reason string) error { return fault(lockstep.ErrInvalid, "restore", field, "", reason) }
	var img image
	if err := json.Unmarshal(body, &img); err != nil {
		return nil, broken("snapshot", err.Error())
	}
	m, err := New(img.Config)
	if err != nil {
		return nil, err
	}
	m.now, m.dropped = img.Now, img.Dropped
	for i, j := range img.Jobs {
		if reason := m.checkSaved(j); reason != "" {
			return nil, broken("jobs["+strconv.Itoa(i)+"]", reason)
		}
		m.jobs[j.ID] = j
		j.timer = never
		m.set(j)
	}
	// One machine has one saved form: anything else was not written by Snapshot.
	again, err := m.encode()
	if err != nil || !bytes.Equal(again, body) {
		return nil, broken("snapshot", "not in the form that Snapshot writes")
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
	risk := j.RiskGPU
	have := j.Ledger.GPU[PartProductive]
	switch {
	case total != time.Duration(j.At-j.Submitted):
		return "ledger does not sum to the wall time"
	case slices.Min(j.Ledger.Time[:]) < 0, j.Risk < 0, j.Ledger.Time[PartProductive] < time.Duration(j.Risk), j.Ran < 0:
		return "ledger is negative"
	case slices.ContainsFunc(append(j.Ledger.GPU[:], risk), func(g GPUTime) bool { return g.Seconds < 0 || g.Nanos < 0 || g.Nanos >= second }):
		return "device time out of range"
	case risk.Seconds > have.Seconds || risk.Seconds == have.Seconds && risk.Nanos > have.Nanos:
		return "more device time is at risk than was productive"
	}
	return ""
}

// mustEnd reports whether time alone must move a job out of s.
func mustEnd(s State) bool {
	return s != Held && s != Running && s != Suspended && !s.Terminal()
}
