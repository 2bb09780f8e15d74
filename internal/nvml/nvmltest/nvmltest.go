package nvmltest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// module carries NVIDIA's header.
const module = "github.com/NVIDIA/go-nvml"

// The variables of the environment by which a child knows what to do.
const (
	scenarioVariable = "FAKE_NVML"
	libraryVariable  = "LOCKSTEP_FAKE_NVML_LIBRARY"
)

// Library returns the path of the library to load, which Child set; "" in a
// process that no Child started.
func Library() string { return os.Getenv(libraryVariable) }

// built are the libraries by flags, in a directory that Main removes.
var built struct {
	sync.Mutex
	dir   string
	paths map[string]string
}

// Main runs the tests of a package that uses Build, and clears up after them.
func Main(m *testing.M) {
	code := m.Run()
	built.Lock()
	defer built.Unlock()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// Build compiles the library with some flags, once for a process, and returns its
// path. It skips the test where it cannot. In a child it returns what Library does.
func Build(t *testing.T, flags ...string) string {
	t.Helper()
	if os.Getenv(scenarioVariable) != "" {
		return Library()
	}
	if !Supported {
		t.Skip("this build has no cgo on Linux")
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no compiler of C: ", err)
	}
	built.Lock()
	defer built.Unlock()
	key := strings.Join(flags, " ")
	if path, ok := built.paths[key]; ok {
		return path
	}
	carrier, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Skip("no source of ", module, ": ", err)
	}
	if built.dir == "" {
		built.paths = make(map[string]string)
		built.dir, err = os.MkdirTemp("", "nvmltest")
		require.NoError(t, err)
	}
	_, here, _, ok := runtime.Caller(0)
	require.True(t, ok)
	source := filepath.Join(filepath.Dir(here), "..", "testdata", "fake.c")
	dir := filepath.Join(built.dir, strconv.Itoa(len(built.paths)))
	require.NoError(t, os.Mkdir(dir, 0o755))
	path := filepath.Join(dir, "libnvidia-ml.so.1")
	args := append([]string{"-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations"}, flags...)
	args = append(args, "-I", filepath.Join(strings.TrimSpace(string(carrier)), "pkg", "nvml"), "-o", path, source)
	out, err := exec.Command(compiler, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	built.paths[key] = path
	return path
}

// Child runs the test anew in a process of its own, in which Library returns the
// path given and the library plays a scenario; more sets further variables, as
// "name=value". It returns true to the process that called it, once the child has
// passed, and false in the child.
func Child(t *testing.T, library, scenario string, more ...string) bool {
	t.Helper()
	if os.Getenv(scenarioVariable) != "" {
		return false
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+strings.ReplaceAll(regexpQuote(t.Name()), "/", "$/^")+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), scenarioVariable+"="+scenario, libraryVariable+"="+library)
	cmd.Env = append(cmd.Env, more...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "no tests to run")
	return true
}

// regexpQuote escapes what a name of a test may have.
func regexpQuote(name string) string {
	return strings.NewReplacer(".", `\.`, "(", `\(`, ")", `\)`, "+", `\+`).Replace(name)
}
