package apicheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// needs is what the go command says of a package.
type needs struct {
	ImportPath string
	Imports    []string
	Module     *struct {
		Path string
		Main bool
	}
}

// list returns all packages of the module and what they need, by import path. Nothing
// but the go command knows which files a platform builds.
func list(t *testing.T) map[string]*needs {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Module", "./...")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=1", "GOWORK=off")
	out, err := cmd.Output()
	require.NoError(t, err)
	all := make(map[string]*needs)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(needs)
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// dragged returns the modules of others that an import of path brings in, sorted.
func dragged(all map[string]*needs, path string) []string {
	modules, seen := make(map[string]bool), make(map[string]bool)
	var walk func(path string)
	walk = func(path string) {
		p := all[path]
		if seen[path] || p == nil {
			return
		}
		seen[path] = true
		if p.Module != nil && !p.Module.Main {
			modules[p.Module.Path] = true
		}
		for _, i := range p.Imports {
			walk(i)
		}
	}
	walk(path)
	return slices.Sorted(maps.Keys(modules))
}

// The marks between which README has the table.
const (
	tableBegin = "<!-- modules -->\n"
	tableEnd   = "<!-- end of modules -->\n"
)

// TestImportsDragInWhatReadmeSays keeps the table of what each import costs a user in
// go.sum and in the binary. It is rewritten with -update.
func TestImportsDragInWhatReadmeSays(t *testing.T) {
	all := list(t)
	const root = "github.com/lockstep-gpu/lockstep"
	packages, free := make(map[string][]string), 0
	for _, path := range slices.Sorted(maps.Keys(all)) {
		p := all[path]
		if p.Module == nil || !p.Module.Main || strings.Contains(path+"/", "/internal/") {
			continue
		}
		name := strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
		if name == "" {
			name = "lockstep"
		}
		if modules := dragged(all, path); len(modules) > 0 {
			key := "`" + strings.Join(modules, "`, `") + "`"
			packages[key] = append(packages[key], "`"+name+"`")
		} else {
			free++
		}
	}
	require.Greater(t, free, 20, "most packages need nothing but the standard library")
	var b strings.Builder
	b.WriteString("| these | bring in |\n|---|---|\n")
	for _, key := range slices.SortedFunc(maps.Keys(packages), func(a, b string) int {
		return strings.Compare(packages[a][0], packages[b][0])
	}) {
		b.WriteString("| " + strings.Join(packages[key], ", ") + " | " + key + " |\n")
	}
	b.WriteString("| all others | nothing but the standard library |\n")

	file := filepath.Join("..", "..", "README.md")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(strings.ReplaceAll(string(data), "\r\n", "\n"), tableBegin)
	require.True(t, ok, "README has no table")
	have, after, ok := strings.Cut(rest, tableEnd)
	require.True(t, ok, "README's table has no end")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(before+tableBegin+b.String()+tableEnd+after), 0o644))
		return
	}
	require.Equal(t, b.String(), have, "run: go test ./internal/apicheck -update")
}
