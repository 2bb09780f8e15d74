package liveness

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// coordinatorImage is the saved form of a Coordinator.
type coordinatorImage struct {
	Table    tableImage[lockstep.NodeID] `json:"table"`
	Domains  []string                    `json:"domains"` // of the members of the table
	Ranks    []rankRecord                `json:"ranks"`   // by number
	Open     []accused                   `json:"open,omitempty"`
	News     bool                        `json:"news"`
	FaultAt  int64                       `json:"faultAt"`
	Parts    []partition                 `json:"parts,omitempty"`
	Lists    []List                      `json:"lists"`
	Epoch    uint64                      `json:"epoch"`
	Standing int                         `json:"standing"`
}

// rankRecord is the saved form of a rank.
type rankRecord struct {
	Number int             `json:"number"`
	Inc    uint64          `json:"inc"`
	Node   lockstep.NodeID `json:"node"`
	Own    Member          `json:"own"`
	Told   State           `json:"told"`
	Said   lockstep.Reason `json:"said"`
	Since  time.Time       `json:"since"`
	Of     uint64          `json:"of"`
	Blame  lockstep.Reason `json:"blame,omitempty"`
	Until  int64           `json:"until,omitempty"`
	Dirty  bool            `json:"dirty,omitempty"`
}

// Snapshot writes the whole coordinator: one line with format, version and SHA-256,
// then JSON. Equal coordinators give equal bytes.
func (c *Coordinator) Snapshot(w io.Writer) error {
	return snapshot.WriteJSON(w, "liveness: snapshot", coordinatorFormat, version, c.image())
}

func (c *Coordinator) image() *coordinatorImage {
	img := &coordinatorImage{
		Table: c.t.image(), Open: c.open, News: c.news, FaultAt: c.faultAt, Parts: c.parts, Lists: c.lists, Epoch: c.epoch, Standing: c.standing,
		Domains: make([]string, 0, len(c.nodes)), Ranks: make([]rankRecord, 0, len(c.ranks)),
	}
	for _, m := range img.Table.Members {
		img.Domains = append(img.Domains, c.nodes[m.Key].domain)
	}
	for _, number := range slices.Sorted(maps.Keys(c.ranks)) {
		r := c.ranks[number]
		img.Ranks = append(img.Ranks, rankRecord{r.number, r.inc, r.node, r.own, r.told, r.said, r.since, r.of, r.blame, r.until, r.dirty})
	}
	return img
}

// RestoreCoordinator reads what Snapshot wrote, configuration included, but for
// Domain, which is for nodes that join later; what the others said of themselves
// then is kept. Bytes that are cut short, changed, of another version or of no
// possible coordinator are ErrInvalid. The time away is not laid to the nodes: see
// ObserverLate.
func RestoreCoordinator(r io.Reader, domain func(lockstep.NodeID) string) (*Coordinator, error) {
	const op = "liveness: restore"
	var img coordinatorImage
	body, err := snapshot.ReadJSON(r, op, coordinatorFormat, version, &img)
	if err != nil {
		return nil, err
	}
	c, err := coordinatorOf(&img)
	if err != nil {
		return nil, err
	}
	c.domain = domain
	if err := snapshot.CheckJSON(op, body, c.image()); err != nil {
		return nil, err
	}
	return c, nil
}

// coordinatorOf returns the coordinator that img is of.
func coordinatorOf(img *coordinatorImage) (*Coordinator, error) {
	c, err := NewCoordinator(img.Table.Config)
	if err != nil {
		return nil, err
	}
	if c.t, err = tableOf(&img.Table, false, func(id lockstep.NodeID) bool { return id.Validate() == nil }); err != nil {
		return nil, err
	}
	broken := func(field, reason string) error {
		return fault(lockstep.ErrInvalid, "restore", field, "", reason)
	}
	if len(img.Domains) != len(img.Table.Members) {
		return nil, broken("domains", "want one for each node")
	}
	for i, m := range img.Table.Members {
		c.nodes[m.Key] = &node{domain: img.Domains[i]}
	}
	for i := range img.Ranks {
		if reason := c.load(&img.Ranks[i]); reason != "" {
			return nil, broken("ranks["+strconv.Itoa(i)+"]", reason)
		}
	}
	c.open, c.news, c.faultAt, c.parts, c.lists, c.epoch, c.standing = img.Open, img.News, img.FaultAt, img.Parts, img.Lists, img.Epoch, img.Standing
	if reason := c.check(); reason != "" {
		return nil, broken("coordinator", reason)
	}
	return c, nil
}

// load adds the rank of r, or says what is impossible about it.
func (c *Coordinator) load(r *rankRecord) string {
	n := c.nodes[r.Node]
	switch {
	case n == nil || checkRank("restore", r.Number) != nil || c.ranks[r.Number] != nil:
		return "stands twice, or on no node"
	case r.Told >= states || r.Said == "" || r.Own.State >= states || r.Own.Node != "" || r.Own.Rank != 0 || r.Own.Incarnation != 0:
		return "state is unknown"
	case r.Of > r.Inc:
		return "a later incarnation was told of"
	case r.Blame != "" && r.Blame != reasonAccused && r.Blame != reasonAccuser, (r.Blame == "") != (r.Until == 0), r.Until < 0:
		return "is blamed for nothing"
	}
	s := &rank{number: r.Number, inc: r.Inc, node: r.Node, own: r.Own, told: r.Told, said: r.Said, since: r.Since, of: r.Of, blame: r.Blame, until: r.Until}
	c.ranks[r.Number] = s
	n.put(r.Number)
	if r.Blame != "" {
		c.blamed = append(c.blamed, s)
	}
	if r.Dirty {
		c.touch(s)
	}
	return ""
}

// check says what is impossible about the lists of c.
func (c *Coordinator) check() string {
	for _, check := range []func() string{c.checkLists, c.checkCounts, c.checkOpen, c.checkParts, c.checkFaults} {
		if reason := check(); reason != "" {
			return reason
		}
	}
	return ""
}

func (c *Coordinator) checkLists() string {
	if len(c.lists) == 0 || len(c.lists) > thousand || c.epoch > 2*maxCount {
		return "lists out of range"
	}
	byRank := func(a, b Member) int { return cmp.Compare(a.Rank, b.Rank) }
	for i, l := range c.lists {
		if i > 0 && l.Epoch <= c.lists[i-1].Epoch || l.Epoch > c.epoch || !slices.IsSortedFunc(l.Faults, byRank) {
			return "lists out of order"
		}
	}
	return ""
}

func (c *Coordinator) checkCounts() string {
	standing, part := 0, 0
	for _, r := range c.ranks { // in any order: counted
		if excuses(r.told, r.said) {
			standing++
		}
		if takesPart(r.told) {
			part++
		}
	}
	if standing != c.standing || part != c.Faults().Participants {
		return "counts are wrong"
	}
	return ""
}

// checkOpen says what is impossible about the accusations.
func (c *Coordinator) checkOpen() string {
	if c.faultAt < -1 || c.faultAt > c.t.now || len(c.open) > maxOpen {
		return "accusations out of range"
	}
	for i, a := range c.open {
		switch {
		case c.ranks[a.By] == nil || c.ranks[a.Of] == nil || a.By == a.Of || a.Group < 2:
			return "accusation of nobody"
		case a.First < 0 || a.First > a.Last || a.Last > c.t.now || i > 0 && c.open[i-1].compare(a) >= 0:
			return "accusations out of order"
		}
	}
	return ""
}

func (c *Coordinator) checkParts() string {
	for i, p := range c.parts {
		if p.Until < 0 || i > 0 && c.parts[i-1].Domain >= p.Domain {
			return "partitions out of order"
		}
	}
	return ""
}

// checkFaults says whether the latest list is not that of the ranks.
func (c *Coordinator) checkFaults() string {
	faults := c.Faults().Faults
	for _, number := range slices.Sorted(maps.Keys(c.ranks)) {
		r := c.ranks[number]
		if !listed(r.told) {
			continue
		}
		if len(faults) == 0 || faults[0].Rank != number || faults[0].State != r.told || faults[0].Incarnation != r.of {
			return "list lacks a fault"
		}
		faults = faults[1:]
	}
	if len(faults) > 0 {
		return "list has a fault too many"
	}
	return ""
}
