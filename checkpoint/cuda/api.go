package cuda

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// Config configures a Driver that calls the driver's library in this process. The
// zero value is valid.
type Config struct {
	// Library is the path of libcuda.so.1; "" looks for it: first as the loader does,
	// then in Roots.
	Library string

	// Roots are folders that hold a driver's files, for hosts in a container: the
	// root of the host's file system or where its driver is mounted. nil means none.
	Roots []string

	// Workers is how many calls that lead into a pause, as many that lead out of it,
	// and as many that read, may be blocked at a time, each on a thread of its own;
	// further ones fail at once. 0 means 64; at most 4096.
	Workers int

	// Facts tells about devices; nil means that nothing is known of them.
	Facts Facts `json:"-"`
}

// Validate reports all that is wrong with c.
func (c Config) Validate() error {
	var errs []error
	if strings.ContainsRune(c.Library, 0) {
		errs = append(errs, invalid("new", "Library", strconv.Quote(c.Library), "holds a zero byte"))
	}
	for i, r := range c.Roots {
		if r == "" || strings.ContainsRune(r, 0) {
			errs = append(errs, invalid("new", "Roots["+strconv.Itoa(i)+"]", strconv.Quote(r), "want a folder"))
		}
	}
	return errors.Join(append(errs, checkWorkers(c.Workers))...)
}

// New makes a Driver that calls libcuda.so.1 in this process. Nothing is loaded until
// the first call. A fault inside the library would end this process: NewHelper keeps
// it in another.
func New(c Config) (*Driver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return newDriver("cuda", newAPI(c.Library, c.Roots), c.Facts, c.Workers), nil
}

// soname is the library's name.
const soname = "libcuda.so.1"

// folders are where a driver's root has libraries, by the layouts of the common
// distributions. It is immutable.
var folders = [...]string{"", "usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib", "lib64", "lib", "usr/lib/wsl/lib"}

// candidates returns the libraries to try, in order.
func candidates(library string, roots []string) []string {
	if library != "" {
		return []string{library}
	}
	list := []string{soname}
	for _, root := range roots {
		for _, folder := range folders {
			path := filepath.Join(root, folder, soname)
			if _, err := os.Stat(path); err == nil {
				list = append(list, path)
				continue
			}
			// The toolkit mounts the file itself without the link to it.
			found, _ := filepath.Glob(filepath.Join(root, folder, "libcuda.so.*.*"))
			slices.Sort(found)
			list = append(list, found...)
		}
	}
	return list
}

// unlike says why a file is no library for this program, "" if it may be one or the
// loader is to find it. The loader's own texts tell less.
func unlike(path string, class, machine byte) string {
	if !strings.ContainsRune(path, '/') {
		return ""
	}
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	// e_ident[EI_CLASS] is byte 4 of the file, e_machine bytes 18 and 19.
	head := make([]byte, 20)
	if _, err := io.ReadFull(file, head); err != nil || !bytes.HasPrefix(head, []byte("\x7fELF")) {
		return "is no library, but some other file"
	}
	if head[4] != class {
		return "is a 32-bit library"
	}
	if head[18] != machine {
		return "is a library for another machine"
	}
	return ""
}

// The functions of the library that this package calls or asks for.
const (
	cuInit             = "cuInit"
	cuDriverGetVersion = "cuDriverGetVersion"
)

// wanted are the functions to look up; what the package can do hangs on them. It is
// immutable.
var wanted = [...]string{
	cuInit, cuDriverGetVersion, getState, functions[lock], functions[suspend], functions[resume], functions[unlock],
	"cuCheckpointOperationComplete",
}

// nvidiaVersion is where the kernel module says which it is.
const nvidiaVersion = "/proc/driver/nvidia/version"

// parseRelease returns 580 for the module's version 580.65.06, 0 where it has none.
func parseRelease(text string) int {
	m := regexp.MustCompile(`(?:Kernel Module[^\n]*?\s|Version )(\d{3,4})\.\d+`).FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// lacking is the failure of a call for which the library has no function.
func lacking(function, path string) *failure {
	return &failure{kind: checkpoint.ErrUnsupported, call: function, err: errText(path, " has no such function")}
}
