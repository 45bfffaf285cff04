package file

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/vpcroute/vpcroute/pkg/routes"
	"github.com/vpcroute/vpcroute/pkg/vpc"
)

const oneNode = `apiVersion: v1
kind: Node
metadata:
  name: %s
  uid: uid-%[1]s
  creationTimestamp: "2026-01-01T00:00:00Z"
  labels: {vpcroute.io/exclude: "false"}
spec:
  podCIDR: 10.244.1.0/24
  podCIDRs: [10.244.1.0/24, "fd00:10:244:1::/64"]
  providerID: fake:///%[1]s
status:
  addresses:
  - {type: Hostname, address: n1}
  - {type: InternalIP, address: 172.31.0.11}
  - {type: InternalIP, address: "fd00::11"}
  somethingNew: true
`

func nodeText(name string) string { return fmt.Sprintf(oneNode, name) }

func wantNode(name string) routes.Node {
	return routes.Node{
		Node: vpc.Node{
			Name: name, UID: "uid-" + name, ProviderID: "fake:///" + name,
			Addresses: []netip.Addr{netip.MustParseAddr("172.31.0.11"), netip.MustParseAddr("fd00::11")},
		},
		PodCIDRs: []string{"10.244.1.0/24", "fd00:10:244:1::/64"},
		Created:  time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
}

func inJSON(t *testing.T, text string) string {
	t.Helper()
	out, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func indent(text string) string {
	return "- " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}

func TestParseNodes(t *testing.T) {
	a, b := nodeText("a"), nodeText("b")
	list := "apiVersion: v1\nkind: List\nitems:\n" + indent(a) + indent(b)
	for name, text := range map[string]string{
		"v1 List":          list,
		"NodeList":         strings.Replace(list, "kind: List", "kind: NodeList", 1),
		"plain list":       indent(a) + indent(b),
		"documents":        a + "---\n" + b,
		"odd separators":   "---\n" + a + "--- # the second\n" + b + "---\n",
		"JSON List":        inJSON(t, list),
		"JSON plain list":  "[" + inJSON(t, a) + "," + inJSON(t, b) + "]",
		"JSON documents":   inJSON(t, a) + "\n" + inJSON(t, b),
		"items unadorned":  strings.ReplaceAll(indent(a)+indent(b), "- apiVersion: v1\n  kind: Node\n  metadata:", "- metadata:"),
		"podCIDR is older": strings.ReplaceAll(a+"---\n"+b, "  podCIDR: 10.244.1.0/24\n", ""),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseNodes([]byte(text))
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if diff := cmp.Diff([]routes.Node{wantNode("a"), wantNode("b")}, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// The old field counts where the new one is missing.
func TestParseNodesWithPodCIDRAlone(t *testing.T) {
	text := strings.Replace(nodeText("a"), `  podCIDRs: [10.244.1.0/24, "fd00:10:244:1::/64"]`+"\n", "", 1)
	got, err := ParseNodes([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"10.244.1.0/24"}, got[0].PodCIDRs); diff != "" {
		t.Error(diff)
	}
}

func TestParseNodesRefuses(t *testing.T) {
	a := nodeText("a")
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"empty":         {"", []string{"holds no Nodes", "kubectl get nodes"}},
		"blank":         {"\n\n---\n", []string{"holds no Nodes"}},
		"empty List":    {"apiVersion: v1\nkind: List\nitems: []\n", []string{"holds no Nodes"}},
		"prose":         {"nodes\n", []string{"neither a list nor a Node", "nodes"}},
		"not YAML":      {"a: b: c\n", []string{"not YAML"}},
		"half JSON":     {inJSON(t, a)[:100], []string{"not JSON", "unexpected EOF"}},
		"no kind":       {"apiVersion: v1\nitems:\n" + indent(a), []string{`kind is ""`, "NodeList"}},
		"other kind":    {"apiVersion: v1\nkind: PodList\nitems: []\n", []string{`kind is "PodList"`}},
		"pod among":     {"apiVersion: v1\nkind: List\nitems:\n" + indent(strings.Replace(a, "kind: Node", "kind: Pod", 1)), []string{`"Pod"`, "want Node"}},
		"other version": {strings.Replace(a, "apiVersion: v1", "apiVersion: v2", 1), []string{`apiVersion is "v2"`}},
		"misspelled":    {strings.Replace(a, "podCIDRs:", "podCIDRS:", 1), []string{`node "a"`, "spec.podCIDRS", "spec.podCIDRs"}},
		"twice":         {a + "---\n" + a, []string{`"a" occurs twice`}},
		"no name":       {strings.Replace(a, "  name: a\n", "", 1), []string{"metadata.name"}},
		"key twice":     {strings.Replace(a, "  providerID:", "  podCIDR: 10.1.0.0/24\n  providerID:", 1), []string{"podCIDR"}},
		"bad address":   {strings.Replace(a, "172.31.0.11", "172.31.0", 1), []string{"status.addresses[1].address of node a", `"172.31.0"`, "for example"}},
		"wrong type":    {strings.Replace(a, "[10.244.1.0/24, \"fd00:10:244:1::/64\"]", "7", 1), []string{"podCIDRs"}},
		"all at once":   {strings.Replace(a, "podCIDRs:", "podCIDRS:", 1) + "---\n" + strings.Replace(nodeText("b"), "172.31.0.11", "x", 1), []string{"spec.podCIDRS", `"x"`}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseNodes([]byte(c.text))
			if err == nil {
				t.Fatalf("no error, and %v", got)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not name %q", err, want)
				}
			}
		})
	}
}

// A watched file and what its watcher says of it.
type watched struct {
	t    *testing.T
	path string

	mu     sync.Mutex
	lists  [][]routes.Node
	broken []error
}

func watch(t *testing.T, text string) *watched {
	t.Helper()
	w := &watched{t: t, path: filepath.Join(t.TempDir(), "nodes.yaml")}
	w.replace(text)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		Watcher{Path: w.path, Nodes: w.good, Broken: w.bad}.Run(ctx)
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return w
}

func (w *watched) good(nodes []routes.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists = append(w.lists, nodes)
}

func (w *watched) bad(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = append(w.broken, err)
}

// replace renames a new text into place, write overwrites the file.
func (w *watched) replace(text string) {
	w.t.Helper()
	if err := os.WriteFile(w.path+".new", []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(w.path+".new", w.path); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) write(text string) {
	w.t.Helper()
	if err := os.WriteFile(w.path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// told waits until so many good lists and failures were told, and checks that
// it is no more.
func (w *watched) told(lists, broken int) {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		w.mu.Lock()
		l, b, errs := len(w.lists), len(w.broken), w.broken
		w.mu.Unlock()
		if l == lists && b == broken {
			return
		}
		if l > lists || b > broken || time.Now().After(deadline) {
			w.t.Fatalf("%d lists and %d failures, want %d and %d: %v", l, b, lists, broken, errs)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// R093: what cannot be believed is told, and the last good list stays.
func TestWatcher(t *testing.T) {
	t.Parallel()
	a, b := nodeText("a"), nodeText("b")
	w := watch(t, a)
	w.told(1, 0)
	w.replace(a + "---\n" + b)
	w.told(2, 0)
	w.write("")
	w.told(2, 1)
	w.write(a[:len(a)/2])
	w.told(2, 2)
	w.write(a + "---\n" + b) // the same as the last good one: whoever counts on it may know that it is whole again
	w.told(3, 2)
	w.write(a)
	w.told(4, 2)
	if err := os.Remove(w.path); err != nil {
		t.Fatal(err)
	}
	w.told(4, 3)
	w.replace(b)
	w.told(5, 3)
	if got := w.lists[4][0].Name; got != "b" {
		t.Errorf("the last list is of %q, want b", got)
	}
	for _, err := range w.broken {
		if !strings.Contains(err.Error(), w.path) {
			t.Errorf("%q does not name the file", err)
		}
	}
}

// A file that is being written in place is not believed before it is whole, and
// one that stops in the middle of a line never is.
func TestWatcherDuringWrites(t *testing.T) {
	t.Parallel()
	whole := nodeText("a") + "---\n" + nodeText("b") + "---\n" + nodeText("c")
	w := watch(t, whole)
	w.told(1, 0)
	f, err := os.OpenFile(w.path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, part := range strings.SplitAfter(whole+"---\n"+nodeText("d"), "---\n") {
		if _, err := f.WriteString(part); err != nil {
			t.Fatal(err)
		}
		if i < 3 {
			time.Sleep(quiet / 3)
		}
	}
	w.told(2, 0)
	if n := len(w.lists[1]); n != 4 {
		t.Errorf("the list has %d nodes, want 4", n)
	}
	w.write(strings.TrimSuffix(nodeText("a"), "\n"))
	w.told(2, 1)
	if !strings.Contains(w.broken[0].Error(), "middle of a line") {
		t.Error(w.broken[0])
	}
}

// A link that is moved, as a mounted ConfigMap is, is followed.
func TestWatcherFollowsLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(nodeText(name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := watch(t, nodeText("x"))
	w.told(1, 0)
	for i, name := range []string{"a", "b"} {
		link := filepath.Join(dir, "link")
		if err := os.Symlink(filepath.Join(dir, name), link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, w.path); err != nil {
			t.Fatal(err)
		}
		w.told(2+i, 0)
	}
}

// FuzzParseNodes looks for texts that crash the parser or make it return Nodes
// without a name.
func FuzzParseNodes(f *testing.F) {
	f.Add([]byte(nodeText("a")))
	f.Add([]byte("[" + `{"metadata":{"name":"a"}}` + "]"))
	f.Add([]byte("---\n---\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		nodes, err := ParseNodes(text)
		if err != nil {
			return
		}
		if len(nodes) == 0 {
			t.Error("no nodes and no error")
		}
		for _, n := range nodes {
			if n.Name == "" {
				t.Error("a Node without a name")
			}
		}
		if _, err := json.Marshal(nodes); err != nil {
			t.Error(err)
		}
	})
}
