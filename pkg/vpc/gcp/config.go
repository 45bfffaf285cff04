package gcp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A NextHopKind says by what a route names the machine it leads to.
type NextHopKind string

// The kinds of next hop.
const (
	// Auto names a machine by its instance where the network's project owns it,
	// and by its address otherwise: in a service project of a shared VPC, or
	// when its Node has no provider ID.
	Auto NextHopKind = "auto"
	// Instance names every machine by its instance; all have to belong to the
	// network's project.
	Instance NextHopKind = "instance"
	// Address names every machine by its internal address.
	Address NextHopKind = "address"
)

// Defaults of the configuration.
const (
	// DefaultWritesPerSecond leaves a fifth of the documented quota of 1,500
	// changes in a minute to others in the project.
	DefaultWritesPerSecond = 20
	// DefaultCallTimeout is the deadline of one call, but for waiting.
	DefaultCallTimeout = 20 * time.Second
	// DefaultOperationTimeout is how long a change is waited for.
	DefaultOperationTimeout = 3 * time.Minute

	// A description holds 2,048 characters; an id that long helps nobody.
	maxOwner = 100
)

// Config says which network's routes to write and how to reach the API.
type Config struct {
	// Project is the id of the project that owns the network: with a shared VPC
	// the host project.
	Project string
	// Network is the name of the VPC network, for example "prod".
	Network string
	// Owner is the cluster's id, the owner's mark of its routes: letters, digits,
	// dots, dashes and underscores, at most 100.
	Owner string
	// ClusterCIDRs are the ranges of the pods, IPv4 or IPv6.
	ClusterCIDRs []netip.Prefix
	// NextHops says how routes name machines; empty means Auto.
	NextHops NextHopKind

	// WritesPerSecond paces the calls that change something; 0 means
	// DefaultWritesPerSecond.
	WritesPerSecond float64
	// CallTimeout is the deadline of one call; 0 means DefaultCallTimeout.
	CallTimeout time.Duration
	// OperationTimeout is how long a change may take after the API accepted it;
	// 0 means DefaultOperationTimeout.
	OperationTimeout time.Duration

	// Endpoint is where the API is; the zero value is the public one.
	Endpoint Endpoint
	// CredentialsFile is a file with credentials in one of Google's JSON forms;
	// empty stands for the Application Default Credentials.
	CredentialsFile string
	// Product and Version name the program in every request, with Owner.
	Product, Version string
	// OnCall, if set, is told of every call when it ends. It may be called from
	// several goroutines at once.
	OnCall func(Call)
}

// A Call is one finished call of the API.
type Call struct {
	// Action is the API's name of it, for example "routes.insert".
	Action string
	// Duration is from the request to the answer.
	Duration time.Duration
	// Err is what came of it, of a class that vpc.ClassOf tells, or nil.
	Err error
}

// An Endpoint is where the API is.
type Endpoint struct {
	// URL replaces scheme and host, for example "http://127.0.0.1:8080".
	URL string
	// Transport carries the requests; nil means one like http.DefaultTransport.
	Transport http.RoundTripper
}

func (c Config) withDefaults() Config {
	c.NextHops = cmp.Or(c.NextHops, Auto)
	c.WritesPerSecond = cmp.Or(c.WritesPerSecond, DefaultWritesPerSecond)
	c.CallTimeout = cmp.Or(c.CallTimeout, DefaultCallTimeout)
	c.OperationTimeout = cmp.Or(c.OperationTimeout, DefaultOperationTimeout)
	c.Product = cmp.Or(c.Product, "vpcroute")
	return c
}

var (
	projectPattern = regexp.MustCompile(`^([a-z0-9.-]+:)?[a-z][a-z0-9-]*[a-z0-9]$`)
	networkPattern = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`) // RFC 1035, as the API asks
	ownerPattern   = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
)

// Validate reports everything that is wrong with the configuration, together.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !projectPattern.MatchString(c.Project) {
		bad(`project %q: want the id of the network's project, for example "shop-prod-1"`, c.Project)
	}
	if !networkPattern.MatchString(c.Network) {
		bad(`network %q: want the name of a VPC network, for example "prod"`, c.Network)
	}
	switch {
	case !ownerPattern.MatchString(c.Owner):
		bad(`cluster id %q: want letters, digits, dots, dashes and underscores, for example "prod-1"`, c.Owner)
	case len(c.Owner) > maxOwner:
		bad("cluster id %q: %d characters, at most %d are taken", c.Owner, len(c.Owner), maxOwner)
	}
	if len(c.ClusterCIDRs) == 0 {
		bad("cluster CIDR: missing, for example 10.244.0.0/16")
	}
	for _, p := range c.ClusterCIDRs {
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
			bad("cluster CIDR %s: not a range, for example 10.244.0.0/16", p)
		}
	}
	if kinds := []NextHopKind{Auto, Instance, Address}; !slices.Contains(kinds, c.NextHops) {
		bad("next hops %q: want one of %v", c.NextHops, kinds)
	}
	if c.WritesPerSecond < 0 {
		bad("writes per second %v: want more than 0", c.WritesPerSecond)
	}
	if c.CallTimeout < 0 || c.OperationTimeout < 0 {
		bad("timeouts %s and %s: want more than 0", c.CallTimeout, c.OperationTimeout)
	}
	if _, err := c.Endpoint.base(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// base is the URL that the API's paths are relative to, and "" for the public
// one.
func (e Endpoint) base() (string, error) {
	if e.URL == "" {
		return "", nil
	}
	u, err := url.Parse(e.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf(`endpoint %q: want a URL such as "https://compute.example.com"`, e.URL)
	}
	return strings.TrimSuffix(e.URL, "/") + "/compute/v1/", nil
}
