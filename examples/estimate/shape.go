package main

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
)

// shape is a model with the name it goes by here.
type shape struct {
	Name  string
	Model perfmodel.Model
}

// shapes returns the built-in ones, as their papers and configurations give them.
func shapes() []shape {
	llama := func(layers, hidden, heads, kv, ffn, vocab, context int) perfmodel.Model {
		return perfmodel.Model{
			Layers: layers, Hidden: hidden, Heads: heads, KVHeads: kv, FFN: ffn, Vocab: vocab, MaxDoc: context, Gated: true,
		}
	}
	mixtral := llama(32, 4096, 32, 8, 14336, 32000, 32768)
	mixtral.Experts, mixtral.TopK = 8, 2
	gpt3 := perfmodel.Model{Layers: 96, Hidden: 12288, Heads: 96, FFN: 49152, Vocab: 50257, MaxDoc: 2048, Learned: 2048, Tied: true, Bias: true, Dropout: true}
	return []shape{
		{"llama2-7b", llama(32, 4096, 32, 32, 11008, 32000, 4096)},
		{"llama2-13b", llama(40, 5120, 40, 40, 13824, 32000, 4096)},
		{"llama2-70b", llama(80, 8192, 64, 8, 28672, 32000, 4096)},
		{"llama3-8b", llama(32, 4096, 32, 8, 14336, 128256, 131072)},
		{"mixtral-8x7b", mixtral},
		{"gpt3-175b", gpt3},
	}
}

func printShapes(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "shape\tparameters\tlayers\thidden\theads\tkv heads\tffn\texperts\tvocab\t\n")
	for _, s := range shapes() {
		m := s.Model
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", s.Name, grouped(m.Parameters(m.Whole())),
			m.Layers, m.Hidden, m.Heads, m.KVHeads, m.FFN, m.Experts, m.Vocab)
	}
	return w.Flush()
}

// model returns the shape that the flags ask for, and its name.
func (o *options) model() (string, perfmodel.Model, error) {
	name, m, err := o.base()
	if err != nil {
		return name, m, err
	}
	changed := false
	for _, c := range []struct {
		to   *int
		with int
	}{
		{&m.Layers, o.shape.Layers},
		{&m.Hidden, o.shape.Hidden},
		{&m.Heads, o.shape.Heads},
		{&m.KVHeads, o.shape.KVHeads},
		{&m.FFN, o.shape.FFN},
		{&m.Vocab, o.shape.Vocab},
	} {
		if c.with != 0 {
			*c.to, changed = c.with, true
		}
	}
	if o.shape.Heads != 0 && o.shape.KVHeads == 0 {
		m.KVHeads = 0 // other heads than those that the shape's were for
	}
	if o.shape.Hidden != 0 || o.shape.Heads != 0 {
		m.HeadDim = 0
	}
	if changed {
		name += ", changed"
	}
	return name, m, m.Validate()
}

// base returns the shape that flags may change.
func (o *options) base() (string, perfmodel.Model, error) {
	if o.config == "" {
		for _, s := range shapes() {
			if s.Name == o.name {
				return s.Name, s.Model, nil
			}
		}
		return "", perfmodel.Model{}, fmt.Errorf("-model %q: unknown; -model list names those there are", o.name)
	}
	file, err := os.Open(o.config)
	if err != nil {
		return "", perfmodel.Model{}, err
	}
	defer file.Close()
	m, err := perfmodel.ReadConfig(file)
	if err != nil {
		err = fmt.Errorf("%s: %w", o.config, err)
	}
	return o.config, m, err
}

// precision returns the sizes that go by this name.
func precision(name string) (perfmodel.Precision, error) {
	switch name {
	case "bf16":
		return perfmodel.Precision{Weight: 2, Gradient: 2, Optimizer: 8, Master: 4, Activation: 2}, nil
	case "bf16-fp32-grad":
		return perfmodel.Precision{Weight: 2, Gradient: 4, Optimizer: 8, Master: 4, Activation: 2}, nil
	case "bf16-no-master":
		return perfmodel.Precision{Weight: 2, Gradient: 2, Optimizer: 8, Activation: 2}, nil
	case "fp32":
		return perfmodel.Precision{Weight: 4, Gradient: 4, Optimizer: 8, Activation: 4}, nil
	}
	return perfmodel.Precision{}, fmt.Errorf("-precision %q: want bf16, bf16-fp32-grad, bf16-no-master or fp32", name)
}

// job is what is to be trained, and on what.
type job struct {
	options
	title   string
	model   perfmodel.Model
	layout  perfmodel.Layout // what all layouts have in common
	reserve lockstep.Bytes
}

func (o *options) job() (*job, error) {
	j := &job{options: *o}
	var err error
	if j.title, j.model, err = o.model(); err != nil {
		return nil, err
	}
	j.layout = perfmodel.Layout{ZeRO: o.zero, SequenceParallel: o.sequence}
	if j.layout.Precision, err = precision(o.precision); err != nil {
		return nil, err
	}
	if _, err = j.model.Batch([]int{o.seq}, 0); err != nil {
		return nil, fmt.Errorf("-seq: %w", err)
	}
	if o.batch%o.micro != 0 {
		return nil, fmt.Errorf("-batch %d: want a multiple of -micro %d", o.batch, o.micro)
	}
	j.reserve = lockstep.Bytes(float64(o.headroom * float64(o.memory)))
	return j, nil
}
