package scaling_test

import (
	"fmt"

	"github.com/lockstep-gpu/lockstep/hpo/scaling"
)

func ExampleNew() {
	plan, err := scaling.New([]scaling.Param{
		{Name: "embed", Role: scaling.Input, In: 50257, Out: 1024},
		{Name: "mlp.up", Role: scaling.Hidden, In: 1024, Out: 4096},
		{Name: "mlp.bias", Role: scaling.Vector, Out: 4096},
		{Name: "head", Role: scaling.Output, In: 1024, Out: 50257},
	}, 8, scaling.Options{})
	if err != nil {
		panic(err)
	}
	for _, r := range plan.Rules {
		fmt.Printf("%-8s %dx%d std x%.3f out x%g LR: Adam x%g SGD x%g\n",
			r.Name, r.SurrogateIn, r.SurrogateOut, r.InitStd, r.Forward, r.Adam.LR, r.SGD.LR)
	}
	_, err = scaling.New([]scaling.Param{{Name: "conv", Role: scaling.Hidden, In: 64, Out: 4}}, 8, scaling.Options{MinWidth: 2})
	fmt.Println(err)
	// Output:
	// embed    50257x128 std x1.000 out x1 LR: Adam x1 SGD x0.125
	// mlp.up   128x512 std x2.828 out x1 LR: Adam x8 SGD x1
	// mlp.bias 0x512 std x1.000 out x1 LR: Adam x1 SGD x0.125
	// head     128x50257 std x1.000 out x8 LR: Adam x1 SGD x0.125
	// scaling: new: params[0].Out = 4: is not a multiple of the ratio 8
}

func ExampleChoose() {
	params := []scaling.Param{{Name: "w", Role: scaling.Hidden, In: 512, Out: 512, Heads: 8}}
	speed := func(ratio int64) (float64, bool) {
		measured := map[int64]float64{1: .28, 2: .6, 4: 1.4, 8: 2.7, 16: 2.9}
		s, ok := measured[ratio]
		return s, ok
	}
	c, err := scaling.Choose(params, speed, 0, scaling.Options{})
	fmt.Println(c.Ratio, c.Stop, c.Reason, err)
	// Output: 8 gain ratio 16 is only 1.07 times as fast <nil>
}

func ExampleCheck() {
	var sizes []scaling.Coordinate
	for _, width := range []int64{64, 128, 256, 512} {
		sizes = append(sizes,
			scaling.Coordinate{Layer: "hidden", Width: width, Step: 3, Size: 0.8},
			scaling.Coordinate{Layer: "head", Width: width, Step: 3, Size: float64(width) / 64}) // no multiplier
	}
	slopes, err := scaling.Check(sizes, 0)
	for _, s := range slopes {
		fmt.Printf("%s %.2f grows=%t\n", s.Layer, s.Slope, s.Grows)
	}
	fmt.Println(err)
	// Output:
	// head 1.00 grows=true
	// hidden 0.00 grows=false
	// <nil>
}
