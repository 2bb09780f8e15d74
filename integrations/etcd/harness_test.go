package etcd

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// roleEnv makes a run of the test binary one of the processes of a test.
const roleEnv = "LOCKSTEP_ETCD_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := play(role, bufio.NewScanner(os.Stdin)); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	shared.close()
	os.Exit(code)
}

// server is an etcd in this process.
type server struct {
	once sync.Once
	dir  string
	own  bool  // dir is to be removed by close
	sync bool  // it syncs its log to the disk
	room int64 // in bytes, after which it takes no more; 0 for etcd's own
	etcd *embed.Etcd
	addr string // host:port of the clients
	peer string
	err  error
}

// shared serves the tests that leave etcd alone.
var shared = &server{}

func (s *server) start() error {
	s.once.Do(func() {
		if s.dir == "" {
			s.own = true
			if s.dir, s.err = os.MkdirTemp("", "lockstep-etcd"); s.err != nil {
				return
			}
		}
		for range 10 { // somebody else may take a free port before etcd does
			if s.addr, s.err = freeAddr(); s.err != nil {
				return
			}
			if s.peer, s.err = freeAddr(); s.err != nil {
				return
			}
			if s.err = s.open(); s.err == nil || !strings.Contains(s.err.Error(), "address already in use") {
				return
			}
		}
	})
	return s.err
}

// open starts etcd on its folder and addresses, fast and quiet.
func (s *server) open() error {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(s.dir, "data")
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.TickMs, cfg.ElectionMs = 10, 100 // which allows leases of a second
	cfg.QuotaBackendBytes = s.room
	cfg.BcryptCost = 4          // the least: passwords guard nothing here
	cfg.UnsafeNoFsync = !s.sync // the machine does not lose power in these tests
	client, peer := url.URL{Scheme: "http", Host: s.addr}, url.URL{Scheme: "http", Host: s.peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	select {
	case <-e.Server.ReadyNotify():
		s.etcd = e
		return nil
	case <-time.After(time.Minute):
		e.Server.Stop()
		e.Close()
		return fmt.Errorf("etcd is not ready")
	}
}

// stop ends etcd without waiting for its clients, and leaves its data.
func (s *server) stop() {
	s.etcd.Server.HardStop()
	s.etcd.Close()
	s.etcd = nil
}

func (s *server) close() {
	if s.etcd != nil {
		s.stop()
	}
	if s.own {
		_ = os.RemoveAll(s.dir)
	}
}

// ClientForExamples returns a client of the etcd that serves the tests, in which the
// examples find nothing.
func ClientForExamples() *clientv3.Client {
	if err := shared.start(); err != nil {
		panic(err)
	}
	c, err := dial(shared.addr)
	if err == nil {
		_, err = c.Delete(context.Background(), "/example/", clientv3.WithPrefix())
	}
	if err != nil {
		panic(err)
	}
	return c
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// newServer starts an etcd of the test's own.
func newServer(t testing.TB) *server {
	s := &server{dir: t.TempDir()}
	require.NoError(t, s.start())
	t.Cleanup(s.close)
	return s
}

func newClient(t testing.TB, addr string) *clientv3.Client {
	c, err := dial(addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func dial(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{"http://" + addr}, Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
}

// newSpace returns a space of the test's own on the shared server. The lease is
// long: only tests of its end have another.
func newSpace(t testing.TB, change func(c *Config)) *Space {
	require.NoError(t, shared.start())
	cfg := Config{Prefix: "/" + t.Name(), TTL: time.Minute, Name: "candidate"}
	if change != nil {
		change(&cfg)
	}
	if cfg.Client == nil {
		cfg.Client = newClient(t, shared.addr)
	}
	s, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { // the test may be run again
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeout)
		defer cancel()
		_, _ = cfg.Client.Delete(ctx, s.cfg.Prefix, clientv3.WithPrefix())
	})
	return s
}

// lead wins a campaign that nobody else is in.
func lead(t testing.TB, s *Space) *Leader {
	l, err := s.Campaign(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Resign(context.Background()) })
	return l
}

// depose ends l's lease, as etcd does when it is not renewed.
func depose(t testing.TB, l *Leader) {
	_, err := l.space.cfg.Client.Revoke(t.Context(), l.id)
	require.NoError(t, err)
}

// leaks returns the goroutines that run code of this package but are not tests.
func leaks() []string {
	buf := make([]byte, 1<<22)
	var left []string
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "lockstep/integrations/etcd.") && !strings.Contains(g, "testing.tRunner") && !strings.Contains(g, "TestMain") {
			left = append(left, g)
		}
	}
	return left
}

// noLeaks fails t if it leaves goroutines of this package behind.
func noLeaks(t *testing.T) {
	t.Cleanup(func() {
		for range 1000 { // those that were told to end need a moment
			if len(leaks()) == 0 {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Errorf("goroutines are left: %s", leaks())
	})
}

// faulty is a KV whose writes can be made to fail. Reads of the dead fail too.
type faulty struct {
	clientv3.KV
	writes atomic.Int64
	// hit is asked at each write, counted from 1, what is to happen to it; nil means
	// that it goes through.
	hit  func(n int64) fate
	dead atomic.Bool
	held func() // delivers a write that is late
}

type fate int

const (
	through   fate = iota
	lost           // it never arrives, and nothing does from then on
	last           // it is written, and then nothing arrives any more
	unsaid         // it is written and the answer is lost
	undecided      // it does not arrive and the error does not tell
	late           // it arrives right before the next one
	exhausted      // it is written, and the answer is that there is no space
)

var errDead = fmt.Errorf("the process is dead")

// errGone is what gRPC says when a connection breaks under a request.
var errGone = status.Error(codes.Unavailable, "transport is closing")

// withFaults returns a client of the test's own whose writes can be made to fail.
func withFaults(t testing.TB, addr string, hit func(n int64) fate) (*clientv3.Client, *faulty) {
	c := newClient(t, addr)
	f := &faulty{KV: c.KV, hit: hit}
	c.KV = f
	return c, f
}

func (f *faulty) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if f.dead.Load() {
		return nil, status.Error(codes.PermissionDenied, errDead.Error())
	}
	return f.KV.Get(ctx, key, opts...)
}

func (f *faulty) Txn(ctx context.Context) clientv3.Txn {
	return &faultyTxn{f.KV.Txn(context.WithoutCancel(ctx)), f}
}

type faultyTxn struct {
	clientv3.Txn
	f *faulty
}

func (t *faultyTxn) If(c ...clientv3.Cmp) clientv3.Txn  { t.Txn = t.Txn.If(c...); return t }
func (t *faultyTxn) Then(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(o...); return t }
func (t *faultyTxn) Else(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(o...); return t }

func (t *faultyTxn) Commit() (*clientv3.TxnResponse, error) {
	n := t.f.writes.Add(1)
	what := through
	if t.f.hit != nil {
		what = t.f.hit(n)
	}
	if what == lost || t.f.dead.Load() {
		t.f.dead.Store(true)
		return nil, status.Error(codes.PermissionDenied, errDead.Error())
	}
	if what == undecided {
		return nil, errGone
	}
	if t.f.held != nil {
		t.f.held()
		t.f.held = nil
	}
	if what == late {
		t.f.held = func() { _, _ = t.Txn.Commit() }
		return nil, errGone
	}
	resp, err := t.Txn.Commit()
	switch what {
	case last:
		t.f.dead.Store(true)
		return nil, status.Error(codes.PermissionDenied, errDead.Error())
	case unsaid:
		return nil, errGone
	case exhausted:
		return nil, rpctypes.ErrNoSpace
	}
	return resp, err
}
