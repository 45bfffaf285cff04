package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/pkg/node"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// A machine is a namespace with an uplink, and the agent as a process in it.
type machine struct {
	*sandbox.Namespace
	root string
	args []string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{Namespace: sandbox.New(t, "node"), root: t.TempDir()}
	m.Run(t, "ip", "link", "add", "uplink", "type", "veth", "peer", "name", "other")
	m.Run(t, "ip", "link", "set", "uplink", "up")
	m.Run(t, "ip", "link", "set", "other", "up")
	m.Run(t, "ip", "addr", "add", "172.31.0.11/24", "dev", "uplink")
	for _, name := range append(slices.Clone(node.Binaries), node.Loopback) {
		path := filepath.Join(m.root, "source", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("program "+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.args = []string{
		"--source", filepath.Join(m.root, "source"), "--bin-dir", filepath.Join(m.root, "bin"), "--conf-dir", filepath.Join(m.root, "net.d"),
		"--cni-log-file", filepath.Join(m.root, "cni.log"), "--cni-state-dir", filepath.Join(m.root, "state"),
	}
	return m
}

// An agent is the process and what it wrote.
type agent struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	log bytes.Buffer
}

func (a *agent) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.log.Write(b)
}

func (a *agent) said() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.log.String()
}

func (m *machine) start(t *testing.T, args ...string) *agent {
	t.Helper()
	a := &agent{cmd: exec.Command(sandbox.Build(t, "./cmd/node-agent"), append(args, m.args...)...)}
	a.cmd.Stderr = a
	if err := m.Do(a.cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill()
		_ = a.cmd.Wait()
		if t.Failed() {
			t.Logf("the agent said:\n%s", a.said())
		}
	})
	return a
}

// get asks the agent, and returns status and body, or 0 while it cannot be
// reached.
func (m *machine) get(path string) (status int, body string) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (c net.Conn, err error) {
			err = m.Do(func() error { c, err = net.Dial(network, address); return err })
			return c, err
		},
	}}
	r, err := client.Get("http://127.0.0.1:9470" + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(b)
}

// eventually waits for a condition; what names it when it never comes.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func (m *machine) ready() bool { status, _ := m.get("/readyz"); return status == http.StatusOK }

func standalone() []string {
	return []string{"--node-name", "n1", "--node-uid", "u1", "--pod-cidr", "10.244.1.0/24", "--node-ip", "172.31.0.11"}
}

func TestAgentServesWhatItKnows(t *testing.T) {
	m := newMachine(t)
	m.start(t, standalone()...)
	eventually(t, "ready", m.ready)
	_, body := m.get("/whoami")
	var who struct {
		Node, UID, BootID string
		PodCIDRs          []string
	}
	if err := json.Unmarshal([]byte(body), &who); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if who.Node != "n1" || who.UID != "u1" || fmt.Sprint(who.PodCIDRs) != "[10.244.1.0/24]" || len(who.BootID) != 36 {
		t.Errorf("/whoami says %+v", who)
	}
	if _, body := m.get("/facts"); !json.Valid([]byte(body)) || !strings.Contains(body, `"uplink": "uplink"`) {
		t.Errorf("/facts says %s", body)
	}
	if status, body := m.get("/healthz"); status != http.StatusOK {
		t.Errorf("/healthz says %d %s", status, body)
	}
	log := `{"msg":"ADD","milliseconds":4}` + "\n" + `{"msg":"DEL","milliseconds":20,"code":999}` + "\n"
	if err := os.WriteFile(filepath.Join(m.root, "cni.log"), []byte(log), 0o644); err != nil {
		t.Fatal(err)
	}
	m.Run(t, "nft", "flush", "ruleset") // wakes the agent, which reads the log too
	eventually(t, "calls are counted", func() bool {
		_, body := m.get("/metrics")
		return strings.Contains(body, `vpcroute_cni_calls_total{code="0",verb="ADD"} 1`) &&
			strings.Contains(body, `vpcroute_cni_calls_total{code="999",verb="DEL"} 1`) &&
			strings.Contains(body, `vpcroute_node_addresses{family="IPv4",state="usable"} 253`)
	})
}

// TestR038FlushedRulesAreRestoredAtOnce has a period so long that only the
// kernel's notice can have brought them back.
func TestR038FlushedRulesAreRestoredAtOnce(t *testing.T) {
	m := newMachine(t)
	m.start(t, append(standalone(), "--period", "1h")...)
	eventually(t, "ready", m.ready)
	for range 5 {
		m.Run(t, "nft", "flush", "ruleset")
		eventually(t, "rules are back", func() bool {
			out, err := m.Try("nft", "list", "chain", "inet", "vpcroute", "egress")
			return err == nil && strings.Contains(out, "masquerade")
		})
	}
}

// TestStaleConnectionsAreForgotten has a connection of an address that nobody
// has when the agent starts, and of one that is released while it runs.
func TestStaleConnectionsAreForgotten(t *testing.T) {
	m := newMachine(t)
	m.Run(t, "nft", "add table inet tracked; add chain inet tracked in { type filter hook input priority 0; }; add rule inet tracked in ct state established accept")
	track := func() {
		flow := &netlink.ConntrackFlow{
			FamilyType: unix.AF_INET, TimeOut: 1000,
			Forward: netlink.IPTuple{SrcIP: net.IPv4(10, 244, 1, 9).To4(), DstIP: net.IPv4(192, 0, 2, 1).To4(), SrcPort: 1, DstPort: 53, Protocol: unix.IPPROTO_UDP},
			Reverse: netlink.IPTuple{SrcIP: net.IPv4(192, 0, 2, 1).To4(), DstIP: net.IPv4(10, 244, 1, 9).To4(), SrcPort: 53, DstPort: 1, Protocol: unix.IPPROTO_UDP},
		}
		if err := m.Do(func() error { return netlink.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, flow) }); err != nil {
			t.Fatal(err)
		}
	}
	forgotten := func() bool {
		var flows []*netlink.ConntrackFlow
		err := m.Do(func() (err error) {
			flows, err = netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
			return err
		})
		return err == nil && !slices.ContainsFunc(flows, func(f *netlink.ConntrackFlow) bool { return f.Forward.SrcIP.Equal(net.IPv4(10, 244, 1, 9).To4()) })
	}
	track()
	a := m.start(t, standalone()...)
	eventually(t, "what was there before is forgotten", forgotten)
	eventually(t, "it is said", func() bool { return strings.Contains(a.said(), "forgot connections") })
	m.Run(t, "ip", "link", "add", "podx", "type", "veth", "peer", "name", "inside")
	m.Run(t, "ip", "link", "property", "add", "dev", "podx", "altname", "10.244.1.9")
	track()
	m.Run(t, "ip", "link", "delete", "podx")
	eventually(t, "what was released is forgotten", forgotten)
}

// TestR024ForwardingTurnedOffIsRepairedAndSaid does so under a running agent.
func TestR024ForwardingTurnedOffIsRepairedAndSaid(t *testing.T) {
	m := newMachine(t)
	a := m.start(t, append(standalone(), "--period", "1s")...)
	eventually(t, "ready", m.ready)
	m.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=0")
	eventually(t, "forwarding is on again", func() bool { return m.Run(t, "sysctl", "-n", "net.ipv4.ip_forward") == "1" })
	eventually(t, "it is said", func() bool { return strings.Count(a.said(), "net.ipv4.ip_forward is 0") >= 1 })
}

func TestSIGTERMLeavesTheNodeAsItIs(t *testing.T) {
	m := newMachine(t)
	a := m.start(t, standalone()...)
	eventually(t, "ready", m.ready)
	before := m.Run(t, "nft", "list", "ruleset") + m.Run(t, "ip", "-o", "addr", "show", "dev", "cbr0", "scope", "global")
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
	if after := m.Run(t, "nft", "list", "ruleset") + m.Run(t, "ip", "-o", "addr", "show", "dev", "cbr0", "scope", "global"); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if _, err := os.Stat(filepath.Join(m.root, "net.d", node.ConflistName)); err != nil {
		t.Error(err)
	}
}

// exitOf runs the agent's program to its end.
func (m *machine) exitOf(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	out, err := m.Try(sandbox.Build(t, "./cmd/node-agent"), append(args, m.args...)...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		return exit.ExitCode(), out
	}
	return 0, out
}

func TestUninstallSaysWhatIsLeft(t *testing.T) {
	m := newMachine(t)
	a := m.start(t, standalone()...)
	eventually(t, "ready", m.ready)
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = a.cmd.Wait()
	m.Run(t, "ip", "link", "add", "pod0", "master", "cbr0", "type", "veth")
	if code, out := m.exitOf(t, "uninstall"); code != 3 || !strings.Contains(out, "still attached to cbr0") {
		t.Errorf("with a pod: exit code %d, %s", code, out)
	}
	m.Run(t, "ip", "link", "del", "pod0")
	for range 2 {
		if code, out := m.exitOf(t, "uninstall"); code != 0 {
			t.Errorf("without pods: exit code %d, %s", code, out)
		}
	}
	if out := m.Run(t, "nft", "list", "ruleset") + m.Run(t, "ip", "-o", "link"); strings.Contains(out, "vpcroute") || strings.Contains(out, "cbr0") {
		t.Errorf("left behind:\n%s", out)
	}
}

// TestUninstallStaysUntilNothingIsLeft begins while the agent is there, whose
// port it waits for, and goes on when the pods go.
func TestUninstallStaysUntilNothingIsLeft(t *testing.T) {
	m := newMachine(t)
	a := m.start(t, standalone()...)
	eventually(t, "ready", m.ready)
	if code, out := m.exitOf(t, "uninstall", "--stay"); code != 1 || !strings.Contains(out, "address already in use") {
		t.Errorf("beside an agent: exit code %d, %s", code, out)
	}
	if _, err := os.Stat(filepath.Join(m.root, "net.d", node.ConflistName)); err != nil {
		t.Errorf("it removed what the agent keeps: %v", err)
	}
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = a.cmd.Wait()
	m.Run(t, "ip", "link", "add", "pod0", "master", "cbr0", "type", "veth")
	u := m.start(t, "uninstall", "--stay", "--period", "1s")
	eventually(t, "it says what is left", func() bool {
		status, body := m.get("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "still attached to cbr0")
	})
	m.Run(t, "ip", "link", "del", "pod0")
	eventually(t, "nothing is left", m.ready)
	if out := m.Run(t, "nft", "list", "ruleset") + m.Run(t, "ip", "-o", "link"); strings.Contains(out, "vpcroute") || strings.Contains(out, "cbr0") {
		t.Errorf("left behind:\n%s", out)
	}
	if err := u.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := u.cmd.Wait(); err != nil {
		t.Errorf("ended with %v, having said:\n%s", err, u.said())
	}
}

func TestBadFlagsAreNamedTogether(t *testing.T) {
	m := newMachine(t)
	code, out := m.exitOf(t, "--pod-cidr", "10.0.0.1/24", "--node-ip", "x", "--period", "1ms", "--mtu", "7", "--cni-version", "0.1.0", "--masquerade-cidr", "y", "--log-format", "z")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, flag := range []string{"--pod-cidr", "--node-ip", "--node-name", "--period", "--mtu", "--cni-version", "--masquerade-cidr", "--log-format"} {
		if !strings.Contains(out, flag) {
			t.Errorf("%s is not named in:\n%s", flag, out)
		}
	}
	if entries, err := os.ReadDir(m.root); err != nil || len(entries) != 1 {
		t.Errorf("something was done all the same: %v, %v", entries, err)
	}
}
