package tencent_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc/tencent"
)

func TestConfigProblems(t *testing.T) {
	tests := []struct {
		name   string
		mode   tencent.Mode
		change func(c *tencent.Config)
		want   []string // all of them in one error; none for a good configuration
	}{
		{"good", tencent.GlobalRoute, func(*tencent.Config) {}, nil},
		{"good", tencent.VPC, func(*tencent.Config) {}, nil},
		{"many at once", tencent.GlobalRoute, func(c *tencent.Config) {
			c.Region, c.VpcID, c.Owner, c.Credentials, c.ClusterCIDRs = "", "", "a b", nil, nil
		}, []string{"region: missing", "VPC id: missing", `cluster id "a b"`, "credentials: missing", "cluster CIDR: missing"}},
		{"unknown mode", "tke", func(*tencent.Config) {}, []string{`mode "tke": want "global-route" or "vpc"`}},
		{"cluster id too long for a mark", tencent.VPC, func(c *tencent.Config) { c.Owner = strings.Repeat("x", 52) }, []string{"at most 51"}},
		{"dual stack", tencent.GlobalRoute, func(c *tencent.Config) {
			c.ClusterCIDRs = append(c.ClusterCIDRs, netip.MustParsePrefix("fd00::/48"))
		}, []string{"fd00::/48: Tencent Cloud routes only IPv4", "a cluster route table has one range"}},
		{"IPv6", tencent.VPC, func(c *tencent.Config) { c.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("fd00::/48")} }, []string{"routes only IPv4"}},
		{"host bits", tencent.VPC, func(c *tencent.Config) { c.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.1/16")} }, []string{"10.244.0.1/16: not a range"}},
		{"range too long", tencent.GlobalRoute, func(c *tencent.Config) { c.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/25")} }, []string{"takes /10 to /24"}},
		{"two cluster tables", tencent.GlobalRoute, func(c *tencent.Config) { c.Tables = []string{"a", "b"} }, []string{"one cluster route table"}},
		{"tag of a cluster table", tencent.GlobalRoute, func(c *tencent.Config) { c.TableTag = "a=b" }, []string{"have no tags"}},
		{"ids and a tag", tencent.VPC, func(c *tencent.Config) { c.TableTag = "a=b" }, []string{"tables are named already"}},
		{"half a tag", tencent.VPC, func(c *tencent.Config) { c.Tables, c.TableTag = nil, "a=" }, []string{`want "key=value"`}},
		{"not an id", tencent.VPC, func(c *tencent.Config) { c.Tables = []string{"main"} }, []string{`table "main": want an id`}},
		{"creation of a VPC table", tencent.VPC, func(c *tencent.Config) { c.CreateTable = true }, []string{"makes no tables"}},
		{"batch too large", tencent.VPC, func(c *tencent.Config) { c.BatchSize = 101 }, []string{"batch size 101: want 1 to 100"}},
		{"negative rate", tencent.VPC, func(c *tencent.Config) { c.WritesPerSecond = -1 }, []string{"writes per second -1"}},
		{"endpoint without a scheme", tencent.VPC, func(c *tencent.Config) { c.Endpoint.URL = "api.example.com" }, []string{`endpoint "api.example.com": want a URL`}},
	}
	for _, tt := range tests {
		t.Run(string(tt.mode)+"/"+tt.name, func(t *testing.T) {
			w := newWorld(tt.mode)
			tt.change(&w.config)
			_, err := tencent.New(t.Context(), w.config)
			if (len(tt.want) == 0) != (err == nil) {
				t.Fatalf("New: %v", err)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("New: %v\nlacks %q", err, part)
				}
			}
			if len(tt.want) > 0 && len(w.Calls()) > 0 {
				t.Error("the API was called with a bad configuration")
			}
		})
	}
}
