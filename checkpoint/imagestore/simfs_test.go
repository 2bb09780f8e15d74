package imagestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"sync"
)

// simFS is a file system in memory that keeps apart what a program sees and what
// is on the disk. Data that was not synced, and names whose folder was not, may
// be lost in a crash, each on its own and in any order.
type simFS struct {
	mu    sync.Mutex
	root  *node
	locks map[*node]int // -1 is exclusive, n > 0 shared
	ops   int           // calls that change something, so far
	names []string      // what they were

	killAt int   // the call in which the program dies, counted from 1; 0 never
	failAt int   // the call that fails, once
	fail   error // how
	room   int   // bytes that fit yet; -1 without limit
	dead   bool
	pcg    *rand.PCG
	rng    *rand.Rand
}

var errDead = errors.New("the program is dead")

// node is a file or a folder.
type node struct {
	dir  bool
	now  map[string]*node // names as the program sees them
	disk map[string]*node // names as they are on the disk
	data []byte
	safe []byte // data as of the last sync
}

func newDir() *node { return &node{dir: true, now: map[string]*node{}, disk: map[string]*node{}} }

func newSim(seed uint64) *simFS {
	pcg := rand.NewPCG(seed, 5)
	return &simFS{root: newDir(), locks: map[*node]int{}, room: -1, pcg: pcg, rng: rand.New(pcg)}
}

// fate is what a crash does with what is not on the disk.
type fate int

const (
	loseAll fate = iota // nothing of it is kept
	keepAll             // all of it is
	toss                // each on its own, by chance
)

// crash returns the file system as the next program finds it.
func (s *simFS) crash(seed uint64, f fate) *simFS {
	next := newSim(seed)
	copies := map[*node]*node{}
	next.root = s.survive(s.root, copies, next.rng, f)
	return next
}

func (s *simFS) survive(n *node, copies map[*node]*node, rng *rand.Rand, f fate) *node {
	if c := copies[n]; c != nil {
		return c
	}
	c := newDir()
	copies[n] = c
	if !n.dir {
		c.dir = false
		c.data = surviving(n, rng, f)
		c.safe = slices.Clone(c.data)
		return c
	}
	names := slices.Sorted(maps.Keys(n.now))
	for name := range n.disk { // sorted below
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		child := n.disk[name]
		if n.now[name] != child && (f == keepAll || f == toss && rng.IntN(2) == 0) {
			child = n.now[name]
		}
		if child != nil {
			c.now[name] = s.survive(child, copies, rng, f)
			c.disk[name] = c.now[name]
		}
	}
	return c
}

// surviving is what a file holds after a crash: pages of new and old, and a length
// that may be that of neither.
func surviving(n *node, rng *rand.Rand, f fate) []byte {
	if f == keepAll || string(n.data) == string(n.safe) {
		return slices.Clone(n.data)
	}
	if f == loseAll {
		return slices.Clone(n.safe)
	}
	size := len(n.safe)
	if d := len(n.data) - size; d > 0 {
		size += rng.IntN(d + 1)
	} else {
		size = len(n.data)
	}
	b := make([]byte, size)
	copy(b, n.safe)
	for at := 0; at < size; at += 512 {
		if rng.IntN(2) == 0 && at < len(n.data) {
			copy(b[at:min(at+512, size)], n.data[at:])
		}
	}
	return b
}

// step counts a call that changes something. do says whether it takes effect;
// part is how much of a write does.
func (s *simFS) step(name string) (do bool, err error) {
	if s.dead {
		return false, errDead
	}
	s.ops++
	s.names = append(s.names, name)
	if s.ops == s.killAt {
		s.dead = true
		return s.rng.IntN(2) == 0, errDead
	}
	if s.ops == s.failAt {
		return false, fmt.Errorf("%s: %w", name, s.fail)
	}
	return true, nil
}

func (s *simFS) find(name string) (*node, error) {
	n := s.root
	if name == "." {
		return n, nil
	}
	for len(name) > 0 {
		dir, rest := name, ""
		for i := range name {
			if name[i] == '/' {
				dir, rest = name[:i], name[i+1:]
				break
			}
		}
		next := n.now[dir]
		if next == nil {
			return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
		}
		n, name = next, rest
	}
	return n, nil
}

// parent returns the folder of a name, and the rest.
func (s *simFS) parent(name string) (*node, string, error) {
	d, err := s.find(path.Dir(name))
	return d, path.Base(name), err
}

func (s *simFS) open(name string) (file, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return nil, errDead
	}
	n, err := s.find(name)
	if err != nil {
		return nil, err
	}
	return &simFile{fs: s, n: n, at: -1}, nil
}

func (s *simFS) reopen(name string) (file, error) {
	f, err := s.open(name)
	if err == nil {
		f.(*simFile).at = 0
	}
	return f, err
}

func (s *simFS) create(name string) (file, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do, err := s.step("create " + path.Dir(name))
	if !do {
		return nil, err
	}
	d, base, err2 := s.parent(name)
	if err2 != nil {
		return nil, err2
	}
	if d.now[base] != nil {
		return nil, fs.ErrExist
	}
	n := &node{}
	d.now[base] = n
	return &simFile{fs: s, n: n}, err
}

func (s *simFS) mkdir(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, base, err := s.parent(name)
	if err != nil {
		return err
	}
	if d.now[base] != nil {
		return nil
	}
	do, err := s.step("mkdir")
	if do {
		d.now[base] = newDir()
	}
	return err
}

func (s *simFS) rename(from, to string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, base, err := s.parent(from)
	if err != nil {
		return err
	}
	if d.now[base] == nil {
		return fs.ErrNotExist
	}
	e, base2, err := s.parent(to)
	if err != nil {
		return err
	}
	do, err := s.step("rename to " + path.Dir(to))
	if do {
		e.now[base2] = d.now[base]
		delete(d.now, base)
	}
	return err
}

func (s *simFS) remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, base, err := s.parent(name)
	if err != nil {
		return err
	}
	if d.now[base] == nil {
		return fs.ErrNotExist
	}
	do, err := s.step("remove " + path.Dir(name))
	if do {
		delete(d.now, base)
	}
	return err
}

func (s *simFS) list(name string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return nil, errDead
	}
	d, err := s.find(name)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(d.now)), nil
}

func (s *simFS) syncDir(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, err := s.find(name)
	if err != nil {
		return err
	}
	do, err := s.step("sync " + name)
	if do {
		d.disk = maps.Clone(d.now)
	}
	return err
}

func (s *simFS) lock(name string, exclusive bool) (func(), bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return nil, false, errDead
	}
	d, base, err := s.parent(name)
	if err != nil {
		return nil, false, err
	}
	n := d.now[base]
	if n == nil {
		n = &node{}
		d.now[base] = n
	}
	held := s.locks[n]
	if held < 0 || exclusive && held > 0 {
		return nil, false, nil
	}
	if exclusive {
		s.locks[n] = -1
		return func() { s.unlock(n, 1) }, true, nil
	}
	s.locks[n]++
	return func() { s.unlock(n, -1) }, true, nil
}

func (s *simFS) unlock(n *node, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locks[n] += by
}

func (s *simFS) close() error { return nil }

// simFile is an open file; at is where Write goes, -1 if it may not.
type simFile struct {
	fs *simFS
	n  *node
	at int
}

func (f *simFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.dead {
		return 0, errDead
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *simFile) Write(p []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	do, err := f.fs.step("write")
	if err != nil { // part of what failed may have been written
		k := 0
		if do {
			k = f.fs.rng.IntN(len(p) + 1)
		}
		f.put(p[:k])
		return k, err
	}
	if f.fs.room >= 0 && len(p) > f.fs.room {
		k := f.fs.room
		f.put(p[:k])
		f.fs.room = 0
		return k, errNoRoom
	}
	f.put(p)
	if f.fs.room >= 0 {
		f.fs.room -= len(p)
	}
	return len(p), nil
}

func (f *simFile) put(p []byte) {
	f.n.data = append(f.n.data[:f.at], p...)
	f.at += len(p)
}

func (f *simFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	do, err := f.fs.step("sync file")
	if do {
		f.n.safe = slices.Clone(f.n.data)
	}
	return err
}

func (f *simFile) Truncate(n int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	do, err := f.fs.step("truncate")
	if do {
		for int64(len(f.n.data)) < n {
			f.n.data = append(f.n.data, 0)
		}
		f.n.data = f.n.data[:n]
		f.at = int(n)
	}
	return err
}

func (f *simFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.n.data)), nil
}

func (f *simFile) Close() error { return nil }
