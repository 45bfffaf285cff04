package bridge_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/bridge"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// newNode is a namespace with an uplink that has the default route.
func newNode(t testing.TB) *sandbox.Namespace {
	t.Helper()
	n := sandbox.New(t, "node")
	n.Run(t, "sh", "-ec", `
		ip link add uplink type veth peer name vpc
		ip link set vpc up
		ip link set uplink up
		ip addr add 192.168.0.11/24 dev uplink
		ip route add default via 192.168.0.1`)
	return n
}

// open opens a node's bridge for the length of the test.
func open(t testing.TB, n *sandbox.Namespace, name string) *bridge.Bridge {
	t.Helper()
	var b *bridge.Bridge
	if err := n.Do(func() (err error) {
		b, err = bridge.Open(name)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func gateways(texts ...string) bridge.Settings {
	var s bridge.Settings
	for _, text := range texts {
		s.Gateways = append(s.Gateways, netip.MustParsePrefix(text))
	}
	return s
}

var dual = gateways("10.244.1.1/24", "fd00:10:244:1::1/64")

// ensure brings a node's bridge to its settings.
func ensure(t testing.TB, n *sandbox.Namespace, b *bridge.Bridge, s bridge.Settings) int {
	t.Helper()
	var mtu int
	if err := n.Do(func() (err error) {
		mtu, err = b.Ensure(s)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return mtu
}

// candidate is the i-th address of 10.244.1.0/24 and of its IPv6 partner.
func candidate(i byte) bridge.Candidate {
	v4, v6 := netip.AddrFrom4([4]byte{10, 244, 1, i}), netip.MustParseAddr("fd00:10:244:1::").As16()
	v6[15] = i
	return bridge.Candidate{Index: uint32(i), Addresses: []bridge.Address{
		{Prefix: netip.PrefixFrom(v4, 24), Gateway: netip.MustParseAddr("10.244.1.1")},
		{Prefix: netip.PrefixFrom(netip.AddrFrom16(v6), 64), Gateway: netip.MustParseAddr("fd00:10:244:1::1")},
	}}
}

var errNoMore = errors.New("no more candidates")

// inTurn proposes one candidate after the other.
func inTurn(candidates ...bridge.Candidate) func(error) (bridge.Candidate, error) {
	return func(error) (bridge.Candidate, error) {
		if len(candidates) == 0 {
			return bridge.Candidate{}, errNoMore
		}
		c := candidates[0]
		candidates = candidates[1:]
		return c, nil
	}
}

func port(pod *sandbox.Namespace, id string) bridge.Port {
	return bridge.Port{
		Owner: bridge.Owner{ContainerID: id, IfName: "eth0"}, Network: "pods",
		NetNS: pod.Path(), Alias: "default/" + id, MTU: 1500, Hairpin: true,
	}
}

// attach makes a port on a node's bridge.
func attach(n *sandbox.Namespace, b *bridge.Bridge, p bridge.Port, next func(error) (bridge.Candidate, error)) (a *bridge.Attachment, err error) {
	doErr := n.Do(func() error {
		a, err = b.Attach(p, next)
		return nil
	})
	return a, errors.Join(err, doErr)
}

func mustAttach(t testing.TB, n *sandbox.Namespace, b *bridge.Bridge, p bridge.Port, candidates ...bridge.Candidate) *bridge.Attachment {
	t.Helper()
	a, err := attach(n, b, p, inTurn(candidates...))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// An ipLink is a link as iproute2 tells of it.
type ipLink struct {
	Name     string   `json:"ifname"`
	Flags    []string `json:"flags"`
	MTU      int      `json:"mtu"`
	Address  string   `json:"address"`
	Alias    string   `json:"ifalias"`
	Altnames []string `json:"altnames"`
	Master   string   `json:"master"`
	AddrGen  string   `json:"inet6_addr_gen_mode"`
	Promisc  int      `json:"promiscuity"`
	Info     struct {
		Kind      string         `json:"info_kind"`
		Data      map[string]any `json:"info_data"`
		SlaveData map[string]any `json:"info_slave_data"`
	} `json:"linkinfo"`
}

// linkOf returns a link by name or altname, and nil when there is none.
func linkOf(t testing.TB, n *sandbox.Namespace, name string) *ipLink {
	t.Helper()
	out, err := n.Try("ip", "-d", "-j", "link", "show", "dev", name)
	if err != nil {
		return nil
	}
	var links []ipLink
	if err := json.Unmarshal([]byte(out), &links); err != nil || len(links) != 1 {
		t.Fatalf("ip link show %s: %v\n%s", name, err, out)
	}
	return &links[0]
}

// addressesOf lists a link's addresses as "ADDRESS/BITS", with a word for each
// flag that says it cannot be used.
func addressesOf(t testing.TB, n *sandbox.Namespace, link string) []string {
	t.Helper()
	var links []struct {
		Info []struct {
			Local     string `json:"local"`
			Bits      int    `json:"prefixlen"`
			Tentative bool   `json:"tentative"`
			DADFailed bool   `json:"dadfailed"`
		} `json:"addr_info"`
	}
	out := n.Run(t, "ip", "-j", "addr", "show", "dev", link)
	if err := json.Unmarshal([]byte(out), &links); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var all []string
	for _, l := range links {
		for _, i := range l.Info {
			p := netip.PrefixFrom(netip.MustParseAddr(i.Local), i.Bits).String()
			if i.Tentative {
				p += " tentative"
			}
			if i.DADFailed {
				p += " dadfailed"
			}
			all = append(all, p)
		}
	}
	return all
}

// assignType is how a link came by its hardware address (NET_ADDR_PERM 0, RANDOM
// 1, STOLEN 2, SET 3 of linux/netdevice.h). udev leaves alone what was SET.
func assignType(t testing.TB, n *sandbox.Namespace, link string) string {
	t.Helper()
	return n.Run(t, "sh", "-c", "mount -t sysfs none /sys && cat /sys/class/net/"+link+"/addr_assign_type; umount /sys")
}

func readFile(t testing.TB, n *sandbox.Namespace, path string) string {
	t.Helper()
	var b []byte
	if err := n.Do(func() (err error) {
		b, err = os.ReadFile(path)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
