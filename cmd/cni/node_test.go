package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// A node is a namespace with an uplink, prepared as the agent prepares one, and
// a network configuration for the built plugin.
type node struct {
	*sandbox.Namespace
	plugin string
	conf   map[string]any
}

func newNode(t testing.TB, conf map[string]any) *node {
	t.Helper()
	n := &node{Namespace: sandbox.New(t, "node"), plugin: sandbox.Build(t, "./cmd/cni")}
	dir := t.TempDir()
	n.conf = map[string]any{
		"cniVersion": "1.1.0", "name": "pods", "type": "vpcroute",
		"podCIDRs": []string{"10.244.1.0/24", "fd00:10:244:1::/64"},
		"stateDir": filepath.Join(dir, "state"), "logFile": filepath.Join(dir, "cni.log"),
	}
	maps.Copy(n.conf, conf)
	n.Run(t, "sh", "-ec", `
		ip link add uplink type veth peer name vpc
		ip link set vpc up
		ip link set uplink up
		ip addr add 192.168.0.11/24 dev uplink
		ip -6 addr add fd00:192::11/64 dev uplink nodad
		ip route add default via 192.168.0.1
		sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1`)
	return n
}

// A request is one call of the plugin.
type request struct {
	verb, container, netns, ifName, args string
	// conf is laid over the node's configuration; a nil value takes a field out.
	conf map[string]any
	// stdin replaces the configuration.
	stdin string
}

// An answer is what came back.
type answer struct {
	stdout, stderr string
	err            error
	result         *types100.Result
	cniErr         *types.Error
}

func (n *node) call(t testing.TB, r request) answer {
	t.Helper()
	cmd := exec.Command(n.plugin)
	cmd.Env = []string{
		"CNI_COMMAND=" + r.verb, "CNI_CONTAINERID=" + r.container, "CNI_NETNS=" + r.netns,
		"CNI_IFNAME=" + r.ifName, "CNI_ARGS=" + r.args, "CNI_PATH=/opt/cni/bin",
	}
	return n.run(t, cmd, n.stdin(t, r))
}

func (n *node) stdin(t testing.TB, r request) string {
	t.Helper()
	if r.stdin != "" {
		return r.stdin
	}
	conf := maps.Clone(n.conf)
	for field, v := range r.conf {
		if conf[field] = v; v == nil {
			delete(conf, field)
		}
	}
	b, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// run runs the plugin and checks what every answer must be: nothing, or one JSON
// object that is a result or an error.
func (n *node) run(t testing.TB, cmd *exec.Cmd, stdin string) answer {
	t.Helper()
	var a answer
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	a.err = n.Do(cmd.Run)
	a.stdout, a.stderr = stdout.String(), stderr.String()
	if a.stdout == "" {
		return a
	}
	var exit *exec.ExitError
	if errors.As(a.err, &exit) {
		a.cniErr = &types.Error{}
		decodeOne(t, a.stdout, a.cniErr)
		if len(a.cniErr.Error()) >= 300 {
			t.Errorf("an error of %d characters does not fit a pod's event: %v", len(a.cniErr.Error()), a.cniErr)
		}
		return a
	}
	a.result = &types100.Result{}
	decodeOne(t, a.stdout, a.result)
	return a
}

// decodeOne decodes text that must be one JSON object and nothing else.
func decodeOne(t testing.TB, text string, target any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(target); err != nil {
		t.Errorf("standard output is not a JSON object: %v\n%s", err, text)
	}
	if d.More() {
		t.Errorf("standard output has more than one JSON object:\n%s", text)
	}
}

// A pod is a namespace on a node, and the id of its container.
type pod struct {
	*sandbox.Namespace
	node *node
	id   string
}

func (n *node) newPod(t testing.TB) *pod {
	t.Helper()
	ns := sandbox.New(t, "pod")
	return &pod{ns, n, fmt.Sprintf("%s-container", ns.Name)}
}

func (p *pod) request(verb string) request {
	return request{verb: verb, container: p.id, netns: p.Path(), ifName: "eth0"}
}

func (p *pod) add(t testing.TB) answer {
	t.Helper()
	a := p.node.call(t, p.request("ADD"))
	if a.err != nil {
		t.Fatalf("ADD: %v\n%s%s", a.err, a.stdout, a.stderr)
	}
	return a
}

func (p *pod) del(t testing.TB) {
	t.Helper()
	if a := p.node.call(t, p.request("DEL")); a.err != nil || a.stdout != "" {
		t.Fatalf("DEL: %v\n%s%s", a.err, a.stdout, a.stderr)
	}
}
