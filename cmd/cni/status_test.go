package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// hidden hides a directory from the plugin, as on a host whose kernel lacks it.
func (n *node) hidden(t testing.TB, r request, dir string) answer {
	t.Helper()
	cmd := exec.Command("unshare", "-m", "sh", "-ec", "mount -t tmpfs none "+dir+"; exec "+n.plugin)
	cmd.Env = append(r.env(), "PATH="+os.Getenv("PATH"))
	return n.run(t, cmd, n.stdin(t, r))
}

// filtersBridges tells whether this machine's kernel has br_netfilter.
func filtersBridges() bool {
	_, err := os.Stat("/proc/sys/net/bridge")
	return err == nil
}

// wantSound checks that STATUS finds nothing to say, or only what this machine's
// kernel really lacks.
func wantSound(t *testing.T, a answer) {
	t.Helper()
	if filtersBridges() {
		if a.err != nil || a.stdout != "" {
			t.Errorf("STATUS: %v %s", a.err, a.stdout)
		}
		return
	}
	wantError(t, a, types.ErrLimitedConnectivity, "br_netfilter")
}

func TestSTATUS(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		conf  map[string]any
		setup string // in the node
		code  uint   // 0 for a sound node
		say   []string
	}{
		"sound":                            {nil, "true", 0, nil},
		"no podCIDR":                       {map[string]any{"podCIDRs": nil}, "true", 50, []string{"podCIDRs"}},
		"unknown field":                    {map[string]any{"colour": "red"}, "true", 50, []string{"colour"}},
		"everything excluded":              {map[string]any{"exclude": []string{"10.244.1.0/24"}}, "true", 50, []string{"excluded"}},
		"state directory a file":           {map[string]any{"stateDir": file}, "true", 50, []string{file}},
		"state directory in a file":        {map[string]any{"stateDir": file + "/state"}, "true", 50, []string{file + "/state"}},
		"bridge's name taken":              {map[string]any{"bridge": "uplink"}, "true", 50, []string{"uplink"}},
		"IPv4 forwarding off":              {nil, "sysctl -qw net.ipv4.ip_forward=0", 51, []string{"IPv4", "net.ipv4.ip_forward=1"}},
		"IPv6 forwarding off":              {nil, "sysctl -qw net.ipv6.conf.all.forwarding=0", 51, []string{"IPv6", "net.ipv6.conf.all.forwarding=1"}},
		"IPv4 forwarding off, IPv6 range":  {map[string]any{"podCIDRs": []string{"fd00::/64"}}, "sysctl -qw net.ipv4.ip_forward=0", 0, nil},
		"IPv6 forwarding off, IPv4 range":  {map[string]any{"podCIDRs": []string{"10.244.1.0/24"}}, "sysctl -qw net.ipv6.conf.all.forwarding=0", 0, nil},
		"IPv6 off for all links":           {nil, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1", 50, []string{"IPv6 is off"}},
		"IPv6 off for all links, not used": {map[string]any{"podCIDRs": []string{"10.244.1.0/24"}}, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1", 0, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, tt.conf)
			n.Run(t, "sh", "-ec", tt.setup)
			a := n.call(t, request{verb: "STATUS", conf: tt.conf})
			if tt.code == 0 {
				wantSound(t, a)
				return
			}
			wantError(t, a, tt.code, tt.say...)
			if strings.Contains(a.cniErr.Error(), "\n") {
				t.Errorf("more than one line: %v", a.cniErr)
			}
		})
	}
}

func TestSTATUSOfAFullRange(t *testing.T) {
	n := newNode(t, onePod)
	p := n.newPod(t)
	wantSound(t, n.call(t, request{verb: "STATUS"}))
	p.add(t)
	wantError(t, n.call(t, request{verb: "STATUS"}), 50, "10.244.1.0/30", "all 1")
	p.del(t)
	wantSound(t, n.call(t, request{verb: "STATUS"}))
}

// A bridge holds 1,023 ports: STATUS says so before ADD fails, and ADD says why.
func TestBridgeWithoutAFreePort(t *testing.T) {
	n := newNode(t, map[string]any{"podCIDRs": []string{"10.244.0.0/16"}})
	n.newPod(t).add(t)
	var batch strings.Builder
	for i := range 1022 {
		fmt.Fprintf(&batch, "link add v%d master cbr0 type veth peer name w%d\n", i, i)
	}
	file := filepath.Join(t.TempDir(), "batch")
	if err := os.WriteFile(file, []byte(batch.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Run(t, "ip", "-batch", file)
	wantError(t, n.call(t, request{verb: "STATUS"}), 50, "cbr0", "1023")
	p := n.newPod(t)
	wantError(t, n.call(t, p.request("ADD")), 104, "cbr0 has 1023")
	if has(t, p.Namespace, "eth0") || len(n.ports(t)) != 1 {
		t.Errorf("left: %v", n.ports(t))
	}
	n.Run(t, "ip", "link", "del", "v7")
	wantSound(t, n.call(t, request{verb: "STATUS"}))
	p.add(t)
}

func TestSTATUSOfAnOldKernel(t *testing.T) {
	n := newNode(t, nil)
	cmd := exec.Command("setarch", "--uname-2.6", n.plugin)
	cmd.Env = append(request{verb: "STATUS"}.env(), "PATH="+os.Getenv("PATH"))
	wantError(t, n.run(t, cmd, n.stdin(t, request{})), 50, "kernel 2.6.", "5.5")
}

// R022: a host booted with ipv6.disable=1.
func TestHostWithoutIPv6_R022(t *testing.T) {
	const ipv6 = "/proc/sys/net/ipv6"
	n := newNode(t, map[string]any{"podCIDRs": []string{"10.244.1.0/24"}})
	p := n.newPod(t)
	a := n.hidden(t, p.request("ADD"), ipv6)
	if a.err != nil {
		t.Fatalf("ADD: %s%s", a.stdout, a.stderr)
	}
	check := p.request("CHECK")
	check.conf = map[string]any{"prevResult": previous(t, a)}
	for _, r := range []request{check, {verb: "STATUS"}, p.request("DEL")} {
		if a := n.hidden(t, r, ipv6); a.err != nil && (r.verb != "STATUS" || filtersBridges()) {
			t.Errorf("%s: %s", r.verb, a.stdout)
		}
	}
	dual := map[string]any{"podCIDRs": []string{"10.244.1.0/24", "fd00::/64"}}
	wantError(t, n.hidden(t, request{verb: "STATUS", conf: dual}, ipv6), 50, "IPv6 is off in the kernel")
	r := p.request("ADD")
	r.conf = dual
	wantError(t, n.hidden(t, r, ipv6), 105, "IPv6 is off")
	if len(n.ports(t)) != 0 {
		t.Errorf("left: %v", n.ports(t))
	}
}

// R024: a host without module br_netfilter.
func TestHostWithoutBridgeNetfilter_R024(t *testing.T) {
	n := newNode(t, nil)
	var a answer
	if filtersBridges() {
		a = n.hidden(t, request{verb: "STATUS"}, "/proc/sys/net/bridge")
	} else {
		a = n.call(t, request{verb: "STATUS"})
	}
	wantError(t, a, types.ErrLimitedConnectivity, "br_netfilter", "modprobe br_netfilter")
}
