package netconf_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/netconf"
)

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"podCIDRs": ["10.244.1.0/24", "fd00:10:244:1::/64"]}`,
		`{"podCIDRs": ["10.244.1.0/30"], "bridge": "cbr0", "mtu": 1450, "hairpinMode": true, "coolDown": "120s", "exclude": ["10.244.1.2", "10.244.1.0/31"]}`,
		`{"podCIDRs": ["10.244.1.0/24"], "routes": [{"dst": "192.0.2.0/24", "gw": "10.244.1.1"}], "stateDir": "/run/x", "logFile": "", "logLevel": "debug"}`,
		`{"podCIDRs": ["10.244.1.0/24"], "runtimeConfig": {"ips": ["10.244.1.7/24"], "mac": "0a:58:0a:f4:01:07", "dns": {"servers": ["1.1.1.1"]}}}`,
		`{"podCIDRs": ["fd00::/64", "::ffff:10.0.0.0/112"], "exclude": ["fe80::1%eth0"], "cni.dev/valid-attachments": [{"containerID": "a", "ifname": "b"}]}`,
		`{"podCIDRs": null, "prevResult": {}, "unknown": 1}`, `[]`, ``, `null`, `{"podCIDRs": [null, 1]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := netconf.Parse(data)
		if c == nil {
			t.Fatal("no Config")
		}
		if err != nil {
			var field *netconf.FieldError
			if !errors.As(err, &field) {
				t.Errorf("%T is no FieldError: %v", err, err)
			}
		}
		// What could be read must be right, since deleting goes by it.
		for i, p := range c.PodCIDRs {
			if p != p.Masked() || slices.ContainsFunc(c.PodCIDRs[:i], p.Overlaps) {
				t.Errorf("podCIDRs %v", c.PodCIDRs)
			}
		}
		for _, a := range c.IPs {
			contains := func(p netip.Prefix) bool { return p.Contains(a) }
			if len(c.PodCIDRs) > 0 && !slices.ContainsFunc(c.PodCIDRs, contains) || slices.ContainsFunc(c.Exclude, contains) {
				t.Errorf("wanted address %s of %v less %v", a, c.PodCIDRs, c.Exclude)
			}
		}
		if len(c.Bridge) < 1 || len(c.Bridge) > 15 || c.CoolDown < 0 || c.StateDir == "" || c.MTU != 0 && (c.MTU < 576 || c.MTU > 65535) {
			t.Errorf("%+v", c)
		}
		if err == nil && len(c.PodCIDRs) == 0 {
			t.Error("no podCIDRs and no error")
		}
	})
}
