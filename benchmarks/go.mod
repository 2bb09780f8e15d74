module github.com/lockstep-gpu/lockstep/benchmarks

go 1.26.0

require (
	github.com/lockstep-gpu/lockstep v0.0.0
	github.com/stretchr/testify v1.12.1
	gonum.org/v1/gonum v0.17.0
)

require (
	github.com/google/btree v1.1.3 // indirect
	github.com/klauspost/compress v1.20.4 // indirect
	github.com/klauspost/cpuid/v2 v2.0.9 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	lukechampine.com/blake3 v1.4.1 // indirect
)

replace github.com/lockstep-gpu/lockstep => ..
