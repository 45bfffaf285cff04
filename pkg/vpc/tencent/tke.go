package tencent

import (
	"context"

	tchttp "github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/common/http"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// The generated part of the SDK for the container service cannot be had as a
// module on its own; it holds no more than structs like these. Field names are
// the wire's.

const (
	tkeService = "tke"
	tkeVersion = "2018-05-25"
)

type clusterTableRequest struct {
	*tchttp.BaseRequest
	RouteTableName            string
	RouteTableCidrBlock       string
	VpcID                     string `json:"VpcId"`
	IgnoreClusterCidrConflict int
}

type clusterTable struct {
	RouteTableName      string
	RouteTableCidrBlock string
	VpcID               string `json:"VpcId"`
}

type clusterTablesResponse struct {
	tchttp.BaseResponse
	Response struct {
		TotalCount    int
		RouteTableSet []clusterTable
	}
}

type clusterRouteRequest struct {
	*tchttp.BaseRequest
	RouteTableName       string
	DestinationCidrBlock string
	GatewayIP            string `json:"GatewayIp"`
}

type clusterRoutesRequest struct {
	*tchttp.BaseRequest
	RouteTableName string
}

type clusterRoute struct {
	DestinationCidrBlock string
	GatewayIP            string `json:"GatewayIp"`
}

type clusterRoutesResponse struct {
	tchttp.BaseResponse
	Response struct {
		TotalCount int
		RouteSet   []clusterRoute
	}
}

type conflictsRequest struct {
	*tchttp.BaseRequest
	RouteTableCidrBlock string
	VpcID               string `json:"VpcId"`
}

type conflict struct {
	RouteTableType      string // CcsCluster, Vpc, VpcRouteTable or CcsClusterRouteTable
	RouteTableCidrBlock string
	RouteTableName      string
}

type conflictsResponse struct {
	tchttp.BaseResponse
	Response struct {
		RouteTableConflictSet []conflict
	}
}

type emptyRequest struct{ *tchttp.BaseRequest }

// anyResponse is an answer of which only success matters.
type anyResponse struct{ tchttp.BaseResponse }

func (c *client) sendTKE(q tchttp.Request, a tchttp.Response) func(context.Context) error {
	return func(ctx context.Context) error {
		q.SetContext(ctx)
		return c.tke.Send(q, a)
	}
}

// createClusterTable makes a table. The switch that lets its range override the
// VPC's subnets is never used.
func (c *client) createClusterTable(ctx context.Context, t clusterTable) error {
	const action = "CreateClusterRouteTable"
	q := &clusterTableRequest{
		BaseRequest:    newRequest(tkeService, tkeVersion, action),
		RouteTableName: t.RouteTableName, RouteTableCidrBlock: t.RouteTableCidrBlock, VpcID: t.VpcID,
	}
	return c.write(ctx, tkeService, action, c.sendTKE(q, &anyResponse{}))
}

// clusterTables lists every cluster route table of the account in the region.
func (c *client) clusterTables(ctx context.Context) ([]clusterTable, error) {
	const action = "DescribeClusterRouteTables"
	q, a := &emptyRequest{newRequest(tkeService, tkeVersion, action)}, &clusterTablesResponse{}
	if err := c.read(ctx, tkeService, action, c.sendTKE(q, a)); err != nil {
		return nil, err
	}
	return whole(action, a.Response.RouteTableSet, a.Response.TotalCount)
}

// clusterRoutes lists a table; the answer is not paged.
func (c *client) clusterRoutes(ctx context.Context, table string) ([]clusterRoute, error) {
	const action = "DescribeClusterRoutes"
	q, a := &clusterRoutesRequest{newRequest(tkeService, tkeVersion, action), table}, &clusterRoutesResponse{}
	if err := c.read(ctx, tkeService, action, c.sendTKE(q, a)); err != nil {
		return nil, err
	}
	return whole(action, a.Response.RouteSet, a.Response.TotalCount)
}

// whole returns a listed set if it is as long as the answer says. A shorter one
// must not pass for the truth: routes missing from it would look deleted.
func whole[T any](action string, set []T, total int) ([]T, error) {
	if len(set) != total {
		return nil, vpc.Errorf(vpc.Transient, "%s: the answer holds %d entries of %d", action, len(set), total)
	}
	return set, nil
}

func (c *client) createClusterRoute(ctx context.Context, table string, r clusterRoute) error {
	const action = "CreateClusterRoute"
	q := &clusterRouteRequest{newRequest(tkeService, tkeVersion, action), table, r.DestinationCidrBlock, r.GatewayIP}
	return c.write(ctx, tkeService, action, c.sendTKE(q, &anyResponse{}))
}

func (c *client) deleteClusterRoute(ctx context.Context, table string, r clusterRoute) error {
	const action = "DeleteClusterRoute"
	q := &clusterRouteRequest{newRequest(tkeService, tkeVersion, action), table, r.DestinationCidrBlock, r.GatewayIP}
	return c.write(ctx, tkeService, action, c.sendTKE(q, &anyResponse{}))
}

// conflicts lists what overlaps a range in a VPC.
func (c *client) conflicts(ctx context.Context, cidr, vpcID string) ([]conflict, error) {
	const action = "DescribeRouteTableConflicts"
	q, a := &conflictsRequest{newRequest(tkeService, tkeVersion, action), cidr, vpcID}, &conflictsResponse{}
	err := c.read(ctx, tkeService, action, c.sendTKE(q, a))
	return a.Response.RouteTableConflictSet, err
}
