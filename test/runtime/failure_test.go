package runtime_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/test/runtime/cri"
)

// eventLimit is how many bytes of a pod's event an error of the plugin may fill.
const eventLimit = 300

// failedAdd runs a pod that cannot be attached and returns what the plugin of
// that name says in the runtime's error.
func failedAdd(t *testing.T, n *cri.Node, plugin string) string {
	t.Helper()
	id, err := n.Run(t.Context(), pod("fails"))
	if err == nil {
		remove(t, n, id)
		t.Fatal("the pod runs")
	}
	_, said, ok := strings.Cut(err.Error(), `plugin type="`+plugin+`" failed (add): `)
	if !ok {
		t.Fatalf("the runtime's error does not quote the plugin %s: %v", plugin, err)
	}
	return said
}

// removeFailed removes the sandboxes that the runtime has kept of failed
// attempts, as the kubelet does.
func removeFailed(t *testing.T, n *cri.Node, kept ...*cri.Sandbox) {
	t.Helper()
	ids, err := n.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if !slices.ContainsFunc(kept, func(s *cri.Sandbox) bool { return s.ID == id }) {
			remove(t, n, id)
		}
	}
}

// checkEvent fails the test unless a text can stand in a pod's event: short, one
// line, the plugin's own words, with what is wrong and what to do.
func checkEvent(t *testing.T, text string, wants ...string) {
	t.Helper()
	if len(text) >= eventLimit {
		t.Errorf("%d bytes, want fewer than %d: %s", len(text), eventLimit, text)
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("the error %q does not contain %q", text, want)
		}
	}
	for _, bad := range []string{"\n", "panic", "JSON input", "exit status", "netplugin failed"} {
		if strings.Contains(text, bad) {
			t.Errorf("the error %q contains %q", text, bad)
		}
	}
}

func TestRangeFull(t *testing.T) {
	c := chained
	c.ranges = []string{"10.244.1.0/29", "fd00:10:244:1::/64"}
	n := startNode(t, c)
	settled(t, n)
	full := runAll(t, n, numbered("web", 5)...) // 8 less network, gateway and broadcast
	checkDistinct(t, full...)
	before := inventory(t, n)

	for range 2 {
		checkEvent(t, failedAdd(t, n, "vpcroute"), "10.244.1.0/29", "max-pods")
		removeFailed(t, n, full...)
		checkInventory(t, n, before)
	}

	remove(t, n, full[0].ID)
	again := run(t, n, pod("again"))
	checkDistinct(t, append(full[1:], again)...)
	if again.Addresses[0] != full[0].Addresses[0] {
		t.Errorf("the pod has %s, want %s, the only address free", again.Addresses[0], full[0].Addresses[0])
	}
}

// R036: the cause reaches the pod's event, in one line of the plugin's own, and
// not a complaint about the form of its output.
func TestErrorsReachThePodsEvent(t *testing.T) {
	n := startNode(t, alone)
	for _, tc := range []struct {
		situation string
		config    conflist
		obstacle  string // a link on the node
		wants     []string
	}{
		{"no range", conflist{}, "", []string{"podCIDRs", "conflist"}},
		{"a range with host bits", conflist{ranges: []string{"10.244.1.7/24"}}, "", []string{"podCIDRs[0]", "10.244.1.7/24", "10.244.1.0/24"}},
		{"the bridge's name is taken", alone, "cbr0", []string{"cbr0", "rename"}},
		{"many wrong ranges", conflist{ranges: slices.Repeat([]string{"10.244.1.7/99"}, 40)}, "", []string{"podCIDRs[0]", "conflist"}},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			n.Configure(t, tc.config.bytes(n))
			if tc.obstacle != "" {
				n.Network.Run(t, "ip", "link", "add", tc.obstacle, "type", "veth")
				defer n.Network.Run(t, "ip", "link", "delete", tc.obstacle)
			}
			before := inventory(t, n)
			checkEvent(t, failedAdd(t, n, "vpcroute"), tc.wants...)
			removeFailed(t, n)
			checkInventory(t, n, before)
		})
	}
}

// R028: a later plugin of the chain fails. Whatever the runtime does then,
// nothing of the pod is left once it has removed the sandbox.
func TestLaterPluginFails(t *testing.T) {
	install(t, "fails", failing("none"))
	n := startNode(t, conflist{ranges: dualStack, after: []map[string]any{{"type": "fails"}}})
	before := settled(t, n)
	for _, tc := range []struct {
		situation string
		verbs     string
	}{
		{"at ADD alone", "ADD"},
		{"at ADD and for a while at DEL", "ADD|DEL"},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			install(t, "fails", failing(tc.verbs))
			if got, want := failedAdd(t, n, "fails"), "no licence"; got != want {
				t.Errorf("the error is %q, want %q", got, want)
			}
			install(t, "fails", failing("ADD"))
			removeFailed(t, n)
			checkInventory(t, n, before)
		})
	}
}

// failing is a plugin that fails at some verbs and else passes on what came
// before it.
func failing(verbs string) string {
	return `#!/bin/sh
case $CNI_COMMAND in
` + verbs + `) echo '{"cniVersion":"1.0.0","code":101,"msg":"no licence"}'; exit 1 ;;
ADD) sed 's/.*"prevResult":\(.*\),"type":.*/\1/' ;;
esac
`
}

func install(t *testing.T, name, script string) {
	t.Helper()
	path := filepath.Join(programDir, name)
	if err := os.MkdirAll(programDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
