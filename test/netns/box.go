// Package netns is the VPC in a box: one network namespace is the cloud's
// router, and its kernel routing table is the VPC's route table; others are
// nodes, each with one uplink to the router, and pods, attached by the built
// plugin. It carries real packets between real programs and measures who
// reaches whom and from which address. It is for tests and the demo: nothing of
// the product may import it, it imports nothing of the product's packages, and
// it changes nothing outside the namespaces and the directory it made.
package netns

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vpcroute/vpcroute/test/sandbox"
)

// A network is the addressing of one family: the subnet that holds the nodes'
// uplinks, and the cluster CIDR that the podCIDRs are cut from.
type network struct {
	subnet, cluster netip.Prefix
	podBits         int // length of a podCIDR
}

var networks = []network{
	{netip.MustParsePrefix("172.31.0.0/24"), netip.MustParsePrefix("10.244.0.0/16"), 24},
	{netip.MustParsePrefix("fd00:172:31::/64"), netip.MustParsePrefix("fd00:10:244::/48"), 64},
}

// gateway is the router's address in the subnet, on every port.
func (n network) gateway() netip.Addr { return n.subnet.Addr().Next() }

// uplink is the address of the machine with this number, counted from 1:
// 172.31.0.11 and fd00:172:31::11 for machine 1.
func (n network) uplink(machine int) netip.Addr {
	b := n.subnet.Addr().AsSlice()
	b[len(b)-1] = byte(10 + machine)
	if n.subnet.Addr().Is6() {
		b[len(b)-1] = byte(0x10 + machine)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// podCIDR is the range of the machine with this number: 10.244.1.0/24 and
// fd00:10:244:1::/64 for machine 1.
func (n network) podCIDR(machine int) netip.Prefix {
	b := n.cluster.Addr().AsSlice()
	b[n.podBits/8-1] = byte(machine)
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, n.podBits)
}

// Config says which box to raise.
type Config struct {
	// Parent is the directory in which the box makes its own; os.TempDir() when
	// empty.
	Parent string
	// Programs is the directory that holds the built programs, "vpcroute" (the
	// plugin) and "route-controller"; "bin" in the box's own directory when
	// empty, to be filled before the first of them is used.
	Programs string
	// Nodes is the number of nodes, 1 to 99; 3 when 0.
	Nodes int
	// MTU is that of the uplinks, both ends, in bytes; 1500 when 0.
	MTU int
	// IPv4Only leaves IPv6 out, for kernels without it.
	IPv4Only bool
}

// A Box is a raised VPC. Its methods are not safe for concurrent use, except
// those that only measure.
type Box struct {
	// Name is the box's own name, for example "vpcbox1": the first part of the
	// name of every namespace in it.
	Name string
	// Dir holds the box's files: the Node list, the plugins' state, all logs.
	Dir string
	// Programs is the directory of the built programs.
	Programs string
	// Router is the cloud: its main routing table is the VPC's route table.
	Router *sandbox.Namespace
	// Nodes are the machines of the cluster, in the order of their numbers.
	Nodes []*Node
	// ClusterCIDRs are the ranges that the podCIDRs are cut from, one per family.
	ClusterCIDRs []netip.Prefix
	// MTU is that of the uplinks in bytes.
	MTU int
	// VPCFlags have the controller write to another table than the router's own,
	// such as that of an emulated cloud which programs the router; nil for that one.
	VPCFlags []string

	networks []network
	lock     *os.File
}

// A Host is a network namespace with addresses of its own: a node or a pod.
type Host struct {
	// Name is "node-1" or "pod-1a"; the namespace's name has the box's before it.
	Name string
	// Namespace is where the host's sockets and processes live.
	Namespace *sandbox.Namespace
	// Addresses are the host's own, at most one per family, IPv4 first.
	Addresses []netip.Addr
	// Node is the machine that a pod runs on, and a node's own self.
	Node *Node
}

// Address returns the host's address of the family that like belongs to, and
// the zero Addr when it has none.
func (h *Host) Address(like netip.Addr) netip.Addr {
	for _, a := range h.Addresses {
		if a.Is4() == like.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// Raise makes a box: a directory, the router, the nodes and their uplinks. No
// pod is attached and no route to a podCIDR exists. On error nothing is left.
func Raise(c Config) (_ *Box, err error) {
	b := &Box{MTU: c.MTU, networks: networks}
	if b.MTU == 0 {
		b.MTU = 1500
	}
	if c.IPv4Only {
		b.networks = networks[:1]
	}
	for _, n := range b.networks {
		b.ClusterCIDRs = append(b.ClusterCIDRs, n.cluster)
	}
	if c.Parent == "" {
		c.Parent = os.TempDir()
	}
	if err := b.claim(c.Parent); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = b.TearDown()
		}
	}()
	if b.Programs = c.Programs; b.Programs == "" {
		b.Programs = filepath.Join(b.Dir, "bin")
	}
	if err := b.Router.Do(forward); err != nil {
		return nil, err
	}
	for i := 1; i <= max(c.Nodes, 0) || c.Nodes == 0 && i <= 3; i++ {
		if err := b.raiseNode(i); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// namespace makes the namespace of one part of the box.
func (b *Box) namespace(part string) (*sandbox.Namespace, error) {
	return sandbox.Create(b.Name + "-" + part)
}

// Hosts are all nodes and pods, nodes first.
func (b *Box) Hosts() []*Host {
	var hosts []*Host
	for _, n := range b.Nodes {
		hosts = append(hosts, &n.Host)
	}
	for _, n := range b.Nodes {
		for _, p := range n.Pods {
			hosts = append(hosts, &p.Host)
		}
	}
	return hosts
}

// A setting is one kernel parameter under /proc/sys/net.
type setting struct{ name, value string }

// set writes settings of the namespace that the calling thread is in. Those of
// IPv6 are left out where the kernel has none.
func set(settings ...setting) error {
	for _, s := range settings {
		if strings.HasPrefix(s.name, "ipv6/") && !HasIPv6() {
			continue
		}
		if err := os.WriteFile(filepath.Join("/proc/sys/net", s.name), []byte(s.value), 0); err != nil {
			return fmt.Errorf("kernel setting: %w", err)
		}
	}
	return nil
}

// HasIPv6 is false on a kernel built or booted without IPv6.
func HasIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6")
	return err == nil
}
