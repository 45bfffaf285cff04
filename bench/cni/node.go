package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/vpcroute/vpcroute/test/sandbox"
)

// maxPods is how many pods may be attached while calls are measured: a bridge has
// 1,023 ports, and up to 16 calls are made at once.
const maxPods = 1000

var (
	podCIDR = netip.MustParsePrefix("10.244.0.0/20")
	address = netip.MustParsePrefix("10.0.0.2/24") // of every node: they never meet
	router  = netip.MustParseAddr("10.0.0.1")
)

// A contender is a plugin under measurement.
type contender struct {
	name     string
	programs []string       // its own first, then what it calls
	entry    map[string]any // its entry in the network configuration
}

// contenders returns ours and the reference plugins, configured alike: one range,
// a default route, no masquerading. The peers' lists of addresses are kept in
// memory, which is faster than the disk where they usually lie.
func contenders(state string) []contender {
	hostLocal := map[string]any{
		"type":    "host-local",
		"dataDir": state,
		"ranges":  [][]map[string]any{{{"subnet": podCIDR.String()}}},
		"routes":  []map[string]any{{"dst": "0.0.0.0/0"}},
	}
	return []contender{
		{ours, []string{"vpcroute"}, map[string]any{
			"type": "vpcroute", "podCIDRs": []string{podCIDR.String()}, "stateDir": filepath.Join(state, ours), "logFile": "",
		}},
		{peer, []string{"bridge", "host-local"}, map[string]any{
			"type": "bridge", "bridge": "cbr0", "isGateway": true, "hairpinMode": true, "ipam": hostLocal,
		}},
		{other, []string{"ptp", "host-local"}, map[string]any{"type": "ptp", "ipam": hostLocal}},
	}
}

// The contenders' names in the report.
const (
	ours  = "vpcroute"
	peer  = "bridge + host-local"
	other = "ptp + host-local"
)

// A node is a contender's own network namespace, and its pods.
type node struct {
	contender
	bin  string
	ns   *sandbox.Namespace
	conf []byte // the network configuration of an ADD

	pods  []*pod // attached and kept so
	spare []*pod // not attached
}

// A pod is a network namespace that can be attached.
type pod struct {
	id     string
	ns     *sandbox.Namespace
	result json.RawMessage // of the last ADD
}

// newNode makes the namespace of a node with an uplink, which leads nowhere, and
// a default route.
func newNode(c contender, number int, bin string) (*node, error) {
	n := &node{contender: c, bin: bin}
	for _, program := range c.programs {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			return nil, err
		}
	}
	entry := map[string]any{"cniVersion": "1.1.0", "name": fmt.Sprintf("net%d", number)}
	for k, v := range c.entry {
		entry[k] = v
	}
	var err error
	if n.conf, err = json.Marshal(entry); err != nil {
		return nil, err
	}
	if n.ns, err = sandbox.Create(fmt.Sprintf("node%d", number)); err != nil {
		return nil, err
	}
	if err := n.ns.Do(raiseUplink); err != nil {
		return nil, fmt.Errorf("raise the uplink of %s: %w", c.name, err)
	}
	return n, nil
}

func raiseUplink() error {
	eth0 := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "vpc0"}
	if err := netlink.LinkAdd(eth0); err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(address.String())
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(eth0, addr); err != nil {
		return err
	}
	for _, name := range []string{"vpc0", "eth0"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: router.AsSlice()}); err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

// furnish gives the node as many spare pods as it needs to have that many.
func (n *node) furnish(spare int) error {
	for len(n.spare) < spare {
		name := fmt.Sprintf("%s-pod%d", n.ns.Name, len(n.pods)+len(n.spare))
		ns, err := sandbox.Create(name)
		if err != nil {
			return err
		}
		n.spare = append(n.spare, &pod{id: name, ns: ns})
	}
	return nil
}

// fill attaches pods until the node has that many, two at a time.
func (n *node) fill(level int) error {
	for len(n.pods) < level {
		group := min(2, level-len(n.pods))
		if err := n.furnish(group); err != nil {
			return err
		}
		pods := n.spare[:group]
		if _, err := n.atOnce(add, pods); err != nil {
			return err
		}
		n.pods = append(n.pods, pods...)
		n.spare = n.spare[group:]
	}
	return nil
}

// each runs f for every node at the same time.
func each(nodes []*node, f func(*node) error) error {
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { errs[i] = f(n) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("%s: %w", nodes[i].name, err)
		}
	}
	return nil
}
