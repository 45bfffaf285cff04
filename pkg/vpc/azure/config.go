package azure

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

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
)

// Limits and defaults of the configuration.
const (
	// DefaultMaxRoutes is how many routes a table holds in most subscriptions
	// since 2026; it was 600 and 400 before (MicrosoftDocs/azure-docs pull requests
	// 128356, 128572, 128759).
	DefaultMaxRoutes = 1000
	// DefaultCallTimeout is the deadline of one call.
	DefaultCallTimeout = 20 * time.Second
	// DefaultWriteTimeout is the deadline of one write with the operation that it
	// starts.
	DefaultWriteTimeout = 5 * time.Minute
	// DefaultPollInterval is how often an operation is asked about when the cloud
	// does not say. The SDK takes nothing under a second.
	DefaultPollInterval = 2 * time.Second
	// DefaultCallsPerSecond suits the documented allowance of the network
	// provider, 1,000 writes in five minutes.
	DefaultCallsPerSecond = 3
)

// Config says which tables to write to and how to reach the API.
type Config struct {
	// SubscriptionID is the subscription of the tables, the virtual network and
	// the machines, for example "00000000-0000-0000-0000-000000000000".
	SubscriptionID string
	// ResourceGroup is the group of the tables that are given by name alone.
	ResourceGroup string
	// Owner is the cluster's id, the owner's mark of its routes.
	Owner string
	// ClusterCIDRs are the ranges of the pods, one of each family at most.
	ClusterCIDRs []netip.Prefix

	// Tables name the tables: "NAME" in ResourceGroup, "GROUP/NAME", or a
	// resource id.
	Tables []string
	// TableTag selects the tables of ResourceGroup with this tag, as "key=value".
	// It excludes Tables.
	TableTag string
	// MaxRoutes is how many routes a table holds; 0 means DefaultMaxRoutes. The
	// API does not tell.
	MaxRoutes int
	// SetForwarding allows to switch on IP forwarding of a node's network
	// interface. An interface of a uniform scale set cannot be written to.
	SetForwarding bool

	// CallTimeout is the deadline of one call; 0 means DefaultCallTimeout.
	CallTimeout time.Duration
	// WriteTimeout is the deadline of one write with the operation that it
	// starts; 0 means DefaultWriteTimeout.
	WriteTimeout time.Duration
	// PollInterval is how often an operation is asked about when the cloud does
	// not say; 0 means DefaultPollInterval.
	PollInterval time.Duration

	// Endpoint is where the API is; the zero value is the public cloud.
	Endpoint Endpoint
	// Credential gives the tokens.
	Credential azcore.TokenCredential
	// Product and Version name the program in every request, cut to 24
	// characters together.
	Product, Version string
}

// An Endpoint is where the API is.
type Endpoint struct {
	// Cloud is the SDK's description of a cloud, for example cloud.AzureChina; the
	// zero value is cloud.AzurePublic.
	Cloud cloud.Configuration
	// URL replaces the URL of the resource manager, for example
	// "https://management.example.com". Plain http is for this machine alone.
	URL string
	// Transport carries the requests; nil means the SDK's own.
	Transport http.RoundTripper
}

// configuration is the cloud in the form of the SDK.
func (e Endpoint) configuration() cloud.Configuration {
	c := e.Cloud
	if len(c.Services) == 0 {
		c = cloud.AzurePublic
	}
	if e.URL == "" {
		return c
	}
	manager := c.Services[cloud.ResourceManager]
	manager.Endpoint = strings.TrimSuffix(e.URL, "/")
	return cloud.Configuration{
		ActiveDirectoryAuthorityHost: c.ActiveDirectoryAuthorityHost,
		Services:                     map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: manager},
	}
}

// plain is true for a URL without TLS.
func (e Endpoint) plain() bool { return strings.HasPrefix(e.URL, "http://") }

func (e Endpoint) validate() error {
	if e.URL == "" {
		return nil
	}
	u, err := url.Parse(e.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf(`endpoint %q: want a URL such as "https://management.example.com"`, e.URL)
	}
	address, err := netip.ParseAddr(u.Hostname())
	if u.Scheme == "http" && (err != nil || !address.IsLoopback()) {
		return fmt.Errorf("endpoint %q: tokens go over plain http to this machine alone, for example http://127.0.0.1:8600", e.URL)
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.MaxRoutes = cmp.Or(c.MaxRoutes, DefaultMaxRoutes)
	c.CallTimeout = cmp.Or(c.CallTimeout, DefaultCallTimeout)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, DefaultWriteTimeout)
	c.PollInterval = cmp.Or(c.PollInterval, DefaultPollInterval)
	c.Product = cmp.Or(c.Product, "vpcroute")
	return c
}

// The rules of Azure's names, and of a subscription's id.
var (
	subscriptionPattern = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	groupPattern        = regexp.MustCompile(`^[\w().-]{0,89}[\w()-]$`)
	tablePattern        = regexp.MustCompile(`^[A-Za-z0-9]([\w.-]{0,78}\w)?$`)
)

// Validate reports everything that is wrong with the configuration, together.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !subscriptionPattern.MatchString(c.SubscriptionID) {
		bad(`subscription %q: want an id such as "00000000-0000-0000-0000-000000000000"`, c.SubscriptionID)
	}
	if !groupPattern.MatchString(c.ResourceGroup) {
		bad(`resource group %q: want a name such as "prod-network"`, c.ResourceGroup)
	}
	if c.Owner == "" {
		bad(`cluster id: missing, for example "prod-1"`)
	}
	if len(c.ClusterCIDRs) == 0 {
		bad("cluster CIDR: missing, for example 10.244.0.0/16")
	}
	for _, p := range c.ClusterCIDRs {
		if !p.IsValid() || p != p.Masked() {
			bad("cluster CIDR %s: not a range, for example 10.244.0.0/16", p)
		}
	}
	if c.Credential == nil {
		bad("credentials: missing")
	}
	if c.MaxRoutes < 0 {
		bad("routes per table %d: want more than 0, for example %d", c.MaxRoutes, DefaultMaxRoutes)
	}
	for name, d := range map[string]time.Duration{"call timeout": c.CallTimeout, "write timeout": c.WriteTimeout, "poll interval": c.PollInterval} {
		if d < 0 {
			bad("%s %s: want more than 0, for example 20s", name, d)
		}
	}
	if err := c.Endpoint.validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, c.validateTables()...)...)
}

func (c Config) validateTables() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	key, value, ok := strings.Cut(c.TableTag, "=")
	switch {
	case len(c.Tables) == 0 && c.TableTag == "":
		bad(`table: missing, for example "prod-routes" (or give a tag)`)
	case len(c.Tables) > 0 && c.TableTag != "":
		bad("table tag %q: tables are named already (%v)", c.TableTag, c.Tables)
	case c.TableTag != "" && (!ok || key == "" || value == ""):
		bad(`table tag %q: want "key=value"`, c.TableTag)
	}
	seen := map[string]bool{}
	for _, text := range c.Tables {
		ref, err := c.parseTable(text)
		if err != nil {
			errs = append(errs, err)
		}
		if folded := strings.ToLower(ref.group + "/" + ref.name); err == nil && seen[folded] {
			bad("table %q: named twice", text)
		} else {
			seen[folded] = true
		}
	}
	return errs
}
