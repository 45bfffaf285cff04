package runtime_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"

	"github.com/vpcroute/vpcroute/test/runtime/cri"
)

// inventory lists everything on a node that a pod may leave behind, one thing a
// line: sandboxes, shims, cgroups, mounts, the host's links with their other
// names, addresses, routes and queues, the packet filter, and the files of the
// plugins and of libcni.
func inventory(t *testing.T, n *cri.Node) []string {
	t.Helper()
	var lines []string
	for kind, list := range map[string]func() ([]string, error){
		"sandbox": func() ([]string, error) { return n.List(t.Context()) },
		"shim":    n.Shims,
		"cgroup":  n.Cgroups,
		"mount":   n.Mounts,
		"network": func() ([]string, error) { return network(n) },
		"filter":  func() ([]string, error) { return filter(n) },
		"file":    func() ([]string, error) { return files(n) },
	} {
		things, err := list()
		if err != nil {
			t.Fatalf("list of kind %q: %v", kind, err)
		}
		for _, thing := range things {
			lines = append(lines, kind+" "+thing)
		}
	}
	slices.Sort(lines)
	return lines
}

// checkInventory fails the test when the node differs from what it was in
// anything but things of the kinds passed over.
func checkInventory(t *testing.T, n *cri.Node, want []string, passedOver ...string) {
	t.Helper()
	of := cmpopts.IgnoreSliceElements(func(line string) bool {
		kind, _, _ := strings.Cut(line, " ")
		return slices.Contains(passedOver, kind)
	})
	if diff := cmp.Diff(want, inventory(t, n), of); diff != "" {
		t.Errorf("what is on the node (-before +now):\n%s", diff)
	}
}

// settled runs one pod on the node and removes it, after which what a node keeps
// for ever is there: the bridge, the plugins' directories, portmap's base
// chains.
func settled(t *testing.T, n *cri.Node) []string {
	t.Helper()
	p := pod("first")
	p.Ports = []cri.Port{{Host: 18000, Pod: 8080}}
	remove(t, n, run(t, n, p).ID)
	return inventory(t, n)
}

// without is an inventory without the lines that hold one of the sandboxes' ids.
func without(inventory []string, sandboxes ...*cri.Sandbox) []string {
	return slices.DeleteFunc(inventory, func(line string) bool {
		return slices.ContainsFunc(sandboxes, func(s *cri.Sandbox) bool { return strings.Contains(line, s.ID) })
	})
}

func network(n *cri.Node) (lines []string, err error) {
	err = n.Network.Do(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			a := l.Attrs()
			lines = append(lines, fmt.Sprintf("link %s %s %v", l.Type(), a.Name, a.AltNames))
			queues, err := netlink.QdiscList(l)
			if err != nil {
				return err
			}
			for _, q := range queues {
				lines = append(lines, fmt.Sprintf("queue %s %s", a.Name, q.Type()))
			}
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			addresses, err := netlink.AddrList(nil, family)
			if err != nil {
				return err
			}
			for _, a := range addresses {
				lines = append(lines, fmt.Sprintf("address %s of %d", a.IPNet, a.LinkIndex))
			}
			routes, err := netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE)
			if err != nil {
				return err
			}
			for _, r := range routes {
				lines = append(lines, fmt.Sprintf("route %s via %s by %d", r.Dst, r.Gw, r.LinkIndex))
			}
		}
		return nil
	})
	return lines, err
}

func filter(n *cri.Node) ([]string, error) {
	out, err := n.Network.Try("nft", "--stateless", "list", "ruleset")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var lines []string
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); line != "}" && line != "" {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// files lists the files of the plugin, of libcni's cache and those that stand for
// network namespaces. The plugin's hints on which address to try next are left
// out, because they claim nothing and are there for as long as the range.
func files(n *cri.Node) (paths []string, err error) {
	for _, dir := range []string{
		stateDir(n),
		filepath.Join(n.Dir, "net.d"),
		filepath.Join(n.Dir, "state/io.containerd.grpc.v1.cri/netns"),
		cri.CacheDir,
	} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && !entry.IsDir() && !strings.HasPrefix(entry.Name(), "released-") {
				paths = append(paths, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return paths, nil
}
