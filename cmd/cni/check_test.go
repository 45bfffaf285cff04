package main_test

import (
	"strings"
	"testing"
)

// R030: CHECK tells a broken pod (110, naming what differs) from a sound one, in
// every version, whatever else the chain has added, and needs no agent.
func TestCHECK_R030(t *testing.T) {
	for _, version := range []string{"0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, map[string]any{"cniVersion": version, "routes": []any{map[string]any{"dst": "192.0.2.0/24"}}})
			p := n.newPod(t)
			r := p.request("CHECK")
			prev := previous(t, p.add(t))
			prev["interfaces"] = append(prev["interfaces"].([]any), map[string]any{"name": "ifb0", "mac": "02:00:00:00:00:01"})
			r.conf = map[string]any{"prevResult": prev}
			if a := n.call(t, r); a.err != nil || a.stdout != "" {
				t.Errorf("CHECK of a sound pod: %v %s", a.err, a.stdout)
			}
			n.Run(t, "ip", "link", "set", "uplink", "mtu", "9001")
			r.conf["podCIDRs"] = []string{"10.77.0.0/24"}
			if a := n.call(t, r); a.err != nil {
				t.Errorf("CHECK of a sound pod whose node has changed: %s", a.stdout)
			}
			for _, damage := range []struct{ in, script, say string }{
				{"pod", "ip route del 192.0.2.0/24", "pod route 192.0.2.0/24 via 10.244.1.1 is missing"},
				{"pod", "ip -6 addr del fd00:10:244:1::2/64 dev eth0", "fd00:10:244:1::2/64 is missing"},
				{"pod", "ip link set eth0 address 02:00:00:00:00:09", "MAC is 02:00:00:00:00:09"},
				{"node", "ip link set 10.244.1.2 type bridge_slave hairpin off", "hairpin is off, want on"},
				{"node", "ip link set 10.244.1.2 nomaster", "is no port of cbr0"},
				{"node", "ip link del 10.244.1.2", "is missing"},
			} {
				run := p.Namespace
				if damage.in == "node" {
					run = n.Namespace
				}
				run.Run(t, "sh", "-ec", strings.ReplaceAll(damage.script, "set 10.244.1.2", "set "+owner(p).PortName()))
				wantError(t, n.call(t, r), 110, damage.say)
			}
			if err := p.Delete(); err != nil {
				t.Fatal(err)
			}
			wantError(t, n.call(t, r), 110, "missing")
		})
	}
}

// What the runtime hands over may be in another version than the configuration.
func TestCHECKWithAResultOfAnotherVersion(t *testing.T) {
	n := newNode(t, map[string]any{"cniVersion": "0.4.0"})
	p := n.newPod(t)
	r := p.request("CHECK")
	r.conf = map[string]any{"prevResult": previous(t, p.add(t)), "cniVersion": "1.1.0"}
	if a := n.call(t, r); a.err != nil {
		t.Errorf("CHECK: %s", a.stdout)
	}
	r.conf["bridge"] = "uplink"
	wantError(t, n.call(t, r), 110, "bridge uplink is another kind of link")
}
