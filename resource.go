package lockstep

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// ResourceName names something that is counted: "cpu", "memory", "gpu/h100".
type ResourceName string

// The names that Demand uses. Devices of a class are counted under
// ResourceGPUClass(class) as well as under ResourceGPU.
const (
	ResourceGPU       ResourceName = "gpu"        // ResourceGPU counts devices of any class, in MilliGPU.
	ResourceGPUMemory ResourceName = "gpu-memory" // ResourceGPUMemory counts the memory of shared devices, in Bytes.
	ResourceCPU       ResourceName = "cpu"        // ResourceCPU counts cores, in MilliCPU.
	ResourceMemory    ResourceName = "memory"     // ResourceMemory counts host memory, in Bytes.
	ResourceRDMA      ResourceName = "rdma"       // ResourceRDMA counts network endpoints, whole.
	ResourceSlots     ResourceName = "slots"      // ResourceSlots counts members a node may hold, whole.
)

// ResourceGPUClass returns the name under which devices of class are counted,
// in MilliGPU. The empty class is ResourceGPU.
func ResourceGPUClass(class DeviceClass) ResourceName {
	if class == "" {
		return ResourceGPU
	}
	return ResourceGPU + "/" + ResourceName(class)
}

// Resources are named amounts, each in its resource's own unit (MilliGPU,
// MilliCPU, Bytes, or a count); a negative amount is a shortfall. A name that is
// absent is zero. It is the form for configuration and the wire; arithmetic is
// done on Vectors.
type Resources map[ResourceName]int64

// formatAmount returns the text form of v in the unit of name.
func formatAmount(name ResourceName, v int64) string {
	switch {
	case name == ResourceGPU || strings.HasPrefix(string(name), string(ResourceGPU)+"/") || name == ResourceCPU:
		return formatMilli(v)
	case name == ResourceMemory || name == ResourceGPUMemory:
		return Bytes(v).String()
	}
	return strconv.FormatInt(v, 10)
}

// parseAmount reads what formatAmount writes; the reason is empty if it can.
func parseAmount(name ResourceName, s string) (int64, string) {
	switch {
	case name == ResourceGPU || strings.HasPrefix(string(name), string(ResourceGPU)+"/") || name == ResourceCPU:
		return parseMilli(s)
	case name == ResourceMemory || name == ResourceGPUMemory:
		return parseBytes(s)
	}
	return parseDecimal(s, 1)
}

// String returns "cpu=8 gpu/h100=2500m memory=64Gi", sorted by name.
func (r Resources) String() string {
	parts := make([]string, 0, len(r))
	for _, name := range slices.Sorted(maps.Keys(r)) {
		parts = append(parts, string(name)+"="+formatAmount(name, r[name]))
	}
	return strings.Join(parts, " ")
}

// MarshalJSON writes an object of text forms, sorted by name:
// {"cpu":"8","memory":"64Gi"}. A nil r gives {}.
func (r Resources) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range slices.Sorted(maps.Keys(r)) {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(string(name))
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteString(`:"` + formatAmount(name, r[name]) + `"`)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON reads what MarshalJSON writes; amounts may also be plain
// numbers, of whole devices, whole cores, bytes or a count. Anything else, null
// amounts and names that are no IDs included, is ErrInvalid and leaves *r alone.
func (r *Resources) UnmarshalJSON(data []byte) error {
	var raw map[ResourceName]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return invalid("parse", "Resources", errtext.Quote(string(data)), "want an object of amounts by name")
	}
	if raw == nil {
		*r = nil
		return nil
	}
	out := make(Resources, len(raw))
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if reason := nameFault(string(name)); reason != "" {
			return invalid("parse", "Resources", errtext.Quote(string(name)), "name "+reason)
		}
		text := string(raw[name])
		if text[0] == '"' {
			if err := json.Unmarshal(raw[name], &text); err != nil {
				return invalid("parse", "Resources."+string(name), errtext.Quote(text), "want a text or a number")
			}
		}
		v, reason := parseAmount(name, text)
		if reason != "" {
			return invalid("parse", "Resources."+string(name), errtext.Quote(text), reason)
		}
		out[name] = v
	}
	*r = out
	return nil
}

// VectorWidth is how many resources one cluster may tell apart.
const VectorWidth = 16

// Vector holds one amount for each resource of a Schema, by the schema's index.
// Entries past the schema's length stay zero. It is a value: copies are free of
// each other, == compares, and arithmetic allocates nothing.
type Vector [VectorWidth]int64

// Schema gives the resources of one cluster their places in a Vector. It is
// immutable and safe for concurrent use; Vectors of different schemas must not
// meet.
type Schema struct {
	names []ResourceName
	index map[ResourceName]int
}

// NewSchema returns a schema of the given names, in that order. It refuses
// names that are no IDs (ErrInvalid), names given twice (ErrDuplicate) and more
// than VectorWidth of them (ErrInvalid).
func NewSchema(names ...ResourceName) (*Schema, error) {
	if len(names) > VectorWidth {
		return nil, invalid("schema", "names", strconv.Itoa(len(names)), "at most "+strconv.Itoa(VectorWidth)+" resources")
	}
	s := &Schema{names: slices.Clone(names), index: make(map[ResourceName]int, len(names))}
	for i, name := range names {
		if reason := nameFault(string(name)); reason != "" {
			return nil, invalid("schema", "names["+strconv.Itoa(i)+"]", errtext.Quote(string(name)), reason)
		}
		if _, ok := s.index[name]; ok {
			return nil, &Error{Kind: ErrDuplicate, Op: "lockstep: schema", Field: "names[" + strconv.Itoa(i) + "]", Value: errtext.Quote(string(name)), Reason: "named twice"}
		}
		s.index[name] = i
	}
	return s, nil
}

// Len returns how many resources s tells apart.
func (s *Schema) Len() int { return len(s.names) }

// Name returns the resource at index i, 0 <= i < Len.
func (s *Schema) Name(i int) ResourceName { return s.names[i] }

// Index returns the place of name.
func (s *Schema) Index(name ResourceName) (int, bool) {
	i, ok := s.index[name]
	return i, ok
}

// Vector returns r by index. A name that s does not know is ErrUnknown, whatever
// its amount.
func (s *Schema) Vector(r Resources) (Vector, error) {
	var v Vector
	for _, name := range slices.Sorted(maps.Keys(r)) {
		i, ok := s.index[name]
		if !ok {
			return Vector{}, &Error{Kind: ErrUnknown, Op: "lockstep: vector", Field: "Resources." + string(name), Value: formatAmount(name, r[name]), Reason: "not in the schema"}
		}
		v[i] = r[name]
	}
	return v, nil
}

// Resources returns the entries of v that are not zero, by name.
func (s *Schema) Resources(v Vector) Resources {
	r := make(Resources)
	for i, name := range s.names {
		if v[i] != 0 {
			r[name] = v[i]
		}
	}
	return r
}

// Add returns v+w, each entry held at the ends of int64.
func (v Vector) Add(w Vector) Vector {
	for i := range v {
		v[i] = addSat(v[i], w[i])
	}
	return v
}

// Sub returns v-w, each entry held at the ends of int64.
func (v Vector) Sub(w Vector) Vector {
	for i := range v {
		v[i] = subSat(v[i], w[i])
	}
	return v
}

// Mul returns v×n, each entry held at the ends of int64.
func (v Vector) Mul(n int64) Vector {
	for i := range v {
		v[i] = mulSat(v[i], n)
	}
	return v
}

// Fits reports whether v asks for no more than avail in any entry. Where it
// does not, index is the first entry in which v exceeds avail. An entry of which
// v asks nothing fits even where avail is overdrawn, that is, below zero.
func (v Vector) Fits(avail Vector) (index int, ok bool) {
	for i := range v {
		if v[i] > max(avail[i], 0) {
			return i, false
		}
	}
	return 0, true
}
