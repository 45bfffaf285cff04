package linux_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/linux"
	"github.com/vpcroute/vpcroute/pkg/vpc/vpctest"
)

func TestTableKeepsTheContract(t *testing.T) {
	for _, tt := range []struct {
		name  string
		table int
	}{
		{"a table of its own, with a large number", 4_000_000_000},
		{"the main table, with the kernel's own routes", 254},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vpctest.Run(t, func(t *testing.T) vpctest.Harness { return contractHarness(t, tt.table) })
		})
	}
}

func contractHarness(t *testing.T, id int) vpctest.Harness {
	r := newRouter(t)
	r.config.Table = id
	table, err := linux.New(r.config)
	if err != nil {
		t.Fatal(err)
	}
	var nodes []vpc.Node
	for i := range 5 {
		nodes = append(nodes, vpc.Node{Name: fmt.Sprintf("node-%d", i), Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{192, 168, 7, byte(11 + i)}), netip.MustParseAddr(fmt.Sprintf("fd00:7::%d", 11+i)),
		}})
	}
	return vpctest.Harness{
		Table: table, Tables: []string{fmt.Sprint(id)}, Owner: r.config.Owner, Nodes: nodes,
		Lost:   map[vpc.Family]vpc.NextHop{vpc.IPv4: "192.168.99.1", vpc.IPv6: "fd00:99::1"},
		Ranges: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:1::/48")},
		Put: func(t testing.TB, x vpc.Route) {
			r.ip(t, fmt.Sprintf("route add %v via %s proto static table %s", x.Destination, x.NextHop, x.Table))
		},
		PutOdd: func(t testing.TB) {
			r.ip(t, fmt.Sprintf(`route add default via 192.168.7.254 table %d
				route add blackhole 172.16.0.0/12 table %[1]d
				route add 172.31.0.0/16 table %[1]d nexthop via 192.168.7.13 nexthop via 192.168.7.14
				route add unreachable fd99::/64 table %[1]d`, id))
		},
	}
}
