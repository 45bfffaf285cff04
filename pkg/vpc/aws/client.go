package aws

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/time/rate"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// The largest pages: the vendor's reference allows 5 to 100 route tables and 5
// to 1,000 of the others.
const (
	tablePage = 100
	pageSize  = 1000
)

// The actions that change something.
const (
	createRoute     = "CreateRoute"
	replaceRoute    = "ReplaceRoute"
	deleteRoute     = "DeleteRoute"
	modifyInterface = "ModifyNetworkInterfaceAttribute"
)

// A client makes calls: one attempt each, with a deadline, and an answer of a
// known class.
type client struct {
	ec2     *ec2.Client
	pace    map[string]*rate.Limiter // by action, as the API counts
	timeout time.Duration
	onCall  func(Call)
}

func newClient(c Config) *client {
	account := c.Account.config.Copy()
	api := &client{pace: map[string]*rate.Limiter{}, timeout: c.CallTimeout, onCall: c.OnCall}
	for _, action := range []string{createRoute, replaceRoute, deleteRoute, modifyInterface} {
		api.pace[action] = rate.NewLimiter(rate.Limit(c.WritesPerSecond), 1)
	}
	api.ec2 = ec2.NewFromConfig(account, func(o *ec2.Options) {
		o.Retryer = awssdk.NopRetryer{}
		o.Credentials = classed{account.Credentials}
		o.HTTPClient = guard{httpClient(account, c.Transport)}
		if c.Endpoint != "" {
			o.BaseEndpoint = &c.Endpoint
		}
		o.APIOptions = append(o.APIOptions,
			middleware.AddUserAgentKeyValue(c.Product, c.Version),
			middleware.AddUserAgentKeyValue("cluster", c.Owner))
	})
	return api
}

func httpClient(account awssdk.Config, transport http.RoundTripper) ec2.HTTPClient {
	switch {
	case transport != nil:
		return &http.Client{Transport: transport}
	case account.HTTPClient != nil:
		return account.HTTPClient
	default:
		return awshttp.NewBuildableClient()
	}
}

// call makes one call, when its turn has come.
func (c *client) call(ctx context.Context, action string, send func(context.Context) error) error {
	if pace := c.pace[action]; pace != nil {
		if err := pace.Wait(ctx); err != nil {
			return classify(action, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	start := time.Now()
	err := classify(action, send(ctx))
	if c.onCall != nil {
		c.onCall(Call{Action: action, Duration: time.Since(start), Err: err})
	}
	return err
}

func inVPC(id string) []types.Filter {
	return []types.Filter{{Name: ptr("vpc-id"), Values: []string{id}}}
}

// pages collects the pages of a list. A token that comes back again would never
// end.
func pages[T any](read func(token *string) (part []T, next *string, err error)) (all []T, err error) {
	var token *string
	for {
		part, next, err := read(token)
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
		switch {
		case value(next) == "":
			return all, nil
		case value(next) == value(token):
			return nil, vpc.Errorf(vpc.Transient, "the list does not end: page token %q came twice", *next)
		}
		token = next
	}
}

func (c *client) tablesOf(ctx context.Context, vpcID string) ([]types.RouteTable, error) {
	return pages(func(token *string) ([]types.RouteTable, *string, error) {
		return c.describeTables(ctx, &ec2.DescribeRouteTablesInput{Filters: inVPC(vpcID), MaxResults: ptr[int32](tablePage), NextToken: token})
	})
}

func (c *client) tablesByID(ctx context.Context, ids ...string) ([]types.RouteTable, error) {
	tables, _, err := c.describeTables(ctx, &ec2.DescribeRouteTablesInput{RouteTableIds: ids})
	return tables, err
}

func (c *client) describeTables(ctx context.Context, q *ec2.DescribeRouteTablesInput) (tables []types.RouteTable, next *string, err error) {
	err = c.call(ctx, "DescribeRouteTables", func(ctx context.Context) error {
		a, err := c.ec2.DescribeRouteTables(ctx, q)
		if err == nil {
			tables, next = a.RouteTables, a.NextToken
		}
		return err
	})
	return tables, next, err
}

// attachedInterfaces are the network interfaces of a VPC that are attached to
// something.
func (c *client) attachedInterfaces(ctx context.Context, vpcID string) ([]types.NetworkInterface, error) {
	filters := append(inVPC(vpcID), types.Filter{Name: ptr("attachment.status"), Values: []string{"attached"}})
	return pages(func(token *string) (part []types.NetworkInterface, next *string, err error) {
		err = c.call(ctx, "DescribeNetworkInterfaces", func(ctx context.Context) error {
			a, err := c.ec2.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{Filters: filters, MaxResults: ptr[int32](pageSize), NextToken: token})
			if err == nil {
				part, next = a.NetworkInterfaces, a.NextToken
			}
			return err
		})
		return part, next, err
	})
}

func (c *client) subnetsOf(ctx context.Context, vpcID string) ([]types.Subnet, error) {
	return pages(func(token *string) (part []types.Subnet, next *string, err error) {
		err = c.call(ctx, "DescribeSubnets", func(ctx context.Context) error {
			a, err := c.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: inVPC(vpcID), MaxResults: ptr[int32](pageSize), NextToken: token})
			if err == nil {
				part, next = a.Subnets, a.NextToken
			}
			return err
		})
		return part, next, err
	})
}

// network describes the VPC.
func (c *client) network(ctx context.Context, vpcID string) (found types.Vpc, err error) {
	err = c.call(ctx, "DescribeVpcs", func(ctx context.Context) error {
		a, err := c.ec2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{vpcID}})
		if err == nil && len(a.Vpcs) != 1 {
			return vpc.Errorf(vpc.NotFound, "there is no VPC %s", vpcID)
		}
		if err == nil {
			found = a.Vpcs[0]
		}
		return err
	})
	return found, err
}

// destinationOf spells a range for a request: one of the two is nil.
func destinationOf(p netip.Prefix) (v4, v6 *string) {
	if p.Addr().Is4() {
		return ptr(p.String()), nil
	}
	return nil, ptr(p.String())
}

var errNotConfirmed = errors.New("the answer does not confirm the change")

func (c *client) createRoute(ctx context.Context, r vpc.Route, dryRun bool) error {
	q := &ec2.CreateRouteInput{RouteTableId: &r.Table, NetworkInterfaceId: ptr(string(r.NextHop)), DryRun: dry(dryRun)}
	q.DestinationCidrBlock, q.DestinationIpv6CidrBlock = destinationOf(r.Destination)
	return c.call(ctx, createRoute, func(ctx context.Context) error {
		a, err := c.ec2.CreateRoute(ctx, q)
		if err == nil && !value(a.Return) {
			return errNotConfirmed
		}
		return err
	})
}

func (c *client) replaceRoute(ctx context.Context, r vpc.Route, dryRun bool) error {
	q := &ec2.ReplaceRouteInput{RouteTableId: &r.Table, NetworkInterfaceId: ptr(string(r.NextHop)), DryRun: dry(dryRun)}
	q.DestinationCidrBlock, q.DestinationIpv6CidrBlock = destinationOf(r.Destination)
	return c.call(ctx, replaceRoute, func(ctx context.Context) error {
		_, err := c.ec2.ReplaceRoute(ctx, q)
		return err
	})
}

func (c *client) deleteRoute(ctx context.Context, r vpc.Route, dryRun bool) error {
	q := &ec2.DeleteRouteInput{RouteTableId: &r.Table, DryRun: dry(dryRun)}
	q.DestinationCidrBlock, q.DestinationIpv6CidrBlock = destinationOf(r.Destination)
	return c.call(ctx, deleteRoute, func(ctx context.Context) error {
		_, err := c.ec2.DeleteRoute(ctx, q)
		return err
	})
}

// uncheck switches the source and destination check of an interface off.
func (c *client) uncheck(ctx context.Context, id vpc.NextHop, dryRun bool) error {
	q := &ec2.ModifyNetworkInterfaceAttributeInput{
		NetworkInterfaceId: ptr(string(id)), SourceDestCheck: &types.AttributeBooleanValue{Value: ptr(false)}, DryRun: dry(dryRun),
	}
	return c.call(ctx, modifyInterface, func(ctx context.Context) error {
		_, err := c.ec2.ModifyNetworkInterfaceAttribute(ctx, q)
		return err
	})
}

// dry asks whether a call would be allowed, in place of making it.
func dry(on bool) *bool {
	if !on {
		return nil
	}
	return &on
}

// maxAnswer is the most that is read of one answer, in bytes: a page of 100
// tables with 1,000 routes each takes about 30 MiB.
const maxAnswer = 64 << 20

// A guard lets only the API's answers through to the SDK, which takes any
// well-formed page with status 200 for an answer without content: a captive
// portal's would be an empty route table.
type guard struct{ next ec2.HTTPClient }

func (g guard) Do(r *http.Request) (*http.Response, error) {
	response, err := g.next.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	want := "Response"
	if response.StatusCode == http.StatusOK {
		want = middleware.GetOperationName(r.Context()) + "Response"
	}
	if rootOf(body) != want {
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		text := bytes.TrimSpace(body)
		return nil, &pageError{response.StatusCode, time.Duration(seconds) * time.Second, string(text[:min(len(text), 80)])}
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// rootOf is the name of a document's outermost element, "" when it has none.
func rootOf(body []byte) string {
	d := xml.NewDecoder(bytes.NewReader(body))
	for {
		token, err := d.Token()
		if err != nil {
			return ""
		}
		if start, ok := token.(xml.StartElement); ok {
			return start.Name.Local
		}
	}
}
