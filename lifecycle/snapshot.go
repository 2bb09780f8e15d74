package lifecycle

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// version of the saved form; another is refused.
const version = 1

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
	data, err := m.encode()
	if err == nil {
		_, err = w.Write(data)
	}
	if err != nil {
		return fmt.Errorf("lifecycle: snapshot: %w", err)
	}
	return nil
}

// Restore reads what Snapshot wrote, configuration included. Bytes that are cut
// short, changed, of another version or of no possible machine are ErrInvalid.
func Restore(r io.Reader) (*Machine, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("lifecycle: restore: %w", err)
	}
	return decode(data)
}

func (m *Machine) encode() ([]byte, error) {
	img := image{Config: m.cfg, Now: m.now, Dropped: m.dropped, Jobs: make([]*job, 0, len(m.jobs))}
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		img.Jobs = append(img.Jobs, m.jobs[id])
	}
	body, err := json.Marshal(img)
	if err != nil {
		return nil, err
	}
	return append(header(body), body...), nil
}

func header(body []byte) []byte {
	return fmt.Appendf(nil, "lockstep/lifecycle %d %x\n", version, sha256.Sum256(body))
}

func decode(data []byte) (*Machine, error) {
	broken := func(field, reason string) error { return fault(lockstep.ErrInvalid, "restore", field, "", reason) }
	cut := bytes.IndexByte(data, '\n') + 1
	body := data[cut:]
	if !bytes.Equal(data[:cut], header(body)) {
		return nil, broken("snapshot", "not a whole snapshot of version "+strconv.Itoa(version))
	}
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
	if err != nil || !bytes.Equal(again, data) {
		return nil, broken("snapshot", "not in the form that Snapshot writes")
	}
	return m, nil
}

// checkSaved says what is impossible about j.
func (m *Machine) checkSaved(j *job) string {
	if j == nil || j.ID.Validate() != nil || m.jobs[j.ID] != nil {
		return "is no job, or stands twice"
	}
	total, gpu := j.Ledger.Total()
	switch {
	case !slices.Contains(States(), j.State):
		return "state is unknown"
	case j.Submitted > j.At || j.At > m.now:
		return "times out of order"
	case total != time.Duration(j.At-j.Submitted) || gpu.Seconds < 0:
		return "ledger does not sum to the wall time"
	case slices.Min(j.Ledger.Time[:]) < 0, j.Risk < 0, j.Ledger.Time[PartProductive] < time.Duration(j.Risk), j.Ran < 0:
		return "ledger is negative"
	case slices.ContainsFunc(append(j.Ledger.GPU[:], j.RiskGPU), func(g GPUTime) bool { return g.Seconds < 0 || g.Nanos < 0 || g.Nanos >= second }):
		return "device time out of range"
	case j.GPUs < 0 || j.Clean < 0 || j.Clean > j.GPUs || j.Target < 0 || j.Target > j.GPUs:
		return "devices out of range"
	case j.State == Cleaning && j.To != Held && !Legal(Cleaning, j.To):
		return "is bound for no state"
	case mustEnd(j.State) && j.Deadline == never && m.now < never-int64(lockstep.MaxWalltime):
		return "has no deadline"
	}
	return ""
}

// mustEnd reports whether time alone must move a job out of s.
func mustEnd(s State) bool {
	return s != Held && s != Running && s != Suspended && !s.Terminal()
}
