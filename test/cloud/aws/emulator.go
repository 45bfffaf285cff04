// Package aws emulates the parts of Amazon EC2's API that route tables need:
// route tables and their routes, network interfaces with their source and
// destination check, subnets and VPCs. It is for tests and for trying the
// product by hand; nothing of the product may import it.
//
// What each behaviour follows:
//
//   - Wire format (form POST, lists as Name.1, Filter.1.Value.1, XML answers with
//     lists of item, errors as Response/Errors/Error): source of aws-sdk-go-v2
//     service/ec2 v1.339.0 (serializers.go, deserializers.go), confirmed by
//     running it. Signature Version 4 over the headers that the request names:
//     source of aws/signer/v4 there.
//   - DryRun answers DryRunOperation or UnauthorizedOperation: field comments in
//     the SDK. That it is looked at before the other parameters: an assumption.
//   - One destination and one target for each call, no batches, no client token;
//     ranges are brought to their canonical form; an instance is a target only
//     while it has one interface: field comments in the SDK. That it answers
//     InvalidInstanceID otherwise: kubernetes issue 92783.
//   - RouteAlreadyExists, InvalidRoute.NotFound, InvalidRouteTableID.NotFound,
//     InvalidParameterValue from ReplaceRoute where there is no route and from the
//     deletion of a local route: moto and terraform-provider-aws. RouteLimitExceeded:
//     gardener-extension-provider-aws pull request 1908.
//   - Whether CreateRoute of exactly what is there is an error: not documented;
//     Options.SameRouteSucceeds.
//   - 500 routes of each family in a table, propagated ones not counted: vendor's
//     page on VPC quotas. That the local routes count: an assumption, the harsher
//     of the two.
//   - States active and blackhole, origins CreateRouteTable, CreateRoute and
//     EnableVgwRoutePropagation, a static and a propagated route for one range
//     beside each other: SDK source and vendor's user guide. A route by
//     interface is listed with its instance too: from memory. Whether a blackhole
//     still names its interface: not documented; Options.BlackholeForgets.
//   - A subnet without a table of its own uses the VPC's main table and is not
//     listed in it: vendor's user guide.
//   - Pages by token; MaxResults 5 to 100 for route tables, 5 to 1,000 for the
//     others, not together with ids: vendor's reference pages and the SDK's field
//     comments.
//   - Rates as token buckets, one for each action and region, 100 deep and 20 a
//     second for Describe actions: vendor's page on throttling, where these are
//     an example. 50 deep and 5 a second for the others: from memory.
//     RequestLimitExceeded comes with HTTP status 503: vendor's reference.
//   - Reads that lag behind writes: vendor's page on eventual consistency,
//     Options.SeeAfter.
//   - Source and destination check: an interface drops packets that are neither
//     from nor to it while the check is on, so routes to it carry nothing:
//     vendor's user guide.
//   - A terminated instance takes its interfaces along: deletion on termination is
//     the default for the first one. Routes to interfaces of a stopped, detached
//     or vanished instance are blackholes: vendor's user guide.
//   - Permissions are checked before the parameters: an assumption.
package aws

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/vpcroute/vpcroute/test/cloud"
)

// Options are the emulator's limits, and its behaviour where sources disagree.
type Options struct {
	// Region is the one region served.
	Region string
	// AccessKeyID and SecretAccessKey are the account's key pair; Token goes with
	// it when not empty.
	AccessKeyID, SecretAccessKey, Token string
	// RoutesPerTable is how many routes of each family a table holds.
	RoutesPerTable int
	// SameRouteSucceeds takes CreateRoute of exactly what is there.
	SameRouteSucceeds bool
	// BlackholeForgets lists a blackhole without its interface once that is gone.
	BlackholeForgets bool
	// Skew is how far the API's time of day is ahead of the caller's. Signatures
	// are judged by it and not by the frame's Clock, which a test steps.
	Skew time.Duration
	// SeeAfter is how long reads lag behind writes.
	SeeAfter time.Duration
}

// Defaults are the documented limits, one key pair, and the stricter or more
// likely behaviour where sources disagree.
func Defaults() Options {
	return Options{
		Region:          "eu-central-1",
		AccessKeyID:     "AKIAVPCROUTE0EXAMPLE",
		SecretAccessKey: "vpcroute0example0secret",
		RoutesPerTable:  500,
	}
}

// An Emulator is the HTTP handler of the emulated API. Make one with New.
type Emulator struct {
	*cloud.Frame
	options Options

	mu       sync.Mutex
	networks map[string]*network
	state    state
	history  cloud.Timeline[state]
	denied   map[string]bool // "Action" or "Action:table"
	allowed  map[string]bool // nil: every action
}

// New returns an emulator of an account that owns nothing, without rate limits.
func New(o Options) *Emulator {
	e := &Emulator{
		Frame:    cloud.New(),
		options:  o,
		networks: map[string]*network{},
		state:    state{tables: map[string]table{}, interfaces: map[string]Interface{}, stopped: map[string]bool{}},
		denied:   map[string]bool{},
	}
	e.Encode = encode
	e.Throttled = func(string, time.Duration) cloud.Answer {
		return cloud.Answer{Code: "RequestLimitExceeded", Message: "Request limit exceeded."}
	}
	return e
}

// DocumentedRates sets a rate limit for every action.
func (e *Emulator) DocumentedRates() {
	for name, a := range actions {
		if a.write {
			e.Limit(&cloud.Bucket{PerSecond: 5, Burst: 50}, name)
		} else {
			e.Limit(&cloud.Bucket{PerSecond: 20, Burst: 100}, name)
		}
	}
}

// Deny takes permissions away: "CreateRoute", or for one table
// "CreateRoute:rtb-1".
func (e *Emulator) Deny(permissions ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range permissions {
		e.denied[p] = true
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

// Only takes all permissions away but these actions.
func (e *Emulator) Only(actions ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.allowed = map[string]bool{}
	for _, a := range actions {
		e.allowed[a] = true
	}
}

// A problem is an error of the API.
type problem struct{ code, message string }

func problemf(code, format string, args ...any) *problem {
	return &problem{code, fmt.Sprintf(format, args...)}
}

// An action is one call of the API.
type action struct {
	write bool
	// known are the parameters besides those that every action has; "X" stands
	// for the list X.1, X.2 … too.
	known []string
	run   func(e *Emulator, q parameters) (any, *problem)
}

const apiVersion = "2016-11-15"

var paged = []string{"MaxResults", "NextToken", "Filter"}

var actions = map[string]action{
	"DescribeRouteTables":       {false, append(paged[:3:3], "RouteTableId"), (*Emulator).describeRouteTables},
	"DescribeNetworkInterfaces": {false, append(paged[:3:3], "NetworkInterfaceId"), (*Emulator).describeNetworkInterfaces},
	"DescribeSubnets":           {false, append(paged[:3:3], "SubnetId"), (*Emulator).describeSubnets},
	"DescribeVpcs":              {false, append(paged[:3:3], "VpcId"), (*Emulator).describeVpcs},

	"CreateRoute":                     {true, routeParameters, (*Emulator).createRoute},
	"ReplaceRoute":                    {true, routeParameters, (*Emulator).replaceRoute},
	"DeleteRoute":                     {true, []string{"RouteTableId", "DestinationCidrBlock", "DestinationIpv6CidrBlock"}, (*Emulator).deleteRoute},
	"ModifyNetworkInterfaceAttribute": {true, []string{"NetworkInterfaceId", "SourceDestCheck.Value"}, (*Emulator).modifyNetworkInterface},
}

// ServeHTTP answers one call of the API.
func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	r.Form, _ = url.ParseQuery(string(body))
	q := parameters(r.Form)
	name := q.get("Action")
	call := cloud.Call{
		Operation: name,
		Write:     actions[name].write && q.get("DryRun") != "true",
		Detail:    q.String(),
		Client:    r.Header.Get("User-Agent"),
	}
	e.Handle(w, r, call, func() cloud.Answer {
		e.mu.Lock()
		defer e.mu.Unlock()
		content, p := e.carryOut(r, name, q, body)
		if p != nil {
			return cloud.Answer{Code: p.code, Message: p.message}
		}
		return cloud.Answer{Body: content}
	})
}

func (e *Emulator) carryOut(r *http.Request, name string, q parameters, body []byte) (any, *problem) {
	if p := e.authenticate(r, body); p != nil {
		return nil, p
	}
	a, ok := actions[name]
	switch {
	case !ok:
		return nil, problemf("InvalidAction", "The action %s is not valid for this web service.", name)
	case q.get("Version") != apiVersion:
		return nil, problemf("InvalidAction", "The version %q is not known.", q.get("Version"))
	}
	if p := q.check(a.known); p != nil {
		return nil, p
	}
	if e.denied[name] || e.denied[name+":"+q.get("RouteTableId")] || e.allowed != nil && !e.allowed[name] {
		return nil, problemf("UnauthorizedOperation", "You are not authorized to perform this operation. User: arn:aws:iam::111122223333:user/x is not authorized to perform: ec2:%s. Encoded authorization failure message: %0900d", name, 0)
	}
	if q.get("DryRun") == "true" {
		return nil, problemf("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
	}
	return a.run(e, q)
}

// timeOfDay is the time by which signatures are judged.
func (e *Emulator) timeOfDay() time.Time { return time.Now().Add(e.options.Skew) }

// page cuts one page out of a list. A token names the place where the next page
// begins.
func page[T any](q parameters, all []T, largest int) (part []T, next string, p *problem) {
	from, size := 0, len(all)
	if text := q.get("NextToken"); text != "" {
		if _, err := fmt.Sscanf(text, "token-%d", &from); err != nil || from > len(all) {
			return nil, "", problemf("InvalidParameterValue", "NextToken %q is not valid", text)
		}
	}
	if text := q.get("MaxResults"); text != "" {
		if _, err := fmt.Sscan(text, &size); err != nil || size < 5 || size > largest {
			return nil, "", problemf("InvalidParameterValue", "Value ( %s ) for parameter maxResults is invalid. Expecting a value between 5 and %d.", text, largest)
		}
	}
	end := min(from+size, len(all))
	if end < len(all) {
		next = fmt.Sprintf("token-%d", end)
	}
	return slices.Clone(all[from:end]), next, nil
}
