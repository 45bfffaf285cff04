package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/vpcroute/vpcroute/pkg/routes"
	"github.com/vpcroute/vpcroute/pkg/routes/kube"
	"github.com/vpcroute/vpcroute/pkg/routes/podcidr"
	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/linux"
)

// options are the flags as they were given.
type options struct {
	nodes        string
	vpc          string
	clusterCIDRs []string
	serviceCIDRs []string
	clusterID    string
	ledger       string
	output       string
	dryRun       bool
	maxDeletes   int
	qps          float64
	adopt        bool
	logFormat    string
	logLevel     string
	configFile   string
	kubeconfig   string
	namespace    string
	http         string
	verify       string
	agentPort    int
	loseProof    bool
	allocate     bool
	maskIPv4     int
	maskIPv6     int
	// onCall is to be told, by every cloud, of each call of its API when it has
	// ended, with the API's own name of it. It may be called from many goroutines.
	onCall   func(action string, took time.Duration, err error)
	requests *requests
	flags    *pflag.FlagSet
	linux    linux.Config
	clouds   map[string]cloud
}

func (o *options) bind(f *pflag.FlagSet) {
	o.flags = f
	o.requests = newRequests()
	o.onCall = o.requests.count
	f.StringVar(&o.configFile, "config", "", "`file` with these settings in YAML, for example \"clusterCIDR: [10.244.0.0/16]\"; a flag that is given counts more")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` that leads to the cluster's API; in a pod the service account does")
	f.StringVar(&o.namespace, "namespace", "vpcroute-system", "`namespace` of the Lease that lets one replica write")
	f.StringVar(&o.http, "http", "", "`address` of /metrics, /healthz and /readyz; :9471 in a cluster, none with --nodes")
	f.StringVar(&o.verify, "verify", "", "`proof` that makes a route count: probe (the node's agent answers over it), settle=30s (that time has passed) or off (the cloud has said yes); probe in a cluster, off with --nodes")
	f.IntVar(&o.agentPort, "agent-port", kube.AgentPort, "`port` on which the node agents answer")
	f.BoolVar(&o.loseProof, "unavailable-without-proof", false, "make a node unavailable when a route that was proved stops answering")
	f.BoolVar(&o.allocate, "allocate-node-cidrs", false, "give podCIDRs out of the cluster CIDRs to Nodes that have none; for clusters whose kube-controller-manager does not")
	f.IntVar(&o.maskIPv4, "node-cidr-mask-size-ipv4", defaultMaskIPv4, "`bits` of the IPv4 podCIDRs that are allocated")
	f.IntVar(&o.maskIPv6, "node-cidr-mask-size-ipv6", defaultMaskIPv6, "`bits` of the IPv6 podCIDRs that are allocated")
	f.StringVar(&o.nodes, "nodes", "", "`file` with the Nodes, in YAML or JSON as kubectl prints them; it is watched for changes")
	f.StringVar(&o.vpc, "vpc", "", "`kind` of route table: "+strings.Join(kinds(), ", "))
	f.StringArrayVar(&o.clusterCIDRs, "cluster-cidr", nil, "`range` that the podCIDRs lie in; repeat it for a second family")
	f.StringArrayVar(&o.serviceCIDRs, "service-cidr", nil, "`range` of the cluster's Services, only to be checked against the cluster CIDRs; repeat it for a second family")
	f.StringVar(&o.clusterID, "cluster-id", "default", "`name` of this cluster, by which its routes are marked; each cluster of a route table needs its own")
	f.StringVar(&o.ledger, "ledger", "", "`file` in which routes are recorded before they are made; needed where the cloud cannot mark routes")
	f.StringVarP(&o.output, "output", "o", "table", "`form` of what plan and cleanup print: table or json")
	f.IntVar(&o.maxDeletes, "max-deletes", 0, "most `routes` deleted within five minutes; 0 stands for 20 % of ours, at least those of three nodes; -1 for no limit")
	f.Float64Var(&o.qps, "qps", 0, "most `calls` per second to the cloud; 0 stands for what suits the kind of route table")
	f.BoolVar(&o.adopt, "adopt", false, "count unmarked routes that are already as wanted as ours")
	f.StringVar(&o.logFormat, "log-format", "text", "`form` of the log: text or json")
	f.StringVar(&o.logLevel, "log-level", "info", "least `level` that is logged: debug, info, warn or error")
	f.StringVar(&o.linux.Namespace, "linux-netns", "", "`path` of the network namespace whose routing table is written, for example /run/netns/vpc; this process's own when empty")
	f.IntVar(&o.linux.Table, "linux-table", 0, "`id` of the routing table; 0 stands for the main table, or the VRF's")
	f.StringVar(&o.linux.VRF, "linux-vrf", "", "`device` of the VRF whose routing table is written")
	f.IntVar(&o.linux.Protocol, "linux-protocol", linux.DefaultProtocol, "route protocol `number` that marks our routes, 5 to 255")
	o.clouds = map[string]cloud{}
	for name, option := range clouds {
		o.clouds[name] = option()
		o.clouds[name].bind(f)
	}
}

// settings are the flags as they were meant.
type settings struct {
	nodes  string
	ledger string
	json   bool
	log    logSettings
	config routes.Config

	cluster    bool // Nodes and ledger are Kubernetes objects
	kubeconfig string
	namespace  string
	http       string
	podCIDRs   []podcidr.Range // to be allocated from
	requests   *requests
}

// What a command needs of the flags.
const (
	needNodes = true
	noNodes   = false
)

// settings reads the flags; the error names everything that is wrong.
func (o *options) settings(ctx context.Context, nodes bool) (settings, error) {
	errs := o.readConfig()
	s := settings{
		nodes: o.nodes, ledger: o.ledger, json: o.output == "json",
		cluster: o.inCluster(), kubeconfig: o.kubeconfig, namespace: o.namespace, http: o.http, requests: o.requests,
	}
	switch {
	case o.nodes != "" && o.kubeconfig != "":
		errs = append(errs, errors.New("--nodes and --kubeconfig are both given: the Nodes come from a file or from a cluster"))
	case nodes && o.nodes == "" && !s.cluster:
		errs = append(errs, errors.New("--nodes is missing: name a file with the cluster's Nodes, for example --nodes nodes.yaml, or a --kubeconfig"))
	case s.cluster && o.ledger != "":
		errs = append(errs, errors.New("--ledger is given, but in a cluster the VPCRoutes are the ledger: leave it out"))
	}
	if s.cluster && s.http == "" {
		s.http = ":9471"
	}
	if o.agentPort < 1 || o.agentPort > 65535 {
		errs = append(errs, fmt.Errorf("--agent-port is %d: want 1 to 65535, for example %d", o.agentPort, kube.AgentPort))
	}
	if o.output != "json" && o.output != "table" {
		errs = append(errs, fmt.Errorf("--output is %q: want table or json", o.output))
	}
	if o.clusterID == "" {
		errs = append(errs, errors.New(`--cluster-id is empty: name the cluster, for example --cluster-id prod-1`))
	}
	if o.qps < 0 {
		errs = append(errs, fmt.Errorf("--qps is %v: want a number of calls per second, for example 10", o.qps))
	}
	ranges, rangeErrs := o.ranges()
	errs = append(errs, rangeErrs...)
	var err error
	if s.log, err = o.logging(); err != nil {
		errs = append(errs, err)
	}
	if len(rangeErrs) == 0 {
		if s.podCIDRs, err = o.allocation(ranges, s.cluster); err != nil {
			errs = append(errs, err)
		}
	}
	table, rate, err := o.table(ctx, ranges)
	if err != nil {
		errs = append(errs, err)
	}
	s.config = routes.Config{
		Table:      table,
		Owner:      o.clusterID,
		Ranges:     ranges,
		Adopt:      o.adopt,
		MaxDeletes: o.maxDeletes,
		Rate:       rate,
	}
	if o.qps > 0 {
		s.config.Rate = o.qps
	}
	s.config.ConditionFollowsProof = o.loseProof
	if err := o.verification(&s.config, s.cluster); err != nil {
		errs = append(errs, err)
	}
	return s, errors.Join(errs...)
}

// inCluster is true when Nodes and ledger are Kubernetes objects.
func (o *options) inCluster() bool {
	return o.nodes == "" && (o.kubeconfig != "" || o.ledger == "" && os.Getenv("KUBERNETES_SERVICE_HOST") != "")
}

func (o *options) ranges() ([]netip.Prefix, []error) {
	var ranges []netip.Prefix
	var errs []error
	for _, text := range o.clusterCIDRs {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("--cluster-cidr is %q: want a range, for example 10.244.0.0/16", text))
		case p != p.Masked():
			errs = append(errs, fmt.Errorf("--cluster-cidr is %q, which has host bits set: the range is %s", text, p.Masked()))
		default:
			ranges = append(ranges, p)
		}
	}
	if len(errs) > 0 {
		return ranges, errs
	}
	for _, err := range routes.CheckRanges(ranges) {
		errs = append(errs, fmt.Errorf("--cluster-cidr: %w", err))
	}
	return ranges, append(errs, o.checkServices(ranges)...)
}

// checkServices compares the cluster CIDRs with the Services' ranges.
func (o *options) checkServices(ranges []netip.Prefix) (errs []error) {
	for _, text := range o.serviceCIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--service-cidr is %q: want a range, for example 10.96.0.0/12", text))
		}
		for _, r := range ranges {
			if err == nil && r.Overlaps(p) {
				errs = append(errs, fmt.Errorf("--cluster-cidr %s overlaps --service-cidr %s: traffic to Services would go astray, so give the pods a range of their own", r, p))
			}
		}
	}
	return errs
}

// A cloud is a kind of route table that --vpc names, with its own flags. Each is
// in a file of its own, which a build tag leaves out (-tags no_tencent).
type cloud interface {
	// bind adds the flags.
	bind(f *pflag.FlagSet)
	// open makes the route table, and says how many calls per second suit it.
	open(ctx context.Context, o *options, ranges []netip.Prefix) (vpc.RouteTable, float64, error)
}

// clouds makes the clouds that this program was built with, by name.
var clouds = map[string]func() cloud{}

const onLinux = "linux"

func kinds() []string {
	names := slices.AppendSeq([]string{onLinux}, maps.Keys(clouds))
	slices.Sort(names)
	return names
}

func (o *options) table(ctx context.Context, ranges []netip.Prefix) (vpc.RouteTable, float64, error) {
	if o.vpc == onLinux {
		return linuxTable(o, ranges)
	}
	c, known := o.clouds[o.vpc]
	if !known {
		return nil, 0, fmt.Errorf("--vpc is %q: want one of %s, for example --vpc linux", o.vpc, strings.Join(kinds(), ", "))
	}
	return c.open(ctx, o, ranges)
}

func linuxTable(o *options, ranges []netip.Prefix) (vpc.RouteTable, float64, error) {
	c := o.linux
	c.Owner, c.Ranges = o.clusterID, ranges
	if c.Owner == "" {
		c.Owner = "unnamed" // its absence is reported already
	}
	table, err := linux.New(c)
	if err != nil {
		return nil, 0, fmt.Errorf("--vpc linux: %w", err)
	}
	// The kernel is not an account with an allowance.
	return table, 1000, nil
}
