package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// audit replays placements on fresh nodes and reports the first that is not
// possible. It shares nothing with the simulator but the trace.
func audit(t *trace, l *list, order []int, placed []spot) error {
	cpu, free := make([]int64, len(t.nodes)), make([][maxDevices]int64, len(t.nodes))
	for x, n := range t.nodes {
		cpu[x] = n.cpu
		for d := range n.devices {
			free[x][d] = milli
		}
	}
	if len(placed) != len(order) {
		return fmt.Errorf("%d placements for %d tasks", len(placed), len(order))
	}
	for seq, at := range placed {
		p := l.shapeOf(order[seq])
		if at.node < 0 {
			continue
		}
		n := &t.nodes[at.node]
		if p.models>>n.model&1 == 0 {
			return fmt.Errorf("task %d: may not use model %s", seq, t.models[n.model])
		}
		if cpu[at.node] -= p.cpu; cpu[at.node] < 0 {
			return fmt.Errorf("task %d: node %s is out of CPU", seq, n.name)
		}
		if len(at.devices) != p.devices {
			return fmt.Errorf("task %d: %d devices for %d", seq, len(at.devices), p.devices)
		}
		used := uint64(0)
		for _, d := range at.devices {
			if d < 0 || d >= n.devices || used>>d&1 != 0 {
				return fmt.Errorf("task %d: device %d of node %s", seq, d, n.name)
			}
			used |= 1 << d
			if free[at.node][d] -= p.milli; free[at.node][d] < 0 {
				return fmt.Errorf("task %d: device %d of node %s is over", seq, d, n.name)
			}
		}
	}
	return nil
}

// writeRun writes the arrivals and placements of a run as CSV files that a judge
// outside this program reads.
func writeRun(dir, name string, t *trace, l *list, order []int, placed []spot) error {
	err := writeFile(filepath.Join(dir, name+".order.csv"), func(w io.Writer) {
		fmt.Fprintln(w, "seq,name,cpu_milli,num_gpu,gpu_milli,gpu_spec")
		for seq, i := range order {
			p := l.shapeOf(i)
			fmt.Fprintf(w, "%d,%s,%d,%d,%d,%s\n", seq, l.tasks[i].name, p.cpu, p.devices, p.milli, l.tasks[i].spec)
		}
	})
	return errors.Join(err, writeFile(filepath.Join(dir, name+".placements.csv"), func(w io.Writer) {
		fmt.Fprintln(w, "seq,node,gpus")
		for seq, at := range placed {
			if at.node < 0 {
				continue
			}
			var devices []string
			for _, d := range at.devices {
				devices = append(devices, strconv.Itoa(d))
			}
			fmt.Fprintf(w, "%d,%s,%s\n", seq, t.nodes[at.node].name, strings.Join(devices, "+"))
		}
	}))
}

func writeFile(path string, fill func(io.Writer)) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	fill(w)
	return errors.Join(w.Flush(), f.Close())
}
