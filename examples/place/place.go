package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/topology"
)

// outcome is what became of the gangs of an input.
type outcome struct {
	Racks   []rackView             `json:"map"`     // one letter for each gang, in the order of Placed
	Placed  []placedGang           `json:"placed"`  // in the order given
	Pending []lockstep.Explanation `json:"pending"` // in the order given
}

// placedGang is a gang that found room.
type placedGang struct {
	Letter  string           `json:"letter"`
	Verdict lockstep.Verdict `json:"verdict"`
	Plan    *lockstep.Plan   `json:"plan"`
}

// placeAll places gangs one after the other, each whole or not at all, and asks
// why for those that do not fit.
func placeAll(state *placement.State, gangs []*lockstep.Gang) (outcome, error) {
	out := outcome{Placed: []placedGang{}, Pending: []lockstep.Explanation{}}
	for _, g := range gangs {
		request := lockstep.Request{Gang: g}
		var plan lockstep.Plan
		verdict, err := state.Fit(&request, &plan)
		if err != nil {
			return outcome{}, fmt.Errorf("%s: %w", g.ID, err)
		}
		if !verdict.Feasible {
			why, err := state.Explain(&request)
			if err != nil {
				return outcome{}, fmt.Errorf("%s: %w", g.ID, err)
			}
			out.Pending = append(out.Pending, why)
			continue
		}
		if err := state.Apply(&plan); err != nil {
			return outcome{}, fmt.Errorf("%s: %w", g.ID, err)
		}
		out.Placed = append(out.Placed, placedGang{Letter: string(letter(len(out.Placed))), Verdict: verdict, Plan: plan.Clone()})
	}
	out.Racks = viewRacks(state, out.Placed)
	return out, nil
}

// viewRacks makes the map: who holds which device.
func viewRacks(state *placement.State, placed []placedGang) []rackView {
	cells := make(map[lockstep.NodeID][]rune)
	tree := state.Tree()
	level, _ := tree.LevelIndex(levelRack)
	racks := make([]rackView, tree.Domains(level))
	for r := range racks {
		block := tree.DomainName(level-1, tree.Parent(level, int32(r)))
		racks[r].Name = block + "/" + tree.DomainName(level, int32(r))
		first, end := tree.Range(level, int32(r))
		for slot := first; slot < end; slot++ {
			if id, ok := tree.NodeAt(slot); ok {
				status, _ := state.Node(id)
				cells[id] = emptyCells(status)
			}
		}
	}
	for i := range placed {
		for _, m := range placed[i].Plan.Members {
			for d := range m.Devices.All {
				cells[m.Node][d] = letter(i)
			}
		}
	}
	for r := range racks {
		first, end := tree.Range(level, int32(r))
		for slot := first; slot < end; slot++ {
			if id, ok := tree.NodeAt(slot); ok {
				racks[r].Nodes = append(racks[r].Nodes, nodeView{Name: string(id), Cells: string(cells[id])})
			}
		}
	}
	return racks
}

// emptyCells returns the cells of a node as if nobody were on it.
func emptyCells(status placement.Status) []rune {
	free := cellFree
	if !status.Open || !status.Healthy {
		free = cellClosed
	}
	return []rune(strings.Repeat(string(free), status.All.Len()))
}

// print writes the outcome for people.
func (o *outcome) print(w io.Writer, width int) error {
	var b strings.Builder
	devices, held := 0, 0
	for _, rack := range o.Racks {
		for _, node := range rack.Nodes {
			devices += len(node.Cells)
			held += len(node.Cells) - strings.Count(node.Cells, string(cellFree)) - strings.Count(node.Cells, string(cellClosed))
		}
	}
	fmt.Fprintf(&b, "%d of %d devices held, %d %s placed, %d waiting\n\n", held, devices,
		len(o.Placed), plural("gang", len(o.Placed)), len(o.Pending))
	if err := drawMap(&b, o.Racks, width); err != nil {
		return err
	}
	fmt.Fprintf(&b, "\n%c free, %c free on a node that takes no more members\n\n", cellFree, cellClosed)
	for i := range o.Placed {
		p := &o.Placed[i]
		gpus := 0
		for _, m := range p.Plan.Members {
			gpus += m.Devices.Len()
		}
		fmt.Fprintf(&b, "%s  %-10s %3d %-7s  %3d %-7s  %2d %-5s  %s\n", p.Letter, p.Plan.Job,
			len(p.Plan.Members), plural("member", len(p.Plan.Members)), gpus, plural("device", gpus),
			p.Plan.NodeCount(), plural("node", p.Plan.NodeCount()), within(p))
	}
	for i := range o.Pending {
		b.WriteString("\n" + o.Pending[i].String() + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func plural(word string, n int) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// within names the domain that holds the whole gang.
func within(p *placedGang) string {
	if p.Verdict.Domain == "" || p.Verdict.Level == topology.LevelCluster {
		return "across the cluster"
	}
	return "in " + strings.TrimSpace(string(p.Verdict.Level)+" "+p.Verdict.Domain)
}

// printEnv writes what a launcher of the gang needs: the environment of one rank
// and the hostfile.
func (o *outcome) printEnv(w io.Writer, job lockstep.JobID, rank int) error {
	for i := range o.Placed {
		plan := o.Placed[i].Plan
		if plan.Job != job {
			continue
		}
		env, err := plan.Env(rank)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "\nenvironment of %s, rank %d of %d:\n  %s\n\nhostfile of %s:\n  %s\n", job, rank, len(plan.Members),
			strings.Join(env, "\n  "), job, strings.ReplaceAll(strings.TrimSpace(plan.Hostfile()), "\n", "\n  "))
		return err
	}
	return fmt.Errorf("-env %s: no such gang is placed", job)
}

// printJSON writes v indented.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
