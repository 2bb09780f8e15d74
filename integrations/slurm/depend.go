package slurm

import (
	"strconv"
	"strings"
)

// needs are what a job waits for before it may have a turn.
type needs struct {
	jobs  []uint32 // numbers of jobs or arrays
	any   bool     // any one of them will do
	never bool     // it cannot be foreseen
}

// needsOf says what a job waits for. It cannot be foreseen where Slurm says that it waits, but not for whom.
func needsOf(j *Job) needs {
	n := parseNeeds(j.Dependency)
	n.never = n.never || j.Dependency == "" && j.Reason == "Dependency"
	return n
}

// parseNeeds reads "afterok:12(unfulfilled),afterany:5_*(unfulfilled)". Jobs are taken to end well, and "after", which
// is a start, is taken for an end.
func parseNeeds(s string) needs {
	var n needs
	if s == "" || s == "(null)" {
		return n
	}
	n.any = strings.Contains(s, "?")
	for item := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || r == '?' }) {
		item, state, _ := strings.Cut(item, "(")
		if strings.HasPrefix(state, "fulfilled") {
			if n.any {
				return needs{}
			}
			continue
		}
		kind, list, _ := strings.Cut(item, ":")
		switch kind {
		case "after", "afterany", "afterok", "aftercorr", "afterburstbuffer":
		default: // afternotok hopes for a failure, singleton goes by names
			n.never = true
			continue
		}
		for id := range strings.SplitSeq(list, ":") {
			id, _, _ = strings.Cut(id, "_")
			id, _, _ = strings.Cut(id, "+")
			v, err := strconv.ParseUint(id, 10, 32)
			if err != nil {
				n.never = true
				continue
			}
			n.jobs = append(n.jobs, uint32(v))
		}
	}
	if n.any && len(n.jobs) > 0 {
		n.never = false
	}
	return n
}
