package tencent

import (
	"context"
	"strconv"

	vpcapi "github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/vpc/v20170312"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

const (
	vpcService = "vpc"
	pageSize   = 100 // the most that the API gives at once
	// maxPages ends paging that never ends: far above any account's quota.
	maxPages = 1000
)

func ptr[T any](v T) *T { return &v }

// value is what a pointer of the SDK leads to, and the zero value for nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// pages reads a paged list to its end. A list that changes while it is read
// gives an error, since an entry may have slipped through between two pages.
func pages[T any](action string, fetch func(offset, limit *string) (set []T, total *uint64, err error)) ([]T, error) {
	var all []T
	for range maxPages {
		set, total, err := fetch(ptr(strconv.Itoa(len(all))), ptr(strconv.Itoa(pageSize)))
		if err != nil {
			return nil, err
		}
		all = append(all, set...)
		if len(set) == 0 || uint64(len(all)) >= value(total) {
			return whole(action, all, int(value(total)))
		}
	}
	return nil, vpc.Errorf(vpc.Transient, "%s: no end after %d pages", action, maxPages)
}

func byVPC(id string) []*vpcapi.Filter {
	return []*vpcapi.Filter{{Name: ptr("vpc-id"), Values: []*string{&id}}}
}

// routeTables lists the tables of a VPC, or the named ones.
func (c *client) routeTables(ctx context.Context, vpcID string, ids ...string) ([]*vpcapi.RouteTable, error) {
	const action = "DescribeRouteTables"
	return pages(action, func(offset, limit *string) ([]*vpcapi.RouteTable, *uint64, error) {
		q := vpcapi.NewDescribeRouteTablesRequest()
		q.Offset, q.Limit = offset, limit
		if len(ids) > 0 {
			for _, id := range ids {
				q.RouteTableIds = append(q.RouteTableIds, &id)
			}
		} else {
			q.Filters = byVPC(vpcID)
		}
		var a *vpcapi.DescribeRouteTablesResponse
		err := c.read(ctx, vpcService, action, func(ctx context.Context) (err error) {
			a, err = c.vpc.DescribeRouteTablesWithContext(ctx, q)
			return err
		})
		if err != nil || a.Response == nil {
			return nil, nil, noAnswer(action, err)
		}
		return a.Response.RouteTableSet, a.Response.TotalCount, nil
	})
}

// noAnswer is the error of a call that succeeded without the answer's content.
func noAnswer(action string, err error) error {
	if err != nil {
		return err
	}
	return vpc.Errorf(vpc.Transient, "%s: the answer is empty", action)
}

// subnets lists the subnets of a VPC.
func (c *client) subnets(ctx context.Context, vpcID string) ([]*vpcapi.Subnet, error) {
	const action = "DescribeSubnets"
	return pages(action, func(offset, limit *string) ([]*vpcapi.Subnet, *uint64, error) {
		q := vpcapi.NewDescribeSubnetsRequest()
		q.Offset, q.Limit, q.Filters = offset, limit, byVPC(vpcID)
		var a *vpcapi.DescribeSubnetsResponse
		err := c.read(ctx, vpcService, action, func(ctx context.Context) (err error) {
			a, err = c.vpc.DescribeSubnetsWithContext(ctx, q)
			return err
		})
		if err != nil || a.Response == nil {
			return nil, nil, noAnswer(action, err)
		}
		return a.Response.SubnetSet, a.Response.TotalCount, nil
	})
}

// network reads the ranges of a VPC.
func (c *client) network(ctx context.Context, vpcID string) (*vpcapi.Vpc, error) {
	const action = "DescribeVpcs"
	q := vpcapi.NewDescribeVpcsRequest()
	q.VpcIds = []*string{&vpcID}
	var a *vpcapi.DescribeVpcsResponse
	err := c.read(ctx, vpcService, action, func(ctx context.Context) (err error) {
		a, err = c.vpc.DescribeVpcsWithContext(ctx, q)
		return err
	})
	if err != nil || a.Response == nil || len(a.Response.VpcSet) != 1 {
		return nil, noAnswer(action, err)
	}
	return a.Response.VpcSet[0], nil
}

// maxRoutes reads how many routes a table takes; 0 when the cloud does not tell.
func (c *client) maxRoutes(ctx context.Context) (int, error) {
	const action, limit = "DescribeVpcLimits", "route-table-max-policies"
	q := vpcapi.NewDescribeVpcLimitsRequest()
	q.LimitTypes = []*string{ptr(limit)}
	var a *vpcapi.DescribeVpcLimitsResponse
	err := c.read(ctx, vpcService, action, func(ctx context.Context) (err error) {
		a, err = c.vpc.DescribeVpcLimitsWithContext(ctx, q)
		return err
	})
	if err != nil || a.Response == nil {
		return 0, noAnswer(action, err)
	}
	for _, l := range a.Response.VpcLimitSet {
		if value(l.LimitType) == limit {
			return int(value(l.LimitValue)), nil
		}
	}
	return 0, nil
}

// createRoutes returns the routes that the answer names as made.
func (c *client) createRoutes(ctx context.Context, table string, routes []*vpcapi.Route) (made []*vpcapi.Route, err error) {
	const action = "CreateRoutes"
	q := vpcapi.NewCreateRoutesRequest()
	q.RouteTableId, q.Routes = &table, routes
	err = c.write(ctx, vpcService, action, func(ctx context.Context) error {
		a, err := c.vpc.CreateRoutesWithContext(ctx, q)
		if err == nil && a.Response != nil {
			for _, t := range a.Response.RouteTableSet {
				made = append(made, t.RouteSet...)
			}
		}
		return err
	})
	return made, err
}

// replaceRoutes returns the routes as they are now.
func (c *client) replaceRoutes(ctx context.Context, table string, routes []*vpcapi.Route) (now []*vpcapi.Route, err error) {
	const action = "ReplaceRoutes"
	q := vpcapi.NewReplaceRoutesRequest()
	q.RouteTableId, q.Routes = &table, routes
	err = c.write(ctx, vpcService, action, func(ctx context.Context) error {
		a, err := c.vpc.ReplaceRoutesWithContext(ctx, q)
		if err == nil && a.Response != nil {
			now = a.Response.NewRouteSet
		}
		return err
	})
	return now, err
}

func (c *client) deleteRoutes(ctx context.Context, table string, routes []*vpcapi.Route) error {
	const action = "DeleteRoutes"
	q := vpcapi.NewDeleteRoutesRequest()
	q.RouteTableId, q.Routes = &table, routes
	return c.write(ctx, vpcService, action, func(ctx context.Context) error {
		_, err := c.vpc.DeleteRoutesWithContext(ctx, q)
		return err
	})
}

func (c *client) enableRoutes(ctx context.Context, table string, items []*string) error {
	const action = "EnableRoutes"
	q := vpcapi.NewEnableRoutesRequest()
	q.RouteTableId, q.RouteItemIds = &table, items
	return c.write(ctx, vpcService, action, func(ctx context.Context) error {
		_, err := c.vpc.EnableRoutesWithContext(ctx, q)
		return err
	})
}
