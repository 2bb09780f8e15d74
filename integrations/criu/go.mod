module github.com/lockstep-gpu/lockstep/integrations/criu

go 1.26.0

// Until the library is tagged, the module is built against the tree that it lies in.
replace github.com/lockstep-gpu/lockstep => ../..

require (
	github.com/checkpoint-restore/go-criu/v8 v8.3.0
	github.com/lockstep-gpu/lockstep v0.0.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/aperturerobotics/protobuf-go-lite v0.14.0 // indirect
	github.com/klauspost/compress v1.20.4 // indirect
	github.com/klauspost/cpuid/v2 v2.0.9 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	lukechampine.com/blake3 v1.4.1 // indirect
)
