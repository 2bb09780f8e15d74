package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// FileJournal is a Journal in one file, which only its owner may read. It is
// replaced as a whole: after a crash it holds the last record or the one before.
type FileJournal string

// Save implements Journal.
func (f FileJournal) Save(data []byte) (err error) {
	dir := filepath.Dir(string(f))
	tmp, err := os.CreateTemp(dir, ".journal-*") // mode 0600
	if err != nil {
		return fmt.Errorf("checkpoint: journal: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("checkpoint: journal: %w", errors.Join(err, os.Remove(tmp.Name())))
		}
	}()
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), string(f)); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("checkpoint: journal: %w", err)
	}
	err = errors.Join(d.Sync(), d.Close())
	if err != nil {
		return fmt.Errorf("checkpoint: journal: %w", err)
	}
	return nil
}

// Load implements Journal.
func (f FileJournal) Load() ([]byte, error) {
	data, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: journal: %w", err)
	}
	return data, nil
}

func load(j Journal) ([]byte, error) {
	if j == nil {
		return nil, nil
	}
	return j.Load()
}

func save(j Journal, snapshot func(io.Writer) error) error {
	if j == nil {
		return nil
	}
	var b bytes.Buffer
	if err := snapshot(&b); err != nil {
		return err
	}
	return j.Save(b.Bytes())
}

func reader(data []byte) io.Reader { return bytes.NewReader(data) }
