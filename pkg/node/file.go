package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A File is one file that the agent keeps on the node.
type File struct {
	// Path is where it goes; its folder is made if need be.
	Path string
	// Mode is its permission bits.
	Mode fs.FileMode
	// Content is all of it.
	Content []byte
}

// Write brings the file to its content and mode and reports whether it had to.
// A reader sees the old file, no file or the whole new one, never a part, also
// when the writer is killed or the machine loses power; a file that is right
// already keeps its inode. A program that is running can be replaced.
func (f File) Write() (changed bool, err error) {
	same, err := f.matches()
	if same || err != nil {
		return false, err
	}
	dir := filepath.Dir(f.Path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, fmt.Errorf("make folder of %s: %w", f.Path, err)
	}
	if err := f.stage(); err != nil {
		return false, errors.Join(err, removeIfThere(f.staging()))
	}
	if err := os.Rename(f.staging(), f.Path); err != nil {
		return false, errors.Join(err, removeIfThere(f.staging()))
	}
	return true, syncFolder(dir)
}

// Remove deletes the file and what a killed Write may have left beside it. It
// is not an error if they are gone already.
func (f File) Remove() error {
	return errors.Join(removeIfThere(f.staging()), removeIfThere(f.Path))
}

// staging is the new file's name until it is whole: always the same one, so that
// killed writers never pile up leftovers, and one that no container runtime
// loads (they take .conf, .conflist and .json) and nobody executes.
func (f File) staging() string {
	return filepath.Join(filepath.Dir(f.Path), "."+filepath.Base(f.Path)+".vpcroute-new")
}

func (f File) matches() (bool, error) {
	info, err := os.Lstat(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if info.Mode() != f.Mode.Perm() || info.Size() != int64(len(f.Content)) {
		return false, nil
	}
	got, err := os.ReadFile(f.Path)
	if err != nil {
		return false, err
	}
	return bytes.Equal(got, f.Content), nil
}

// stage writes and syncs the new file under its staging name.
func (f File) stage() (err error) {
	// Not truncated but removed first: a leftover may be open for execution.
	if err := removeIfThere(f.staging()); err != nil {
		return err
	}
	file, err := os.OpenFile(f.staging(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, f.Mode.Perm())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Write(f.Content); err != nil {
		return err
	}
	// The mode given at creation is cut by the umask.
	if err := file.Chmod(f.Mode.Perm()); err != nil {
		return err
	}
	return file.Sync()
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncFolder makes the rename itself durable.
func syncFolder(dir string) (err error) {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Sync()
}
