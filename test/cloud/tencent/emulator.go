// Package tencent emulates the parts of Tencent Cloud's API that route tables
// need: the container service's cluster route tables (tke 2018-05-25), the VPC's
// route tables (vpc 2017-03-12), role credentials (sts 2018-08-13 and the
// machine's metadata service). One server speaks them all. It is for tests and
// for trying the product by hand; nothing of the product may import it.
//
// What each behaviour follows:
//
//   - Wire format (action and version in headers, JSON body, signature
//     TC3-HMAC-SHA256 over content type, host and body, every error with HTTP
//     status 200): source of tencentcloud-sdk-go common v1.3.212, confirmed by
//     running it.
//   - Clock difference of 5 minutes at most, the AuthFailure codes: the vendor's
//     page on common error codes.
//   - Actions, field names and types (offsets and limits are strings), the codes
//     each action may answer: source of tencentcloud-sdk-go, tke and vpc.
//   - The same condition answered under two families (InternalError.X and
//     InvalidParameter.X, or ResourceNotFound.X, FailedOperation.X): the code
//     lists there. When which one comes is not known: Options.TwinCodes.
//   - One range for each node address (GatewayAlreadyAssociatedCidr), no paging
//     and no batches for cluster routes, a single filter GatewayIP: the same.
//   - The answer to deleting a cluster route that is not there: not documented,
//     no code for it is listed: Options.MissingRoute.
//   - Which check comes first when a cluster route is there already: not known;
//     the node address is checked before the range here.
//   - 20 writes and 50 reads a second for cluster routes, 100 a second for
//     CreateRoutes: vendor's pages product/457/33855 to 33859 and 215/16724. The
//     page of CreateClusterRoute was not seen; 20 is taken for it. A bucket's
//     depth is not documented: one second's worth.
//   - RequestLimitExceeded: SDK source; its sub-codes from memory:
//     Options.ThrottleCode.
//   - 50 routes in a table: flannel pull request 1623. 100 ids in EnableRoutes,
//     pages of 20 to 100: field comments in the SDK. 100 routes in the other
//     batches: an assumption, Options.Batch.
//   - Whether a batch with one bad entry is refused whole: not documented:
//     Options.PartialBatches.
//   - A second route for one range: refused with UnsupportedOperation.Ecmp… in
//     the SDK's code lists, accepted for up to 8 machines by vendor's page
//     215/35501: Options.ECMP.
//   - RouteId or RouteItemId as the key: field comments contradict each other:
//     Options.Key.
//   - A VPC route may not overlap a cluster route table of its VPC, nor lie inside
//     the VPC: the codes ConflictWithDockerRoute and VpcCidrConflict. Cluster
//     routes win over VPC routes: vendor's pages 457/38968 and 215/31810.
//   - DescribeRouteTableConflicts lists a default route, and the creation of a
//     cluster table takes none for a conflict: assumptions.
//   - ReplaceRoutes forgets a description that is not sent again: an assumption,
//     the harsher of the two.
//   - A route to a machine that is gone stays listed as it was, and its packets
//     are dropped: neither API has a field for such a state.
//   - Permissions are checked before anything else about a call
//     (UnauthorizedOperation.CamNoAuth): an assumption.
//   - Reads that lag behind writes: not documented; Options.SeeAfter is for
//     tests that want it.
package tencent

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

// The answers to deleting a cluster route that is not there.
const (
	MissingSucceeds = ""      // success
	MissingIsParam  = "Param" // FailedOperation.Param or InternalError.Param
)

// The keys by which routes of a VPC table may be named.
const (
	EitherKey = ""
	NumberKey = "RouteId"
	ItemKey   = "RouteItemId"
)

// Options are the emulator's limits, and its behaviour where sources disagree.
type Options struct {
	// Region is the one region served.
	Region string
	// SecretID and SecretKey are the account's long-term key pair.
	SecretID, SecretKey string
	// RoutesPerTable is how many routes a VPC table holds.
	RoutesPerTable int
	// Batch is the most routes in one call.
	Batch int
	// ClusterTables is how many cluster route tables the account may have.
	ClusterTables int
	// TwinCodes answers the second family of each code.
	TwinCodes bool
	// MissingRoute is MissingSucceeds or MissingIsParam.
	MissingRoute string
	// PartialBatches keeps the entries in front of a bad one.
	PartialBatches bool
	// ECMP accepts a second machine for a range.
	ECMP bool
	// Key is EitherKey, NumberKey or ItemKey.
	Key string
	// ThrottleCode is answered to calls over their rate.
	ThrottleCode string
	// Skew is how far the API's time of day is ahead of the caller's. Signatures
	// and keys are judged by it and not by the frame's Clock, which a test steps.
	Skew time.Duration
	// SeeAfter is how long reads lag behind writes.
	SeeAfter time.Duration
}

// Defaults are the documented limits, one key pair, and the stricter or more
// likely behaviour where sources disagree.
func Defaults() Options {
	return Options{
		Region:         "ap-guangzhou",
		SecretID:       "AKIDvpcroute0example",
		SecretKey:      "vpcroute0example0secret",
		RoutesPerTable: 50,
		Batch:          100,
		ClusterTables:  20,
		ThrottleCode:   "RequestLimitExceeded",
	}
}

// An Emulator is the HTTP handler of the emulated API. Make one with New.
type Emulator struct {
	*cloud.Frame
	options Options

	mu       sync.Mutex
	networks map[string]*network
	tables   tables
	history  cloud.Timeline[tables]
	keys     map[string]key // temporary ones, by secret id
	denied   map[string]bool
	allowed  map[string]bool // nil: every action
	role     string          // the machine's role; "" is none
	serial   int
}

// New returns an emulator of an account that owns nothing, without rate limits.
func New(o Options) *Emulator {
	e := &Emulator{
		Frame:    cloud.New(),
		options:  o,
		networks: map[string]*network{},
		tables:   tables{cluster: map[string]clusterTable{}, vpc: map[string]routeTable{}},
		keys:     map[string]key{},
		denied:   map[string]bool{},
		serial:   1000,
	}
	e.Encode = encode
	e.Throttled = func(operation string, _ time.Duration) cloud.Answer {
		return cloud.Answer{Code: o.ThrottleCode, Message: "the frequency of " + operation + " exceeds the limit"}
	}
	return e
}

// DocumentedRates sets the rate limits that the vendor documents.
func (e *Emulator) DocumentedRates() {
	bucket := func(n int) *cloud.Bucket { return &cloud.Bucket{PerSecond: float64(n), Burst: n} }
	for _, action := range []string{"CreateClusterRoute", "DeleteClusterRoute", "CreateClusterRouteTable", "DeleteClusterRouteTable"} {
		e.Limit(bucket(20), action)
	}
	for _, action := range []string{"DescribeClusterRoutes", "DescribeClusterRouteTables", "DescribeRouteTableConflicts"} {
		e.Limit(bucket(50), action)
	}
	for _, action := range []string{"CreateRoutes", "ReplaceRoutes", "DeleteRoutes", "EnableRoutes", "DisableRoutes", "DescribeRouteTables"} {
		e.Limit(bucket(100), action)
	}
}

// timeOfDay is the time by which signatures and keys are judged.
func (e *Emulator) timeOfDay() time.Time { return time.Now().Add(e.options.Skew) }

// Deny takes permissions away; an action is named without its service.
func (e *Emulator) Deny(actions ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range actions {
		e.denied[a] = true
	}
}

// Only takes all permissions away but these.
func (e *Emulator) Only(actions ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.allowed = map[string]bool{}
	for _, a := range actions {
		e.allowed[a] = true
	}
}

// Allow gives denied permissions back.
func (e *Emulator) Allow(actions ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range actions {
		delete(e.denied, a)
	}
}

// A problem is an error of the API.
type problem struct{ code, message string }

func problemf(code, format string, args ...any) *problem {
	return &problem{code, fmt.Sprintf(format, args...)}
}

// An action is one call of the API.
type action struct {
	service string
	write   bool
	run     func(e *Emulator, body []byte) (any, *problem)
}

var versions = map[string]string{"tke": "2018-05-25", "vpc": "2017-03-12", "sts": "2018-08-13"}

var actions = map[string]action{
	"CreateClusterRouteTable":     {"tke", true, with((*Emulator).createClusterRouteTable)},
	"DescribeClusterRouteTables":  {"tke", false, with((*Emulator).describeClusterRouteTables)},
	"DeleteClusterRouteTable":     {"tke", true, with((*Emulator).deleteClusterRouteTable)},
	"CreateClusterRoute":          {"tke", true, with((*Emulator).createClusterRoute)},
	"DescribeClusterRoutes":       {"tke", false, with((*Emulator).describeClusterRoutes)},
	"DeleteClusterRoute":          {"tke", true, with((*Emulator).deleteClusterRoute)},
	"DescribeRouteTableConflicts": {"tke", false, with((*Emulator).describeRouteTableConflicts)},

	"DescribeRouteTables": {"vpc", false, with((*Emulator).describeRouteTables)},
	"CreateRoutes":        {"vpc", true, with((*Emulator).createRoutes)},
	"ReplaceRoutes":       {"vpc", true, with((*Emulator).replaceRoutes)},
	"DeleteRoutes":        {"vpc", true, with((*Emulator).deleteRoutes)},
	"EnableRoutes":        {"vpc", true, with((*Emulator).enableRoutes)},
	"DisableRoutes":       {"vpc", true, with((*Emulator).disableRoutes)},
	"DescribeVpcLimits":   {"vpc", false, with((*Emulator).describeVpcLimits)},
	"DescribeSubnets":     {"vpc", false, with((*Emulator).describeSubnets)},
	"DescribeVpcs":        {"vpc", false, with((*Emulator).describeVpcs)},

	"AssumeRoleWithWebIdentity": {"sts", false, with((*Emulator).assumeRole)},
}

// with decodes a request as strictly as the API does: an unknown field or a
// number where a string belongs is an error.
func with[Q any](run func(*Emulator, Q) (any, *problem)) func(*Emulator, []byte) (any, *problem) {
	return func(e *Emulator, body []byte) (any, *problem) {
		var q Q
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		if err := d.Decode(&q); err != nil {
			if strings.Contains(err.Error(), "unknown field") {
				return nil, problemf("UnknownParameter", "%v", err)
			}
			return nil, problemf("InvalidParameter", "%v", err)
		}
		return run(e, q)
	}
}

// ServeHTTP answers one call of the API, or one of the metadata service.
func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, metadataPath) {
		e.serveMetadata(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	name := r.Header.Get("X-TC-Action")
	call := cloud.Call{
		Operation: name,
		Write:     actions[name].write,
		Detail:    string(body),
		Client:    r.Header.Get("X-TC-RequestClient"),
	}
	e.Handle(w, r, call, func() cloud.Answer {
		e.mu.Lock()
		defer e.mu.Unlock()
		content, p := e.carryOut(r, name, body)
		if p != nil {
			return cloud.Answer{Code: p.code, Message: p.message}
		}
		return cloud.Answer{Body: content}
	})
}

func (e *Emulator) carryOut(r *http.Request, name string, body []byte) (any, *problem) {
	a, ok := actions[name]
	if !ok {
		return nil, problemf("InvalidAction", "the action %q does not exist", name)
	}
	if v := r.Header.Get("X-TC-Version"); v != versions[a.service] {
		return nil, problemf("NoSuchVersion", "%s has no version %q", a.service, v)
	}
	if region := r.Header.Get("X-TC-Region"); region != e.options.Region {
		return nil, problemf("UnsupportedRegion", "the region %q is not served", region)
	}
	if a.service != "sts" {
		if p := e.authenticate(r, a.service, body); p != nil {
			return nil, p
		}
	}
	if e.denied[name] || e.allowed != nil && a.service != "sts" && !e.allowed[name] {
		return nil, problemf("UnauthorizedOperation.CamNoAuth", "you are not authorized to perform the operation %s:%s", a.service, name)
	}
	return a.run(e, body)
}

// encode spells an answer: HTTP status 200 whatever it is, one JSON object with
// the content, or the error, beside a request id.
func encode(w http.ResponseWriter, r *http.Request, a cloud.Answer) {
	content := map[string]any{}
	if a.Code != "" {
		content["Error"] = map[string]string{"Code": a.Code, "Message": a.Message}
	} else if a.Body != nil {
		raw, err := json.Marshal(a.Body)
		if err == nil {
			err = json.Unmarshal(raw, &content)
		}
		if err != nil {
			panic(fmt.Sprintf("tencent: encode the answer to %s: %v", r.Header.Get("X-TC-Action"), err))
		}
	}
	content["RequestId"] = "4f2c7b1e-0000-4000-8000-000000000001"
	w.Header().Set("Content-Type", "application/json")
	if a.Status != 0 {
		w.WriteHeader(a.Status)
	}
	// A failed write means that the client is gone.
	_ = json.NewEncoder(w).Encode(map[string]any{"Response": content})
}

// code returns the error code of a condition that exists under two families.
func (e *Emulator) code(condition string) string {
	family := "InternalError"
	if e.options.TwinCodes {
		switch {
		case condition == "RouteTableNotFound":
			family = "ResourceNotFound"
		case condition == "ResourceExistAlready":
			family = "ResourceInUse"
		case condition == "VpcCommon":
			family = "FailedOperation"
		case !slices.Contains([]string{"CvmNotFound", "Db", "QuotaMaxRtLimit"}, condition):
			family = "InvalidParameter"
		}
	}
	return family + "." + condition
}
