//go:build !no_gcp

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

	emulated "github.com/vpcroute/vpcroute/test/cloud/gcp"
)

const gcpNodes = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a, uid: a}, spec: {podCIDR: 10.244.1.0/24, providerID: gce://shop-prod-1/europe-west1-b/node-a}}
- {apiVersion: v1, kind: Node, metadata: {name: b, uid: b}, spec: {podCIDR: 10.244.2.0/24}, status: {addresses: [{type: InternalIP, address: 10.0.0.12}]}}
`

// The settings come from a file, as in a cluster, and the key from the
// environment, as Application Default Credentials do.
func TestPlanOnGCP(t *testing.T) {
	e := emulated.New(emulated.Defaults())
	e.AddNetwork("shop-prod-1", "prod", netip.MustParsePrefix("10.0.0.0/16"))
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	for name, content := range map[string]string{
		"nodes.yaml": gcpNodes,
		"key.json":   string(emulated.Key(server.URL)),
		"config.yaml": "apiVersion: config.vpcroute.io/v1alpha1\nkind: RouteControllerConfiguration\nvpc: gcp\nclusterID: prod\n" +
			"clusterCIDR: [10.244.0.0/16]\ngcpProject: shop-prod-1\ngcpNetwork: prod\ngcpEndpoint: " + server.URL + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(dir, "key.json"))
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs([]string{"plan", "-o", "json", "--nodes", filepath.Join(dir, "nodes.yaml"), "--config", filepath.Join(dir, "config.yaml")})
	root.SetOut(&out)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var p planned
	if err := json.Unmarshal(out.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Changes) != 2 || p.Changes[0].Table != "prod" ||
		p.Changes[0].NextHop != "projects/shop-prod-1/zones/europe-west1-b/instances/node-a" || p.Changes[1].NextHop != "10.0.0.12" {
		t.Errorf("planned: %+v", p.Changes)
	}
	if n := e.Writes(); n != 0 {
		t.Errorf("planning wrote %d times", n)
	}
}

// Everything that is wrong is told at once.
func TestGCPFlagProblems(t *testing.T) {
	root := newRoot()
	root.SetArgs([]string{"plan", "--nodes", "x", "--vpc", "gcp", "--cluster-cidr", "10.244.0.1/16", "--gcp-network", "N", "--gcp-next-hops", "vm"})
	err := root.ExecuteContext(t.Context())
	for _, part := range []string{`project ""`, `network "N"`, `next hops "vm"`, "10.244.0.1/16"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nlacks %q", err, part)
		}
	}
}
