// Package gcp emulates the parts of Google Cloud's Compute Engine API (v1) that
// a network's static routes need: routes, global operations, networks, a
// project's quotas, and the token service. It is for tests and for trying the
// product by hand; nothing of the product may import it.
//
// What each behaviour follows:
//
//   - Paths, methods, field names, page sizes up to 500, the filter's syntax
//     (FIELD eq "REGULAR EXPRESSION" over the whole field, FIELD = VALUE), the
//     error body, warnings of routes and operations: discovery document and
//     source of google.golang.org/api v0.315.0, confirmed by running it. Of
//     filters only one comparison is understood.
//   - An operation that failed is DONE with an error and HTTP status 200; a call
//     that waits returns after 2 minutes at most, and may return at once: the
//     comments there. Options.WaitReturnsEarly.
//   - A name that is taken answers 409 alreadyExists whatever else the route
//     says: kubernetes issue 38618. Names are unique in a project: vendor's page
//     vpc/docs/static-routes.
//   - 403 rateLimitExceeded, quotas of 1,500 a minute for changes, reads, lists
//     and reads of operations, counted apart and filled in at the full minute:
//     vendor's page compute/api-quota. Which of them the waiting call counts
//     against is not said there; reads of operations here.
//   - Too many operations at once answer 403 rateLimitExceeded with the detail
//     CONCURRENT_OPERATIONS_QUOTA_EXCEEDED: vendor's page
//     compute/operations-quota; the number is not public, Options.Concurrent.
//   - A full quota comes with the operation (QUOTA_EXCEEDED, in the enumeration
//     of its errors) or with the call (403 quotaExceeded, from reports of users):
//     Options.QuotaAtOnce. Its default is not known: 250 is taken.
//   - A destination in a subnet's range answers 400 invalid, "hides the address
//     space of the network": reports of users of this API.
//   - Whether an instance that is not there is noticed by the call (404 notFound)
//     or by the operation (RESOURCE_NOT_FOUND) is not documented:
//     Options.MissingInOperation. An address is not looked up.
//   - An instance has to be in the route's project: vendor's page
//     vpc/docs/static-routes. The answer's words are an assumption.
//   - Several routes for one range are taken. The lowest number of priority wins,
//     and equal ones share the packets (ECMP): the same page. Packets of equal
//     ones go to the first of them here.
//   - Subnet routes are listed as routes with nextHopNetwork, peerings' with
//     nextHopPeering, URLs with the host www.googleapis.com: answers quoted in
//     issues of terraform-provider-google.
//   - Routes to machines that are gone, stopped or may not forward stay listed,
//     with warnings: the enumeration of Route.warnings. That the operation which
//     makes a route has the same warnings: the same enumeration is its.
//   - A route that an operation is working on: its name is taken, and deleting it
//     answers 400 resourceNotReady: an assumption.
//   - Permissions: compute.routes.create, .delete, .get, .list,
//     compute.networks.updatePolicy, compute.networks.get, compute.projects.get,
//     compute.globalOperations.get, and compute.instances.use for a route to an
//     instance: from memory of the vendor's reference. They are checked before
//     anything else about a call: an assumption.
//   - Reads that lag behind writes: vendor's page vpc/docs/routes says it of the
//     effect on packets (the frame's EffectDelay). Options.SeeAfter, for lists, is
//     for tests that want it.
//   - Tokens: RFC 7523 as the SDK sends it. A token that is not known or has
//     expired answers 401 authError.
package gcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vpcroute/vpcroute/test/cloud"
)

// Options are the emulator's limits, and its behaviour where sources disagree.
type Options struct {
	// Routes is each project's quota of static routes.
	Routes int
	// PageSize is the most routes in one page.
	PageSize int
	// OperationTime is how long an operation takes.
	OperationTime time.Duration
	// WaitLimit is how long a call that waits for an operation blocks.
	WaitLimit time.Duration
	// WaitReturnsEarly has that call return at once.
	WaitReturnsEarly bool
	// Concurrent is how many operations may be under way; 0 is any number.
	Concurrent int
	// QuotaAtOnce refuses the call when the quota is full, not the operation.
	QuotaAtOnce bool
	// MissingInOperation fails the operation when an instance is not there, not
	// the call.
	MissingInOperation bool
	// SeeAfter is how long lists lag behind writes.
	SeeAfter time.Duration
	// TokenLifetime is how long access tokens hold, by the time of day.
	TokenLifetime time.Duration
}

// Defaults are the documented limits, and the more likely behaviour where
// sources disagree.
func Defaults() Options {
	return Options{Routes: 250, PageSize: 500, WaitLimit: 2 * time.Minute, TokenLifetime: time.Hour}
}

// An Emulator is the HTTP handler of the emulated API. Make one with New.
type Emulator struct {
	*cloud.Frame
	options Options
	mux     *http.ServeMux

	mu         sync.Mutex
	networks   map[string]network // by "PROJECT/NAME"
	machines   map[string]Machine // by path
	routes     map[string]Route   // by "PROJECT/NAME"
	history    cloud.Timeline[map[string]Route]
	operations map[string]*operation
	busy       map[string]bool // routes that an operation works on
	tokens     map[string]time.Time
	denied     map[string]bool
	allowed    map[string]bool // nil: every permission
	serial     int
}

// New returns an emulator without any project, and without rate limits.
func New(o Options) *Emulator {
	e := &Emulator{
		Frame:      cloud.New(),
		options:    o,
		mux:        http.NewServeMux(),
		networks:   map[string]network{},
		machines:   map[string]Machine{},
		routes:     map[string]Route{},
		operations: map[string]*operation{},
		busy:       map[string]bool{},
		tokens:     map[string]time.Time{},
		denied:     map[string]bool{},
		serial:     1000,
	}
	e.Encode = encode
	e.Throttled = func(operation string, _ time.Duration) cloud.Answer {
		return cloud.Answer{Code: "rateLimitExceeded", Message: "Quota exceeded for quota metric of " + operation + " and limit 'per minute'"}
	}
	for _, a := range []action{
		{"networks.get", "GET", "/global/networks/{name}", false, (*Emulator).getNetwork},
		{"routes.list", "GET", "/global/routes", false, (*Emulator).listRoutes},
		{"routes.get", "GET", "/global/routes/{name}", false, (*Emulator).getRoute},
		{"routes.insert", "POST", "/global/routes", true, (*Emulator).insertRoute},
		{"routes.delete", "DELETE", "/global/routes/{name}", true, (*Emulator).deleteRoute},
		{"globalOperations.get", "GET", "/global/operations/{name}", false, (*Emulator).getOperation},
		{"globalOperations.wait", "POST", "/global/operations/{name}/wait", false, (*Emulator).waitForOperation},
		{"projects.get", "GET", "", false, (*Emulator).getProject},
	} {
		e.mux.Handle(a.method+" /compute/v1/projects/{project}"+a.path, e.serve(a))
	}
	e.mux.HandleFunc("POST /token", e.serveToken)
	return e
}

// DocumentedRates sets the rate limits that the vendor documents.
func (e *Emulator) DocumentedRates() {
	for _, group := range [][]string{
		{"routes.insert", "routes.delete"},
		{"networks.get", "routes.get", "projects.get"},
		{"routes.list"},
		{"globalOperations.get", "globalOperations.wait"},
	} {
		e.Limit(&cloud.Window{Calls: 1500, Every: time.Minute}, group...)
	}
}

// Deny takes permissions away, for example "compute.routes.create".
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

// Allow gives denied permissions back.
func (e *Emulator) Allow(permissions ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range permissions {
		delete(e.denied, p)
	}
}

// A problem is an error of the API.
type problem struct {
	reason, message string
	details         []any
}

func problemf(reason, format string, args ...any) *problem {
	return &problem{reason: reason, message: fmt.Sprintf(format, args...)}
}

// A request is a call of the API as an action sees it.
type request struct {
	*http.Request
	project, name string
	body          []byte
}

// An action is one call of the API. It runs under the emulator's lock.
type action struct {
	name, method, path string
	write              bool
	run                func(e *Emulator, r request) (any, *problem)
}

func (e *Emulator) serve(a action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone
		}
		call := cloud.Call{
			Operation: a.name, Write: a.write, Client: r.Header.Get("User-Agent"),
			Detail: strings.TrimSpace(strings.TrimPrefix(r.URL.Path, "/compute/v1/") + " " + r.URL.Query().Get("filter") + string(body)),
		}
		e.Handle(w, r, call, func() cloud.Answer {
			e.mu.Lock()
			defer e.mu.Unlock()
			content, p := e.carryOut(a, request{r, r.PathValue("project"), r.PathValue("name"), body})
			if p != nil {
				return cloud.Answer{Code: p.reason, Message: p.message, Body: p.details}
			}
			return cloud.Answer{Body: content}
		})
	}
}

// ServeHTTP answers one call of the API, or of the token service.
func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.mux.ServeHTTP(w, r) }

func (e *Emulator) carryOut(a action, r request) (any, *problem) {
	if p := e.authenticate(r.Request); p != nil {
		return nil, p
	}
	return a.run(e, r)
}

// need returns a problem when a permission is missing.
func (e *Emulator) need(r request, permissions ...string) *problem {
	for _, p := range permissions {
		if e.denied[p] || e.allowed != nil && !e.allowed[p] {
			return problemf("forbidden", "Required '%s' permission for 'projects/%s'", p, r.project)
		}
	}
	return nil
}

// decode reads a body as strictly as the API does: an unknown field is an error.
func decode(body []byte, into any) *problem {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return problemf("badRequest", "Invalid JSON payload received. %v", err)
	}
	return nil
}

var statuses = map[string]int{
	"alreadyExists":     http.StatusConflict,
	"authError":         http.StatusUnauthorized,
	"backendError":      http.StatusServiceUnavailable,
	"forbidden":         http.StatusForbidden,
	"internalError":     http.StatusInternalServerError,
	"notFound":          http.StatusNotFound,
	"quotaExceeded":     http.StatusForbidden,
	"rateLimitExceeded": http.StatusForbidden,
}

// encode spells an answer: a resource, or an error with status, message, reason
// and, where a.Body holds them, details.
func encode(w http.ResponseWriter, _ *http.Request, a cloud.Answer) {
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	content := a.Body
	if a.Code != "" {
		status := a.Status
		if status == 0 {
			status = statuses[a.Code]
		}
		if status == 0 {
			status = http.StatusBadRequest
		}
		failure := map[string]any{
			"code": status, "message": a.Message,
			"errors": []any{map[string]string{"message": a.Message, "domain": "global", "reason": a.Code}},
		}
		if details, ok := a.Body.([]any); ok && len(details) > 0 {
			failure["details"] = details
		}
		content = map[string]any{"error": failure}
		w.WriteHeader(status)
	}
	// A failed write means that the client is gone.
	_ = json.NewEncoder(w).Encode(content)
}

func (e *Emulator) number() int {
	e.serial++
	return e.serial
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
