package cuda

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// uuid is a device's own name, in the bytes of CUuuid.
type uuid [16]byte

// pair is CUcheckpointGpuPair of CUDA 13.0: 32 bytes.
type pair struct {
	From, To uuid
}

// MarshalText returns the 32 hexadecimal digits of u.
func (u uuid) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, u[:]), nil }

// UnmarshalText reads what MarshalText wrote.
func (u *uuid) UnmarshalText(text []byte) error {
	if len(text) != 2*len(u) {
		return errText("a UUID has 32 digits")
	}
	_, err := hex.Decode(u[:], text)
	return err
}

// String returns u as NVIDIA's tools write it.
func (u uuid) String() string {
	h := hex.EncodeToString(u[:])
	return "GPU-" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// parseUUID reads "GPU-" and 36 characters; why says what is wrong with another text.
func parseUUID(id lockstep.DeviceID) (u uuid, why string) {
	s := string(id)
	if strings.HasPrefix(s, "MIG-") {
		return u, "a MIG device cannot be moved: the driver takes whole devices"
	}
	rest, ok := strings.CutPrefix(s, "GPU-")
	if !ok || len(rest) != 36 || rest[8] != '-' || rest[13] != '-' || rest[18] != '-' || rest[23] != '-' {
		return u, `want "GPU-" and a UUID`
	}
	digits := strings.ReplaceAll(rest, "-", "")
	if _, err := hex.Decode(u[:], []byte(digits)); err != nil || len(digits) != 32 {
		return u, "want hexadecimal digits"
	}
	return u, ""
}

// maxPairs is far above the devices of any host.
const maxPairs = 1024

// parsePairs checks all that can be checked without knowing the devices: the form of
// names, and that each device stands once on either side.
func parsePairs(list []checkpoint.DevicePair) ([]pair, error) {
	if len(list) > maxPairs {
		return nil, invalid("resume", "Map", strconv.Itoa(len(list))+" pairs", "want at most "+strconv.Itoa(maxPairs))
	}
	pairs := make([]pair, 0, len(list))
	for i, p := range list {
		at := "Map[" + strconv.Itoa(i) + "]."
		from, why := parseUUID(p.Old)
		if why != "" {
			return nil, invalid("resume", at+"Old", errtext.Quote(p.Old), why)
		}
		to, why := parseUUID(p.New)
		if why != "" {
			return nil, invalid("resume", at+"New", errtext.Quote(p.New), why)
		}
		for _, q := range pairs {
			if q.From == from {
				return nil, invalid("resume", at+"Old", errtext.Quote(p.Old), "stands twice")
			}
			if q.To == to {
				return nil, invalid("resume", at+"New", errtext.Quote(p.New), "stands twice")
			}
		}
		pairs = append(pairs, pair{from, to})
	}
	return pairs, nil
}
