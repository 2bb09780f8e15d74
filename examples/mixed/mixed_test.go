package main

import (
	"bytes"
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestADayWithLoansTrainsAndServesAsWell(t *testing.T) {
	file := filepath.Join(t.TempDir(), "day.svg")
	var out bytes.Buffer
	require.NoError(t, run([]string{"-hours", "3", "-out", file}, &out))
	require.Regexp(t, regexp.MustCompile(`(?m)^true .* [1-9][\d.]* GPUh`), out.String())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, xml.Unmarshal(text, new(struct{ XMLName xml.Name })))
	require.Error(t, run([]string{"-servers", "0"}, &out))
}
