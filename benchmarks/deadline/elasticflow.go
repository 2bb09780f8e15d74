package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy/deadline"
	"github.com/lockstep-gpu/lockstep/policy/elastic"
)

// micro is how finely work is counted: iterations × micro.
const micro = 1_000_000

// maxGPUs is the most devices for which throughputs are known.
const maxGPUs = 64

// job is one job of ElasticFlow's traces.
type job struct {
	id       lockstep.JobID
	submit   int64 // seconds
	deadline int64 // seconds
	gpus     int   // what the trace's owner asked for
	work     int64 // iterations × micro
	points   []deadline.Point
	sizes    []elastic.Size
	all      map[int]int64 // rate by devices, also where it falls
}

// curve is how fast a model is with a batch size.
type curve struct {
	points []deadline.Point
	sizes  []elastic.Size
	all    map[int]int64
}

// table is the rows of a file by column.
type table struct {
	path string
	head map[string]int
	rows [][]string
}

func readTable(path string) (*table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := csv.NewReader(f)
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t := &table{path: path, head: make(map[string]int)}
	for i, name := range head {
		t.head[name] = i
	}
	for {
		row, err := r.Read()
		if err == io.EOF {
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		t.rows = append(t.rows, row)
	}
}

// text returns a cell.
func (t *table) text(row int, column string) (string, error) {
	i, ok := t.head[column]
	if !ok {
		return "", fmt.Errorf("%s: no column %q", t.path, column)
	}
	return t.rows[row][i], nil
}

// number returns a cell as a number.
func (t *table) number(row int, column string) (float64, error) {
	text, err := t.text(row, column)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: row %d: %s: %w", t.path, row+2, column, err)
	}
	return v, nil
}

// curves reads the throughputs of all models on A100s, by model and batch size.
func curves(folder string) (map[string]curve, error) {
	files, err := filepath.Glob(filepath.Join(folder, "throughputs_A100", "*.csv"))
	if err != nil {
		return nil, err
	}
	out := make(map[string]curve)
	for _, path := range files {
		t, err := readTable(path)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(path)
		name = name[:len(name)-len(".csv")]
		for row := range t.rows {
			batch, err := t.text(row, "global_batch_size")
			if err != nil {
				return nil, err
			}
			c := curve{all: make(map[int]int64)}
			best := int64(0)
			for n := 1; n <= maxGPUs; n *= 2 {
				text, err := t.text(row, strconv.Itoa(n))
				if err != nil {
					return nil, err
				}
				v, _ := strconv.ParseFloat(text, 64) // empty and nan: cannot run
				rate := int64(v * micro)
				if math.IsNaN(v) || rate <= 0 {
					continue
				}
				c.all[n] = rate
				if rate > best {
					c.points = append(c.points, deadline.Point{GPUs: n, Rate: rate})
					c.sizes = append(c.sizes, elastic.Size{GPUs: n, Time: time.Duration(float64(time.Second) / v)})
					best = rate
				}
			}
			out[name+"/"+batch] = c
		}
	}
	return out, nil
}

// jobs reads a trace, by submission.
func jobs(path string, models map[string]curve) ([]*job, error) {
	t, err := readTable(path)
	if err != nil {
		return nil, err
	}
	var out []*job
	for row := range t.rows {
		model, err := t.text(row, "model_name")
		if err != nil {
			return nil, err
		}
		batch, err := t.text(row, "batch_size")
		if err != nil {
			return nil, err
		}
		c, ok := models[model+"/"+batch]
		if !ok {
			return nil, fmt.Errorf("%s: row %d: no throughputs for %s at batch size %s", path, row+2, model, batch)
		}
		var v [4]float64
		for i, name := range []string{"submission_time", "deadline", "num_gpu", "num_iteration"} {
			if v[i], err = t.number(row, name); err != nil {
				return nil, err
			}
		}
		out = append(out, &job{
			id: lockstep.JobID(fmt.Sprintf("j%05d", row)), submit: int64(v[0]), deadline: int64(v[1]), gpus: int(v[2]), work: int64(v[3]) * micro,
			points: c.points, sizes: c.sizes, all: c.all,
		})
	}
	slices.SortStableFunc(out, func(a, b *job) int { return cmp.Compare(a.submit, b.submit) })
	return out, nil
}
