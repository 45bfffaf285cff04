package tencent

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// A Mode says which kind of route table is written to.
type Mode string

// The two modes.
const (
	// GlobalRoute is a cluster route table of the container service: one table
	// for the VPC, one IPv4 range, one podCIDR for each node address.
	GlobalRoute Mode = "global-route"
	// VPC is one or more of the VPC's own route tables.
	VPC Mode = "vpc"
)

// Limits and defaults of the configuration.
const (
	// DefaultBatchSize is the most routes in one call of mode VPC. The vendor
	// states 100 for EnableRoutes and nothing for the other calls.
	DefaultBatchSize = 100
	// DefaultWritesPerSecond is the documented rate of the cluster route calls.
	DefaultWritesPerSecond = 20
	// DefaultCallTimeout is the deadline of one call.
	DefaultCallTimeout = 20 * time.Second

	// A description holds 60 characters for sure; the mark takes the rest.
	maxOwner = 60 - len(markPrefix)
	// The container service takes ranges of these lengths for a table.
	shortestTable = 10
	longestTable  = 24
)

// Config says which tables to write to and how to reach the API.
type Config struct {
	// Mode is GlobalRoute or VPC.
	Mode Mode
	// Region is the VPC's region, for example "ap-guangzhou".
	Region string
	// VpcID is the VPC, for example "vpc-f49l6u0z". Mode VPC may leave it out
	// when Tables are given.
	VpcID string
	// Owner is the cluster's id, the owner's mark of its routes: letters, digits,
	// dots, dashes and underscores, at most 51.
	Owner string
	// ClusterCIDRs are the ranges of the pods. Both modes take IPv4 alone;
	// GlobalRoute takes exactly one, and it must be the table's.
	ClusterCIDRs []netip.Prefix

	// Tables names the tables: of GlobalRoute the one cluster route table (Owner
	// when empty), of VPC the ids ("rtb-…").
	Tables []string
	// TableTag selects, in mode VPC, the tables of the VPC with this tag, as
	// "key=value". With neither Tables nor TableTag they are those that subnets
	// of the VPC use, and those that still hold routes of ours. That does not wait
	// for nodes to be seen, and machines in subnets without nodes reach pods too.
	TableTag string
	// CreateTable makes the cluster route table when it is not there.
	CreateTable bool

	// BatchSize is the most routes in one call of mode VPC, 1 to 100; 0 means
	// DefaultBatchSize.
	BatchSize int
	// WritesPerSecond paces the calls that change something; 0 means
	// DefaultWritesPerSecond.
	WritesPerSecond float64
	// CallTimeout is the deadline of one call; 0 means DefaultCallTimeout.
	CallTimeout time.Duration

	// Endpoint is where the API is; the zero value is the public one.
	Endpoint Endpoint
	// Credentials give the keys that sign the calls.
	Credentials Credentials
	// Product and Version name the program in every request, with Owner.
	Product, Version string
	// OnCall, if set, is told of every call when it ends. It may be called from
	// several goroutines at once.
	OnCall func(Call)
}

// An Endpoint is where the API is.
type Endpoint struct {
	// URL replaces the scheme and host of every service, for example
	// "http://127.0.0.1:8080".
	URL string
	// Domain replaces "tencentcloudapi.com" behind the services' names, for
	// example "intl.tencentcloudapi.com".
	Domain string
	// Transport carries the requests; nil means one like http.DefaultTransport.
	Transport http.RoundTripper
}

// A Call is one finished call of the API.
type Call struct {
	// Action is the API's name of it, for example "CreateRoutes".
	Action string
	// Duration is from the request to the answer.
	Duration time.Duration
	// Err is what came of it, of a class that vpc.ClassOf tells, or nil.
	Err error
}

func (c Config) withDefaults() Config {
	c.BatchSize = cmp.Or(c.BatchSize, DefaultBatchSize)
	c.WritesPerSecond = cmp.Or(c.WritesPerSecond, DefaultWritesPerSecond)
	c.CallTimeout = cmp.Or(c.CallTimeout, DefaultCallTimeout)
	c.Product = cmp.Or(c.Product, "vpcroute")
	if c.Mode == GlobalRoute && len(c.Tables) == 0 && c.Owner != "" {
		c.Tables = []string{c.Owner}
	}
	return c
}

var ownerPattern = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// Validate reports everything that is wrong with the configuration, together.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Region == "" {
		bad(`region: missing, for example "ap-guangzhou"`)
	}
	switch {
	case !ownerPattern.MatchString(c.Owner):
		bad(`cluster id %q: want letters, digits, dots, dashes and underscores, for example "prod-1"`, c.Owner)
	case len(c.Owner) > maxOwner:
		bad("cluster id %q: %d characters, at most %d fit into a route's description", c.Owner, len(c.Owner), maxOwner)
	}
	if len(c.ClusterCIDRs) == 0 {
		bad("cluster CIDR: missing, for example 10.244.0.0/16")
	}
	for _, p := range c.ClusterCIDRs {
		switch {
		case !p.IsValid() || p != p.Masked():
			bad("cluster CIDR %s: not a range, for example 10.244.0.0/16", p)
		case !p.Addr().Is4():
			bad("cluster CIDR %s: Tencent Cloud routes only IPv4 to nodes here: leave the IPv6 range out", p)
		}
	}
	if c.Credentials == nil {
		bad("credentials: missing")
	}
	if c.BatchSize < 0 || c.BatchSize > DefaultBatchSize {
		bad("batch size %d: want 1 to %d", c.BatchSize, DefaultBatchSize)
	}
	if c.WritesPerSecond < 0 {
		bad("writes per second %v: want more than 0", c.WritesPerSecond)
	}
	if _, _, err := c.Endpoint.split(); err != nil {
		errs = append(errs, err)
	}
	switch c.Mode {
	case GlobalRoute:
		errs = append(errs, c.validateGlobalRoute()...)
	case VPC:
		errs = append(errs, c.validateVPC()...)
	default:
		bad("mode %q: want %q or %q", c.Mode, GlobalRoute, VPC)
	}
	return errors.Join(errs...)
}

func (c Config) validateGlobalRoute() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.VpcID == "" {
		bad(`VPC id: missing, for example "vpc-f49l6u0z"`)
	}
	if len(c.Tables) > 1 {
		bad("tables %v: a cluster has one cluster route table", c.Tables)
	}
	if c.TableTag != "" {
		bad("table tag %q: cluster route tables have no tags", c.TableTag)
	}
	if len(c.ClusterCIDRs) > 1 {
		bad("cluster CIDRs %v: a cluster route table has one range", c.ClusterCIDRs)
	}
	for _, p := range c.ClusterCIDRs {
		if p.Addr().Is4() && (p.Bits() < shortestTable || p.Bits() > longestTable) {
			bad("cluster CIDR %s: the container service takes /%d to /%d", p, shortestTable, longestTable)
		}
	}
	return errs
}

func (c Config) validateVPC() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.VpcID == "" && len(c.Tables) == 0 {
		bad(`VPC id: missing, for example "vpc-f49l6u0z" (or name the tables)`)
	}
	if len(c.Tables) > 0 && c.TableTag != "" {
		bad("table tag %q: tables are named already (%v)", c.TableTag, c.Tables)
	}
	if key, value, ok := strings.Cut(c.TableTag, "="); c.TableTag != "" && (!ok || key == "" || value == "") {
		bad(`table tag %q: want "key=value"`, c.TableTag)
	}
	for _, id := range c.Tables {
		if !strings.HasPrefix(id, "rtb-") {
			bad(`table %q: want an id such as "rtb-azd4dt1c"`, id)
		}
	}
	if c.CreateTable {
		bad("create table: mode %q makes no tables", VPC)
	}
	return errs
}

// split reads the URL into the scheme and the host that the SDK takes.
func (e Endpoint) split() (scheme, host string, err error) {
	if e.URL == "" {
		return "https", "", nil
	}
	u, err := url.Parse(e.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", "", fmt.Errorf(`endpoint %q: want a URL such as "https://api.example.com"`, e.URL)
	}
	return u.Scheme, u.Host + strings.TrimSuffix(u.Path, "/"), nil
}
