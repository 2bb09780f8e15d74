package etcd

import (
	"context"
	"errors"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/lease"
)

// The defaults of Config.
const (
	DefaultPrefix  = "/lockstep/"     // DefaultPrefix is Config.Prefix where that is empty.
	DefaultTTL     = 10 * time.Second // DefaultTTL is Config.TTL where that is 0.
	DefaultTimeout = 5 * time.Second  // DefaultTimeout is Config.Timeout where that is 0.
	DefaultChunk   = 1 << 20          // DefaultChunk is Config.Chunk where that is 0: with its frame it stays below etcd's own limit of 1.5 MiB a request.
	DefaultEvery   = 10_000           // DefaultEvery is Config.Every where that is 0.
)

// Config configures a Space. Only Client has no default.
type Config struct {
	Prefix  string        `json:"prefix,omitempty"`  // Prefix is what all keys begin with, without NUL bytes; one slash is put behind it where there is none. Empty means DefaultPrefix. The copies of one scheduler share it, others have another, which is not below the names of this one, such as its "store/".
	Name    string        `json:"name,omitempty"`    // Name is what others see of this candidate at the leader's key; empty means host name and process ID. It decides nothing.
	TTL     time.Duration `json:"ttl,omitempty"`     // TTL is for how long the leader's lease is good without renewal, in whole seconds, at most a day; 0 means DefaultTTL. etcd may raise it to 1.5 times its election timeout.
	Margin  time.Duration `json:"margin,omitempty"`  // Margin is how long before the lease could end its leader stops, less than half the TTL: it has to cover how long an act takes and how far two clocks drift in a TTL. 0 means a fifth of the TTL.
	Timeout time.Duration `json:"timeout,omitempty"` // Timeout bounds one request to etcd; 0 means DefaultTimeout.
	Floor   lease.Token   `json:"floor,omitempty"`   // Floor is below every token issued from now on. Set it where etcd was restored from a backup, to the highest token that any guard has seen; 0 means that what etcd has is enough.
	Chunk   int           `json:"chunk,omitempty"`   // Chunk is how many bytes of data one request carries at the most, 1 KiB to 64 MiB; 0 means DefaultChunk. etcd's own limit is to be a quarter above it, and so is the client's, which is 2 MiB unless set.
	Every   int           `json:"every,omitempty"`   // Every is after how many records Journal.Commit takes a snapshot; 0 means DefaultEvery, negative never.

	Client *clientv3.Client `json:"-"` // Client is what talks to etcd, with its endpoints, TLS and user; required. It stays the caller's to close, after all that was made of it has ended.
	Logger *zap.Logger      `json:"-"` // Logger is told of takeovers, losses, failed renewals, snapshots, and once of each time in which etcd does not answer; nil means nobody.
}

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", field, value, reason))
	}
	if c.Client == nil {
		bad("Client", "nil", "required")
	}
	if strings.ContainsRune(c.Prefix, 0) {
		bad("Prefix", strconv.Quote(c.Prefix), "must not contain NUL")
	}
	if c.TTL < 0 || c.TTL > 24*time.Hour || c.TTL%time.Second != 0 {
		bad("TTL", c.TTL.String(), "must be whole seconds up to a day")
	}
	if c.Margin < 0 || 2*c.Margin >= c.ttl() {
		bad("Margin", c.Margin.String(), "must be less than half the TTL")
	}
	if c.Timeout < 0 {
		bad("Timeout", c.Timeout.String(), "must not be negative")
	}
	if c.Floor == math.MaxUint64 {
		bad("Floor", c.Floor.String(), "leaves no token")
	}
	if c.Chunk != 0 && (c.Chunk < 1<<10 || c.Chunk > 64<<20) {
		bad("Chunk", strconv.Itoa(c.Chunk), "must be 1 KiB to 64 MiB")
	}
	return errors.Join(errs...)
}

func (c Config) ttl() time.Duration {
	if c.TTL == 0 {
		return DefaultTTL
	}
	return c.TTL
}

// Space is the part of an etcd under one prefix: one leader, named stores and
// journals. It keeps no state of its own beside the configuration and is safe for
// concurrent use.
type Space struct {
	cfg Config
	// now tells the time by a clock that only goes forward; tests replace it.
	now func() time.Time
}

// New returns the Space of cfg, or every fault of cfg. It asks nothing of etcd.
func New(cfg Config) (*Space, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix
	}
	if !strings.HasSuffix(cfg.Prefix, "/") {
		cfg.Prefix += "/"
	}
	if cfg.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		cfg.Name = host + "/" + strconv.Itoa(os.Getpid())
	}
	cfg.TTL = cfg.ttl()
	if cfg.Margin == 0 {
		cfg.Margin = cfg.TTL / 5
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Chunk == 0 {
		cfg.Chunk = DefaultChunk
	}
	if cfg.Every == 0 {
		cfg.Every = DefaultEvery
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	return &Space{cfg: cfg, now: time.Now}, nil
}

func (s *Space) leaderKey() string { return s.cfg.Prefix + "leader" }
func (s *Space) fenceKey() string  { return s.cfg.Prefix + "fence" }

// escape makes one path element of any name, so that names with slashes do not
// reach into each other.
func escape(name string) string { return url.PathEscape(name) }

// get reads at one revision; 0 means the latest.
func (s *Space) get(ctx context.Context, key string, rev int64, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if rev != 0 {
		opts = append(opts, clientv3.WithRev(rev))
	}
	return s.cfg.Client.Get(ctx, key, opts...)
}

// txn sends one transaction. Every write of this package is one.
func (s *Space) txn(ctx context.Context, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	return s.cfg.Client.Txn(ctx).If(cmps...).Then(then...).Else(otherwise...).Commit()
}

// pause is how long to wait before trying again what failed.
func (s *Space) pause() time.Duration { return min(s.cfg.TTL/50, time.Second) }

// doze is for how long a watch is trusted: it can fall asleep with its connection.
func (s *Space) doze() time.Duration { return min(3*s.cfg.TTL, 5*time.Minute) }

// wait returns after d, or with the error of ctx.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
