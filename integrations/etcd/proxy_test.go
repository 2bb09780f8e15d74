package etcd

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy passes connections on to a target, and can hold all that goes to it: bytes
// are neither lost nor refused, they are late.
type proxy struct {
	l      net.Listener
	target string
	wg     sync.WaitGroup

	mu    sync.Mutex
	free  *sync.Cond
	held  bool
	over  bool
	away  bool
	conns []net.Conn
}

func newProxy(t testing.TB, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{l: l, target: target}
	p.free = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = true
}

func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = false
	p.free.Broadcast()
}

// cut breaks all connections, and takes no more until mend.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = true
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = false
}

func (p *proxy) close() {
	_ = p.l.Close()
	p.mu.Lock()
	p.over = true
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.free.Broadcast()
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *proxy) accept() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		away := p.away
		p.mu.Unlock()
		var out net.Conn
		if !away {
			out, err = net.Dial("tcp", p.target)
		}
		if away || err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		refuse := p.over || p.away
		p.mu.Unlock()
		if refuse {
			_ = in.Close()
			_ = out.Close()
			continue
		}
		p.wg.Go(func() { p.pass(out, in) })
		p.wg.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
	}
}

// pass copies from in to out, waiting while the proxy is held.
func (p *proxy) pass(out, in net.Conn) {
	defer out.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		p.mu.Lock()
		for p.held && !p.over {
			p.free.Wait()
		}
		p.mu.Unlock()
		if n > 0 {
			if _, err := out.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
