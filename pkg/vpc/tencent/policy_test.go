package tencent_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/tencent"
)

// documentedPolicy reads the actions that the page on Tencent Cloud allows for a
// service.
func documentedPolicy(t *testing.T, service string) (actions []string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/clouds/tencent.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(page, -1) {
		var policy struct{ Statement []struct{ Action []string } }
		if err := json.Unmarshal(block[1], &policy); err != nil {
			t.Fatal(err)
		}
		for _, s := range policy.Statement {
			for _, a := range s.Action {
				if name, ok := strings.CutPrefix(a, service+":"); ok {
					actions = append(actions, name)
				}
			}
		}
	}
	return actions
}

// The documented policy is exact: with it everything works and the check finds
// nothing; without any one of its actions something does not.
func TestDocumentedPolicyIsExact(t *testing.T) {
	for mode, service := range map[tencent.Mode]string{tencent.GlobalRoute: "tke", tencent.VPC: "vpc"} {
		t.Run(string(mode), func(t *testing.T) {
			actions := documentedPolicy(t, service)
			if problem := useEverything(t, mode, actions); problem != "" {
				t.Errorf("with the documented policy: %s", problem)
			}
			for i, action := range actions {
				if useEverything(t, mode, slices.Delete(slices.Clone(actions), i, i+1)) == "" {
					t.Errorf("%s is in the policy and not needed", action)
				}
			}
		})
	}
}

// useEverything does all that the product does, with these permissions, and
// returns what failed.
func useEverything(t *testing.T, mode tencent.Mode, actions []string) string {
	w := newWorld(mode)
	w.startMachines(1, 2)
	if mode == tencent.GlobalRoute {
		w.RemoveClusterTable(theCluster)
		w.config.CreateTable = true
	}
	w.Only(actions...)
	table, err := tencent.New(t.Context(), w.config)
	if err != nil {
		return err.Error()
	}
	for _, nodes := range []map[netip.Prefix]vpc.Node{{podCIDR(1): node(1)}, {podCIDR(1): node(2)}, {}} {
		if _, err := resync(t.Context(), table, nodes); err != nil {
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
