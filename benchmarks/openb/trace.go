package main

import (
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// milli is a whole device.
const milli = 1000

// maxDevices is how many devices a node of the trace has at most.
const maxDevices = 8

// node is one machine of the trace.
type node struct {
	name    string
	cpu     int64 // thousandths of a core
	devices int
	model   int // index into trace.models
}

// trace is the cluster.
type trace struct {
	nodes    []node
	models   []string // sorted
	capacity int64    // milli of all devices
}

// task is one line of a task list.
type task struct {
	name string
	spec string // models that may serve it, joined by "|"; empty: any
}

// shape is what matters of a task to a rule.
type shape struct {
	cpu     int64  // thousandths of a core
	devices int    // 0: none
	milli   int64  // of each device, 0 to 1000
	models  uint64 // set of the models that may serve it
}

// demand returns the milli that s takes.
func (s *shape) demand() int64 { return int64(s.devices) * s.milli }

// list is a task list, sorted by name as the published orders are.
type list struct {
	name   string
	tasks  []task
	shape  []int   // of each task
	shapes []shape // in order of first appearance
	counts []int64 // tasks of each shape
}

func (l *list) shapeOf(task int) *shape { return &l.shapes[l.shape[task]] }

// columns gives the fields of CSV lines by name.
type columns struct {
	index map[string]int
	line  []string
}

func (c *columns) text(name string) string {
	if i, ok := c.index[name]; ok && i < len(c.line) {
		return c.line[i]
	}
	return ""
}

// number returns the whole part of a field, 0 when it is empty.
func (c *columns) number(name string) (int64, error) {
	text, _, _ := strings.Cut(c.text(name), ".")
	if text == "" {
		return 0, nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 0 || v > 1<<30 {
		return 0, fmt.Errorf("column %s: %q is no amount", name, c.text(name))
	}
	return v, nil
}

// readCSV calls each for every line of a CSV file after the head; a name that
// ends in .gz is unpacked.
func readCSV(path string, each func(*columns) error) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var in io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	r := csv.NewReader(in)
	head, err := r.Read()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	c := &columns{index: map[string]int{}}
	for i, name := range head {
		c.index[name] = i
	}
	for n := 2; ; n++ {
		if c.line, err = r.Read(); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = each(c)
		}
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", path, n, err)
		}
	}
}

// readTrace reads the nodes that have GPUs.
func readTrace(dir string) (*trace, error) {
	t := &trace{}
	var models []string
	err := readCSV(filepath.Join(dir, "node_list_gpu.csv.gz"), func(c *columns) error {
		cpu, err := c.number("cpu_milli")
		devices, err2 := c.number("gpu")
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if devices > maxDevices {
			return fmt.Errorf("%d devices", devices)
		}
		t.nodes = append(t.nodes, node{name: c.text("sn"), cpu: cpu, devices: int(devices)})
		models = append(models, c.text("model"))
		t.capacity += devices * milli
		return nil
	})
	t.models = slices.Compact(slices.Sorted(slices.Values(models)))
	for x, model := range models {
		t.nodes[x].model = slices.Index(t.models, model)
	}
	return t, err
}

// mask returns the set of models that spec names.
func (t *trace) mask(spec string) uint64 {
	if spec == "" {
		return 1<<len(t.models) - 1
	}
	set := uint64(0)
	for name := range strings.SplitSeq(spec, "|") {
		if i := slices.Index(t.models, name); i >= 0 {
			set |= 1 << i
		}
	}
	return set
}

// namesOf returns the names of the models of a set; none when it holds all.
func (t *trace) namesOf(models uint64) (names []string) {
	if models == 1<<len(t.models)-1 {
		return nil
	}
	for m, name := range t.models {
		if models>>m&1 != 0 {
			names = append(names, name)
		}
	}
	return names
}

// readList reads the task list of a name.
func readList(dir, name string, t *trace) (*list, error) {
	type row struct {
		task
		shape
	}
	var rows []row
	err := readCSV(filepath.Join(dir, "pod_list_"+name+".csv.gz"), func(c *columns) error {
		cpu, err := c.number("cpu_milli")
		devices, err2 := c.number("num_gpu")
		share, err3 := c.number("gpu_milli")
		if devices == 0 {
			share = 0
		}
		if devices > maxDevices || share > milli || devices > 1 && share != milli || devices > 0 && share < milli/patternSteps {
			return fmt.Errorf("%d devices of %d milli", devices, share)
		}
		spec := c.text("gpu_spec")
		rows = append(rows, row{task{c.text("name"), spec}, shape{cpu, int(devices), share, t.mask(spec)}})
		return errors.Join(err, err2, err3)
	})
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.name, b.name) })
	l := &list{name: name}
	seen := map[shape]int{}
	for _, r := range rows {
		i, ok := seen[r.shape]
		if !ok {
			i = len(l.shapes)
			seen[r.shape] = i
			l.shapes, l.counts = append(l.shapes, r.shape), append(l.counts, 0)
		}
		l.tasks, l.shape = append(l.tasks, r.task), append(l.shape, i)
		l.counts[i]++
	}
	return l, err
}

// published is a line of the published results.
type published struct {
	list, policy string
	at           [len(marks)]float64
	low, high    float64 // at the last mark, over the published seeds
}

// readPublished reads the results that the authors of FGD published.
func readPublished(dir string) ([]published, error) {
	var out []published
	err := readCSV(filepath.Join(dir, "published_fgd.csv"), func(c *columns) error {
		p := published{list: c.text("workload"), policy: c.text("policy")}
		fields := []string{"alloc_at_90", "alloc_at_95", "alloc_at_100", "alloc_at_110", "alloc_at_130_mean", "alloc_at_130_min", "alloc_at_130_max"}
		into := []*float64{&p.at[0], &p.at[1], &p.at[2], &p.at[3], &p.at[4], &p.low, &p.high}
		for i, name := range fields {
			v, err := strconv.ParseFloat(c.text(name), 64)
			if err != nil {
				return fmt.Errorf("column %s: %w", name, err)
			}
			*into[i] = v
		}
		out = append(out, p)
		return nil
	})
	return out, err
}
