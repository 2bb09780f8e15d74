//go:build !linux || (!amd64 && !arm64)

package cuda

import (
	"runtime"

	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// api is what there is where the library cannot be called.
type api struct{}

func newAPI(string, []string) backend { return api{} }

func (api) find() found { return found{Absent: noAPI(), Missing: wanted[:]} }

func noAPI() string {
	return "the CUDA driver is not reached on " + runtime.GOOS + "/" + runtime.GOARCH
}

func (api) read(int) (int, *failure) {
	return 0, &failure{kind: checkpoint.ErrUnsupported, err: errText(noAPI())}
}

func (api) act(request) *failure {
	return &failure{kind: checkpoint.ErrUnsupported, err: errText(noAPI())}
}

func (api) close() error { return nil }
