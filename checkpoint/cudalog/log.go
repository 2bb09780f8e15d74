package cudalog

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/btree"

	"github.com/lockstep-gpu/lockstep"
)

// Handle is a virtual name of an object, from 1. Each new object has a greater one than all before it.
type Handle uint64

// Op is what a record does.
type Op uint8

// The ops.
const (
	Create  Op = 1 // Create makes an object.
	Set     Op = 2 // Set changes an attribute.
	Destroy Op = 3 // Destroy ends an object.
	Refuse  Op = 4 // Refuse notes what cannot be made again; Args say what, for people.
)

// Kind is what an object is.
type Kind uint8

// The kinds. Others from 32 on are the shim's own.
const (
	Context  Kind = 1  // Context is a primary or other context.
	Stream   Kind = 2  // Stream is a stream.
	Event    Kind = 3  // Event is an event.
	Module   Kind = 4  // Module is loaded code.
	Function Kind = 5  // Function is a kernel in a module.
	Memory   Kind = 6  // Memory is device memory: Addr, Size and Device say which.
	Pool     Kind = 7  // Pool is a memory pool.
	Library  Kind = 8  // Library is a handle of a library such as cuBLAS.
	OwnKinds Kind = 32 // OwnKinds is the first that is the shim's own.
)

// Bounds of a record.
const (
	MaxUses = 64      // MaxUses is how many handles a record may use.
	MaxArgs = 1 << 20 // MaxArgs is how many bytes of arguments a record may have. Code that is loaded belongs beside the log; its name or sum is the argument.
)

// Record is one call.
type Record struct {
	Op     Op       // Op is what it does.
	Kind   Kind     // Kind is what kind of object it is about; the kind of Handle.
	Handle Handle   // Handle is the object that it makes, changes or ends; 0 for Refuse.
	Owner  Handle   // Owner is the object with which a new one ends; 0 means none. Create only.
	Key    uint64   // Key says which attribute it changes. Set only.
	Addr   uint64   // Addr is where memory is; more than 0. Create of Memory only.
	Size   uint64   // Size is how many bytes it has; more than 0. Create of Memory only.
	Device uint32   // Device is the ordinal of the device it is on. Create of Memory only.
	Uses   []Handle // Uses are the objects that the call needs besides Handle and Owner. Create and Set only.
	Args   []byte   // Args is what else the call is made with, in the shim's own form.
}

// Log holds records. The zero value is an empty one.
type Log struct {
	records []Record
	objects map[Handle]*object
	memory  *btree.BTreeG[Allocation] // living memory, by address
	limits  []Record
	last    Handle // the greatest yet
}

// object is what the log knows of a handle.
type object struct {
	kind    Kind
	owner   Handle
	addr    uint64 // of memory
	dead    bool
	created int             // the index of its record
	owned   map[Handle]bool // what lives and ends with it
}

// Allocation is a piece of device memory.
type Allocation struct {
	Handle Handle // Handle is its name.
	Addr   uint64 // Addr is where it begins.
	Size   uint64 // Size is how many bytes it has.
	Device uint32 // Device is the ordinal of its device.
}

// byAddress orders allocations.
func byAddress(a, b Allocation) bool { return a.Addr < b.Addr }

// Append takes a record in, of which it keeps a copy.
func (l *Log) Append(r Record) error {
	if err := l.check(&r); err != nil {
		return err
	}
	if l.objects == nil {
		l.objects = make(map[Handle]*object)
		l.memory = btree.NewG(16, byAddress)
	}
	r.Uses, r.Args = slices.Clone(r.Uses), bytes.Clone(r.Args)
	switch r.Op {
	case Create:
		l.last = r.Handle
		o := &object{kind: r.Kind, owner: r.Owner, addr: r.Addr, created: len(l.records)}
		l.objects[r.Handle] = o
		if w := l.objects[r.Owner]; w != nil {
			if w.owned == nil {
				w.owned = make(map[Handle]bool)
			}
			w.owned[r.Handle] = true
		}
		if r.Kind == Memory {
			l.memory.ReplaceOrInsert(Allocation{r.Handle, r.Addr, r.Size, r.Device})
		}
	case Destroy:
		o := l.objects[r.Handle]
		if w := l.objects[o.owner]; w != nil {
			delete(w.owned, r.Handle)
		}
		l.bury(r.Handle)
	case Refuse:
		l.limits = append(l.limits, r)
	}
	l.records = append(l.records, r)
	return nil
}

// bury marks an object and all that it owns as gone.
func (l *Log) bury(h Handle) {
	for list := []Handle{h}; len(list) > 0; {
		o := l.objects[list[len(list)-1]]
		list = list[:len(list)-1]
		o.dead = true
		if o.kind == Memory {
			l.memory.Delete(Allocation{Addr: o.addr})
		}
		for c := range o.owned { // all of them go, so order cannot matter
			list = append(list, c)
		}
		o.owned = nil
	}
}

// check returns what is wrong with r in this place of the log.
func (l *Log) check(r *Record) error {
	if len(r.Args) > MaxArgs {
		return fault(lockstep.ErrInvalid, "Args", strconv.Itoa(len(r.Args))+" bytes", "want at most "+strconv.Itoa(MaxArgs))
	}
	if len(r.Uses) > MaxUses {
		return fault(lockstep.ErrInvalid, "Uses", strconv.Itoa(len(r.Uses)), "want at most "+strconv.Itoa(MaxUses))
	}
	switch r.Op {
	case Create, Set, Destroy:
	case Refuse:
		if r.Handle != 0 {
			return fault(lockstep.ErrInvalid, "Handle", number(r.Handle), "a refusal is about no object")
		}
	default:
		return fault(lockstep.ErrInvalid, "Op", strconv.Itoa(int(r.Op)), "is none")
	}
	if err := r.checkFields(); err != nil {
		return err
	}
	if r.Op == Refuse {
		return nil
	}
	if err := l.checkHandle(r); err != nil {
		return err
	}
	for i, u := range r.Uses {
		if err := l.alive("Uses["+strconv.Itoa(i)+"]", u); err != nil {
			return err
		}
	}
	return nil
}

// checkFields refuses fields that the op does not have: one case each, so that it is as complex as a record.
func (r *Record) checkFields() error {
	memory := r.Op == Create && r.Kind == Memory
	switch {
	case r.Kind == 0 || (r.Kind > Library && r.Kind < OwnKinds):
		return fault(lockstep.ErrInvalid, "Kind", strconv.Itoa(int(r.Kind)), "is none")
	case r.Owner != 0 && r.Op != Create:
		return fault(lockstep.ErrInvalid, "Owner", number(r.Owner), "only a new object has one")
	case r.Key != 0 && r.Op != Set:
		return fault(lockstep.ErrInvalid, "Key", strconv.FormatUint(r.Key, 10), "only a Set has one")
	case len(r.Uses) > 0 && r.Op != Create && r.Op != Set:
		return fault(lockstep.ErrInvalid, "Uses", strconv.Itoa(len(r.Uses)), "only a Create and a Set use objects")
	case !memory && r.Addr != 0:
		return fault(lockstep.ErrInvalid, "Addr", hex(r.Addr), "only new memory has one")
	case !memory && r.Size != 0:
		return fault(lockstep.ErrInvalid, "Size", hex(r.Size), "only new memory has one")
	case !memory && r.Device != 0:
		return fault(lockstep.ErrInvalid, "Device", strconv.FormatUint(uint64(r.Device), 10), "only new memory has one")
	case memory && (r.Addr == 0 || r.Size == 0 || r.Addr > MaxAddr || r.Size > MaxAddr-r.Addr):
		return fault(lockstep.ErrInvalid, "Addr", hex(r.Addr)+" + "+hex(r.Size), "want a range above 0 that ends at "+hex(MaxAddr)+" at most")
	}
	return nil
}

// MaxAddr is above every address: CUDA's are of 49 bits (57 on some hosts).
const MaxAddr = 1 << 57

// checkHandle checks what a record is about.
func (l *Log) checkHandle(r *Record) error {
	o := l.objects[r.Handle]
	if r.Op != Create {
		if err := l.alive("Handle", r.Handle); err != nil {
			return err
		}
		if o.kind != r.Kind {
			return fault(lockstep.ErrInvalid, "Kind", strconv.Itoa(int(r.Kind)), "the object is of kind "+strconv.Itoa(int(o.kind)))
		}
		return nil
	}
	switch {
	case r.Handle == 0:
		return fault(lockstep.ErrInvalid, "Handle", "0", "handles are from 1")
	case r.Handle <= l.last:
		return fault(lockstep.ErrDuplicate, "Handle", number(r.Handle), "is not greater than the last one, "+number(l.last))
	}
	if r.Owner != 0 {
		if err := l.alive("Owner", r.Owner); err != nil {
			return err
		}
	}
	if r.Kind != Memory {
		return nil
	}
	if other, ok := l.overlap(r.Addr, r.Size); ok {
		return fault(lockstep.ErrConflict, "Addr", hex(r.Addr), "overlaps object "+number(other.Handle)+" at "+hex(other.Addr))
	}
	return nil
}

// overlap returns living memory that shares a byte with a range.
func (l *Log) overlap(addr, size uint64) (Allocation, bool) {
	var found Allocation
	ok := false
	if l.memory == nil {
		return found, false
	}
	l.memory.DescendLessOrEqual(Allocation{Addr: addr + size - 1}, func(a Allocation) bool {
		found, ok = a, a.Addr+a.Size > addr
		return false
	})
	return found, ok
}

// alive refuses what is not there, or not any more.
func (l *Log) alive(field string, h Handle) error {
	switch o := l.objects[h]; {
	case h == 0 || h > l.last:
		return fault(lockstep.ErrUnknown, field, number(h), "was never made")
	case o == nil || o.dead: // forgotten, or still remembered
		return fault(lockstep.ErrUnknown, field, number(h), "is gone")
	}
	return nil
}

// Len returns how many records the log holds.
func (l *Log) Len() int { return len(l.records) }

// Find returns the living memory that holds an address.
func (l *Log) Find(addr uint64) (Allocation, bool) {
	if addr == 0 || addr > MaxAddr {
		return Allocation{}, false
	}
	a, ok := l.overlap(addr, 1)
	if !ok {
		return Allocation{}, false
	}
	return a, true
}

// Memory returns the living memory, by address; nil if there is none.
func (l *Log) Memory() []Allocation {
	var out []Allocation
	if l.memory != nil && l.memory.Len() > 0 {
		out = make([]Allocation, 0, l.memory.Len())
		l.memory.Ascend(func(a Allocation) bool {
			out = append(out, a)
			return true
		})
	}
	return out
}

// Limits returns what was refused, each text once, sorted. A log with any is not to be replayed.
func (l *Log) Limits() []string {
	var out []string
	for _, r := range l.limits {
		out = append(out, string(r.Args))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Replay makes the calls of the log again, in order. do makes one and returns the real handle of what a Create made;
// for others what it returns is ignored. Its second argument tells the real handle of any object that r names. A log
// with limits is refused before the first call.
func (l *Log) Replay(do func(r *Record, real func(Handle) uint64) (uint64, error)) error {
	if len(l.limits) > 0 {
		return &lockstep.Error{Kind: lockstep.ErrConflict, Op: "cudalog: replay", Field: "limits", Value: strconv.Itoa(len(l.limits)), Reason: "the job used what cannot be made again: " + strconv.Quote(l.Limits()[0])}
	}
	made := make(map[Handle]uint64)
	real := func(h Handle) uint64 { return made[h] }
	for i := range l.records {
		r := l.records[i]
		r.Uses, r.Args = slices.Clone(r.Uses), bytes.Clone(r.Args)
		h, err := do(&r, real)
		if err != nil {
			return fmt.Errorf("cudalog: replay: record %d: %w", i, err)
		}
		if r.Op == Create {
			made[l.records[i].Handle] = h
		}
	}
	return nil
}

// Compact drops the records that a replay does not need and returns how many those were. Refusals about objects that
// are gone stay: nobody can tell what they left behind.
func (l *Log) Compact() int {
	keep := make([]bool, len(l.records))
	need := make(map[Handle]map[uint64]bool) // needed further on: the keys whose value is settled there by a kept Set
	want := func(h Handle) {
		if h != 0 {
			need[h] = nil // from here back every attribute matters
		}
	}
	for h, o := range l.objects { // marks only, so order cannot matter
		if !o.dead {
			want(h)
		}
	}
	// Backwards, as a compiler finds dead stores. What is kept makes what it uses needed before it.
	for i := len(l.records) - 1; i >= 0; i-- {
		r := &l.records[i]
		switch settled, needed := need[r.Handle]; {
		case r.Op == Refuse:
			keep[i] = true
			continue
		case r.Op == Destroy, !needed, r.Op == Set && settled[r.Key]:
			continue
		case r.Op == Set:
			if settled == nil {
				settled = make(map[uint64]bool)
				need[r.Handle] = settled
			}
			settled[r.Key] = true
		}
		keep[i] = true
		for _, u := range r.Uses {
			want(u)
		}
		want(r.Owner)
	}
	// What is made again though it is gone goes again, unless its owner takes it along.
	for i, r := range l.records {
		if r.Op == Destroy {
			keep[i] = keep[l.objects[r.Handle].created]
		}
	}
	return l.retain(keep)
}

// retain drops the other records, and forgets the objects that have none.
func (l *Log) retain(keep []bool) int {
	before := len(l.records)
	kept := l.records[:0]
	for i := range l.records {
		r := l.records[i]
		switch {
		case keep[i]:
			if r.Op == Create {
				l.objects[r.Handle].created = len(kept)
			}
			kept = append(kept, r)
		case r.Op == Create:
			delete(l.objects, r.Handle)
		}
	}
	clear(l.records[len(kept):])
	l.records = kept
	return before - len(kept)
}

// number and hex write values into errors.
func number(h Handle) string { return strconv.FormatUint(uint64(h), 10) }
func hex(v uint64) string    { return "0x" + strconv.FormatUint(v, 16) }

// fault builds the error of a record.
func fault(kind error, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "cudalog: append", Field: field, Value: value, Reason: reason}
}
