package tencent

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	vpcapi "github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/vpc/v20170312"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// markPrefix and the cluster id make up the description of our routes. Both are
// compared whole: a longer cluster id with the same beginning is another's.
const markPrefix = "vpcroute/"

// disabledSuffix marks the next hop of an entry that is there but switched off,
// so that it does not pass for the wanted one.
const disabledSuffix = " (disabled)"

const (
	toMachine = "NORMAL_CVM" // the kind of next hop that is a machine's private address
	userRoute = "USER"       // the kind of route that may be changed
)

// routeOf reads an entry of a route table.
func routeOf(table string, e *vpcapi.Route) vpc.Route {
	r := vpc.Route{Table: table}
	r.Destination, r.Text = parseDestination(cmp.Or(value(e.DestinationCidrBlock), value(e.DestinationIpv6CidrBlock)))
	if !r.Destination.IsValid() && r.Text == "" {
		r.Text = "(no destination)"
	}
	if value(e.GatewayType) == toMachine {
		r.NextHop = vpc.NextHop(value(e.GatewayId))
	}
	if value(e.RouteType) != userRoute {
		return r // without a handle: it cannot be changed
	}
	if e.Enabled != nil && !*e.Enabled {
		r.NextHop += disabledSuffix
	}
	if owner, ok := strings.CutPrefix(value(e.RouteDescription), markPrefix); ok {
		r.Owner = owner
	}
	r.ID = fmt.Sprintf("%s/%d", value(e.RouteItemId), value(e.RouteId))
	return r
}

// handleOf names the entry that a listed route stands for, by both of its keys:
// the vendor recommends the item id throughout and demands the number in places.
func handleOf(r vpc.Route) (*vpcapi.Route, error) {
	item, number, ok := strings.Cut(r.ID, "/")
	n, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || item == "" && n == 0 {
		return nil, fmt.Errorf("entry %q is not one that can be changed", r.ID)
	}
	e := &vpcapi.Route{}
	if item != "" {
		e.RouteItemId = &item
	}
	if n != 0 {
		e.RouteId = &n
	}
	return e, nil
}

// entryFor is the entry that a wanted route asks for.
func entryFor(r vpc.Route, owner string) *vpcapi.Route {
	return &vpcapi.Route{
		DestinationCidrBlock: ptr(r.Destination.String()),
		GatewayType:          ptr(toMachine),
		GatewayId:            ptr(string(r.NextHop)),
		RouteDescription:     ptr(markPrefix + owner),
	}
}
