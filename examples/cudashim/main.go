package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	managed := flag.Bool("managed", false, "run a job that uses managed memory, which cannot be made again")
	flag.Parse()
	if err := run(os.Stdout, *managed); err != nil {
		if errors.Is(err, errCannot) {
			fmt.Println("skipped:", err)
			return
		}
		fmt.Fprintln(os.Stderr, "cudashim:", err)
		os.Exit(1)
	}
}

// errCannot says that this machine cannot run the example.
var errCannot = errors.New("this example needs Linux on amd64 or arm64 and a C compiler")

// run builds everything, runs the job and replays its log.
func run(w io.Writer, managed bool) error {
	dir, err := os.MkdirTemp("", "cudashim")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b, err := build(dir)
	if err != nil {
		return err
	}
	weights, err := b.runJob(managed)
	if err != nil {
		return err
	}
	return replay(w, b, weights)
}
