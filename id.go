package lockstep

import (
	"strconv"
	"unicode"
	"unicode/utf8"
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
// the tree's; the empty Level means "no level asked for".
type Level string

// LevelNode is the level of single nodes; every topology.Tree has it as its finest.
const LevelNode Level = "node"

// DeviceClass names a kind of device that jobs may ask for, such as "h100".
type DeviceClass string

// Priority orders jobs: higher first. Zero is ordinary.
type Priority int32

// MaxIDLength is the longest ID in bytes that Validate accepts.
const MaxIDLength = 253

// Validate reports whether id is a usable name.
func (id JobID) Validate() error { return validateID("JobID", string(id)) }

// Validate reports whether id is a usable name.
func (id NodeID) Validate() error { return validateID("NodeID", string(id)) }

// Validate reports whether id is a usable name.
func (id TenantID) Validate() error { return validateID("TenantID", string(id)) }

// Validate reports whether id is a usable name.
func (id QueueID) Validate() error { return validateID("QueueID", string(id)) }

// validateID checks that an ID is 1 to MaxIDLength bytes of valid UTF-8
// without spaces or control characters, so that it can stand in a log line,
// a hostfile and an environment variable without quoting.
func validateID(kind, id string) error {
	switch {
	case id == "":
		return invalid("id", kind, "", "must not be empty")
	case len(id) > MaxIDLength:
		return invalid("id", kind, strconv.Quote(id[:32])+"...", "must be at most "+strconv.Itoa(MaxIDLength)+" bytes")
	case !utf8.ValidString(id):
		return invalid("id", kind, strconv.Quote(id), "must be valid UTF-8")
	}
	for _, r := range id {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			return invalid("id", kind, strconv.Quote(id), "must not hold spaces or control characters")
		}
	}
	return nil
}
