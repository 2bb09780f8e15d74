package imagestore

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// file is an open file of a store. Write appends.
type file interface {
	io.ReaderAt
	io.Writer
	io.Closer
	Sync() error
	Size() (int64, error)
	// Truncate cuts the file to n bytes; the next Write goes there.
	Truncate(n int64) error
}

// fsys is what a store asks of a file system; names are slash-separated and
// below the store's folder. It is small so that tests can put a simulated one
// in its place, which forgets what was not synced.
type fsys interface {
	open(name string) (file, error)   // for reading; a link is refused
	create(name string) (file, error) // for appending; the name must be new
	reopen(name string) (file, error) // for appending to what is there
	mkdir(name string) error          // what is there already is fine
	rename(from, to string) error     // replaces
	remove(name string) error
	list(name string) ([]string, error) // names in a folder, sorted
	syncDir(name string) error          // makes creates, renames and removals in it durable
	// lock takes the lock of a file, which it makes; ok is false if somebody
	// else holds it. It is dropped by unlock or with the process.
	lock(name string, exclusive bool) (unlock func(), ok bool, err error)
	close() error
}

// osFS is a folder of the operating system. An os.Root keeps every name inside.
type osFS struct {
	root *os.Root
}

// openFS opens the folder, and makes it if it is not there. A link in its place
// is refused, for what it points to can change.
func openFS(dir string) (*osFS, error) {
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return nil, invalid("open", "Dir", dir, "is not a folder, or is a link to one")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	at, err := root.Stat(".")
	if err == nil && !os.SameFile(st, at) {
		err = invalid("open", "Dir", dir, "was replaced while it was opened")
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &osFS{root: root}, nil
}

func (o *osFS) close() error { return o.root.Close() }

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (f osFile) Truncate(n int64) error {
	if err := f.File.Truncate(n); err != nil {
		return err
	}
	_, err := f.Seek(n, io.SeekStart)
	return err
}

func (o *osFS) open(name string) (file, error) { return o.regular(name, os.O_RDONLY) }

func (o *osFS) reopen(name string) (file, error) { return o.regular(name, os.O_RDWR) }

// regular opens a regular file that is not a link: Root keeps links inside the
// store, but inside is not good enough for a name that was to be a pack.
func (o *osFS) regular(name string, flag int) (file, error) {
	before, err := o.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, corrupt(name, "is a link or no file")
	}
	f, err := o.root.OpenFile(name, flag, 0)
	if err != nil {
		return nil, err
	}
	after, err := f.Stat()
	if err == nil && !os.SameFile(before, after) {
		err = corrupt(name, "was replaced while it was opened")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return osFile{f}, nil
}

func (o *osFS) create(name string) (file, error) {
	f, err := o.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (o *osFS) mkdir(name string) error {
	err := o.root.Mkdir(name, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	st, err := o.root.Lstat(name)
	if err == nil && !st.IsDir() {
		err = corrupt(name, "is a link or no folder")
	}
	return err
}

func (o *osFS) rename(from, to string) error { return o.root.Rename(from, to) }

func (o *osFS) remove(name string) error { return o.root.Remove(name) }

func (o *osFS) list(name string) ([]string, error) {
	entries, err := fs.ReadDir(o.root.FS(), name) // sorted
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

func (o *osFS) syncDir(name string) error {
	d, err := o.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (o *osFS) lock(name string, exclusive bool) (func(), bool, error) {
	for {
		f, err := o.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if errors.Is(err, fs.ErrPermission) || readOnly(err) {
			f, err = o.root.Open(name) // a lock needs no right to write
		}
		if err != nil {
			return nil, false, err
		}
		ok, err := flock(f, exclusive)
		if err != nil || !ok {
			return nil, false, errors.Join(err, f.Close())
		}
		// The holder before may have removed the file between our open and our
		// lock: then what we hold is nobody's.
		held, err1 := f.Stat()
		there, err2 := o.root.Lstat(name)
		if err1 == nil && err2 == nil && os.SameFile(held, there) {
			return func() { _ = f.Close() }, true, nil
		}
		if err := f.Close(); err != nil {
			return nil, false, err
		}
		if err := errors.Join(err1, err2); err != nil && !missing(err) {
			return nil, false, err
		}
	}
}

// exists says whether a file is there.
func exists(f fsys, name string) (bool, error) {
	h, err := f.open(name)
	if missing(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, h.Close()
}

// readAll returns a whole file of at most limit bytes.
func readAll(f fsys, name string, limit int64) ([]byte, error) {
	h, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	n, err := h.Size()
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, corrupt(name, "is larger than the limit")
	}
	b := make([]byte, n)
	if k, err := h.ReadAt(b, 0); int64(k) < n {
		if err == nil || errors.Is(err, io.EOF) {
			return nil, corrupt(name, "became shorter")
		}
		return nil, err
	}
	return b, nil
}

// replace puts a file in place, durably: a name that was written and synced, then
// renamed. dir is the folder of name.
func replace(f fsys, dir, name, tmp string, data []byte) error {
	if err := writeNew(f, dir+"/"+tmp, data); err != nil {
		return err
	}
	if err := f.rename(dir+"/"+tmp, dir+"/"+name); err != nil {
		_ = f.remove(dir + "/" + tmp)
		return err
	}
	return f.syncDir(dir)
}

// writeNew makes a file with the data in it, synced, or none.
func writeNew(f fsys, name string, data []byte) error {
	if err := f.remove(name); err != nil && !missing(err) {
		return err // what a crash left under this name
	}
	h, err := f.create(name)
	if err != nil {
		return full(err, len(data))
	}
	_, err = h.Write(data)
	if err == nil {
		err = h.Sync()
	}
	if err = errors.Join(err, h.Close()); err != nil {
		_ = f.remove(name)
		return full(err, len(data))
	}
	return nil
}
