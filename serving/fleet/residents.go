package fleet

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Residents is which models are in the memory of a device, and who makes room for one that is not: the one whose
// loading again costs least for its size and use, aged by what was evicted before, so that what was once used much does
// not stay for ever (Greedy-Dual-Size-Frequency: Cherkasova, HP Labs 1998). With equal sizes and costs, and each used
// once, that is the least recently used. Encode it as JSON to save it; make it by its Memory.
type Residents struct {
	Memory lockstep.Bytes `json:"memory"`         // Memory is what there is, 0 to 2^50.
	Clock  int64          `json:"clock"`          // Clock is the worth of the last that was evicted; 0 at the start.
	Loaded []Resident     `json:"list,omitempty"` // Loaded are those in memory, by when they were last used, the longest ago first.
}

// Resident is a model in memory.
type Resident struct {
	Model  ID             `json:"model"`            // Model is which.
	Memory lockstep.Bytes `json:"memory"`           // Memory is what it takes.
	Load   time.Duration  `json:"load"`             // Load is how long it takes to load.
	Uses   int64          `json:"uses"`             // Uses is how often it was used since it was loaded.
	Worth  int64          `json:"worth"`            // Worth is the clock at its last use, and uses × load in nanoseconds for each MiB.
	Pinned bool           `json:"pinned,omitempty"` // Pinned says that it is at work and not to be evicted.
}

// Use takes note that a model is used. It returns whether it was in memory, and which models have to be evicted for it,
// in that order; Loaded is then as it is afterwards. A model that does not fit beside those that are pinned is
// ErrConflict; a name, size or load time out of range, or another size than it has in memory, is ErrInvalid.
func (r *Residents) Use(model ID, memory lockstep.Bytes, load time.Duration) (hit bool, evicted []ID, err error) {
	f := faults{op: "use"}
	f.names("model", 1, func(int) ID { return model })
	f.count("memory", int64(memory), 0, int64(maxMemory))
	f.span("load", load, 0, maxSpan)
	if err := f.err(); err != nil {
		return false, nil, err
	}
	if i := r.find(model); i >= 0 {
		if r.Loaded[i].Memory != memory {
			return false, nil, fault(lockstep.ErrInvalid, f.op, "memory", memory.String(), "it takes "+r.Loaded[i].Memory.String())
		}
		x := r.Loaded[i]
		x.Load = load
		r.Loaded = append(slices.Delete(r.Loaded, i, i+1), r.used(x))
		return true, nil, nil
	}
	clock, out, err := r.victims(f.op, model, memory)
	if err != nil {
		return false, nil, err
	}
	r.Clock = clock
	r.Loaded = slices.DeleteFunc(r.Loaded, func(x Resident) bool { return slices.Contains(out, x.Model) })
	r.Loaded = append(r.Loaded, r.used(Resident{Model: model, Memory: memory, Load: load}))
	return false, out, nil
}

func (r *Residents) find(model ID) int {
	return slices.IndexFunc(r.Loaded, func(x Resident) bool { return x.Model == model })
}

// used returns x with one use more.
func (r *Residents) used(x Resident) Resident {
	x.Uses = min(x.Uses+1, million)
	each := int128.MulDiv(int64(x.Load), 1<<20, max(int64(x.Memory), 1))
	x.Worth = addSat(r.Clock, min(int128.MulDiv(each, x.Uses, 1), math.MaxInt64/4))
	return x
}

// victims returns who makes room, and the clock after that.
func (r *Residents) victims(op string, model ID, memory lockstep.Bytes) (clock int64, out []ID, err error) {
	free := r.Memory
	for _, x := range r.Loaded {
		free -= x.Memory
	}
	order := slices.Clone(r.Loaded)
	slices.SortStableFunc(order, func(a, b Resident) int { return cmp.Compare(a.Worth, b.Worth) }) // of equals the longest unused
	clock = r.Clock
	for _, x := range order {
		if free >= memory {
			break
		}
		if x.Pinned {
			continue
		}
		out = append(out, x.Model)
		clock = max(clock, x.Worth)
		free += x.Memory
	}
	if free < memory {
		return 0, nil, fault(lockstep.ErrConflict, op, "model", errtext.Quote(model), "takes "+memory.String()+", of which "+strconv.FormatInt(int64(free), 10)+" bytes can be free")
	}
	return clock, out, nil
}

// Pin says whether a model is at work, and must stay. A model that is not in memory is ErrUnknown.
func (r *Residents) Pin(model ID, pinned bool) error {
	i := r.find(model)
	if i < 0 {
		return fault(lockstep.ErrUnknown, "pin", "model", errtext.Quote(model), "is not in memory")
	}
	r.Loaded[i].Pinned = pinned
	return nil
}
