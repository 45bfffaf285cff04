package gcp_test

import (
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/gcp"
	emulated "github.com/vpcroute/vpcroute/test/cloud/gcp"
)

// documentedRole reads the permissions of the role on the page on Google Cloud.
func documentedRole(t *testing.T) (permissions []string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/clouds/gcp.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(title: .*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page has no role in YAML")
	}
	for line := range strings.SplitSeq(string(block[1]), "\n") {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok {
			permissions = append(permissions, p)
		}
	}
	return permissions
}

// The documented role is exact: with it everything works and the check finds
// nothing; without any one of its permissions something does not.
func TestDocumentedRoleIsExact(t *testing.T) {
	permissions := documentedRole(t)
	if problem := useEverything(t, permissions); problem != "" {
		t.Errorf("with the documented role: %s", problem)
	}
	for i, p := range permissions {
		if useEverything(t, slices.Delete(slices.Clone(permissions), i, i+1)) == "" {
			t.Errorf("%s is in the role and not needed", p)
		}
	}
}

// useEverything does all that the product does, with these permissions, and
// returns what failed.
func useEverything(t *testing.T, permissions []string) string {
	w := newWorld(t, func(o *emulated.Options) { o.OperationTime = 1 })
	w.startMachines(1, 2)
	w.Only(permissions...)
	table, err := gcp.New(t.Context(), w.config)
	if err != nil {
		return err.Error()
	}
	for _, nodes := range []map[netip.Prefix]vpc.Node{{podCIDR(1): node(1)}, {podCIDR(1): node(2)}, {}} {
		if _, err := resync(t.Context(), table, theCluster, nodes); err != nil {
			return err.Error()
		}
	}
	for _, f := range table.Preflight(t.Context()) {
		if f.Severity == vpc.SeverityError {
			return f.Object + ": " + f.Message
		}
	}
	return ""
}
