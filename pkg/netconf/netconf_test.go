package netconf_test

import (
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vpcroute/vpcroute/pkg/netconf"
)

var compare = cmp.Options{cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func defaults() netconf.Config {
	return netconf.Config{
		Bridge: "cbr0", HairpinMode: true, CoolDown: 2 * time.Minute,
		StateDir: "/run/vpcroute", LogFile: "/var/log/vpcroute/cni.log", LogLevel: "info",
		PodCIDRs: prefixes("10.244.1.0/24"),
	}
}

func TestParse(t *testing.T) {
	tests := map[string]struct {
		json string
		want func(*netconf.Config)
	}{
		"only what is required": {
			json: `{"podCIDRs": ["10.244.1.0/24"]}`,
			want: func(*netconf.Config) {},
		},
		"every field": {
			json: `{"cniVersion": "1.1.0", "name": "pods", "type": "vpcroute", "podCIDRs": ["10.244.1.0/24", "fd00:10:244:1::/64"],
				"bridge": "br-pods", "mtu": 1450, "hairpinMode": false, "coolDown": "1m30s", "exclude": ["10.244.1.5", "10.244.1.128/28"],
				"routes": [{"dst": "192.0.2.0/24", "gw": "10.244.1.1"}, {"dst": "2001:db8::/32"}],
				"stateDir": "/run/other/", "logFile": "/tmp/cni.log", "logLevel": "debug"}`,
			want: func(c *netconf.Config) {
				*c = netconf.Config{
					CNIVersion: "1.1.0", Name: "pods", PodCIDRs: prefixes("10.244.1.0/24", "fd00:10:244:1::/64"),
					Bridge: "br-pods", MTU: 1450, CoolDown: 90 * time.Second, Exclude: prefixes("10.244.1.5/32", "10.244.1.128/28"),
					Routes: []netconf.Route{
						{Dst: netip.MustParsePrefix("192.0.2.0/24"), GW: netip.MustParseAddr("10.244.1.1")},
						{Dst: netip.MustParsePrefix("2001:db8::/32")},
					},
					StateDir: "/run/other", LogFile: "/tmp/cni.log", LogLevel: "debug",
				}
			},
		},
		"several ranges per family": {
			json: `{"podCIDRs": ["10.244.1.0/24", "fd00::/120", "10.244.9.0/30", "fd00:1::/64", "10.9.0.0/16"]}`,
			want: func(c *netconf.Config) {
				c.PodCIDRs = prefixes("10.244.1.0/24", "fd00::/120", "10.244.9.0/30", "fd00:1::/64", "10.9.0.0/16")
			},
		},
		"null and zero values are defaults": {
			json: `{"podCIDRs": ["10.244.1.0/24"], "bridge": "", "mtu": 0, "hairpinMode": null, "coolDown": "", "exclude": null,
				"routes": [], "stateDir": "", "logLevel": "", "prevResult": null, "runtimeConfig": null}`,
			want: func(*netconf.Config) {},
		},
		"no cool-down": {
			json: `{"podCIDRs": ["10.244.1.0/24"], "coolDown": "0s"}`,
			want: func(c *netconf.Config) { c.CoolDown = 0 },
		},
		"no log": {
			json: `{"podCIDRs": ["10.244.1.0/24"], "logFile": ""}`,
			want: func(c *netconf.Config) { c.LogFile = "" },
		},
		"excluded addresses of other nodes": {
			json: `{"podCIDRs": ["10.244.1.0/24"], "exclude": ["10.244.7.5", "fd00::5"]}`,
			want: func(c *netconf.Config) { c.Exclude = prefixes("10.244.7.5/32", "fd00::5/128") },
		},
		"what the runtime adds": {
			json: `{"podCIDRs": ["10.244.1.0/24", "fd00::/64"], "args": {"cni": {"ips": ["1.2.3.4"]}, "anything": [1]}, "capabilities": {"ips": true},
				"runtimeConfig": {"ips": ["10.244.1.7/24", "fd00::7"], "mac": "0a:58:0a:f4:01:99", "portMappings": [{"hostPort": 80}],
					"dns": {"servers": ["10.96.0.10"], "searches": ["svc.cluster.local"], "options": ["ndots:5"]}},
				"dns": {"nameservers": ["10.0.0.1"]}, "prevResult": {"ips": []}, "ipam": {}, "ipMasq": false,
				"disableCheck": true, "loadOnlyInlinedPlugins": true, "cni.dev/something": {"new": true}}`,
			want: func(c *netconf.Config) {
				c.PodCIDRs = prefixes("10.244.1.0/24", "fd00::/64")
				c.IPs = []netip.Addr{netip.MustParseAddr("10.244.1.7"), netip.MustParseAddr("fd00::7")}
				c.MAC, _ = net.ParseMAC("0a:58:0a:f4:01:99")
				c.DNS = netconf.DNS{Nameservers: []string{"10.96.0.10"}, Search: []string{"svc.cluster.local"}, Options: []string{"ndots:5"}}
				c.PrevResult = json.RawMessage(`{"ips": []}`)
			},
		},
		"DNS of the configuration": {
			json: `{"podCIDRs": ["10.244.1.0/24"], "dns": {"nameservers": ["10.0.0.1"], "domain": "example.org"}}`,
			want: func(c *netconf.Config) {
				c.DNS = netconf.DNS{Nameservers: []string{"10.0.0.1"}, Domain: "example.org"}
			},
		},
		"GC with attachments": {
			json: `{"podCIDRs": ["10.244.1.0/24"], "cni.dev/valid-attachments": [{"containerID": "4f5d0a", "ifname": "eth0"}], "cni.dev/attachments": []}`,
			want: func(c *netconf.Config) {
				c.HasValid, c.Valid = true, []netconf.Attachment{{ContainerID: "4f5d0a", IfName: "eth0"}}
			},
		},
		"GC with none":               {`{"podCIDRs": ["10.244.1.0/24"], "cni.dev/valid-attachments": []}`, func(c *netconf.Config) { c.HasValid, c.Valid = true, []netconf.Attachment{} }},
		"GC with null":               {`{"podCIDRs": ["10.244.1.0/24"], "cni.dev/valid-attachments": null}`, func(c *netconf.Config) { c.HasValid = true }},
		"GC under its earlier name":  {`{"podCIDRs": ["10.244.1.0/24"], "cni.dev/attachments": []}`, func(c *netconf.Config) { c.HasValid, c.Valid = true, []netconf.Attachment{} }},
		"GC switched off":            {`{"podCIDRs": ["10.244.1.0/24"], "disableGC": true}`, func(c *netconf.Config) { c.DisableGC = true }},
		"jumbo frames and a low MTU": {`{"podCIDRs": ["10.244.1.0/24"], "mtu": 576}`, func(c *netconf.Config) { c.MTU = 576 }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := defaults()
			tt.want(&want)
			got, err := netconf.Parse([]byte(tt.json))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&want, got, compare); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestParseNamesFieldValueAndExample(t *testing.T) {
	const ok = `"podCIDRs": ["10.244.1.0/24"], `
	tests := map[string]struct {
		json string
		want []string // each a part of the message
	}{
		"no podCIDRs":               {`{}`, []string{"podCIDRs: is missing", `["10.244.1.0/24"`}},
		"empty podCIDRs":            {`{"podCIDRs": []}`, []string{"podCIDRs: is missing"}},
		"podCIDRs a string":         {`{"podCIDRs": "10.244.1.0/24"}`, []string{`podCIDRs "10.244.1.0/24": has the wrong form`, `["10.244.1.0/24"`}},
		"podCIDR no prefix":         {`{"podCIDRs": ["10.244.1.0"]}`, []string{`podCIDRs[0] "10.244.1.0": is not a range`, `"10.244.1.0/24"`}},
		"podCIDR with host bits":    {`{"podCIDRs": ["10.244.1.7/24"]}`, []string{`podCIDRs[0] "10.244.1.7/24": has host bits set`, "10.244.1.0/24"}},
		"IPv6 with host bits":       {`{"podCIDRs": ["fd00::1/64"]}`, []string{`podCIDRs[0] "fd00::1/64"`, "fd00::/64"}},
		"podCIDR with a zone":       {`{"podCIDRs": ["fe80::%eth0/64"]}`, []string{"podCIDRs[0]"}},
		"podCIDR mapped":            {`{"podCIDRs": ["::ffff:10.244.1.0/120"]}`, []string{"podCIDRs[0]", "IPv4"}},
		"podCIDR too small":         {`{"podCIDRs": ["10.244.1.0/31"]}`, []string{"podCIDRs[0]", "/16 to /30"}},
		"podCIDR a whole cluster":   {`{"podCIDRs": ["10.0.0.0/8"]}`, []string{"podCIDRs[0]", "/16 to /30"}},
		"IPv6 podCIDR too small":    {`{"podCIDRs": ["fd00::/121"]}`, []string{"podCIDRs[0]", "/64 to /120"}},
		"IPv6 podCIDR too wide":     {`{"podCIDRs": ["fd00::/48"]}`, []string{"podCIDRs[0]", "/64 to /120"}},
		"overlapping podCIDRs":      {`{"podCIDRs": ["10.244.0.0/16", "10.244.1.0/24"]}`, []string{`podCIDRs[1] "10.244.1.0/24": overlaps 10.244.0.0/16`}},
		"multicast podCIDR":         {`{"podCIDRs": ["224.0.0.0/24"]}`, []string{"podCIDRs[0]", "unicast"}},
		"loopback podCIDR":          {`{"podCIDRs": ["127.0.0.0/24"]}`, []string{"podCIDRs[0]", "unicast"}},
		"link-local podCIDR":        {`{"podCIDRs": ["fe80::/64"]}`, []string{"podCIDRs[0]", "unicast"}},
		"unknown field":             {`{` + ok + `"subnet": "10.0.0.0/8"}`, []string{`subnet "10.0.0.0/8": is not a field of vpcroute`}},
		"field in the wrong case":   {`{` + ok + `"hairpinmode": true}`, []string{"hairpinmode", `did you mean "hairpinMode"?`}},
		"bridge with a slash":       {`{` + ok + `"bridge": "br/0"}`, []string{`bridge "br/0"`, `"cbr0"`}},
		"bridge too long":           {`{` + ok + `"bridge": "a-very-long-bridge"}`, []string{"bridge", "15"}},
		"bridge a pattern":          {`{` + ok + `"bridge": "br%d"}`, []string{`bridge "br%d"`}},
		"MTU a string":              {`{` + ok + `"mtu": "1450"}`, []string{`mtu "1450": has the wrong form`, "1450"}},
		"MTU too small":             {`{` + ok + `"mtu": 500}`, []string{"mtu 500", "576"}},
		"MTU negative":              {`{` + ok + `"mtu": -1}`, []string{"mtu -1"}},
		"MTU too small for IPv6":    {`{"podCIDRs": ["fd00::/64"], "mtu": 1200}`, []string{"mtu 1200", "1280"}},
		"MTU too large":             {`{` + ok + `"mtu": 70000}`, []string{"mtu 70000", "65535"}},
		"hairpinMode a string":      {`{` + ok + `"hairpinMode": "yes"}`, []string{`hairpinMode "yes"`, "true"}},
		"coolDown a number":         {`{` + ok + `"coolDown": 120}`, []string{"coolDown 120", `"120s"`}},
		"coolDown without a unit":   {`{` + ok + `"coolDown": "120"}`, []string{`coolDown "120"`, `"120s"`}},
		"coolDown negative":         {`{` + ok + `"coolDown": "-1s"}`, []string{`coolDown "-1s"`}},
		"exclude a word":            {`{` + ok + `"exclude": ["gateway"]}`, []string{`exclude[0] "gateway"`, "10.244.1.5"}},
		"exclude with host bits":    {`{` + ok + `"exclude": ["10.244.1.130/28"]}`, []string{`exclude[0] "10.244.1.130/28"`, "10.244.1.128/28"}},
		"route without dst":         {`{` + ok + `"routes": [{"gw": "10.244.1.1"}]}`, []string{"routes[0]", "dst", "192.0.2.0/24"}},
		"route of mixed families":   {`{` + ok + `"routes": [{"dst": "192.0.2.0/24", "gw": "fd00::1"}]}`, []string{"routes[0]", "family"}},
		"route by a stranger":       {`{` + ok + `"routes": [{"dst": "192.0.2.0/24", "gw": "10.9.9.9"}]}`, []string{"routes[0]", "10.9.9.9", "reached"}},
		"route of an unused family": {`{` + ok + `"routes": [{"dst": "2001:db8::/32"}]}`, []string{"routes[0]", "reached"}},
		"route with unknown field":  {`{` + ok + `"routes": [{"dst": "192.0.2.0/24", "via": "x"}]}`, []string{"routes[0]", `"via"`}},
		"stateDir relative":         {`{` + ok + `"stateDir": "run"}`, []string{`stateDir "run"`, "absolute"}},
		"logFile relative":          {`{` + ok + `"logFile": "cni.log"}`, []string{`logFile "cni.log"`, "absolute"}},
		"logLevel unknown":          {`{` + ok + `"logLevel": "loud"}`, []string{`logLevel "loud"`, "debug, info, warn, error"}},
		"foreign ipam":              {`{` + ok + `"ipam": {"type": "host-local"}}`, []string{"ipam", "leave it out"}},
		"ipMasq":                    {`{` + ok + `"ipMasq": true}`, []string{"ipMasq", "leave it out"}},
		"wanted address outside":    {`{` + ok + `"runtimeConfig": {"ips": ["10.9.9.9"]}}`, []string{`runtimeConfig.ips[0] "10.9.9.9"`, "none of the podCIDRs"}},
		"wanted address excluded":   {`{` + ok + `"exclude": ["10.244.1.7"], "runtimeConfig": {"ips": ["10.244.1.7"]}}`, []string{"runtimeConfig.ips[0]", "exclude"}},
		"two wanted of a family":    {`{` + ok + `"runtimeConfig": {"ips": ["10.244.1.7", "10.244.1.8"]}}`, []string{`runtimeConfig.ips[1] "10.244.1.8"`, "second"}},
		"wanted address a word":     {`{` + ok + `"runtimeConfig": {"ips": ["seven"]}}`, []string{`runtimeConfig.ips[0] "seven"`, "not an address"}},
		"MAC multicast":             {`{` + ok + `"runtimeConfig": {"mac": "01:00:5e:00:00:01"}}`, []string{"runtimeConfig.mac", "unicast", "0a:58"}},
		"MAC too long":              {`{` + ok + `"runtimeConfig": {"mac": "02:00:00:00:00:00:00:01"}}`, []string{"runtimeConfig.mac", "6-byte"}},
		"not JSON":                  {`{"podCIDRs": [`, []string{"not a JSON object", "vpcroute"}},
		"a list":                    {`[]`, []string{"not a JSON object"}},
		"a very long value":         {`{` + ok + `"logLevel": "` + strings.Repeat("x", 5000) + `"}`, []string{"logLevel", "..."}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := netconf.Parse([]byte(tt.json))
			if err == nil {
				t.Fatal("no error")
			}
			var field *netconf.FieldError
			if !errors.As(err, &field) {
				t.Errorf("%T holds no FieldError", err)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("one problem takes several lines:\n%s", err)
			}
			if c == nil || c.Bridge == "" || c.StateDir == "" {
				t.Errorf("deleting has nothing to go by: %+v", c)
			}
		})
	}
}

func TestParseReportsEverythingTogether(t *testing.T) {
	c, err := netconf.Parse([]byte(`{"podCIDRs": ["10.244.1.7/24", "10.244.2.0/24"], "mtu": 1, "colour": "red", "stateDir": "/run/x", "logLevel": "x", "size": 1}`))
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%T is not joined of several errors", err)
	}
	var fields []string
	for _, err := range joined.Unwrap() {
		var f *netconf.FieldError
		if errors.As(err, &f) {
			fields = append(fields, f.Field)
		}
	}
	if diff := cmp.Diff([]string{"podCIDRs[0]", "mtu", "logLevel", "colour", "size"}, fields); diff != "" {
		t.Errorf("fields reported, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(prefixes("10.244.2.0/24"), c.PodCIDRs, compare); diff != "" || c.StateDir != "/run/x" {
		t.Errorf("what was right is lost: %+v", c)
	}
}

// What the agent writes is what the plugin reads.
func TestEntryIsParsed(t *testing.T) {
	off := false
	b, err := json.Marshal(netconf.Entry{
		Type: netconf.Type, PodCIDRs: []string{"10.244.1.0/24"}, Bridge: "cbr0", MTU: 1450, HairpinMode: &off, CoolDown: "60s",
		Exclude: []string{"10.244.1.5"}, Routes: []netconf.EntryRoute{{Dst: "192.0.2.0/24"}, {Dst: "198.51.100.0/24", GW: "10.244.1.1"}},
		StateDir: "/run/vpcroute", LogFile: "/var/log/cni.log", LogLevel: "warn", Capabilities: map[string]bool{"ips": true},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := netconf.Parse(b)
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	if c.HairpinMode || c.MTU != 1450 || c.CoolDown != time.Minute || len(c.Routes) != 2 || c.LogLevel != "warn" {
		t.Errorf("%s was read as %+v", b, c)
	}
}
