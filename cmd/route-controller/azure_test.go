//go:build !no_azure

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

	emulated "github.com/vpcroute/vpcroute/test/cloud/azure"
)

// onEmulator starts an emulator with two machines, and sets the environment up
// for the managed identity of an app.
func onEmulator(t *testing.T) (e *emulated.Emulator, o emulated.Options, url string) {
	t.Helper()
	o = emulated.Defaults()
	e = emulated.New(o)
	subnet := netip.MustParsePrefix("10.0.0.0/20")
	e.AddTable("net", "routes", nil)
	e.AddNetwork("net", "vnet", subnet)
	e.AddSubnet("net", "vnet", "nodes", e.ID("net", "Microsoft.Network/routeTables", "routes"), subnet)
	for name, address := range map[string]string{"a": "10.0.0.11", "b": "10.0.0.12"} {
		e.AddMachine("net", name, e.SubnetID("net", "vnet", "nodes"), netip.MustParseAddr(address))
	}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	t.Setenv("IDENTITY_ENDPOINT", server.URL+"/msi/token")
	t.Setenv("IDENTITY_HEADER", o.IdentityHeader)
	return e, o, server.URL
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const azureNodes = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a, uid: a}, spec: {podCIDR: 10.244.1.0/24}, status: {addresses: [{type: InternalIP, address: 10.0.0.11}]}}
- {apiVersion: v1, kind: Node, metadata: {name: b, uid: b}, spec: {podCIDR: 10.244.2.0/24}, status: {addresses: [{type: InternalIP, address: 10.0.0.12}]}}
`

// By flags, and by the file that cloud-provider-azure has; the plan writes
// nothing.
func TestPlanOnAzure(t *testing.T) {
	e, o, url := onEmulator(t)
	nodes := writeFile(t, "nodes.yaml", azureNodes)
	file := writeFile(t, "azure.json", `{"cloud": "AzurePublicCloud", "subscriptionId": "`+o.Subscription+`", "resourceGroup": "machines",
		"routeTableName": "routes", "routeTableResourceGroup": "net", "useManagedIdentityExtension": true, "unknown": [1]}`)
	common := []string{"plan", "-o", "json", "--nodes", nodes, "--cluster-id", "prod", "--cluster-cidr", "10.244.0.0/16", "--vpc", "azure", "--azure-endpoint", url}
	for name, more := range map[string][]string{
		"flags":        {"--azure-subscription", o.Subscription, "--azure-resource-group", "net", "--azure-table", "routes", "--azure-credentials", "managed-identity"},
		"cloud config": {"--azure-cloud-config", file},
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
			if len(p.Changes) != 2 || p.Changes[0].Table != "routes" || p.Changes[0].NextHop != "10.0.0.11" {
				t.Errorf("planned: %+v", p.Changes)
			}
		})
	}
	if n := e.Writes(); n != 0 {
		t.Errorf("planning wrote %d times", n)
	}
}

// Everything that is wrong is told at once.
func TestAzureFlagProblems(t *testing.T) {
	root := newRoot()
	root.SetArgs([]string{
		"plan", "--nodes", "x", "--vpc", "azure", "--cluster-cidr", "10.244.0.0/16", "--azure-subscription", "prod",
		"--azure-cloud", "Moon", "--azure-credentials", "pigeon", "--azure-endpoint", "http://example.com",
	})
	err := root.ExecuteContext(t.Context())
	for _, part := range []string{`subscription "prod"`, "resource group", "table: missing", `cloud "Moon"`, "pigeon", "plain http"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nlacks %q", err, part)
		}
	}
}
