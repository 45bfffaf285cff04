// Package azure emulates the parts of Azure that route tables need: the resource
// manager's REST API for route tables, network interfaces and virtual networks
// (Microsoft.Network 2025-01-01), long-running operations, and the places where
// tokens come from (the token endpoint, a machine's and an app's managed
// identity). One server speaks them all. It is for tests and for trying the
// product by hand; nothing of the product may import it.
//
// What each behaviour follows:
//
//   - Paths, field names, paging by nextLink, statuses of success: source of
//     azure-sdk-for-go armnetwork v7.2.0. Names in paths have no case.
//   - Creation answers 201, an update 200; the state Updating and the header
//     Azure-AsyncOperation, whose URL answers {"status": …}; etags of the form
//     W/"guid" in header and body; 404 ResourceNotFound and
//     ResourceGroupNotFound: traffic recorded in kubernetes-sigs/cloud-provider-azure
//     (routetableclient/testdata). An update may be done at once as well:
//     Options.Polls and OperationTime.
//   - That an etag changes when an operation ends: an assumption, the harsher one.
//   - 412 PreconditionFailed for an If-Match that does not fit; a write without
//     If-Match overwrites: recorded traffic, and cloud-provider-azure's policy.
//   - 429 RetryableErrorDueToAnotherOperation, as a detail of RetryableError, while
//     another operation on the table is under way: kubernetes/kubernetes issue
//     88151. That it is looked at before the etag: an assumption.
//   - A write replaces the whole table; what it leaves out is gone. Subnets,
//     state, etag and id in it are ignored: fields marked read-only in the SDK.
//   - 1,000 routes in a table: MicrosoftDocs/azure-docs pull requests 128572 and
//     128759. The code for a full table is not known: Options.FullCode.
//   - Two routes for one range are refused (from memory); the code is not known:
//     Options.DuplicateCode.
//   - 1,000 writes and 10,000 reads in five minutes, 429 with Retry-After: the
//     vendor's page on network throttling; the code TooManyRequests from memory.
//   - 401 InvalidAuthenticationToken, 403 AuthorizationFailed and
//     LinkedAuthorizationFailed with their texts: from memory. Permissions are
//     checked before a resource is looked at: an assumption.
//   - Writing an interface needs join/action on its subnet and its security group:
//     the vendor's page on virtual network permissions. Asking about an operation
//     needs Microsoft.Network/locations/operations/read: an assumption.
//   - Interfaces of a uniform scale set are listed through the scale set and
//     cannot be written: the SDK has no call for it.
//   - A route to an address that nothing has stays listed as it is, and its packets
//     are dropped; so are those to an interface without IP forwarding. A table that
//     no subnet uses has no effect: the vendor's page on user-defined routes.
//   - Token endpoint: source of azidentity v1.13.0, confirmed by running it.
package azure

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vpcroute/vpcroute/test/cloud"
)

// The operations in the log of calls.
const (
	GetTable       = "RouteTables.Get"
	ListTables     = "RouteTables.List"
	PutTable       = "RouteTables.Put"
	GetInterface   = "Interfaces.Get"
	ListInterfaces = "Interfaces.List"
	PutInterface   = "Interfaces.Put"
	ListInstances  = "ScaleSetInterfaces.List"
	GetNetwork     = "Networks.Get"
	GetOperation   = "Operations.Get"
	GetToken       = "Token"
)

// Options are the emulator's limits, and its behaviour where sources disagree.
type Options struct {
	// Subscription, Tenant and Location are the one of each that is served.
	Subscription, Tenant, Location string
	// ClientID and ClientSecret are an application of the tenant.
	ClientID, ClientSecret string
	// IdentityHeader is what an app shows to get the token of its managed
	// identity.
	IdentityHeader string
	// RoutesPerTable is how many routes a table holds.
	RoutesPerTable int
	// PageSize is how many entries one page of a list has.
	PageSize int
	// Polls is how many more calls are answered before an operation that a write
	// starts is done, and OperationTime how long it takes. With neither a write is
	// done at once.
	Polls         int
	OperationTime time.Duration
	// RetryAfter is the hint in the answers about operations; 0 is none.
	RetryAfter time.Duration
	// FullCode and DuplicateCode are answered to a table with too many routes and
	// to two routes for one range.
	FullCode, DuplicateCode string
}

// Defaults are the documented limits and one application.
func Defaults() Options {
	return Options{
		Subscription:   "11111111-2222-3333-4444-555555555555",
		Tenant:         "99999999-8888-7777-6666-555555555555",
		Location:       "westeurope",
		ClientID:       "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
		ClientSecret:   "emulated-secret",
		IdentityHeader: "emulated-header",
		RoutesPerTable: 1000,
		PageSize:       100,
		FullCode:       "RouteTableRoutesLimitExceeded",
		DuplicateCode:  "RouteWithSameAddressPrefixExists",
	}
}

// An Emulator is the HTTP handler of the emulated API. Make one with New.
type Emulator struct {
	*cloud.Frame
	options Options

	mu         sync.Mutex
	tables     map[string]*table     // by lower-case id, as all maps of resources
	interfaces map[string]*iface     //
	networks   map[string]*network   //
	operations map[string]*operation // by id
	failures   []cloud.Answer        // of the next operations
	tokens     map[string]time.Time  // their ends
	denied     map[string]bool       // permissions
	allowed    map[string]bool       // nil: every permission
	identity   bool                  // machines have a managed identity
	serial     int
}

// New returns an emulator of a subscription that holds nothing, without rate
// limits.
func New(o Options) *Emulator {
	e := &Emulator{
		Frame:      cloud.New(),
		options:    o,
		tables:     map[string]*table{},
		interfaces: map[string]*iface{},
		networks:   map[string]*network{},
		operations: map[string]*operation{},
		tokens:     map[string]time.Time{},
		denied:     map[string]bool{},
		identity:   true,
	}
	e.Encode = encode
	e.Throttled = func(operation string, wait time.Duration) cloud.Answer {
		a := failure(http.StatusTooManyRequests, "TooManyRequests", "The limit of %s is reached.", operation)
		a.Header = http.Header{"Retry-After": {fmt.Sprint(math.Ceil(wait.Seconds()))}}
		return a
	}
	return e
}

// DocumentedRates sets the rate limits that the vendor documents.
func (e *Emulator) DocumentedRates() {
	e.Limit(&cloud.Bucket{PerSecond: 1000.0 / 300, Burst: 1000}, PutTable, PutInterface)
	e.Limit(&cloud.Bucket{PerSecond: 10000.0 / 300, Burst: 10000}, "*.Get", "*.List")
}

// Deny takes permissions away, for example "Microsoft.Network/routeTables/write".
func (e *Emulator) Deny(permissions ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range permissions {
		e.denied[p] = true
	}
}

// Only takes all permissions away but these.
func (e *Emulator) Only(permissions ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.allowed = map[string]bool{}
	for _, p := range permissions {
		e.allowed[p] = true
	}
}

// FailOperation makes the next operation that a write starts end with an error.
func (e *Emulator) FailOperation(code, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failures = append(e.failures, cloud.Answer{Code: code, Message: message})
}

func failure(status int, code, format string, args ...any) cloud.Answer {
	return cloud.Answer{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// A route of the server.
type target struct {
	operation, permission string
	write                 bool
	run                   func(e *Emulator, q query) cloud.Answer
}

// A query is one call with what its path names.
type query struct {
	*http.Request
	group, name string
	id          string // lower case
	body        []byte
}

var targets = map[string]target{
	"GET microsoft.network/routetables":                                 {ListTables, "Microsoft.Network/routeTables/read", false, (*Emulator).listTables},
	"GET microsoft.network/routetables/*":                               {GetTable, "Microsoft.Network/routeTables/read", false, (*Emulator).getTable},
	"PUT microsoft.network/routetables/*":                               {PutTable, "Microsoft.Network/routeTables/write", true, (*Emulator).putTable},
	"GET microsoft.network/networkinterfaces":                           {ListInterfaces, "Microsoft.Network/networkInterfaces/read", false, (*Emulator).listInterfaces},
	"GET microsoft.network/networkinterfaces/*":                         {GetInterface, "Microsoft.Network/networkInterfaces/read", false, (*Emulator).getInterface},
	"PUT microsoft.network/networkinterfaces/*":                         {PutInterface, "Microsoft.Network/networkInterfaces/write", true, (*Emulator).putInterface},
	"GET microsoft.network/virtualnetworks/*":                           {GetNetwork, "Microsoft.Network/virtualNetworks/read", false, (*Emulator).getNetwork},
	"GET microsoft.network/locations/*/operations/*":                    {GetOperation, "Microsoft.Network/locations/operations/read", false, (*Emulator).getOperation},
	"GET microsoft.compute/virtualmachinescalesets/*/networkinterfaces": {ListInstances, "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read", false, (*Emulator).listInstances},
}

// parse reads a resource manager's path.
func parse(r *http.Request) (q query, subscription string, t target, known bool) {
	parts := strings.Split(strings.Trim(strings.ToLower(r.URL.Path), "/"), "/")
	q = query{Request: r, id: "/" + strings.Join(parts, "/")}
	if len(parts) < 2 || parts[0] != "subscriptions" {
		return q, "", t, false
	}
	subscription, parts = parts[1], parts[2:]
	if len(parts) > 1 && parts[0] == "resourcegroups" {
		q.group, parts = parts[1], parts[2:]
	}
	if len(parts) < 3 || parts[0] != "providers" {
		return q, subscription, t, false
	}
	kind := []string{parts[1]}
	for i, part := range parts[2:] {
		if i%2 == 1 {
			q.name, part = part, "*"
		}
		kind = append(kind, part)
	}
	t, known = targets[r.Method+" "+strings.Join(kind, "/")]
	return q, subscription, t, known
}

// ServeHTTP answers one call of the API, or one for a token.
func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if e.serveTokens(w, r) {
		return
	}
	q, subscription, t, known := parse(r)
	var err error
	if q.body, err = io.ReadAll(r.Body); err != nil {
		return // the client is gone
	}
	call := cloud.Call{Operation: t.operation, Write: t.write, Detail: r.Method + " " + r.URL.Path, Client: r.UserAgent()}
	if !known {
		call.Operation = "Unknown"
	}
	e.Handle(w, r, call, func() cloud.Answer {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.progress()
		switch {
		case !e.authentic(r):
			a := failure(http.StatusUnauthorized, "InvalidAuthenticationToken", "The access token is invalid.")
			a.Header = http.Header{"Www-Authenticate": {`Bearer authorization_uri="https://login.microsoftonline.com/` + e.options.Tenant + `", error="invalid_token"`}}
			return a
		case r.URL.Query().Get("api-version") == "":
			return failure(http.StatusBadRequest, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
		case !known:
			return failure(http.StatusBadRequest, "InvalidResourceType", "The emulator does not know %s %s.", r.Method, r.URL.Path)
		case !strings.EqualFold(subscription, e.options.Subscription):
			return failure(http.StatusNotFound, "SubscriptionNotFound", "The subscription '%s' could not be found.", subscription)
		case !e.may(t.permission):
			return failure(http.StatusForbidden, "AuthorizationFailed", "The client '%s' does not have authorization to perform action '%s' over scope '%s'.", e.options.ClientID, t.permission, r.URL.Path)
		case q.group != "" && !e.hasGroup(q.group):
			return failure(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", q.group)
		}
		return t.run(e, q)
	})
}

func (e *Emulator) may(permission string) bool {
	return !e.denied[permission] && (e.allowed == nil || e.allowed[permission])
}

// encode spells an answer: its content, or one error with details.
func encode(w http.ResponseWriter, r *http.Request, a cloud.Answer) {
	if forToken(r) && a.Body != nil {
		tokenBody(w, a)
		return
	}
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	body := a.Body
	if a.Code != "" {
		content := map[string]any{"code": a.Code, "message": a.Message}
		if body != nil {
			content["details"] = body
		}
		body = map[string]any{"error": content}
		if a.Status == 0 {
			a.Status = statusOf(a.Code)
		}
	}
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	w.WriteHeader(a.Status)
	_ = json.NewEncoder(w).Encode(body)
}

// statusOf is the status that goes with a code, for faults that name none.
func statusOf(code string) int {
	switch {
	case strings.HasPrefix(code, "RetryableError"), code == "TooManyRequests":
		return http.StatusTooManyRequests
	case strings.HasSuffix(code, "AuthorizationFailed"), code == "RequestDisallowedByPolicy":
		return http.StatusForbidden
	case strings.HasSuffix(code, "NotFound"):
		return http.StatusNotFound
	case strings.HasPrefix(code, "PreconditionFailed"):
		return http.StatusPreconditionFailed
	case code == "ScopeLocked":
		return http.StatusConflict
	case code == "InternalServerError":
		return http.StatusInternalServerError
	default:
		return http.StatusBadRequest
	}
}

// page cuts one page out of a list.
func (e *Emulator) page(q query, all []any) cloud.Answer {
	from := 0
	_, _ = fmt.Sscan(q.URL.Query().Get("$skiptoken"), &from)
	from = min(max(from, 0), len(all))
	to := min(from+e.options.PageSize, len(all))
	body := map[string]any{"value": slices.Concat([]any{}, all[from:to])}
	if to < len(all) {
		next, _ := url.Parse(base(q.Request) + q.URL.RequestURI())
		values := next.Query()
		values.Set("$skiptoken", fmt.Sprint(to))
		next.RawQuery = values.Encode()
		body["nextLink"] = next.String()
	}
	return cloud.Answer{Body: body}
}

// base is the scheme and host by which a call reached the emulator.
func base(r *http.Request) string {
	switch {
	case r.URL.Scheme != "":
		return r.URL.Scheme + "://" + r.Host
	case r.TLS != nil:
		return "https://" + r.Host
	default:
		return "http://" + r.Host
	}
}

func (e *Emulator) number() int {
	e.serial++
	return e.serial
}

// alive returns the address when an interface that forwards has it, else the
// zero Addr.
func (e *Emulator) alive(a netip.Addr) netip.Addr {
	for _, n := range e.interfaces {
		if n.forwards() && slices.Contains(n.Addresses, a) {
			return a
		}
	}
	return netip.Addr{}
}
