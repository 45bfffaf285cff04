package main

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/routes"
)

// Only a route that a table held is said to be gone.
func TestGoneIsLoggedOfRoutesAlone(t *testing.T) {
	dest := netip.MustParsePrefix("10.244.1.0/24")
	for _, c := range []struct {
		situation string
		status    routes.RouteStatus
		logged    bool
	}{
		{"from a table", routes.RouteStatus{Node: "a", Table: "rtb-1", Destination: dest, State: routes.Gone}, true},
		{"its tables are known now", routes.RouteStatus{Node: "a", Destination: dest, State: routes.Gone}, false},
		{"a Node has got its podCIDR", routes.RouteStatus{Node: "a", State: routes.Gone, Reason: routes.NoPodCIDR}, false},
	} {
		t.Run(c.situation, func(t *testing.T) {
			var out bytes.Buffer
			journal{logSettings{}.logger(&out)}.Route(c.status)
			if got := strings.Contains(out.String(), "state=Gone"); got != c.logged {
				t.Errorf("logged %q", &out)
			}
		})
	}
}
