package main_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// wantError checks an answer's code and that its error says all of the parts.
func wantError(t testing.TB, a answer, code uint, parts ...string) {
	t.Helper()
	if a.cniErr == nil {
		t.Fatalf("no error but %v %q %s", a.err, a.stdout, a.stderr)
	}
	if a.cniErr.Code != code {
		t.Errorf("code %d, want %d: %v", a.cniErr.Code, code, a.cniErr)
	}
	if a.cniErr.Details == "" {
		t.Errorf("%v says nothing of what to do next", a.cniErr)
	}
	for _, p := range parts {
		if !strings.Contains(a.cniErr.Error(), p) {
			t.Errorf("%q does not say %q", a.cniErr, p)
		}
	}
}

// bind binds to an address in a pod, as the pod's program does at its start.
func bind(p *pod, a netip.Addr) error {
	return p.Do(func() error {
		l, err := net.Listen("tcp", netip.AddrPortFrom(a, 0).String())
		if err != nil {
			return err
		}
		return l.Close()
	})
}

// usable checks that no address of an interface waits for, or failed at,
// duplicate-address detection.
func usable(t testing.TB, in interface{ Do(func() error) error }, link string) {
	t.Helper()
	if err := in.Do(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		addrs, err := repeated(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
		for _, a := range addrs {
			if a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 {
				t.Errorf("%s of %s has the flags %#x", a.IPNet, link, a.Flags)
			}
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// 64 calls at the same moment on a node without a bridge: 64 successes, one
// bridge with one gateway per family, 64 addresses. R021: each of them can be
// bound to as soon as its ADD returns.
func TestManyAtTheSameMoment_R021(t *testing.T) {
	n := newNode(t, nil)
	pods := make([]*pod, 64)
	for i := range pods {
		pods[i] = n.newPod(t)
	}
	got := make([][]netip.Addr, len(pods))
	var all sync.WaitGroup
	for i, p := range pods {
		all.Go(func() {
			a := n.call(t, p.request("ADD"))
			if a.err != nil {
				t.Errorf("ADD: %s%s", a.stdout, a.stderr)
				return
			}
			got[i] = addresses(t, a.result)
			for _, address := range got[i] {
				if err := bind(p, address); err != nil {
					t.Errorf("bind right after ADD: %v", err)
				}
			}
			usable(t, p, "eth0")
		})
	}
	all.Wait()
	usable(t, n, "cbr0")
	seen := map[netip.Addr]bool{}
	for _, addresses := range got {
		for _, a := range addresses {
			if seen[a] {
				t.Errorf("%s is given twice", a)
			}
			seen[a] = true
		}
	}
	if len(seen) != 128 {
		t.Errorf("%d addresses for 64 pods", len(seen))
	}
	want := []string{"10.244.1.1/24", "fd00:10:244:1::1/64", "fe80::858:aff:fef4:101/64"}
	if got := linkAddresses(t, n, "cbr0"); !slices.Equal(got, want) {
		t.Errorf("cbr0 has %v, want %v", got, want)
	}
	if len(n.ports(t)) != 64 {
		t.Errorf("%d ports", len(n.ports(t)))
	}
}

// R021, one after the other: with those above, 100 of 100.
func TestAddressesCanBeBoundAtOnce_R021(t *testing.T) {
	n := newNode(t, map[string]any{"podCIDRs": []string{"fd00:10:244:1::/64"}})
	for range 36 {
		p := n.newPod(t)
		for _, a := range addresses(t, p.add(t).result) {
			if err := bind(p, a); err != nil {
				t.Error(err)
			}
		}
		usable(t, p, "eth0")
	}
}

func linkAddresses(t testing.TB, in interface{ Do(func() error) error }, link string) []string {
	t.Helper()
	var out []string
	if err := in.Do(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		addrs, err := repeated(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
		for _, a := range addrs {
			out = append(out, a.IPNet.String())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSameAttachmentTwiceAtTheSameMoment_R004(t *testing.T) {
	n := newNode(t, nil)
	p := n.newPod(t)
	var all sync.WaitGroup
	answers := make([]answer, 8)
	for i := range answers {
		all.Go(func() { answers[i] = n.call(t, p.request("ADD")) })
	}
	all.Wait()
	won := 0
	for _, a := range answers {
		if a.err == nil {
			won++
			continue
		}
		wantError(t, a, 101, "exists already")
	}
	if won != 1 || len(n.ports(t)) != 1 {
		t.Errorf("%d of 8 succeeded, and there are the ports %v", won, n.ports(t))
	}
	p.del(t)
	if len(n.ports(t)) != 0 {
		t.Errorf("one DEL left %v", n.ports(t))
	}
}

// R036: the message says which interface is in the way.
func TestADDRefusesAnInterfaceThatExists_R036(t *testing.T) {
	n := newNode(t, nil)
	p := n.newPod(t)
	p.Run(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "x")
	wantError(t, n.call(t, p.request("ADD")), 102, "eth0")
	if len(n.ports(t)) != 0 {
		t.Errorf("left: %v", n.ports(t))
	}
}

func TestADDRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n := newNode(t, nil)
	tests := map[string]struct {
		netns string
		conf  map[string]any
		code  uint
		say   []string
	}{
		"no namespace":            {"/run/netns/none", nil, types.ErrInvalidNetNS, []string{"/run/netns/none"}},
		"a plain file":            {file, nil, types.ErrInvalidNetNS, []string{file, "not a network namespace"}},
		"the node's own":          {n.Path(), nil, types.ErrInvalidNetNS, []string{"own"}},
		"after another plugin":    {"", map[string]any{"prevResult": map[string]any{"cniVersion": "1.1.0"}}, types.ErrInvalidNetworkConfig, []string{"first"}},
		"no podCIDRs":             {"", map[string]any{"podCIDRs": nil}, types.ErrInvalidNetworkConfig, []string{"podCIDRs", "10.244.1.0/24"}},
		"host bits":               {"", map[string]any{"podCIDRs": []string{"10.244.1.7/24"}}, types.ErrInvalidNetworkConfig, []string{"podCIDRs[0]", "10.244.1.7/24", "10.244.1.0/24"}},
		"two things wrong":        {"", map[string]any{"mtu": 1, "colour": "red"}, types.ErrInvalidNetworkConfig, []string{"mtu 1", "colour", "all 2"}},
		"everything excluded":     {"", map[string]any{"podCIDRs": []string{"10.244.1.0/30"}, "exclude": []string{"10.244.1.2"}}, types.ErrInvalidNetworkConfig, []string{"excluded"}},
		"wanted address outside":  {"", map[string]any{"runtimeConfig": map[string]any{"ips": []string{"10.9.9.9"}}}, types.ErrInvalidNetworkConfig, []string{"10.9.9.9", "podCIDRs"}},
		"wanted gateway":          {"", map[string]any{"runtimeConfig": map[string]any{"ips": []string{"10.244.1.1"}}}, types.ErrInvalidNetworkConfig, []string{"10.244.1.1", "gateway"}},
		"wanted broadcast":        {"", map[string]any{"runtimeConfig": map[string]any{"ips": []string{"10.244.1.255/24"}}}, types.ErrInvalidNetworkConfig, []string{"10.244.1.255"}},
		"wanted without partner":  {"", map[string]any{"runtimeConfig": map[string]any{"ips": []string{"fd00:10:244:1::dead:beef"}}}, types.ErrInvalidNetworkConfig, []string{"fd00:10:244:1::dead:beef", "partner"}},
		"bridge not a bridge":     {"", map[string]any{"bridge": "uplink"}, 105, []string{"uplink", `"veth"`}},
		"many things wrong":       {"", map[string]any{"mtu": 1, "a": 1, "b": 2, "c": 3, "d": strings.Repeat("x", 999), "podCIDRs": []string{"10.244.1.7/24", "10.244.2.7/24"}}, types.ErrInvalidNetworkConfig, []string{"podCIDRs[0]", "all 7"}},
		"namespace with odd name": {"/run/netns/" + strings.Repeat("n", 200), nil, types.ErrInvalidNetNS, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := n.newPod(t)
			r := p.request("ADD")
			r.conf = tt.conf
			if tt.netns != "" {
				r.netns = tt.netns
			}
			wantError(t, n.call(t, r), tt.code, tt.say...)
			if len(n.ports(t)) != 0 {
				t.Errorf("left: %v", n.ports(t))
			}
		})
	}
}

// Every address of a range can be had, none of the others, and then it is full.
func TestADDUsesTheWholeRange(t *testing.T) {
	for name, tt := range map[string]struct {
		podCIDRs, exclude []string
		want              []string
	}{
		"/30":                  {[]string{"10.244.1.0/30"}, nil, []string{"10.244.1.2"}},
		"/29 less two":         {[]string{"10.244.1.0/29"}, []string{"10.244.1.2", "10.244.1.4/31"}, []string{"10.244.1.3", "10.244.1.6"}},
		"two ranges":           {[]string{"10.244.1.0/30", "10.9.0.0/29"}, nil, []string{"10.244.1.2", "10.9.0.2", "10.9.0.3", "10.9.0.4", "10.9.0.5", "10.9.0.6"}},
		"dual stack, unequal":  {[]string{"fd00::/120", "10.244.1.0/29"}, []string{"fd00::4"}, []string{"10.244.1.2+fd00::2", "10.244.1.3+fd00::3", "10.244.1.5+fd00::5", "10.244.1.6+fd00::6"}},
		"two ranges of each":   {[]string{"10.244.1.0/30", "10.9.0.0/30", "fd00::/120", "fd01::/120"}, nil, []string{"10.244.1.2+fd00::2", "10.9.0.2+fd00::6"}},
		"IPv6 alone, excluded": {[]string{"fd00::/120"}, []string{"fd00::8/125", "fd00::10/124", "fd00::20/123", "fd00::40/122", "fd00::80/121"}, []string{"fd00::2", "fd00::3", "fd00::4", "fd00::5", "fd00::6", "fd00::7"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, map[string]any{"podCIDRs": tt.podCIDRs, "exclude": tt.exclude})
			var got []string
			var pods []*pod
			for range tt.want {
				p := n.newPod(t)
				pods = append(pods, p)
				var pair []string
				for _, a := range addresses(t, p.add(t).result) {
					pair = append(pair, a.String())
				}
				got = append(got, strings.Join(pair, "+"))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("addresses, -want +got:\n%s", diff)
			}
			extra := n.newPod(t)
			wantError(t, n.call(t, extra.request("ADD")), 100, tt.podCIDRs[0], fmt.Sprintf("all %d", len(tt.want)))
			if has(t, extra.Namespace, "eth0") || len(n.ports(t)) != len(tt.want) {
				t.Errorf("the pod that got no address left %v", n.ports(t))
			}
			// The cool-down is set aside when nothing cooler is left, and the log says so.
			pods[len(pods)/2].del(t)
			if strings.Contains(n.log(t), "coolDown") {
				t.Errorf("the log speaks of the cool-down before it was set aside:\n%s", n.log(t))
			}
			again := addresses(t, extra.add(t).result)
			if !strings.Contains(n.log(t), "its coolDown is 2m0s") {
				t.Errorf("the log does not say that the cool-down was set aside:\n%s", n.log(t))
			}
			if want := tt.want[len(pods)/2]; !strings.HasPrefix(want, again[0].String()) {
				t.Errorf("got %v, want the only free address %s", again, want)
			}
		})
	}
}

// The address released longest ago comes next, and one that was in use a moment
// ago last.
func TestReleasedAddressesRest(t *testing.T) {
	n := newNode(t, map[string]any{"podCIDRs": []string{"10.244.1.0/29"}})
	p, q := n.newPod(t), n.newPod(t)
	var got []string
	for range 7 {
		got = append(got, addresses(t, p.add(t).result)[0].String())
		p.del(t)
	}
	want := []string{"10.244.1.2", "10.244.1.3", "10.244.1.4", "10.244.1.5", "10.244.1.6", "10.244.1.2", "10.244.1.3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// The DEL of a pod whose namespace died long before counts as its release.
	dead := q.add(t)
	if err := q.Delete(); err != nil {
		t.Fatal(err)
	}
	n.waitClean(t, "namespace died")
	for range 4 {
		p.add(t)
		p.del(t)
	}
	r := q.request("DEL")
	r.conf = map[string]any{"prevResult": previous(t, dead)}
	if a := n.call(t, r); a.err != nil {
		t.Fatal(a.stdout)
	}
	if got := addresses(t, p.add(t).result)[0].String(); got != "10.244.1.5" {
		t.Errorf("got %s, want 10.244.1.5: %v was released last", got, addresses(t, dead.result))
	}
}

// A range full of pods that run for a long time, whose stamps are the oldest:
// the free address behind them is found.
func TestTheLastFreeAddressIsFound(t *testing.T) {
	n := newNode(t, map[string]any{"podCIDRs": []string{"10.244.1.0/26"}})
	var pods []*pod
	for range 61 {
		p := n.newPod(t)
		p.add(t)
		pods = append(pods, p)
	}
	for _, i := range []int{60, 0, 30} {
		want := fmt.Sprintf("10.244.1.%d", 2+i)
		pods[i].del(t)
		if got := addresses(t, pods[i].add(t).result)[0].String(); got != want {
			t.Errorf("got %s, want %s, the only free one", got, want)
		}
	}
}

// R003: a full disk costs the hint, never an address.
func TestADDWithAFullDisk_R003(t *testing.T) {
	attempts := times(5, 100)
	state := filepath.Join(t.TempDir(), "full")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=8k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(state, unix.MNT_DETACH) })
	filler := filepath.Join(state, "filler")
	if err := os.WriteFile(filler, make([]byte, 8<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	n := newNode(t, map[string]any{"podCIDRs": []string{"10.244.1.0/28"}, "stateDir": state})
	wantError(t, n.call(t, request{verb: "STATUS"}), 50, state, "no space left")
	seen := map[netip.Addr]bool{}
	var pods []*pod
	for range 13 {
		p := n.newPod(t)
		seen[addresses(t, p.add(t).result)[0]] = true
		pods = append(pods, p)
	}
	if len(seen) != 13 {
		t.Errorf("%d addresses for 13 pods: %v", len(seen), seen)
	}
	for range attempts {
		wantError(t, n.call(t, n.newPod(t).request("ADD")), 100)
	}
	if !strings.Contains(n.log(t), "no space left") {
		t.Errorf("the log does not say why addresses come in no order:\n%s", n.log(t))
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		p.del(t)
	}
	for range 13 {
		n.newPod(t).add(t)
	}
}

// R008: with the hint file emptied or overwritten no live pod's address is given
// out, the log names the file, and a copy is kept.
func TestADDWithADamagedHintFile_R008(t *testing.T) {
	n := newNode(t, map[string]any{"podCIDRs": []string{"10.244.1.0/28"}})
	live := map[netip.Addr]bool{}
	for range 5 {
		live[addresses(t, n.newPod(t).add(t).result)[0]] = true
	}
	state := n.conf["stateDir"].(string)
	entries, err := os.ReadDir(state)
	if err != nil || len(entries) != 1 {
		t.Fatalf("state directory: %v, %v", entries, err)
	}
	file := filepath.Join(state, entries[0].Name())
	for _, damage := range []string{"", strings.Repeat("\xa5\x5a", 50)} {
		if err := os.WriteFile(file, []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		a := addresses(t, n.newPod(t).add(t).result)[0]
		if live[a] {
			t.Errorf("%s is a live pod's", a)
		}
		live[a] = true
		if kept, err := os.ReadFile(file + ".damaged"); err != nil || string(kept) != damage {
			t.Errorf("no copy of the damaged file: %v", err)
		}
		if lines := strings.Split(strings.TrimSpace(n.log(t)), "\n"); !strings.Contains(lines[len(lines)-1], file+" is damaged") {
			t.Errorf("the log does not name the damaged file: %s", lines[len(lines)-1])
		}
	}
}

func TestWantedAddresses(t *testing.T) {
	n := newNode(t, nil)
	want := func(ips ...string) request {
		r := n.newPod(t).request("ADD")
		r.conf = map[string]any{"runtimeConfig": map[string]any{"ips": ips}}
		return r
	}
	for _, tt := range []struct {
		ips  []string
		want string
	}{
		{[]string{"10.244.1.77"}, "[10.244.1.77 fd00:10:244:1::4d]"},
		{[]string{"10.244.1.88/24"}, "[10.244.1.88 fd00:10:244:1::58]"},
		{[]string{"fd00:10:244:1::63"}, "[10.244.1.99 fd00:10:244:1::63]"},
		{[]string{"fd00:10:244:1::dead:beef", "10.244.1.5"}, "[10.244.1.5 fd00:10:244:1::dead:beef]"},
	} {
		a := n.call(t, want(tt.ips...))
		if a.err != nil {
			t.Fatalf("%v: %s", tt.ips, a.stdout)
		}
		if got := fmt.Sprint(addresses(t, a.result)); got != tt.want {
			t.Errorf("asked for %v, got %s, want %s", tt.ips, got, tt.want)
		}
	}
	before := len(n.ports(t))
	wantError(t, n.call(t, want("10.244.1.77")), 103, "10.244.1.77", "ip link show")
	wantError(t, n.call(t, want("10.244.1.6", "fd00:10:244:1::4d")), 103, "fd00:10:244:1::4d")
	if has(t, n.Namespace, "10.244.1.6") || len(n.ports(t)) != before {
		t.Errorf("a refused wish left %v", n.ports(t))
	}
}

func TestWantedMACAndDNS(t *testing.T) {
	n := newNode(t, nil)
	p := n.newPod(t)
	r := p.request("ADD")
	r.conf = map[string]any{"runtimeConfig": map[string]any{
		"mac": "02:00:00:00:00:77", "dns": map[string]any{"servers": []string{"10.96.0.10"}, "searches": []string{"svc.cluster.local"}, "options": []string{"ndots:5"}},
	}, "dns": map[string]any{"nameservers": []string{"192.0.2.53"}}}
	a := n.call(t, r)
	if a.err != nil {
		t.Fatal(a.stdout)
	}
	if got := a.result.Interfaces[2].Mac; got != "02:00:00:00:00:77" || got != macOf(t, p, "eth0") {
		t.Errorf("the result says %s, and eth0 has %s", got, macOf(t, p, "eth0"))
	}
	want := types.DNS{Nameservers: []string{"10.96.0.10"}, Search: []string{"svc.cluster.local"}, Options: []string{"ndots:5"}}
	if diff := cmp.Diff(want, a.result.DNS); diff != "" {
		t.Errorf("DNS, -want +got:\n%s", diff)
	}
}

func macOf(t testing.TB, in interface{ Do(func() error) error }, link string) string {
	t.Helper()
	var mac string
	if err := in.Do(func() error {
		l, err := netlink.LinkByName(link)
		if err == nil {
			mac = l.Attrs().HardwareAddr.String()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return mac
}

// R016: what the result says of hardware addresses is true, and they were given
// at creation, so udev's persistent-MAC policy leaves them alone: all have
// addr_assign_type 3 (NET_ADDR_SET), which is what that policy looks at.
func TestReportedMACsAreReal_R016(t *testing.T) {
	n := newNode(t, map[string]any{"podCIDRs": []string{"10.244.0.0/23"}})
	answers := map[*pod]answer{}
	for range times(10, 200) {
		p := n.newPod(t)
		answers[p] = p.add(t)
	}
	for p, a := range answers {
		r := a.result
		for i, in := range []interface{ Do(func() error) error }{n, n, p} {
			if got := macOf(t, in, r.Interfaces[i].Name); got != r.Interfaces[i].Mac {
				t.Errorf("%s has %s, the result says %s", r.Interfaces[i].Name, got, r.Interfaces[i].Mac)
			}
		}
		for _, x := range []struct {
			in interface {
				Run(testing.TB, string, ...string) string
			}
			link string
		}{{n, "cbr0"}, {n, r.Interfaces[1].Name}, {p, "eth0"}} {
			if got := x.in.Run(t, "sh", "-c", "mount -t sysfs none /sys && cat /sys/class/net/"+x.link+"/addr_assign_type; umount /sys"); got != "3" {
				t.Errorf("addr_assign_type of %s is %s", x.link, got)
			}
		}
		peerSeen(t, p.Namespace, n.Namespace, netip.MustParseAddr(r.IPs[0].Gateway.String()))
	}
}

// R023: bridge, host veth and pod have the uplink's MTU, or the one set by hand.
func TestMTUOfAllThree_R023(t *testing.T) {
	n := newNode(t, nil)
	var earlier []*pod
	for _, uplink := range []int{1450, 1500, 8500, 9001, 1450} {
		n.Run(t, "ip", "link", "set", "uplink", "mtu", fmt.Sprint(uplink))
		for _, byHand := range []int{0, 1400} {
			p := n.newPod(t)
			r := p.request("ADD")
			r.conf = map[string]any{"mtu": byHand}
			a := n.call(t, r)
			if a.err != nil {
				t.Fatal(a.stdout)
			}
			want := uplink
			if byHand != 0 {
				want = byHand
			}
			for i, in := range []interface{ Do(func() error) error }{n, n, p} {
				name := a.result.Interfaces[i].Name
				if got := mtuOf(t, in, name); got != want || a.result.Interfaces[i].Mtu != want {
					t.Errorf("uplink %d, by hand %d: %s has %d, the result says %d", uplink, byHand, name, got, a.result.Interfaces[i].Mtu)
				}
			}
			if byHand == 0 && uplink == 9001 {
				earlier = append(earlier, p)
			}
		}
	}
	for _, p := range earlier {
		if got := mtuOf(t, p, "eth0"); got != 9001 {
			t.Errorf("a pod that was there has %d now", got)
		}
	}
}

func mtuOf(t testing.TB, in interface{ Do(func() error) error }, link string) int {
	t.Helper()
	var mtu int
	if err := in.Do(func() error {
		l, err := netlink.LinkByName(link)
		if err == nil {
			mtu = l.Attrs().MTU
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return mtu
}

func TestExtraRoutes(t *testing.T) {
	n := newNode(t, map[string]any{"routes": []any{
		map[string]any{"dst": "192.0.2.0/24"}, map[string]any{"dst": "198.51.100.0/24", "gw": "10.244.1.9"}, map[string]any{"dst": "2001:db8::/32"},
	}})
	p := n.newPod(t)
	a := p.add(t)
	var got []string
	for _, r := range a.result.Routes {
		got = append(got, r.Dst.String()+" via "+r.GW.String())
	}
	want := []string{"0.0.0.0/0 via 10.244.1.1", "::/0 via fd00:10:244:1::1", "192.0.2.0/24 via 10.244.1.1", "198.51.100.0/24 via 10.244.1.9", "2001:db8::/32 via fd00:10:244:1::1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result, -want +got:\n%s", diff)
	}
	table := p.Run(t, "sh", "-c", "ip route; ip -6 route")
	for _, r := range want[2:] {
		if !strings.Contains(table, r) {
			t.Errorf("no route %q in\n%s", r, table)
		}
	}
}

// Whoever looks at an address on the node sees whose it is.
func TestAliasTellsWhose(t *testing.T) {
	n := newNode(t, nil)
	long := strings.Repeat("long-name-", 25)
	for name, tt := range map[string]struct{ args, want string }{
		"Kubernetes": {
			"IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_INFRA_CONTAINER_ID=@;K8S_POD_UID=6f1c",
			"shop/cart-0 uid=6f1c container=@ if=eth0",
		},
		"none":              {"", "container=@ if=eth0"},
		"nonsense":          {";;==;K8S_POD_NAME;x=y", "container=@ if=eth0"},
		"a sandbox besides": {"K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_INFRA_CONTAINER_ID=other", "shop/cart-0 sandbox=other container=@ if=eth0"},
		"a very long name":  {"K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + long + ";K8S_POD_UID=6f1c", "shop/" + long[:200]},
		"line breaks":       {"K8S_POD_NAMESPACE=shop;K8S_POD_NAME=a\nb c", "shop/a?b?c container=@ if=eth0"},
	} {
		t.Run(name, func(t *testing.T) {
			p := n.newPod(t)
			r := p.request("ADD")
			r.args = strings.ReplaceAll(tt.args, "@", p.id)
			a := n.call(t, r)
			if a.err != nil {
				t.Fatal(a.stdout)
			}
			address := addresses(t, a.result)[0]
			out := n.Run(t, "ip", "link", "show", address.String())
			if want := "alias " + strings.ReplaceAll(tt.want, "@", p.id); !strings.Contains(out, want) {
				t.Errorf("ip link show %s does not say %q:\n%s", address, want, out)
			}
			if !strings.Contains(out, "container="+p.id+" if=eth0") {
				t.Errorf("the ids are not whole:\n%s", out)
			}
			if !strings.Contains(n.Run(t, "ip", "-d", "link", "show", "master", "cbr0"), address.String()) {
				t.Errorf("%s is not among the ports of cbr0", address)
			}
		})
	}
}

// A runtime that switches IPv6 off in new namespaces still gets it for its pods.
func TestADDWhereIPv6IsOffInThePod(t *testing.T) {
	n := newNode(t, nil)
	p := n.newPod(t)
	p.Run(t, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
	a := addresses(t, p.add(t).result)
	if got := peerSeen(t, n.Namespace, p.Namespace, a[1]); got.String() != "fd00:10:244:1::1" {
		t.Errorf("the node is seen as %s", got)
	}
}
