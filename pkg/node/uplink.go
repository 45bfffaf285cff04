package node

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// A Link is a network interface of the node.
type Link struct {
	// Name is the kernel's, for example "eth0".
	Name string
	// MTU in bytes.
	MTU int
}

// Uplink returns the link that carries one of the node's addresses, in the
// calling thread's network namespace. The addresses are tried in their order:
// the node's first one is how other nodes reach it.
func Uplink(addresses []netip.Addr) (Link, error) {
	links, err := net.Interfaces()
	if err != nil {
		return Link{}, fmt.Errorf("list links: %w", err)
	}
	for _, want := range addresses {
		for _, l := range links {
			if carries(l, want) {
				return Link{l.Name, l.MTU}, nil
			}
		}
	}
	return Link{}, fmt.Errorf("no link has an address of the node (%v): is its InternalIP right, and does the agent run on the host network?", addresses)
}

func carries(l net.Interface, want netip.Addr) bool {
	held, err := l.Addrs()
	if err != nil {
		return false // gone since it was listed
	}
	return slices.ContainsFunc(held, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Unmap() == want
	})
}
