package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/vpcroute/vpcroute/pkg/bridge"
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
	if err := n.Do(prepare); err != nil {
		t.Fatal(err)
	}
	return n
}

// prepare gives the namespace an uplink and forwarding. It does so without
// starting programs, since some tests need hundreds of nodes.
func prepare() error {
	uplink := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}, PeerName: "vpc"}
	if err := netlink.LinkAdd(uplink); err != nil {
		return err
	}
	vpc, err := netlink.LinkByName("vpc")
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr("192.168.0.11/24")
	return errors.Join(err,
		netlink.LinkSetUp(vpc), netlink.LinkSetUp(uplink), netlink.AddrAdd(uplink, address),
		netlink.RouteAdd(&netlink.Route{Gw: net.IPv4(192, 168, 0, 1)}),
		os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0),
		os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0))
}

// ports returns the altnames of each of a node's ports, by the port's name, and
// those of other links too.
func (n *node) ports(t testing.TB) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	if err := n.Do(func() error {
		links, err := repeated(netlink.LinkList)
		for _, l := range links {
			if a := l.Attrs(); strings.HasPrefix(a.Name, "pod") || len(a.AltNames) > 0 {
				out[a.Name] = a.AltNames
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// has tells whether a namespace has a link of that name or altname.
func has(t testing.TB, ns *sandbox.Namespace, link string) bool {
	t.Helper()
	err := ns.Do(func() error {
		_, err := netlink.LinkByName(link)
		return err
	})
	var notFound netlink.LinkNotFoundError
	if err != nil && !errors.As(err, &notFound) {
		t.Fatal(err)
	}
	return err == nil
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
	cmd.Env = r.env()
	return n.run(t, cmd, n.stdin(t, r))
}

func (r request) env() []string {
	return []string{
		"CNI_COMMAND=" + r.verb, "CNI_CONTAINERID=" + r.container, "CNI_NETNS=" + r.netns,
		"CNI_IFNAME=" + r.ifName, "CNI_ARGS=" + r.args, "CNI_PATH=/opt/cni/bin",
	}
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

func owner(p *pod) bridge.Owner { return bridge.Owner{ContainerID: p.id, IfName: "eth0"} }

// log is what the plugin has logged so far, one line per call.
func (n *node) log(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile(n.conf["logFile"].(string))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// waitClean waits for the kernel to destroy what died with a namespace.
func (n *node) waitClean(t testing.TB, when string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); len(n.ports(t)) > 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: left on the node: %s", when, n.ports(t))
		}
	}
}

// repeated repeats a dump that a change has interrupted.
func repeated[T any](dump func() ([]T, error)) ([]T, error) {
	for {
		all, err := dump()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
}
