//go:build !no_tencent

package main

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	emulated "github.com/vpcroute/vpcroute/test/cloud/tencent"
)

const twoNodes = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a, uid: a}, spec: {podCIDR: 10.244.1.0/24}, status: {addresses: [{type: InternalIP, address: 10.0.0.11}]}}
- {apiVersion: v1, kind: Node, metadata: {name: b, uid: b}, spec: {podCIDR: 10.244.2.0/24}, status: {addresses: [{type: InternalIP, address: 10.0.0.12}]}}
`

func TestPlanOnTencent(t *testing.T) {
	nodes := filepath.Join(t.TempDir(), "nodes.yaml")
	if err := os.WriteFile(nodes, []byte(twoNodes), 0o600); err != nil {
		t.Fatal(err)
	}
	o := emulated.Defaults()
	e := emulated.New(o)
	e.AddVPC("vpc-1", netip.MustParsePrefix("10.0.0.0/16"))
	e.AddTable("vpc-1", "rtb-1", nil)
	e.AddSubnet("vpc-1", "subnet-1", netip.MustParsePrefix("10.0.0.0/20"), "rtb-1")
	e.AddMachines("vpc-1", netip.MustParseAddr("10.0.0.11"), netip.MustParseAddr("10.0.0.12"))
	e.AddClusterTable("prod", "vpc-1", netip.MustParsePrefix("10.244.0.0/16"))
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	t.Setenv("TENCENTCLOUD_SECRET_ID", o.SecretID)
	t.Setenv("TENCENTCLOUD_SECRET_KEY", o.SecretKey)
	common := []string{
		"plan", "-o", "json", "--nodes", nodes, "--cluster-id", "prod", "--cluster-cidr", "10.244.0.0/16",
		"--vpc", "tencent", "--tencent-region", o.Region, "--tencent-vpc-id", "vpc-1", "--tencent-endpoint", server.URL,
	}
	for name, more := range map[string][]string{
		"prod":  {"--tencent-mode", "global-route"},
		"rtb-1": {"--tencent-mode", "vpc"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			root := newRoot()
			root.SetArgs(slices.Concat(common, more))
			root.SetOut(&out)
			if err := root.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			var p planned
			if err := json.Unmarshal(out.Bytes(), &p); err != nil {
				t.Fatal(err)
			}
			if len(p.Changes) != 2 || p.Changes[0].Table != name || p.Changes[0].NextHop != "10.0.0.11" {
				t.Errorf("planned: %+v", p.Changes)
			}
		})
	}
	if n := e.Writes(); n != 0 {
		t.Errorf("planning wrote %d times", n)
	}
}

// Every request of the cloud's API is counted under the API's own name.
func TestTencentIsMeasured(t *testing.T) {
	options := emulated.Defaults()
	e := emulated.New(options)
	e.AddVPC("vpc-1", netip.MustParsePrefix("10.0.0.0/16"))
	e.AddClusterTable("prod", "vpc-1", netip.MustParsePrefix("10.244.0.0/16"))
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	t.Setenv("TENCENTCLOUD_SECRET_ID", options.SecretID)
	t.Setenv("TENCENTCLOUD_SECRET_KEY", options.SecretKey)
	o := given(t, "--vpc", "tencent", "--nodes", "x", "--cluster-id", "prod", "--cluster-cidr", "10.244.0.0/16",
		"--tencent-region", options.Region, "--tencent-vpc-id", "vpc-1", "--tencent-endpoint", server.URL)
	s, err := o.settings(t.Context(), needNodes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.config.Table.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantFigures(t, newMonitor(func() error { return nil }, s.requests), `vpcroute_cloud_requests_total{action="DescribeClusterRoutes",class="OK"} 1`)
}

// Everything that is wrong is told at once, whether keys are there or not.
func TestTencentFlagProblems(t *testing.T) {
	for _, key := range []string{"", "k"} {
		t.Setenv("TENCENTCLOUD_SECRET_ID", "i")
		t.Setenv("TENCENTCLOUD_SECRET_KEY", key)
		root := newRoot()
		root.SetArgs([]string{"plan", "--nodes", "x", "--vpc", "tencent", "--cluster-cidr", "10.244.0.0/16", "--cluster-cidr", "fd00::/48", "--tencent-mode", "tke"})
		err := root.ExecuteContext(t.Context())
		wanted := []string{"region: missing", `mode "tke"`, "fd00::/48"}
		if key == "" {
			wanted = append(wanted, "TENCENTCLOUD_SECRET_KEY is not")
		}
		for _, part := range wanted {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%v\nlacks %q", err, part)
			}
		}
	}
}
