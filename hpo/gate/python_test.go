//go:build linux

package gate

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/internal/proctree/coop"
)

// pythonTrial counts quanta in the board, as the role "trial" does.
const pythonTrial = `
import mmap, os, struct, sys, time
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
from gate import Gate
f = open(sys.argv[2], "r+b")
m = mmap.mmap(f.fileno(), 0)
def add(i):
    m[i*8:i*8+8] = struct.pack("=Q", struct.unpack("=Q", m[i*8:i*8+8])[0] + 1)
gate = Gate(settle=lambda: add(1))
while gate.wait(0.001):
    add(0)
    time.sleep(0.0001)
`

func TestThePythonHookKeepsToTheProtocol(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("gate.py is left out: no python3: " + err.Error())
	}
	b := scene(t)
	dir, err := filepath.Abs(".")
	require.NoError(t, err)
	g := run(t, b, Config{Command: exec.Command(python, "-B", "-c", pythonTrial, dir, b.path), Socket: b.path + ".sock"})
	quiesced(t, g)
	require.True(t, g.Status().Connected)
	for epoch := range uint64(2) {
		require.NoError(t, g.Open(epoch, later()))
		b.advances(t)
		require.NoError(t, g.Close(epoch))
		quiesced(t, g)
		require.False(t, g.Status().Halted)
		b.still(t)
	}
	require.EqualValues(t, 2, b.at(settled).Load())
}

func numbers(verb string, list ...uint64) coop.Message { return coop.Numbers(verb, list...) }

// fakeGate greets one hook and hands out its connection.
func fakeGate(t *testing.T, socket string) <-chan *coop.Conn {
	t.Helper()
	l, err := coop.Listen(socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	out := make(chan *coop.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = c.Greet(service, greetTime, func(string, coop.Peer) string { return "" })
			out <- c
		}
	}()
	return out
}
