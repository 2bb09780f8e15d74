module github.com/lockstep-gpu/lockstep/benchmarks

go 1.26.0

require (
	github.com/lockstep-gpu/lockstep v0.0.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/google/btree v1.1.3 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	gonum.org/v1/gonum v0.17.0 // indirect
)

replace github.com/lockstep-gpu/lockstep => ..
