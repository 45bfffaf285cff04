package netns

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// uplinkName is a node's network interface, interfaceName a pod's.
const (
	uplinkName    = "eth0"
	interfaceName = "eth0"
)

// A Node is a machine of the cluster.
type Node struct {
	Host
	// PodCIDRs are the ranges that the node's pods get their addresses from, one
	// per family.
	PodCIDRs []netip.Prefix
	// ProviderID is how the cluster names the node's machine; empty for none.
	ProviderID string
	// Pods are the attached pods, in the order of their attachment.
	Pods []*Pod

	box *Box
	dir string
}

// A Pod is an attached network namespace.
type Pod struct {
	Host
	// ContainerID is the pod's sandbox, as the runtime would name it.
	ContainerID string
}

// raiseNode adds the machine with this number and joins it to the subnet.
func (b *Box) raiseNode(number int) error {
	n := &Node{Host: Host{Name: fmt.Sprintf("node-%d", number)}, box: b}
	n.Node = n
	for _, net := range b.networks {
		n.Addresses = append(n.Addresses, net.uplink(number))
		n.PodCIDRs = append(n.PodCIDRs, net.podCIDR(number))
	}
	n.dir = filepath.Join(b.Dir, n.Name)
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		return err
	}
	var err error
	if n.Namespace, err = b.namespace(n.Name); err != nil {
		return err
	}
	b.Nodes = append(b.Nodes, n)
	if err := n.Namespace.Do(forward); err != nil {
		return err
	}
	if err := b.plug(n); err != nil {
		return err
	}
	return b.join(n)
}

// Readdress gives a node other addresses on its uplink, as when a cloud has
// stopped the machine and started it again.
func (b *Box) Readdress(n *Node, addresses ...netip.Addr) error {
	if err := b.leave(n); err != nil {
		return err
	}
	n.Addresses = addresses
	return b.join(n)
}

// Gateways are the node's addresses on its pod bridge: the first usable one of
// each podCIDR.
func (n *Node) Gateways() []netip.Addr {
	var gateways []netip.Addr
	for _, p := range n.PodCIDRs {
		gateways = append(gateways, p.Addr().Next())
	}
	return gateways
}

// Attach makes a pod's namespace and has the built plugin attach it.
func (n *Node) Attach(ctx context.Context, name string) (*Pod, error) {
	p := &Pod{Host: Host{Name: name, Node: n}, ContainerID: n.box.Name + "-" + name}
	var err error
	if p.Namespace, err = n.box.namespace(name); err != nil {
		return nil, err
	}
	var result *types100.Result
	err = n.withPlugin(p, func(cni libcni.CNI, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
		raw, err := cni.AddNetworkList(ctx, list, rt)
		if err != nil {
			return err
		}
		result, err = types100.NewResultFromResult(raw)
		return err
	})
	if err != nil {
		_ = p.Namespace.Delete()
		return nil, fmt.Errorf("attach %s on %s: %w", name, n.Name, err)
	}
	for _, ip := range result.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		p.Addresses = append(p.Addresses, a.Unmap())
	}
	n.Pods = append(n.Pods, p)
	return p, nil
}

// Detach has the built plugin detach a pod, and removes its namespace.
func (n *Node) Detach(ctx context.Context, p *Pod) error {
	err := n.withPlugin(p, func(cni libcni.CNI, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
		return cni.DelNetworkList(ctx, list, rt)
	})
	if err != nil {
		return fmt.Errorf("detach %s: %w", p.Name, err)
	}
	n.Pods = slices.DeleteFunc(n.Pods, func(other *Pod) bool { return other == p })
	return p.Namespace.Delete()
}

// withPlugin calls f with what libcni needs to run the plugin inside the node
// for one pod: a runtime enters no namespace for a plugin but its own.
func (n *Node) withPlugin(p *Pod, f func(libcni.CNI, *libcni.NetworkConfigList, *libcni.RuntimeConf) error) error {
	config, err := n.Conflist()
	if err != nil {
		return err
	}
	list, err := libcni.NetworkConfFromBytes(config)
	if err != nil {
		return err
	}
	cni := libcni.NewCNIConfigWithCacheDir([]string{n.box.Programs}, filepath.Join(n.dir, "cni-cache"), nil)
	rt := &libcni.RuntimeConf{
		ContainerID: p.ContainerID,
		NetNS:       p.Namespace.Path(),
		IfName:      interfaceName,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", "default"},
			{"K8S_POD_NAME", p.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.ContainerID},
		},
	}
	return n.Namespace.Do(func() error { return f(cni, list, rt) })
}

// Conflist is the node's network configuration, as the node agent installs it.
func (n *Node) Conflist() ([]byte, error) {
	return json.MarshalIndent(map[string]any{
		"cniVersion": "1.1.0",
		"name":       "vpcroute",
		"plugins": []any{map[string]any{
			"type":     "vpcroute",
			"podCIDRs": n.PodCIDRs,
			"stateDir": filepath.Join(n.dir, "state"),
			"logFile":  filepath.Join(n.dir, "vpcroute.log"),
		}},
	}, "", "  ")
}
