package azure_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/azure"
	emulated "github.com/vpcroute/vpcroute/test/cloud/azure"
)

func TestValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(c *azure.Config)
		want   []string // nil: it is right
	}{
		{"as it should be", func(*azure.Config) {}, nil},
		{"everything is missing", func(c *azure.Config) { *c = azure.Config{} }, []string{"subscription", "resource group", "cluster id", "cluster CIDR", "credentials", "table: missing"}},
		{"host bits", func(c *azure.Config) { c.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.1/16")} }, []string{"10.244.0.1/16"}},
		{"names and a tag", func(c *azure.Config) { c.TableTag = "a=b" }, []string{`table tag "a=b"`}},
		{"half a tag", func(c *azure.Config) { c.Tables, c.TableTag = nil, "a" }, []string{`want "key=value"`}},
		{"named twice, in another case", func(c *azure.Config) { c.Tables = []string{"Routes", "net/routes"} }, []string{"named twice"}},
		{"id of something else", func(c *azure.Config) {
			c.Tables = []string{"/subscriptions/x/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v"}
		}, []string{"the id of a route table"}},
		{"of another subscription", func(c *azure.Config) {
			c.Tables = []string{"/subscriptions/22222222-2222-3333-4444-555555555555/resourceGroups/g/providers/Microsoft.Network/routeTables/r"}
		}, []string{"not in subscription"}},
		{"no name", func(c *azure.Config) { c.Tables = []string{"a b"} }, []string{`table "a b"`}},
		{"negative numbers", func(c *azure.Config) { c.MaxRoutes, c.CallTimeout = -1, -1 }, []string{"routes per table -1", "call timeout"}},
		{"plain http to somewhere", func(c *azure.Config) { c.Endpoint.URL = "http://10.0.0.1" }, []string{"plain http"}},
		{"no URL", func(c *azure.Config) { c.Endpoint.URL = "management" }, []string{`endpoint "management"`}},
		{"plain http to this machine", func(c *azure.Config) { c.Endpoint.URL = "http://[::1]:80" }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newWorld().config
			tt.change(&c)
			err := c.Validate()
			if len(tt.want) == 0 && err != nil {
				t.Error(err)
			}
			for _, part := range tt.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%v lacks %q", err, part)
				}
			}
		})
	}
}

// Tables by name, in another group, by id and by tag, over several pages.
func TestTablesAreFound(t *testing.T) {
	for name, tt := range map[string]struct {
		tables []string
		tag    string
		want   []string
		fails  string
	}{
		"by name":          {tables: []string{"ROUTES-near", farTable}, want: []string{"ROUTES-near", farTable}},
		"in another group": {tables: []string{"hub/shared"}, want: []string{"hub/shared"}},
		"by id":            {tables: []string{"/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/net/providers/Microsoft.Network/routeTables/routes-near"}, want: []string{theTable}},
		"by tag":           {tag: "CLUSTER=prod", want: []string{"more-3", theTable}},
		"by a tag of none": {tag: "cluster=stage", fails: "no route table of resource group Net has it"},
		"not there":        {tables: []string{"elsewhere"}, fails: "ResourceNotFound"},
		"no such group":    {tables: []string{"elsewhere/x"}, fails: "ResourceGroupNotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(func(o *emulated.Options) { o.PageSize = 2 })
			w.AddTable("hub", "shared", nil)
			for i, tag := range []string{"x", "y", "z", "prod"} {
				w.AddTable(theGroup, "more-"+string(rune('0'+i)), map[string]string{"cluster": tag})
			}
			w.config.Tables, w.config.TableTag = tt.tables, tt.tag
			table, err := azure.New(t.Context(), w.config)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("%v lacks %q", err, tt.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			limits, err := table.Limits(t.Context())
			if err != nil || len(limits.Tables) != len(tt.want) {
				t.Fatalf("%+v, %v, want %v", limits, err, tt.want)
			}
			for i, l := range limits.Tables {
				route := vpc.Route{Table: l.Table, Destination: podCIDR(1), NextHop: hop(1)}
				if l.Table != tt.want[i] {
					t.Errorf("table %q, want %q", l.Table, tt.want[i])
				}
				apply(t, table, vpc.Change{Op: vpc.Create, Route: route})
			}
		})
	}
}
