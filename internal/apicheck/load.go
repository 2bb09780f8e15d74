package apicheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Module gives access to the compiled packages of a module.
type Module struct {
	Path     string   // Path is the module's path.
	Packages []string // Packages are the import paths of its public packages, sorted.

	listed   map[string]listed
	imported types.Importer
}

// listed is what the go command says about one package.
type listed struct {
	ImportPath, Name, Export string
	Module                   *struct {
		Path string
		Main bool
	}
	Error *struct{ Err string }
}

// Load lists and compiles the module whose root is dir.
func Load(dir string) (*Module, error) {
	cmd := exec.Command("go", "list", "-e", "-export", "-deps", "-json=ImportPath,Name,Export,Module,Error", "./...")
	cmd.Dir = dir
	// One platform, so that the text does not depend on where the test runs.
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("apicheck: go list: %w\n%s", err, stderr.String())
	}
	m := &Module{listed: make(map[string]listed)}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("apicheck: go list: %w", err)
		}
		m.listed[p.ImportPath] = p
		if p.Module == nil || !p.Module.Main {
			continue
		}
		m.Path = p.Module.Path
		if p.Name != "main" && !slices.Contains(strings.Split(p.ImportPath, "/"), "internal") {
			m.Packages = append(m.Packages, p.ImportPath)
		}
	}
	slices.Sort(m.Packages)
	m.imported = importer.ForCompiler(token.NewFileSet(), "gc", m.open)
	return m, nil
}

func (m *Module) open(path string) (io.ReadCloser, error) {
	p := m.listed[path]
	switch {
	case p.Error != nil:
		return nil, fmt.Errorf("apicheck: %s: %s", path, strings.TrimSpace(p.Error.Err))
	case p.Export == "":
		return nil, fmt.Errorf("apicheck: %s: not compiled", path)
	}
	return os.Open(p.Export)
}

// Import returns a package as it is compiled now, one of the module's or one of those it depends on.
func (m *Module) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	return m.imported.Import(path)
}

// File returns the name of the file that stores the API of a package.
func (m *Module) File(path string) string {
	if path == m.Path {
		return path[strings.LastIndexByte(path, '/')+1:] + ".txt"
	}
	return strings.ReplaceAll(strings.TrimPrefix(path, m.Path+"/"), "/", ".") + ".txt"
}
