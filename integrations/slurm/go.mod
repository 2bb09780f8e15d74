module github.com/lockstep-gpu/lockstep/integrations/slurm

go 1.26.0

// Until the library is tagged, the module is built against the tree that it lies in.
replace github.com/lockstep-gpu/lockstep => ../..

require (
	github.com/lockstep-gpu/lockstep v0.0.0
	github.com/stretchr/testify v1.12.1
	go.uber.org/zap v1.28.0
)

require (
	github.com/google/btree v1.1.3 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
