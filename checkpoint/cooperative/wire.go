package cooperative

import (
	"encoding/hex"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/proctree/coop"
)

// service is what a hook asks for in its first line.
const service = "checkpoint"

// The environment of a job with hooks.
const (
	EnvSocket = "LOCKSTEP_CHECKPOINT" // EnvSocket names the variable that holds the path of the host's socket.
	EnvRank   = "LOCKSTEP_RANK"       // EnvRank names the variable that holds the rank; without it RANK, as torchrun sets it, counts.
)

// maxPlace is the length of a place on the wire: a line holds two numbers and a verb beside it.
const maxPlace = 180

// encodePlace writes a path as one word: bytes that are no printable ASCII, and '%', become
// %XX.
func encodePlace(path string) (string, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.Contains(path, "\x00") {
		return "", fault(lockstep.ErrInvalid, "save", "Place", errtext.Quote(path), "want a clean absolute path without a zero byte")
	}
	var b strings.Builder
	for _, c := range []byte(path) {
		if c <= ' ' || c > '~' || c == '%' {
			b.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{c})))
			continue
		}
		b.WriteByte(c)
	}
	if b.Len() > maxPlace {
		return "", fault(lockstep.ErrInvalid, "save", "Place", errtext.Quote(path), "want at most "+strconv.Itoa(maxPlace)+" bytes as a word")
	}
	return b.String(), nil
}

// decodePlace undoes encodePlace.
func decodePlace(word string) (string, bool) {
	var out []byte
	for i := 0; i < len(word); i++ {
		if word[i] != '%' {
			out = append(out, word[i])
			continue
		}
		if len(word) < i+3 {
			return "", false
		}
		c, err := hex.DecodeString(word[i+1 : i+3])
		if err != nil || c[0] == 0 {
			return "", false
		}
		out = append(out, c[0])
		i += 2
	}
	path := string(out)
	return path, filepath.IsAbs(path) && filepath.Clean(path) == path
}

// answer is what a hook has said about a request.
type answer struct {
	verb   string
	serial uint64
	list   []uint64          // the numbers after the serial
	digest checkpoint.Digest // of "stored"
	word   string            // of "refuse"
}

// parseAnswer reads a message of a hook. ok is false if it breaks the protocol; verbs that
// are not known give an answer without a verb.
func parseAnswer(m coop.Message) (a answer, ok bool) {
	want, known := map[string]int{"step": 2, "ready": 2, "progress": 3, "stored": 4, "done": 1, "resumed": 2, "leaving": 2, "refuse": 1, "notice": 1}[m.Verb]
	if !known {
		return answer{}, true
	}
	if m.Verb == "stored" { // the digest is the fourth of five
		if len(m.Args) < 5 {
			return answer{}, false
		}
		sum, err := hex.DecodeString(m.Args[3])
		if err != nil || len(sum) != len(a.digest) || strings.ToLower(m.Args[3]) != m.Args[3] {
			return answer{}, false
		}
		a.digest = checkpoint.Digest(sum)
		m.Args = []string{m.Args[0], m.Args[1], m.Args[2], m.Args[4]}
	}
	nums, ok := m.Uints(want)
	if !ok || m.Verb == "refuse" && len(m.Args) < 2 {
		return answer{}, false
	}
	if m.Verb == "refuse" {
		a.word = m.Args[1]
	}
	a.verb, a.serial, a.list = m.Verb, nums[0], nums[1:]
	return a, true
}
