package vpc

import (
	"net/netip"
	"testing"
)

func TestNodeAddress(t *testing.T) {
	node := Node{}
	for _, a := range []string{"fd00::1", "::ffff:10.0.0.7", "10.0.0.8", "fd00::2"} {
		node.Addresses = append(node.Addresses, netip.MustParseAddr(a))
	}
	if got := node.Address(IPv4).String(); got != "10.0.0.7" {
		t.Errorf("IPv4 address %s", got)
	}
	if got := node.Address(IPv6).String(); got != "fd00::1" {
		t.Errorf("IPv6 address %s", got)
	}
	if got := (Node{}).Address(IPv4); got.IsValid() {
		t.Errorf("a node without addresses has %v", got)
	}
}

func TestFamilyOf(t *testing.T) {
	for text, want := range map[string]string{"10.0.0.0/8": "IPv4", "fd00::/8": "IPv6", "::ffff:10.0.0.0/104": "IPv6"} {
		if got := FamilyOf(netip.MustParsePrefix(text)).String(); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}
