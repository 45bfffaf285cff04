package aws_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/aws"
)

// documentedPolicy reads the actions that the page on AWS allows.
func documentedPolicy(t *testing.T) (actions []string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/clouds/aws.md")
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
				actions = append(actions, strings.TrimPrefix(a, "ec2:"))
			}
		}
	}
	return actions
}

// The documented policy is exact: with it everything works and the check finds
// nothing; without any one of its actions something does not.
func TestDocumentedPolicyIsExact(t *testing.T) {
	actions := documentedPolicy(t)
	if problem := useEverything(t, aws.SwitchOff, actions); problem != "" {
		t.Errorf("with the documented policy: %s", problem)
	}
	for i, action := range actions {
		if useEverything(t, aws.SwitchOff, slices.Delete(slices.Clone(actions), i, i+1)) == "" {
			t.Errorf("%s is in the policy and not needed", action)
		}
	}
	// What the page says of the statement for the check.
	rest := slices.DeleteFunc(slices.Clone(actions), func(a string) bool { return a == "ModifyNetworkInterfaceAttribute" })
	if problem := useEverything(t, aws.Report, rest); problem != "" {
		t.Errorf("without the permission for the check, which is only reported: %s", problem)
	}
}

// useEverything does all that the product does, with these permissions, and
// returns what failed.
func useEverything(t *testing.T, check aws.Check, actions []string) string {
	w := newWorld()
	w.startChecked(check == aws.SwitchOff, 1, 2)
	w.config.Tables, w.config.Check = nil, check
	w.Only(actions...)
	table, err := aws.New(t.Context(), w.config)
	if err != nil {
		return err.Error()
	}
	for _, nodes := range []map[netip.Prefix]vpc.Node{{podCIDR(1): node(1)}, {podCIDR(1): node(2)}, {}} {
		if _, err := w.resync(t.Context(), table, nodes); err != nil {
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
