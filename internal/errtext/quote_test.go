package errtext

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuoteCutsBetweenRunes(t *testing.T) {
	for in, want := range map[string]string{ // the order does not matter: each case stands alone
		"":                             `""`,
		"a\n":                          `"a\n"`,
		strings.Repeat("x", 40):        `"` + strings.Repeat("x", 40) + `"`,
		strings.Repeat("x", 41):        `"` + strings.Repeat("x", 40) + `"...`,
		"a" + strings.Repeat("任", 100): `"a` + strings.Repeat("任", 13) + `"...`,
		strings.Repeat("\x80", 50):     `"` + strings.Repeat(`\x80`, 36) + `"...`,
	} {
		require.Equal(t, want, Quote(in))
	}
}
