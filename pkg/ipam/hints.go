package ipam

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A Stamp says when an address was last seen in use: the time since boot, which
// no clock correction moves. 0 is never.
type Stamp = time.Duration

const (
	magic     = "vpcroute hints 1" // what a hint file starts with
	stampSize = 8                  // bytes per position, little-endian nanoseconds
)

// Hints is the memory of when each position of a pool was last in use. It is a
// file with one Stamp per position, each read and written at its own offset and
// without a lock: it may be lost, old or damaged at any time, and then costs
// order and speed but never gives an address out twice.
type Hints struct {
	file *os.File
	size int
}

// A DamagedError says that a hint file was not one, and where it was kept.
type DamagedError struct {
	// Path is the damaged file, Copy where it was moved to.
	Path, Copy string
}

// Error names the damaged file and its copy.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("hint file %s is damaged: starting a new one, the old one is kept as %s", e.Path, e.Copy)
}

// OpenHints opens the pool's hint file in a directory and makes it, and the
// directory, if they are missing. A damaged file is moved aside: the new Hints
// are returned with a *DamagedError. With any other error Hints is nil, which
// is valid and remembers nothing.
func OpenHints(dir string, p *Pool) (*Hints, error) {
	path := filepath.Join(dir, p.hintFile())
	h, err := openHints(path, p.size)
	if errors.Is(err, os.ErrNotExist) {
		if err = createHints(path, p.size); err == nil {
			h, err = openHints(path, p.size)
		}
	}
	if !errors.Is(err, errDamaged) {
		return h, err
	}
	damaged := &DamagedError{Path: path, Copy: path + ".damaged"}
	if err := os.Rename(path, damaged.Copy); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w; keeping it: %w", damaged, err)
	}
	if err := createHints(path, p.size); err != nil {
		return nil, fmt.Errorf("%w; making a new one: %w", damaged, err)
	}
	if h, err = openHints(path, p.size); err != nil {
		return nil, fmt.Errorf("%w; opening the new one: %w", damaged, err)
	}
	return h, damaged
}

// hintFile names the file after the ranges, so that stamps of other ranges are
// never taken for those of these.
func (p *Pool) hintFile() string {
	sum := fnv.New64a()
	fmt.Fprint(sum, p.ranges)
	return fmt.Sprintf("released-%016x", sum.Sum64())
}

var errDamaged = errors.New("damaged")

func openHints(path string, size int) (*Hints, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	head := make([]byte, len(magic))
	info, err := f.Stat()
	if err == nil && info.Size() == fileSize(size) {
		_, err = f.ReadAt(head, 0)
	}
	if err != nil || !bytes.Equal(head, []byte(magic)) {
		_ = f.Close()
		return nil, errors.Join(errDamaged, err)
	}
	return &Hints{f, size}, nil
}

func fileSize(size int) int64 { return int64(len(magic) + size*stampSize) }

// createHints makes a file that is whole before it has a name: no reader sees
// half of one, and a process killed on the way leaves nothing. If another
// process is first, its file stays.
func createHints(path string, size int) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Dir(path), os.O_RDWR|unix.O_TMPFILE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(magic); err != nil {
		return err
	}
	if err := f.Truncate(fileSize(size)); err != nil {
		return err
	}
	unnamed := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	err = unix.Linkat(unix.AT_FDCWD, unnamed, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return &os.PathError{Op: "create", Path: path, Err: err}
	}
	return nil
}

// readBlock is how many bytes of a hint file are read at once: a range of 65,536
// addresses has a file of half a MiB, and a short process pays for each page it
// touches.
const readBlock = 4096

// Stamps yields every position and its stamp in turn, and stops where nothing is
// known of the rest.
func (h *Hints) Stamps() iter.Seq2[int, Stamp] {
	return func(yield func(int, Stamp) bool) {
		if h == nil {
			return
		}
		var raw [readBlock]byte
		for read := 0; read < h.size; {
			n, _ := h.file.ReadAt(raw[:], h.offset(read))
			known := min(n/stampSize, h.size-read)
			if known == 0 {
				return
			}
			for i := range known {
				if !yield(read+i, Stamp(binary.LittleEndian.Uint64(raw[i*stampSize:]))) {
					return
				}
			}
			read += known
		}
	}
}

// Stamp returns the stamp of one position as it is now.
func (h *Hints) Stamp(position int) Stamp {
	var raw [stampSize]byte
	if h == nil || position < 0 || position >= h.size {
		return 0
	}
	if _, err := h.file.ReadAt(raw[:], h.offset(position)); err != nil {
		return 0
	}
	return Stamp(binary.LittleEndian.Uint64(raw[:]))
}

// Touch notes that a position is or was in use now.
func (h *Hints) Touch(position int, now Stamp) error {
	if h == nil || position < 0 || position >= h.size {
		return nil
	}
	var raw [stampSize]byte
	binary.LittleEndian.PutUint64(raw[:], uint64(now))
	_, err := h.file.WriteAt(raw[:], h.offset(position))
	return err
}

func (h *Hints) offset(position int) int64 {
	return int64(len(magic) + position*stampSize)
}

// Close closes the file.
func (h *Hints) Close() error {
	if h == nil {
		return nil
	}
	return h.file.Close()
}
