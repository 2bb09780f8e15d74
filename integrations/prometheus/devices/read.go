//go:build cgo && linux

package devices

import (
	"errors"

	"github.com/lockstep-gpu/lockstep/internal/nvml"
)

// supported says whether this build can read a device at all.
const supported = true

// read asks a GPU for everything. What it does not do is noted as such.
func read(d *nvml.Device, u *usage, driver string) reading {
	r := reading{unsupported: make(map[string]bool)}
	product, err := d.Name()
	if r.ok(err, nameInfo) {
		r.set(nameInfo, 1, text(product), text(driver))
	}
	rates, err := u.utilization(d.Index())
	if r.ok(err, nameUtil, nameMemUtil) {
		r.set(nameUtil, float64(rates.GPU)/100)
		r.set(nameMemUtil, float64(rates.Memory)/100)
	}
	used, err := u.memory(d.Index())
	if r.ok(err, nameMemUsed) {
		r.set(nameMemUsed, float64(used.Used))
	}
	total, err := d.Memory()
	if r.ok(err, nameMemTotal) {
		r.set(nameMemTotal, float64(total))
	}
	celsius, err := d.Temperature()
	if r.ok(err, nameTemp) {
		r.set(nameTemp, float64(celsius))
	}
	milliwatts, err := u.power(d.Index())
	if r.ok(err, namePower) {
		r.set(namePower, float64(milliwatts)/1000)
	}
	millijoules, err := u.energy(d.Index())
	if r.ok(err, nameEnergy) {
		r.set(nameEnergy, float64(millijoules)/1000)
	}
	clocks, err := d.Clocks()
	if r.ok(err, nameClock, nameHeld) {
		r.setClocks(clocks)
	}
	r.memory(d)
	r.links(d)
	action, err := d.Recovery()
	if r.ok(err, nameRecovery) {
		r.setRecovery(action)
	}
	return r
}

// memory reads the counts of memory errors and replaced rows.
func (r *reading) memory(d *nvml.Device) {
	ecc, err := d.ECC()
	if r.ok(err, nameECCOn) {
		r.set(nameECCOn, truth(ecc.On))
	}
	r.unsupported[nameECC] = err != nil || !ecc.On
	r.unsupported[nameECCLife] = r.unsupported[nameECC]
	if err == nil && ecc.On { // else the counts are of nothing
		r.set(nameECC, float64(ecc.Corrected), "corrected")
		r.set(nameECC, float64(ecc.Uncorrected), "uncorrected")
		r.set(nameECCLife, float64(ecc.Lifetime))
	}
	rows, err := d.Rows()
	if r.ok(err, nameRows, nameRowsWait, nameRowsFail) {
		r.set(nameRows, float64(rows.Corrected), "corrected")
		r.set(nameRows, float64(rows.Uncorrected), "uncorrected")
		r.set(nameRowsWait, truth(rows.Pending))
		r.set(nameRowsFail, truth(rows.Failed))
	}
}

// links counts the NVLinks.
func (r *reading) links(d *nvml.Device) {
	links, err := d.NVLinks()
	if !r.ok(err, nameLinks) {
		return
	}
	up := 0
	for i := range links {
		if links[i].Up {
			up++
		}
	}
	r.set(nameLinks, float64(up), "up")
	r.set(nameLinks, float64(len(links)-up), "down")
}

// ok notes whether what some metrics are about is supported, and reports whether
// it was read.
func (r *reading) ok(err error, names ...string) bool {
	lacks := errors.Is(err, nvml.ErrUnsupported)
	for _, name := range names {
		r.unsupported[name] = lacks
	}
	if err != nil && !lacks && (r.failed == nil || errors.Is(err, nvml.ErrLost)) {
		r.failed = err
	}
	return err == nil
}
