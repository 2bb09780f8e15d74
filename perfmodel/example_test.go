package perfmodel_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
)

// llama is Llama 2 with seven billion parameters.
func llama() perfmodel.Model {
	return perfmodel.Model{Layers: 32, Hidden: 4096, Heads: 32, FFN: 11008, Vocab: 32000, Gated: true, MaxDoc: 4096}
}

func Example() {
	m := llama()
	b, err := m.Batch([]int{1500, 2500, 96}, 4096)
	if err != nil {
		panic(err)
	}
	w := m.Work(m.Whole(), b)
	fmt.Printf("forward %.2f TFLOP, backward %.2f TFLOP\n", w.Forward.Total()/1e12, w.Backward().Total()/1e12)
	fmt.Println(w.Forward.Time(perfmodel.Rate{Linear: 400e12, Quadratic: 200e12}).Round(time.Microsecond))

	l := perfmodel.Layout{TP: 2, DP: 4, ZeRO: 1, SequenceParallel: true}
	s := m.Whole()
	s.Flash = true
	mem, err := m.Memory(l, s, perfmodel.Load{Tokens: 4096, Context: lockstep.GiB, Reserve: 4 * lockstep.GiB})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%.1f GiB of 80: %v\n", float64(mem.Total())/float64(lockstep.GiB), mem.Fit(80*lockstep.GiB).Feasible)
	// Output:
	// forward 56.36 TFLOP, backward 112.71 TFLOP
	// 146.472ms
	// 35.4 GiB of 80: true
}

// Seven billion parameters with AdamW in bf16, by two common accounts, and the two
// traps in "84 GB do not fit in 80 GB".
func ExamplePrecision_States() {
	withoutMaster := perfmodel.Precision{Weight: 2, Gradient: 2, Optimizer: 8}
	seven, err := withoutMaster.States(7_000_000_000, 0, 1)
	if err != nil {
		panic(err)
	}
	fmt.Println("12 bytes a parameter:", seven.Total()/1e9, "GB")
	mixed, err := perfmodel.Precision{}.States(7_000_000_000, 0, 1)
	if err != nil {
		panic(err)
	}
	fmt.Println("16 with the fp32 copy:", mixed.Total()/1e9, "GB")

	// A device sold with 80 GB has 80 GiB or nearly, which is more than 84 GB.
	fmt.Printf("84 GB are %.1f GiB; fits: %v\n", float64(seven.Total())/float64(lockstep.GiB), seven.Fit(80*lockstep.GiB).Feasible)
	// What does not fit is what comes on top.
	seven.Context, seven.Reserve = lockstep.GiB, 4*lockstep.GiB
	v := seven.Fit(80 * lockstep.GiB)
	fmt.Println("with a context and a reserve:", v.Feasible, v.Reason)

	for zero := range 4 {
		states, err := perfmodel.Precision{}.States(7_000_000_000, zero, 8)
		if err != nil {
			panic(err)
		}
		fmt.Printf("ZeRO %d on 8 devices: %g GB each\n", zero, float64(states.Total())/1e9)
	}
	// Output:
	// 12 bytes a parameter: 84 GB
	// 16 with the fp32 copy: 112 GB
	// 84 GB are 78.2 GiB; fits: true
	// with a context and a reserve: false capacity
	// ZeRO 0 on 8 devices: 112 GB each
	// ZeRO 1 on 8 devices: 38.5 GB each
	// ZeRO 2 on 8 devices: 26.25 GB each
	// ZeRO 3 on 8 devices: 14 GB each
}

// The gradients of seven billion parameters in bf16 are 14 GB. Summing them costs each
// rank 24.5 GB on eight ranks; 28 GB is what it comes near to on many.
func ExampleCollective_Wire() {
	for _, n := range []int{2, 4, 8, 64, 1 << 20} {
		fmt.Printf("%d ranks: %.4f GB\n", n, float64(perfmodel.AllReduce.Wire(n, 14e9))/1e9)
	}
	// Output:
	// 2 ranks: 14.0000 GB
	// 4 ranks: 21.0000 GB
	// 8 ranks: 24.5000 GB
	// 64 ranks: 27.5625 GB
	// 1048576 ranks: 28.0000 GB
}

func ExampleGroupShape_Best() {
	nvlink := perfmodel.Link{Latency: 2 * time.Microsecond, Bandwidth: 450e9}
	fabric := perfmodel.Link{Latency: 8 * time.Microsecond, Bandwidth: 50e9}
	for _, g := range []perfmodel.GroupShape{
		{{Ranks: 8, Link: nvlink}},
		{{Ranks: 8, Link: fabric}},
		{{Ranks: 8, Link: nvlink}, {Ranks: 8, Link: fabric}},
	} {
		for _, size := range []lockstep.Bytes{64 * lockstep.KiB, 14e9} {
			a, d, _ := g.Best(perfmodel.AllReduce, size)
			fmt.Printf("%2d ranks, %v: %v %v\n", g.Ranks(), size, a, d.Round(time.Microsecond))
		}
	}
	// Output:
	//  8 ranks, 64Ki: tree 12µs
	//  8 ranks, 13671875Ki: ring 54.472ms
	//  8 ranks, 64Ki: tree 51µs
	//  8 ranks, 13671875Ki: ring 490.112ms
	// 64 ranks, 64Ki: tree 99µs
	// 64 ranks, 13671875Ki: hierarchical 115.834ms
}

func ExampleModel_Transfers() {
	m := llama()
	stages, err := m.Split(4, perfmodel.Stage{Flash: true})
	if err != nil {
		panic(err)
	}
	l := perfmodel.Layout{TP: 8, PP: 4, DP: 16, ZeRO: 1, SequenceParallel: true}
	transfers, err := m.Transfers(nil, l, stages[1], perfmodel.Load{Tokens: 4096}, 32)
	if err != nil {
		panic(err)
	}
	for _, t := range transfers {
		fmt.Printf("%v %v: %d of %v among %d\n", t.Dimension, t.Op, t.Times, t.Size, t.Ranks)
	}
	// Output:
	// tensor all-gather: 1024 of 32Mi among 8
	// tensor reduce-scatter: 1024 of 32Mi among 8
	// pipeline point-to-point: 64 of 4Mi among 2
	// data reduce-scatter: 1 of 395392Ki among 16
	// data all-gather: 1 of 395392Ki among 16
}

func ExampleReadConfig() {
	m, err := perfmodel.ReadConfig(strings.NewReader(`{
		"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
		"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}`))
	if err != nil {
		panic(err)
	}
	fmt.Println(m.Parameters(m.Whole()))

	_, err = perfmodel.ReadConfig(strings.NewReader(`{"model_type": "mamba"}`))
	fmt.Println(errors.Is(err, lockstep.ErrUnknown), err)
	// Output:
	// 8030261248
	// true perfmodel: read config: model_type = "mamba": want llama, mistral, mixtral, qwen2, qwen3, qwen3_moe or gpt2
}
