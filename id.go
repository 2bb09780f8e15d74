package lockstep

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// JobID names a job. A job asks for one gang at a time, so it also names the gang.
type JobID string

// NodeID names a node (a host with devices) for as long as it belongs to the cluster.
type NodeID string

// DeviceID is a device's own name, such as an NVML UUID ("GPU-…", "MIG-…").
type DeviceID string

// TenantID names who pays for service: a user, a team, a virtual cluster.
type TenantID string

// QueueID names a queue that jobs wait in.
type QueueID string

// RoleName names one role of a gang, such as "worker" or "launcher".
type RoleName string

// Level names a level of the topology, such as "rack". The order of levels is
// the tree's. What an empty Level means, each field that holds one says.
type Level string

// LevelNode is the level of single nodes; every topology.Tree has it as its finest.
const LevelNode Level = "node"

// DeviceClass names a kind of device that jobs may ask for, such as "h100".
type DeviceClass string

// Priority orders jobs: higher first. Zero is ordinary.
type Priority int32

// MaxIDLength is the longest ID in bytes that Validate accepts.
const MaxIDLength = 253

// Validate reports whether id is a usable name: 1 to MaxIDLength bytes of
// letters, marks and digits of any script and - _ . : / @ + %, not beginning
// with -. Such a name is one word, unquoted, in a log line, a hostfile, an
// environment file, a shell command and a list with commas. The error is an
// *Error of kind ErrInvalid.
func (id JobID) Validate() error { return validateID("JobID", string(id)) }

// Validate reports whether id is a usable name; the rule is that of JobID.
func (id NodeID) Validate() error { return validateID("NodeID", string(id)) }

// Validate reports whether id is a usable name; the rule is that of JobID.
func (id DeviceID) Validate() error { return validateID("DeviceID", string(id)) }

// Validate reports whether id is a usable name; the rule is that of JobID.
func (id TenantID) Validate() error { return validateID("TenantID", string(id)) }

// Validate reports whether id is a usable name; the rule is that of JobID.
func (id QueueID) Validate() error { return validateID("QueueID", string(id)) }

// Validate reports whether n is a usable name; the rule is that of JobID.
func (n RoleName) Validate() error { return validateID("RoleName", string(n)) }

// Validate reports whether l is a usable name; the rule is that of JobID.
func (l Level) Validate() error { return validateID("Level", string(l)) }

// Validate reports whether c is a usable name; the rule is that of JobID.
func (c DeviceClass) Validate() error { return validateID("DeviceClass", string(c)) }

func validateID(kind, id string) error {
	if reason := nameFault(id); reason != "" {
		return invalid("id", kind, errtext.Quote(id), reason)
	}
	return nil
}

// nameFault says what keeps s from being a name, or "" if nothing does.
func nameFault(s string) string {
	switch {
	case s == "":
		return "must not be empty"
	case len(s) > MaxIDLength:
		return "must be at most " + strconv.Itoa(MaxIDLength) + " bytes"
	case !utf8.ValidString(s):
		return "must be valid UTF-8"
	case s[0] == '-':
		return "must not begin with -"
	}
	for _, r := range s {
		if !nameRune(r) {
			return "must hold only letters, digits and -_.:/@+%"
		}
	}
	return ""
}

func nameRune(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return true
	case r < utf8.RuneSelf:
		return strings.ContainsRune("-_.:/@+%", r)
	}
	return unicode.In(r, unicode.L, unicode.M, unicode.N)
}
