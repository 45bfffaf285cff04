package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/vpcroute/vpcroute/pkg/netconf"
	"github.com/vpcroute/vpcroute/pkg/node"
)

// options are the flags as they were given.
type options struct {
	nodeName      string
	kubeconfig    string
	podCIDRs      []string
	nodeIPs       []string
	nodeUID       string
	clusterCIDRs  []string
	keep          []string
	exceptions    []string
	firewall      string
	acceptForward bool
	listen        string
	period        time.Duration
	logFormat     string
	logFile       string
	stateDir      string
	agent         node.Agent
	uninstalling  bool
}

func (o *options) bind(f *pflag.FlagSet) {
	f.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "`name` of this machine's Node object; the environment's NODE_NAME when empty")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` to reach the API server with; the service account's credentials when empty")
	f.StringArrayVar(&o.podCIDRs, "pod-cidr", nil, "`range` of this node's pods, where there is no API server to tell; repeat it for a second family")
	f.StringArrayVar(&o.nodeIPs, "node-ip", nil, "`address` of this node, with --pod-cidr")
	f.StringVar(&o.nodeUID, "node-uid", "", "`uid` of this node, with --pod-cidr")
	f.StringArrayVar(&o.clusterCIDRs, "cluster-cidr", nil, "`range` of all pods; traffic to it keeps the pod's address; repeat it for a second family")
	f.StringArrayVar(&o.keep, "non-masquerade-cidr", nil, "further `destination` that sees the pod's own address, for example the VPC's range; private and special-use ranges do so already")
	f.StringArrayVar(&o.exceptions, "masquerade-cidr", nil, "`destination` that sees the node's address though it lies in one that does not; the most specific range wins")
	f.StringVar(&o.firewall, "firewall", "auto", "packet `filter` for the masquerade rules: auto (what the host uses), nftables, iptables-legacy, iptables-nft or none")
	f.BoolVar(&o.acceptForward, "accept-forward", false, "have pods' forwarded packets accepted in iptables' FORWARD chain, for hosts whose policy is drop")
	f.StringVar(&o.listen, "listen", ":9470", "`address` to serve on")
	f.DurationVar(&o.period, "period", 30*time.Second, "`time` after which the node is looked at again, from 1s")
	f.StringVar(&o.logFormat, "log-format", "text", "`form` of the log: text or json")
	f.StringVar(&o.logFile, "cni-log-file", netconf.DefaultLogFile, "the plugin's log `file`, from which calls are counted")
	f.StringVar(&o.stateDir, "cni-state-dir", netconf.DefaultStateDir, "the plugin's state `folder`")
	f.StringVar(&o.agent.Installation.Source, "source", "/opt/vpcroute/bin", "`folder` to install the programs from")
	f.StringVar(&o.agent.Installation.BinDir, "bin-dir", "/opt/cni/bin", "`folder` where the runtime looks for plugins")
	f.StringVar(&o.agent.Installation.ConfDir, "conf-dir", "/etc/cni/net.d", "`folder` where the runtime looks for configurations")
	f.BoolVar(&o.agent.Installation.First, "first", false, "name our configuration "+node.ConflistFirstName+", so that it sorts before others")
	f.StringVar(&o.agent.Kernel.Root, "sysctl-dir", "/proc/sys", "`folder` of the kernel's settings; in a container /proc/sys is read-only, and the host's net below it is mounted elsewhere")
	f.StringVar(&o.agent.Bridge, "bridge", netconf.DefaultBridge, "`name` of the pods' bridge")
	f.IntVar(&o.agent.MTU, "mtu", 0, "MTU of pods in `bytes`; 0 stands for that of the uplink")
	f.StringVar(&o.agent.CNIVersion, "cni-version", node.CNIVersions[0], "`version` of the CNI spec for the configuration: "+strings.Join(node.CNIVersions, " or "))
}

// settings are the flags as they were meant.
type settings struct {
	options
	// standalone is the node where no API server tells of it.
	standalone *node.Node
	agent      *node.Agent
	forward    *node.IPTables
	notes      []string
}

// settings reads the flags; the error names everything that is wrong.
func (o *options) settings() (settings, error) {
	s := settings{options: *o, agent: &o.agent}
	podCIDRs, err1 := parsePrefixes("--pod-cidr", o.podCIDRs)
	clusterCIDRs, err2 := parsePrefixes("--cluster-cidr", o.clusterCIDRs)
	keep, err3 := parsePrefixes("--non-masquerade-cidr", o.keep)
	exceptions, err4 := parsePrefixes("--masquerade-cidr", o.exceptions)
	addresses, err5 := parseAddresses("--node-ip", o.nodeIPs)
	s.agent.Keep, s.agent.Exceptions = append(clusterCIDRs, keep...), exceptions
	if len(podCIDRs) > 0 {
		s.standalone = &node.Node{Name: o.nodeName, UID: o.nodeUID, PodCIDRs: podCIDRs, Addresses: addresses}
	}
	err := errors.Join(err1, err2, err3, err4, err5, o.check())
	if err == nil {
		err = s.openFirewall()
	}
	return s, err
}

func (o *options) check() error {
	var errs []error
	if o.nodeName == "" && !o.uninstalling {
		errs = append(errs, errors.New("--node-name is missing: name this machine's Node object, for example --node-name node-1"))
	}
	if len(o.podCIDRs) > 0 && len(o.nodeIPs) == 0 {
		errs = append(errs, errors.New("--node-ip is missing: with --pod-cidr it says which uplink is the node's, for example --node-ip 172.31.0.11"))
	}
	if o.period < time.Second {
		errs = append(errs, fmt.Errorf("--period is %v: want a second or more, for example 30s", o.period))
	}
	if o.logFormat != "text" && o.logFormat != "json" {
		errs = append(errs, fmt.Errorf("--log-format is %q: want text or json", o.logFormat))
	}
	if !slices.Contains(node.CNIVersions, o.agent.CNIVersion) {
		errs = append(errs, fmt.Errorf("--cni-version is %q: want %s", o.agent.CNIVersion, strings.Join(node.CNIVersions, " or ")))
	}
	if o.agent.MTU != 0 && (o.agent.MTU < 1280 || o.agent.MTU > 65535) {
		errs = append(errs, fmt.Errorf("--mtu is %d: want 1280 to 65535, for example 1500, or 0 for that of the uplink", o.agent.MTU))
	}
	return errors.Join(errs...)
}

func parsePrefixes(flag string, texts []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	var errs []error
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s is %q: want a range, for example 10.244.0.0/16", flag, text))
		case p != p.Masked():
			errs = append(errs, fmt.Errorf("%s is %q: it has host bits set, write %s", flag, text, p.Masked()))
		}
		out = append(out, p)
	}
	return out, errors.Join(errs...)
}

func parseAddresses(flag string, texts []string) ([]netip.Addr, error) {
	var out []netip.Addr
	var errs []error
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is %q: want an address, for example 172.31.0.11", flag, text))
		}
		out = append(out, a)
	}
	return out, errors.Join(errs...)
}

// openFirewall chooses the back end and says why.
func (s *settings) openFirewall() error {
	facts, err := node.ReadFilter("/proc/net")
	if err != nil {
		return err
	}
	found, warning := facts.Backend()
	if warning != "" {
		s.notes = append(s.notes, warning)
	}
	if s.acceptForward {
		forward, err := openIPTables(forwardBackend(facts))
		if err != nil {
			return err
		}
		s.forward = forward
	} else if len(facts.Drops) > 0 {
		s.notes = append(s.notes, fmt.Sprintf("forwarded packets are dropped by policy in %s: accept those of %s there, or use --accept-forward where iptables keeps that chain",
			strings.Join(facts.Drops, ", "), s.agent.Bridge))
	}
	backend := node.Backend(s.firewall)
	if s.firewall == "auto" {
		backend = found
	}
	s.notes = append(s.notes, "packet filter: "+string(backend))
	switch backend {
	case "none":
		return nil
	case node.BackendNFTables:
		s.agent.Firewall, err = node.NewNFTables()
	case node.BackendIPTables, node.BackendIPTablesNFT:
		s.agent.Firewall, err = openIPTables(backend)
	default:
		err = fmt.Errorf("--firewall is %q: want auto, nftables, iptables-legacy, iptables-nft or none", s.firewall)
	}
	return err
}

// forwardBackend is the iptables whose FORWARD chain is to accept.
func forwardBackend(f node.FilterFacts) node.Backend {
	if slices.ContainsFunc(f.Drops, func(d string) bool { return strings.HasPrefix(d, string(node.BackendIPTables)) }) {
		return node.BackendIPTables
	}
	return node.BackendIPTablesNFT
}

func openIPTables(b node.Backend) (*node.IPTables, error) {
	v4 := string(b)
	v6 := strings.Replace(v4, "iptables", "ip6tables", 1)
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		v6 = ""
	}
	return node.NewIPTables(v4, v6)
}

// name is what the node is called in messages.
func (s settings) name() string { return cmp.Or(s.nodeName, "this node") }
