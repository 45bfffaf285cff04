package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
)

// Binaries are the programs a node needs, by file name.
var Binaries = []string{"vpcroute", "portmap", "bandwidth"}

// Loopback is a program that runtimes call for every pod, whatever the
// configuration says. It usually comes with the runtime: it is installed only
// where it is missing, and never taken away.
const Loopback = "loopback"

// The names that the conflist may have. A runtime takes the first file by name.
const (
	ConflistName      = "10-vpcroute.conflist"
	ConflistFirstName = "00-vpcroute.conflist"
)

// An Installation is the place on a node that the runtime reads.
type Installation struct {
	// Source is the folder the binaries come from.
	Source string
	// BinDir is the runtime's folder of plugins, for example "/opt/cni/bin".
	BinDir string
	// ConfDir is the runtime's folder of configurations, for example
	// "/etc/cni/net.d".
	ConfDir string
	// First gives our conflist a name that sorts before those of others.
	First bool
}

// WriteBinaries installs the programs and returns the names of those that had
// to be changed. The mode lets everybody execute them, as runtimes expect.
func (i Installation) WriteBinaries() (changed []string, err error) {
	names := Binaries
	if _, err := os.Stat(filepath.Join(i.BinDir, Loopback)); errors.Is(err, fs.ErrNotExist) {
		names = append(slices.Clone(names), Loopback)
	}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(i.Source, name))
		if err != nil {
			return changed, fmt.Errorf("read the program to install: %w", err)
		}
		c, err := File{filepath.Join(i.BinDir, name), 0o755, content}.Write()
		if err != nil {
			return changed, fmt.Errorf("install %s: %w", name, err)
		}
		if c {
			changed = append(changed, name)
		}
	}
	return changed, nil
}

// WriteConflist installs the conflist and reports whether it had to. The node
// counts as ready for pods from then on, so everything else comes before. A
// conflist that stands under our other name is renamed: at no moment are there
// two of ours, and at no moment none.
func (i Installation) WriteConflist(content []byte) (changed bool, err error) {
	ours, other := i.conflist(content), i.otherConflist(content)
	if _, err := os.Lstat(other.Path); err == nil {
		if _, err := other.Write(); err != nil {
			return false, fmt.Errorf("install the conflist: %w", err)
		}
		if err := os.Rename(other.Path, ours.Path); err != nil {
			return false, fmt.Errorf("rename the conflist: %w", err)
		}
		return true, nil
	}
	if changed, err = ours.Write(); err != nil {
		return false, fmt.Errorf("install the conflist: %w", err)
	}
	return changed, nil
}

func (i Installation) conflist(content []byte) File {
	name := ConflistName
	if i.First {
		name = ConflistFirstName
	}
	return File{filepath.Join(i.ConfDir, name), 0o644, content}
}

func (i Installation) otherConflist(content []byte) File {
	i.First = !i.First
	return i.conflist(content)
}

// PodCIDRs returns the ranges that the installed conflist says, so that a
// restarted agent can work before it has reached the API server; none when
// nothing is installed.
func (i Installation) PodCIDRs() ([]netip.Prefix, error) {
	for _, f := range []File{i.conflist(nil), i.otherConflist(nil)} {
		b, err := os.ReadFile(f.Path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		ranges, err := podCIDRsOf(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		return ranges, nil
	}
	return nil, nil
}

// Rival returns the path of somebody else's configuration that the runtime
// takes before ours, and "" when ours wins. It is never touched.
func (i Installation) Rival() (string, error) {
	files, err := libcni.ConfFiles(i.ConfDir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return "", fmt.Errorf("list %s: %w", i.ConfDir, err)
	}
	slices.Sort(files)
	if len(files) == 0 || slices.Contains([]string{ConflistName, ConflistFirstName}, filepath.Base(files[0])) {
		return "", nil
	}
	return files[0], nil
}

// RemoveConflist takes our conflists away, so that no further pod comes.
func (i Installation) RemoveConflist() error {
	return errors.Join(i.conflist(nil).Remove(), i.otherConflist(nil).Remove())
}

// RemoveBinaries takes our plugin away. The chained ones stay when another
// package's configuration may use them.
func (i Installation) RemoveBinaries() error {
	names := Binaries
	if others, err := libcni.ConfFiles(i.ConfDir, []string{".conf", ".conflist", ".json"}); err != nil || len(others) > 0 {
		names = names[:1]
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, File{Path: filepath.Join(i.BinDir, name)}.Remove())
	}
	return errors.Join(errs...)
}
