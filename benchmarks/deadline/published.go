package main

// What the authors of ElasticFlow published: the ratio of jobs that met their deadlines, from the values that their plot
// scripts hold (pkusys/ElasticFlow, plot_figure/scripts: plot_fig6.py for the testbed, plot_fig8b.py for the simulations), and
// the clusters that they ran on (ElasticFlow/scheduler/run_fig8b.sh).
type published struct {
	name                                             string
	gpus                                             int
	edf, gandiva, tiresias, themis, chronus, elastic float64
	simulated                                        bool // in the authors' simulator, without the cost of a resize; else on their testbed
}

var elasticFlow = []published{
	{"195job", 128, .0872, .2103, .4564, .3897, .4103, .6667, false},
	{"cluster01", 512, .182, .246, .478, .464, .474, .788, true},
	{"cluster02", 512, .228, .286, .470, .431, .445, .822, true},
	{"cluster03", 512, .095, .314, .401, .389, .426, .455, true},
	{"cluster05", 512, .375, .228, .420, .430, .453, .832, true},
	{"cluster06", 512, .105, .381, .466, .425, .432, .607, true},
	{"cluster07", 1024, .046, .351, .346, .437, .460, .665, true},
	{"cluster09", 1024, .800, .329, .468, .456, .466, .938, true},
	{"cluster10", 256, .769, .354, .473, .431, .454, .981, true},
}

// ratio returns the published ratio of the policy that a row of ours stands beside; ok is false if there is none.
func (p *published) ratio(row string) (name string, v float64, ok bool) {
	switch row {
	case exact, slotwise, planned:
		return "ElasticFlow", p.elastic, true
	case gangwise:
		return "Chronus", p.chronus, true
	case widest:
		return "EDF", p.edf, true
	case las:
		return "Tiresias", p.tiresias, true
	}
	return "", 0, false
}

// What Chronus' abstract claims against other schedulers, at most: how many times fewer deadlines are missed, and how many
// times sooner best-effort jobs end. There are no figures by trace.
const (
	chronusMisses     = 14.7
	chronusBestEffort = 19.9
)
