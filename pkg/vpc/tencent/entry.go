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
func handleOf(r vpc.Route) (item *string, number *uint64) {
	id, digits, _ := strings.Cut(r.ID, "/")
	if id != "" {
		item = &id
	}
	if n, err := strconv.ParseUint(digits, 10, 64); err == nil && n != 0 {
		number = &n
	}
	return item, number
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
