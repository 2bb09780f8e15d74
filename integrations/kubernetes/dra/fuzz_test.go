package dra

import (
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/lockstep-gpu/lockstep"
)

// A selector is read, or refused with a reason; what is read of it is in its text, and
// reading it twice changes nothing.
func FuzzSelectors(f *testing.F) {
	for _, s := range []string{
		"", "device.driver == 'gpu.example.com'", `device.driver=="a"&&device.attributes["b"].c=='d'`, "device.driver == 'a' || true",
		"device.driver == 'a' && device.driver == 'b'", "device.attributes['a'].b == 'x\\'y'", "device.driver == 'a&&b'", "device.driver == \"a'", "&&", "true",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		var w want
		_, reason := w.selectors(cel(expression))
		if reason != "" {
			return
		}
		if w.driver != "" && !strings.Contains(expression, w.driver) {
			t.Fatalf("%q is not in it", w.driver)
		}
		for name, text := range w.equal { // each by itself
			domain, short, _ := strings.Cut(name, "/")
			if strings.Contains(short, "/") {
				domain, short = name[:strings.LastIndexByte(name, '/')], name[strings.LastIndexByte(name, '/')+1:]
			}
			if !strings.Contains(expression, domain) || !strings.Contains(expression, short) || !strings.Contains(expression, text) {
				t.Fatalf("%q = %q is not in it", name, text)
			}
		}
		key := w.key()
		if _, reason := w.selectors(cel(expression)); reason != "" || w.key() != key {
			t.Fatalf("twice: %s", reason)
		}
	})
}

// Whatever a driver publishes, the numbers of devices stay within what a node has.
func FuzzDevices(f *testing.F) {
	f.Add("gpu-0", "gpu-1", "1g.10gb", "memory-slice-0", "H100", 8, int64(1))
	f.Add("a", "a", "", "memory-slice-9", "a b", 200, int64(0))
	f.Fuzz(func(t *testing.T, a, b, profile, counter, model string, n int, count int64) {
		s := divisible("n", 1)
		for i := range min(max(n, 0), 300) {
			name := a
			if i > 0 {
				name = b + strings.Repeat("x", i)
			}
			d := resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"productName": str(model), "profile": str(profile)}}
			if i%2 == 0 {
				delete(d.Attributes, "profile")
			}
			d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "gpu-0-counters", Counters: map[string]resourcev1.Counter{counter: {}}}}
			s[0].Spec.Devices = append(s[0].Spec.Devices, d)
		}
		s[1].Spec.Pool.ResourceSliceCount = count
		v := New(Config{}, s, migClass)
		for _, d := range v.Devices() { // each by itself
			if len(d.IDs) > lockstep.MaxDevicesPerNode {
				t.Fatal(len(d.IDs))
			}
			if d.MIG != "" {
				if err := d.Layout.Validate(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
