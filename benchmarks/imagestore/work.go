package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
)

const (
	ranks = 4
	epoch = 2        // epochs that are saved
	run   = 64 << 10 // bytes that change together
	shift = 4 << 10
)

// numbers fills b with normal numbers of a width of 2 (bfloat16) or 4 (float32).
func numbers(b []byte, width int, rng *rand.Rand) {
	for i := 0; i+width <= len(b); i += width {
		bits := math.Float32bits(float32(rng.NormFloat64() * 0.02))
		if width == 2 {
			binary.LittleEndian.PutUint16(b[i:], uint16(bits>>16))
			continue
		}
		binary.LittleEndian.PutUint32(b[i:], bits)
	}
}

// change renews one run in twenty.
func change(b []byte, width int, rng *rand.Rand) {
	for i := 0; i+run <= len(b); i += run {
		if rng.IntN(20) == 0 {
			numbers(b[i:i+run], width, rng)
		}
	}
}

// widths are the files of a rank, with the width of their numbers as a hint.
var widths = map[string]int{"params": 2, "optimizer": 4, "workspace": 0}

// synthesize writes the images of all epochs below dir.
func synthesize(dir string, total int, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 9))
	part := total / ranks / 10 &^ (run - 1)
	params := make([]byte, 6*part)
	numbers(params, 2, rng)
	optimizer := make([][]byte, ranks)
	for r := range optimizer {
		optimizer[r] = make([]byte, 3*part)
		numbers(optimizer[r], 4, rng)
	}
	before := make([]byte, shift)
	numbers(before, 2, rng)
	for e := range epoch {
		if e > 0 {
			change(params, 2, rng)
			for r := range optimizer {
				change(optimizer[r], 4, rng)
			}
		}
		for r := range ranks {
			at := filepath.Join(dir, fmt.Sprintf("epoch%d", e+1), fmt.Sprintf("rank%d", r))
			if err := os.MkdirAll(at, 0o700); err != nil {
				return err
			}
			p := params
			if r == ranks-1 {
				p = append(bytes.Clone(before), params...)
			}
			for name, b := range map[string][]byte{"params": p, "optimizer": optimizer[r], "workspace": make([]byte, part)} { // order does not matter
				if err := os.WriteFile(filepath.Join(at, name), b, 0o600); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// folderSize is what the files below dir hold.
func folderSize(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		st, err := d.Info()
		if err == nil {
			total += st.Size()
		}
		return err
	})
	return total, err
}
