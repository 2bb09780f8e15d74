package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

//go:embed c/*.c
var sources embed.FS

// built is where the compiled pieces are.
type built struct{ dir, library, shim, job, log string }

// build compiles the library, the shim and the job into dir.
func build(dir string) (*built, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		return nil, errCannot
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCannot, err)
	}
	for _, name := range []string{"fakecuda.c", "shim.c", "job.c"} {
		text, err := sources.ReadFile("c/" + name)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, err
		}
	}
	b := &built{dir: dir, library: filepath.Join(dir, "libcuda.so.1"), shim: filepath.Join(dir, "shim.so"), job: filepath.Join(dir, "job"), log: filepath.Join(dir, "job.log")}
	for _, args := range [][]string{
		{"-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", b.library, "fakecuda.c"},
		{"-shared", "-fPIC", "-o", b.shim, "shim.c", "-ldl", "-lpthread"},
		{"-o", b.job, "job.c", "-L" + dir, "-l:libcuda.so.1", "-Wl,-rpath," + dir},
	} {
		cmd := exec.Command(cc, append([]string{"-O1", "-Wall", "-Wextra", "-Werror"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("cc %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return b, nil
}

// runJob runs the job under the shim and returns the address of its weights.
func (b *built) runJob(managed bool) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.job)
	if managed {
		cmd.Args = append(cmd.Args, "managed")
	}
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+b.shim, "CUDASHIM_LOG="+b.log)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("the job: %w", err)
	}
	return strconv.ParseUint(strings.TrimSpace(string(out)), 0, 64)
}
