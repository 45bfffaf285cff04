package aws

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

// Limits and defaults of the configuration.
const (
	// DefaultWritesPerSecond is how fast the bucket of a mutating action fills,
	// as far as is known; the vendor documents example figures alone.
	DefaultWritesPerSecond = 5
	// DefaultCallTimeout is the deadline of one call.
	DefaultCallTimeout = 20 * time.Second
	// DefaultRoutesPerTable is the quota of routes of one family in a table, since
	// June 2025; it can be raised to 1,000.
	DefaultRoutesPerTable = 500
)

// A Check says what to do about the source and destination check of the nodes'
// network interfaces. While it is on, the cloud drops every packet to a pod.
type Check string

// What to do about the check.
const (
	// SwitchOff switches it off with the first route to an interface, and again
	// when somebody switched it on.
	SwitchOff Check = "switch-off"
	// Report leaves it alone and lets Preflight name it.
	Report Check = "report"
)

// Config says which tables to write to and how to reach the API.
type Config struct {
	// Account is who makes the calls, and its region.
	Account *Account
	// VpcID is the VPC, for example "vpc-0a1b2c3d". It may be left out when Tables
	// are given.
	VpcID string
	// Owner is the cluster's id. Routes cannot be marked with it; it names the
	// cluster in every request. Letters, digits, dots, dashes and underscores.
	Owner string
	// ClusterCIDRs are the ranges of the pods, of either family or both.
	ClusterCIDRs []netip.Prefix

	// Tables are the ids of the tables ("rtb-…").
	Tables []string
	// TableTag selects the tables of the VPC with this tag, as "key=value". With
	// neither Tables nor TableTag they are those that subnets of the VPC use, the
	// main table among them if a subnet has none of its own. That depends on no
	// node, so a cleanup without nodes finds the same tables, and load balancers
	// in subnets without nodes reach pods too.
	TableTag string
	// Check is SwitchOff or Report; empty means SwitchOff.
	Check Check
	// RoutesPerTable is the quota of routes of one family in a table; 0 means
	// DefaultRoutesPerTable. The API for route tables does not tell it.
	RoutesPerTable int

	// WritesPerSecond paces each action that changes something; 0 means
	// DefaultWritesPerSecond.
	WritesPerSecond float64
	// CallTimeout is the deadline of one call; 0 means DefaultCallTimeout.
	CallTimeout time.Duration

	// Endpoint replaces the API's URL, for example "http://127.0.0.1:8080".
	Endpoint string
	// Transport carries the requests; nil means the SDK's own.
	Transport http.RoundTripper
	// Product and Version name the program in every request, with Owner.
	Product, Version string
	// OnCall, if set, is told of every call when it ends. It may be called from
	// several goroutines at once.
	OnCall func(Call)
}

// A Call is one finished call of the API.
type Call struct {
	// Action is the API's name of it, for example "CreateRoute".
	Action string
	// Duration is from the request to the answer.
	Duration time.Duration
	// Err is what came of it, of a class that vpc.ClassOf tells, or nil.
	Err error
}

func (c Config) withDefaults() Config {
	c.Check = cmp.Or(c.Check, SwitchOff)
	c.RoutesPerTable = cmp.Or(c.RoutesPerTable, DefaultRoutesPerTable)
	c.WritesPerSecond = cmp.Or(c.WritesPerSecond, DefaultWritesPerSecond)
	c.CallTimeout = cmp.Or(c.CallTimeout, DefaultCallTimeout)
	c.Product = cmp.Or(c.Product, "vpcroute")
	c.Version = cmp.Or(c.Version, "unknown")
	return c
}

var ownerPattern = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// Validate reports everything that is wrong with the configuration, together.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case c.Account == nil:
		bad("account: missing")
	case c.Account.config.Region == "":
		bad(`region: missing, for example "eu-central-1"`)
	}
	if !ownerPattern.MatchString(c.Owner) {
		bad(`cluster id %q: want letters, digits, dots, dashes and underscores, for example "prod-1"`, c.Owner)
	}
	if len(c.ClusterCIDRs) == 0 {
		bad("cluster CIDR: missing, for example 10.244.0.0/16")
	}
	for _, p := range c.ClusterCIDRs {
		if !p.IsValid() || p != p.Masked() {
			bad("cluster CIDR %s: not a range, for example 10.244.0.0/16", p)
		}
	}
	errs = append(errs, c.validateTables()...)
	if c.Check != SwitchOff && c.Check != Report && c.Check != "" {
		bad("source and destination check %q: want %q or %q", c.Check, SwitchOff, Report)
	}
	if c.RoutesPerTable < 0 {
		bad("routes per table %d: want the quota, for example %d", c.RoutesPerTable, DefaultRoutesPerTable)
	}
	if c.WritesPerSecond < 0 {
		bad("writes per second %v: want more than 0", c.WritesPerSecond)
	}
	if u, err := url.Parse(c.Endpoint); c.Endpoint != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		bad(`endpoint %q: want a URL such as "https://ec2.example.com"`, c.Endpoint)
	}
	return errors.Join(errs...)
}

func (c Config) validateTables() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.VpcID == "" && len(c.Tables) == 0 {
		bad(`VPC id: missing, for example "vpc-0a1b2c3d" (or name the tables)`)
	}
	if len(c.Tables) > 0 && c.TableTag != "" {
		bad("table tag %q: tables are named already (%v)", c.TableTag, c.Tables)
	}
	if key, value, ok := strings.Cut(c.TableTag, "="); c.TableTag != "" && (!ok || key == "" || value == "") {
		bad(`table tag %q: want "key=value"`, c.TableTag)
	}
	for _, id := range c.Tables {
		if !strings.HasPrefix(id, "rtb-") {
			bad(`table %q: want an id such as "rtb-0a1b2c3d"`, id)
		}
	}
	return errs
}
