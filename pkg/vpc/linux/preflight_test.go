package linux_test

import (
	"cmp"
	"net/netip"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

func TestPreflight(t *testing.T) {
	both := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:1::/48")}
	const forward = `sysctl -qw net.ipv4.ip_forward=1
		sysctl -qw net.ipv6.conf.all.forwarding=1`
	const rules = `ip rule add pref 33000 table 100
		ip -6 rule add pref 33000 table 100`
	for _, tt := range []struct {
		name   string
		setup  string
		table  int // 0 means 100
		ranges []netip.Prefix
		node   string // an address that NextHop is asked for
		want   string // "SEVERITY OBJECT: part of the message"
	}{
		{
			name: "all well", setup: forward + "\n" + rules, ranges: both, node: "192.168.7.11",
		},
		{
			name: "forwarding off", setup: rules, ranges: both,
			want: `error setting net.ipv4.ip_forward: IPv4 forwarding is off
				error setting net.ipv6.conf.all.forwarding: IPv6 forwarding is off`,
		},
		{
			name: "forwarding off for a family that the cluster has not", setup: "sysctl -qw net.ipv4.ip_forward=1\n" + rules, ranges: both[:1],
		},
		{
			name: "no cluster CIDRs given: every family is checked", setup: "sysctl -qw net.ipv4.ip_forward=1\n" + rules,
			want: "error setting net.ipv6.conf.all.forwarding: IPv6 forwarding is off",
		},
		{
			name: "table that nothing looks up", setup: forward + "\nip rule add table 101\nip -6 rule add table 100", ranges: both,
			want: "error table 100: no IPv4 rule leads to table 100",
		},
		{
			name: "cluster CIDR overlaps a subnet or another's route, R082", ranges: both,
			setup: forward + "\n" + rules + `
				ip addr add 10.244.9.1/24 dev up0
				ip route add default via 192.168.7.254 table 100
				ip route add 10.244.3.0/24 via 192.168.7.99 table 100
				ip route add 10.240.0.0/12 via 192.168.7.99 proto bgp table 100
				ip route add 10.245.0.0/16 via 192.168.7.99 table 100
				ip route add 10.244.4.0/24 via 192.168.7.11 proto 201 table 100`,
			want: `error cluster CIDR 10.244.0.0/16: 10.244.0.0/16 overlaps the connected subnet 10.244.9.0/24
				warning cluster CIDR 10.244.0.0/16: 10.244.0.0/16 overlaps the route to 10.240.0.0/12 in table 100, which is not ours (protocol bgp)
				warning cluster CIDR 10.244.0.0/16: 10.244.0.0/16 overlaps the route to 10.244.3.0/24`,
		},
		{
			name: "connected subnet that the table itself holds is reported once", ranges: both, table: 254,
			setup: forward + "\nip addr add 10.244.9.1/24 dev up0",
			want:  "error cluster CIDR 10.244.0.0/16: 10.244.0.0/16 overlaps the connected subnet 10.244.9.0/24",
		},
		{
			name: "node on no subnet", setup: forward + "\n" + rules + "\nip route add default via 192.168.7.254", ranges: both, node: "192.168.99.1",
			want: "error next hop 192.168.99.1 of node a: 192.168.99.1 is on no connected subnet",
		},
		{
			name: "node that cannot be reached at all", setup: forward + "\n" + rules, ranges: both, node: "fd00:99::1",
			want: "error next hop fd00:99::1 of node a: fd00:99::1 cannot be reached",
		},
		{
			name: "node's address is the router's own", setup: forward + "\n" + rules, ranges: both, node: "192.168.7.1",
			want: "error next hop 192.168.7.1 of node a: is an address of this machine itself",
		},
		{
			name: "subnet of our routes is gone", ranges: both,
			setup: forward + "\n" + rules + `
				ip addr add 192.168.8.1/24 dev up0
				ip route add 10.244.4.0/24 via 192.168.8.11 dev up0 onlink proto 201 table 100
				ip addr del 192.168.8.1/24 dev up0`,
			want: "error next hop 192.168.8.11: 192.168.8.11 cannot be reached",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRouter(t)
			r.config.Ranges, r.config.Table = tt.ranges, cmp.Or(tt.table, 100)
			r.Run(t, "sh", "-ec", tt.setup)
			table := r.table(t)
			if tt.node != "" {
				addr := netip.MustParseAddr(tt.node)
				family := vpc.IPv4
				if addr.Is6() {
					family = vpc.IPv6
				}
				if _, err := table.NextHop(t.Context(), vpc.Node{Name: "a", Addresses: []netip.Addr{addr}}, family); err != nil {
					t.Fatal(err)
				}
			}
			before := r.show(t)
			checkFindings(t, table.Preflight(t.Context()), lines(tt.want))
			r.want(t, before)
		})
	}
}

func checkFindings(t *testing.T, findings []vpc.Finding, want string) {
	t.Helper()
	var got []string
	for _, f := range findings {
		got = append(got, string(f.Severity)+" "+f.Object+": "+f.Message)
		if f.Fix == "" {
			t.Errorf("no fix for %q", f.Message)
		}
	}
	wanted := strings.FieldsFunc(want, func(r rune) bool { return r == '\n' })
	if len(got) != len(wanted) {
		t.Fatalf("findings (-want +got):\n%s", gocmp.Diff(wanted, got))
	}
	for i := range got {
		head, part, _ := strings.Cut(wanted[i], ": ")
		if !strings.HasPrefix(got[i], head+": ") || !strings.Contains(got[i], part) {
			t.Errorf("finding %q, want %q", got[i], wanted[i])
		}
	}
}
