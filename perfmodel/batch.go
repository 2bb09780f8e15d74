package perfmodel

import (
	"math"

	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// maxTokens bounds the tokens of a micro-batch and the length of a document.
const maxTokens = 1 << 48

// Mask says which keys a query sees inside its document; it never sees another
// document. The zero Mask is causal without a window.
type Mask struct {
	Full   bool `json:"full,omitempty"`   // Full says that a query sees the whole document and not only what is before it.
	Window int  `json:"window,omitempty"` // Window is how many keys a query sees, itself among them; 0 means no limit. It cannot be set with Full.
}

// Batch is a micro-batch of packed documents, as far as it matters to its cost.
type Batch struct {
	Tokens int64   `json:"tokens"` // Tokens is how many tokens it has.
	Pairs  float64 `json:"pairs"`  // Pairs is how many pairs of a query and a key attend; whole, and exact below 2^53.
}

// Validate returns an *lockstep.Error of kind ErrInvalid if k is no mask.
func (k Mask) Validate() error {
	f := faults{op: "perfmodel: mask"}
	k.validate("", &f)
	return f.err()
}

func (k Mask) validate(path string, f *faults) {
	switch {
	case k.Window < 0:
		f.bad(path+"Window", text(k.Window), "want at least 0")
	case k.Full && k.Window > 0:
		f.bad(path+"Window", text(k.Window), "want 0 where Full is set")
	}
}

// Batch returns the micro-batch of the documents with these lengths. Their order does
// not matter. It returns an *lockstep.Error of kind ErrInvalid if there are none, if one
// is empty, or if they come to more than 2^48 tokens. It allocates nothing.
func (k Mask) Batch(lens []int) (Batch, error) { return k.batch(lens, math.MaxInt) }

func (k Mask) batch(lens []int, longest int) (Batch, error) {
	if err := k.Validate(); err != nil {
		return Batch{}, err
	}
	if len(lens) == 0 {
		return Batch{}, invalid("perfmodel: batch", "lens", "", "want at least one document")
	}
	var tokens int64
	var pairs int128.Int
	for i, l := range lens {
		switch {
		case l < 1:
			return Batch{}, invalid("perfmodel: batch", "lens["+text(i)+"]", text(l), "want at least 1")
		case l > longest:
			return Batch{}, invalid("perfmodel: batch", "lens["+text(i)+"]", text(l), "longer than MaxDoc = "+text(longest))
		case int64(l) > maxTokens-tokens:
			return Batch{}, invalid("perfmodel: batch", "lens["+text(i)+"]", text(l), "more than 2^48 tokens in all")
		}
		tokens += int64(l)
		pairs = pairs.Add(k.pairs(int64(l)))
	}
	return Batch{Tokens: tokens, Pairs: pairs.Float64()}, nil
}

// pairs returns how many pairs attend in a document of length l.
func (k Mask) pairs(l int64) int128.Int {
	w := int64(k.Window)
	switch {
	case k.Full:
		return int128.Product(l, l)
	case w > 0 && l > w: // the first w queries see 1 to w keys, the others w each
		return triangle(w).Add(int128.Product(l-w, w))
	}
	return triangle(l)
}

// triangle returns l(l+1)/2.
func triangle(l int64) int128.Int {
	if l%2 == 0 {
		return int128.Product(l/2, l+1)
	}
	return int128.Product(l, (l+1)/2)
}

// Batch returns the micro-batch of the documents with these lengths under the mask of
// m. Beside the errors of Mask.Batch it returns one if a document is longer than MaxDoc,
// or if tokens is not 0 and the lengths do not add up to it.
func (m Model) Batch(lens []int, tokens int64) (Batch, error) {
	longest := m.MaxDoc
	if longest == 0 {
		longest = math.MaxInt
	}
	b, err := m.Mask.batch(lens, longest)
	if err == nil && tokens != 0 && b.Tokens != tokens {
		return Batch{}, invalid("perfmodel: batch", "tokens", text(tokens), "the lengths add up to "+text(b.Tokens))
	}
	return b, err
}
