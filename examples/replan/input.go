package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/reconfig"
)

// slow is a device that became slow, or the devices of a node.
type slow struct {
	Device string  `json:"device"`
	Speed  float64 `json:"speed"`
}

// scenario is what happens to a job.
type scenario struct {
	Job     reconfig.Job      `json:"job"`
	Devices []reconfig.Device `json:"devices"`
	Dead    []string          `json:"dead,omitempty"`
	Slow    []slow            `json:"slow,omitempty"`
}

// builtin is LLaMA-2 7B on four nodes of eight devices, two to a leaf switch.
func builtin() scenario {
	s := scenario{
		Job: reconfig.Job{
			Model:  perfmodel.Model{Layers: 32, Hidden: 4096, Heads: 32, FFN: 11008, Vocab: 32000, Gated: true},
			Layout: perfmodel.Layout{TP: 4, PP: 4, DP: 2},
			Micros: 32,
			Batch:  perfmodel.Batch{Tokens: 4096, Pairs: 4096 * 4097 / 2},
			Flash:  true,
			Rate:   perfmodel.Rate{Linear: 400e12},
		},
		Dead: []string{"n1g2"},
		Slow: []slow{{"n2g5", 0.5}},
	}
	for n := range 4 {
		for g := range 8 {
			s.Devices = append(s.Devices, reconfig.Device{
				ID: lockstep.DeviceID(fmt.Sprintf("n%dg%d", n, g)), Node: lockstep.NodeID(fmt.Sprintf("n%d", n)),
				Leaf: fmt.Sprintf("leaf%d", n/2), Speed: 1, Memory: 80 * lockstep.GiB,
			})
		}
	}
	return s
}

// load reads a scenario from a file.
func load(name string) (scenario, error) {
	var s scenario
	data, err := os.ReadFile(name)
	if err != nil {
		return s, err
	}
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return s, fmt.Errorf("%s: something stands after the object", name)
	}
	if len(s.Devices) == 0 {
		return s, fmt.Errorf("%s: no devices", name)
	}
	return s, nil
}

// faulty returns the devices with the faults of s.
func (s *scenario) faulty() ([]reconfig.Device, error) {
	out := append([]reconfig.Device(nil), s.Devices...)
	each := func(name string, edit func(*reconfig.Device)) error {
		found := false
		for i := range out {
			if d := &out[i]; string(d.ID) == name || string(d.Node) == name {
				edit(d)
				found = true
			}
		}
		if !found {
			return fmt.Errorf("%q is no device and no node", name)
		}
		return nil
	}
	var errs []error
	for _, f := range s.Slow {
		errs = append(errs, each(f.Device, func(d *reconfig.Device) { d.Speed = f.Speed }))
	}
	for _, name := range s.Dead {
		errs = append(errs, each(name, func(d *reconfig.Device) { d.State = reconfig.Down }))
	}
	return out, errors.Join(errs...)
}

// parseSlow reads DEVICE=SPEED.
func parseSlow(text string) (slow, error) {
	name, speed, ok := strings.Cut(text, "=")
	v, err := strconv.ParseFloat(speed, 64)
	if !ok || err != nil {
		return slow{}, fmt.Errorf("%q: want DEVICE=SPEED", text)
	}
	return slow{name, v}, nil
}
