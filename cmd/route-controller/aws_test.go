//go:build !no_aws

package main

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	emulated "github.com/vpcroute/vpcroute/test/cloud/aws"
)

// R093: a plan asks for everything and writes nothing, the interfaces' checks
// included.
func TestPlanOnAWS(t *testing.T) {
	dir := t.TempDir()
	nodes := filepath.Join(dir, "nodes.yaml")
	if err := os.WriteFile(nodes, []byte(twoNodes), 0o600); err != nil {
		t.Fatal(err)
	}
	o := emulated.Defaults()
	e := emulated.New(o)
	e.AddVPC("vpc-1", "rtb-1", netip.MustParsePrefix("10.0.0.0/16"))
	e.AddSubnet("vpc-1", "subnet-1", netip.MustParsePrefix("10.0.0.0/20"), "")
	e.AddInterfaces(
		emulated.Interface{ID: "eni-1", Subnet: "subnet-1", Instance: "i-00000001", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.11")}, Check: true},
		emulated.Interface{ID: "eni-2", Subnet: "subnet-1", Instance: "i-00000002", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.12")}, Check: true},
	)
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", o.AccessKeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", o.SecretAccessKey)
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs([]string{
		"plan", "-o", "json", "--nodes", nodes, "--ledger", filepath.Join(dir, "ledger"), "--cluster-id", "prod", "--cluster-cidr", "10.244.0.0/16",
		"--vpc", "aws", "--aws-region", o.Region, "--aws-vpc-id", "vpc-1", "--aws-endpoint", server.URL,
	})
	root.SetOut(&out)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var p planned
	if err := json.Unmarshal(out.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Changes) != 2 || p.Changes[0].Table != "rtb-1" || p.Changes[0].NextHop != "eni-1" {
		t.Errorf("planned: %+v", p.Changes)
	}
	if n := e.Writes(); n != 0 {
		t.Errorf("planning wrote %d times", n)
	}
}

// Everything that is wrong is told at once.
func TestAWSFlagProblems(t *testing.T) {
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_REGION", "")
	root := newRoot()
	root.SetArgs([]string{
		"plan", "--nodes", "x", "--vpc", "aws", "--cluster-cidr", "10.244.0.0/16",
		"--aws-source-dest-check", "on", "--aws-table", "main", "--aws-profile", "nobody",
	})
	err := root.ExecuteContext(t.Context())
	for _, part := range []string{"--ledger is missing", "region: missing", `check "on"`, `table "main"`, "nobody"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nlacks %q", err, part)
		}
	}
}
