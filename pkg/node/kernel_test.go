package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/node"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

// settings writes a folder of kernel settings: a healthy host with changes, of
// which an empty value takes the setting away.
func settings(t *testing.T, changes map[string]string) node.Kernel {
	t.Helper()
	all := map[string]string{
		"net.ipv4.ip_forward":                 "1",
		"net.ipv6.conf.all.forwarding":        "1",
		"net.ipv6.conf.eth0.accept_ra":        "0",
		"net.ipv4.conf.all.rp_filter":         "0",
		"net.ipv4.conf.eth0.rp_filter":        "0",
		"net.bridge.bridge-nf-call-iptables":  "0",
		"net.bridge.bridge-nf-call-ip6tables": "0",
		"net.ipv4.neigh.default.gc_thresh3":   "1024",
		"net.ipv6.neigh.default.gc_thresh3":   "1024",
	}
	for k, v := range changes {
		all[k] = v
	}
	kernel := node.Kernel{Root: t.TempDir()}
	for k, v := range all {
		if v == "" {
			continue
		}
		path := filepath.Join(kernel.Root, strings.NewReplacer(".", "/", "/", ".").Replace(k))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(v+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return kernel
}

func TestKernelCheck(t *testing.T) {
	both := node.Needs{IPv4: true, IPv6: true, Uplink: "eth0", Neighbours: 300}
	four := node.Needs{IPv4: true, Uplink: "eth0", Neighbours: 300}
	many := node.Needs{IPv4: true, Uplink: "eth0", Neighbours: 820}
	for name, c := range map[string]struct {
		changes map[string]string
		needs   node.Needs
		want    []string // "setting=wanted value", with "!" when it is ours to set
	}{
		"healthy": {nil, both, nil},
		"R024 forwarding turned off under us": {
			map[string]string{"net.ipv4.ip_forward": "0", "net.ipv6.conf.all.forwarding": "0"},
			both,
			[]string{"!net.ipv4.ip_forward=1", "!net.ipv6.conf.all.forwarding=1"},
		},
		"R022 no IPv6 in the kernel, none needed": {
			map[string]string{"net.ipv6.conf.all.forwarding": "", "net.ipv6.neigh.default.gc_thresh3": ""}, four, nil,
		},
		"R022 no IPv6 in the kernel, but needed": {
			map[string]string{"net.ipv6.conf.all.forwarding": ""}, both, []string{"net.ipv6.conf.all.forwarding=1"},
		},
		"R024 no bridge netfilter": {
			map[string]string{"net.bridge.bridge-nf-call-iptables": ""}, four, []string{"net.bridge.bridge-nf-call-iptables="},
		},
		"R024 the global switch is nobody's business": {
			map[string]string{"net.bridge.bridge-nf-call-iptables": "0"}, four, nil,
		},
		"router advertisements about to be ignored": {
			map[string]string{"net.ipv6.conf.eth0.accept_ra": "1"}, both, []string{"net.ipv6.conf.eth0.accept_ra=2"},
		},
		"strict reverse path on all links": {
			map[string]string{"net.ipv4.conf.all.rp_filter": "1"}, four, []string{"net.ipv4.conf.all.rp_filter=2"},
		},
		"strict reverse path on the uplink": {
			map[string]string{"net.ipv4.conf.eth0.rp_filter": "1"}, four, []string{"net.ipv4.conf.eth0.rp_filter=2"},
		},
		"strict on all links, loose on the uplink": {
			map[string]string{"net.ipv4.conf.all.rp_filter": "1", "net.ipv4.conf.eth0.rp_filter": "2"}, four, nil,
		},
		"strict reverse path on a VLAN link": {
			map[string]string{"net.ipv4.conf.eth0/100.rp_filter": "1"}, node.Needs{IPv4: true, Uplink: "eth0.100"}, []string{"net.ipv4.conf.eth0/100.rp_filter=2"},
		},
		"R025 over 80 % of the neighbour table": {
			nil, many, []string{"net.ipv4.neigh.default.gc_thresh3=2048"},
		},
		"R025 raised as advised": {
			map[string]string{"net.ipv4.neigh.default.gc_thresh3": "2048"}, many, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, d := range settings(t, c.changes).Check(c.needs) {
				s := d.Setting + "=" + d.Want
				if d.Ours {
					s = "!" + s
				}
				got = append(got, s)
				if d.Reason == "" || !strings.Contains(d.String(), d.Setting) {
					t.Errorf("%+v does not explain itself: %s", d, d)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestKernelRepair is on the real kernel, in a namespace whose forwarding is off.
func TestKernelRepair(t *testing.T) {
	host := sandbox.New(t, "host")
	needs := node.Needs{IPv4: true, IPv6: true}
	kernel := node.Kernel{Root: "/proc/sys"}
	if err := host.Do(func() error {
		drifts := kernel.Check(needs)
		if len(drifts) == 0 {
			t.Error("forwarding is off and not noticed")
		}
		return kernel.Repair(drifts)
	}); err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		if v := host.Run(t, "sysctl", "-n", setting); v != "1" {
			t.Errorf("%s is %s", setting, v)
		}
	}
	if err := host.Do(func() error {
		if drifts := kernel.Check(needs); len(drifts) != 0 {
			t.Errorf("after the repair: %v", drifts)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestRepairLeavesTheHostsSettings(t *testing.T) {
	kernel := settings(t, map[string]string{"net.ipv4.conf.all.rp_filter": "1", "net.ipv4.ip_forward": "0"})
	needs := node.Needs{IPv4: true, Uplink: "eth0", Neighbours: 5000}
	if err := kernel.Repair(kernel.Check(needs)); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, d := range kernel.Check(needs) {
		left = append(left, d.Setting)
	}
	want := []string{"net.ipv4.conf.all.rp_filter", "net.ipv4.neigh.default.gc_thresh3"}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Error(diff)
	}
}
