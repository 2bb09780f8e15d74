package reconfig

// ValidateDevices reports every fault of devices: names, places, speeds and memory, joined, each an *lockstep.Error.
func ValidateDevices(devs []Device) error {
	f := faults{op: "reconfig: devices"}
	validateDevices(&f, devs)
	return f.err()
}
