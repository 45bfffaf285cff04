package vpcroute_test

import (
	"slices"
	"strings"
	"testing"
)

// An importRule says who may import what.
type importRule struct {
	from   string
	to     []string
	reason string
}

// arrows says which packages of this module a package may import. Every package
// outside test/ has a row here; the first row that matches counts.
var arrows = []importRule{
	{
		"./cmd/cni",
		[]string{"./pkg/netconf", "./pkg/ipam", "./pkg/bridge"},
		"the plugin is the node half: it must work with the route half, the agent and the cloud all gone",
	},
	{
		"./cmd/route-controller",
		[]string{"./pkg/routes", "./pkg/routes/...", "./pkg/vpc", "./pkg/vpc/...", "./api/..."},
		"the controller is the route half: it knows nodes by their podCIDR and nothing of bridges and ports",
	},
	{
		"./cmd/node-agent",
		[]string{"./pkg/netconf", "./pkg/ipam", "./pkg/bridge", "./pkg/node"},
		"the agent is the node half: it asks nothing of the route half and of no cloud",
	},
	{"./pkg/netconf", nil, "a configuration is judged by itself, the same in the plugin and the agent"},
	{"./pkg/ipam", nil, "which address comes next is decided without the kernel, so it can be tested without it"},
	{"./pkg/bridge", nil, "the ledger works on addresses and owners; who wants them and why is not its business"},
	{"./pkg/node", []string{"./pkg/netconf", "./pkg/ipam", "./pkg/bridge"}, "the agent prepares the node half and knows nothing of routes in the VPC"},
	{"./pkg/vpc", nil, "a plan is a pure function of routes; clouds and Kubernetes build on it, not the other way"},
	{"./pkg/vpc/...", []string{"./pkg/vpc"}, "one cloud's table knows no other cloud and no Kubernetes, so that each can be read, tested and removed alone"},
	{"./pkg/routes", []string{"./pkg/vpc", "./api/..."}, "one reconciler for every cloud: it sees tables, never a cloud"},
	{"./pkg/routes/podcidr", nil, "which podCIDR comes next is decided without Nodes or Kubernetes, so it can be tested without them"},
	{"./pkg/routes/...", []string{"./pkg/routes", "./pkg/routes/podcidr", "./pkg/vpc", "./api/..."}, "where Nodes, ledger and reports come from and go to is beside the reconciler, which does not know"},
	{"./api/...", nil, "the API is types; other people's programs import it"},
}

func TestImportsFollowTheArrows(t *testing.T) {
	used := make([]bool, len(arrows))
	for _, p := range ownPackages(t) {
		if matches("./test/...", p.short()) {
			continue
		}
		row := slices.IndexFunc(arrows, func(a importRule) bool { return matches(a.from, p.short()) })
		if row < 0 {
			t.Errorf("%s has no row in arrows: say what it may import, and why", p.short())
			continue
		}
		used[row] = true
		for _, path := range p.Imports {
			if to := short(path); strings.HasPrefix(to, ".") && !matchesAny(arrows[row].to, to) {
				t.Errorf("%s imports %s: %s", p.short(), to, arrows[row].reason)
			}
		}
	}
	for i, a := range arrows {
		if !used[i] {
			t.Errorf("arrows has a row for %s, which does not exist", a.from)
		}
	}
}

// walls says what a package must not reach, however many packages lie between.
var walls = []struct {
	from, to []string
	reason   string
}{
	{
		[]string{"./cmd/cni"},
		[]string{"net/http", "crypto/tls", "google.golang.org/protobuf/...", "k8s.io/...", "sigs.k8s.io/..."},
		"the plugin is started for every pod and talks to nobody: it needs no API server and no credentials, and starts in milliseconds",
	},
	{
		[]string{"./cmd/cni"},
		[]string{"github.com/prometheus/..."},
		"a process that lives for milliseconds is not scraped; it reports in its result and its log",
	},
	{
		[]string{"./cmd/cni", "./cmd/node-agent", "./pkg/node", "./pkg/bridge", "./pkg/ipam", "./pkg/netconf"},
		[]string{"./pkg/vpc/...", "./pkg/routes/...", "github.com/aws/...", "github.com/tencentcloud/...", "github.com/Azure/...", "google.golang.org/api/..."},
		"no node has anything to do with the cloud's interface, so none needs its credentials",
	},
	{
		[]string{"./cmd/route-controller", "./pkg/routes/...", "./pkg/vpc/..."},
		[]string{"./pkg/netconf", "./pkg/ipam", "./pkg/bridge", "./pkg/node"},
		"the route half knows nodes by their podCIDR alone, so any plugin may use it",
	},
	{
		[]string{"./cmd/cni", "./pkg/bridge", "./pkg/ipam", "./pkg/netconf"},
		[]string{"os/exec"},
		"no program of the node is needed or trusted: the kernel is spoken to over netlink",
	},
	{
		[]string{"./pkg/ipam", "./pkg/netconf", "./pkg/vpc"},
		[]string{"github.com/vishvananda/..."},
		"decisions are made without the kernel, so that they can be tested without it",
	},
	{
		[]string{"./cmd/...", "./pkg/...", "./api/..."},
		[]string{"./test/...", "testing"},
		"what exists for tests is not shipped",
	},
}

// testHelpers are packages for tests that live beside what they test.
var testHelpers = []string{"./pkg/vpc/vpctest"}

func TestWallsHold(t *testing.T) {
	list := packages(t)
	named := map[string]bool{}
	for _, w := range walls {
		for _, pattern := range slices.Concat(w.from, w.to) {
			named[pattern] = true
		}
	}
	for pattern := range named {
		if !exists(list, pattern) {
			t.Errorf("a wall names %s, which does not exist", pattern)
		}
	}
	for _, p := range ownPackages(t) {
		if matchesAny(testHelpers, p.short()) {
			continue
		}
		for _, w := range walls {
			if !matchesAny(w.from, p.short()) {
				continue
			}
			for _, dep := range p.Deps {
				if matchesAny(w.to, short(dep)) {
					t.Errorf("%s reaches %s: %s\n\t%s", p.short(), short(dep), w.reason, strings.Join(path(list, p.ImportPath, dep), " → "))
				}
			}
		}
	}
}

func exists(list map[string]*goPackage, pattern string) bool {
	for _, p := range list {
		if matches(pattern, p.short()) {
			return true
		}
	}
	return false
}

// path returns a shortest chain of imports from one package to another.
func path(list map[string]*goPackage, from, to string) []string {
	before := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at == to {
			var chain []string
			for ; at != ""; at = before[at] {
				chain = append(chain, short(at))
			}
			slices.Reverse(chain)
			return chain
		}
		if list[at] == nil {
			continue
		}
		for _, next := range list[at].Imports {
			if _, seen := before[next]; !seen {
				before[next] = at
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// silent are packages of the standard library and modules that a package under
// pkg/ must not import itself: packages return errors, and never log, read flags
// or the environment; commands do. (Uses of os.Getenv are found by the linter.)
var silent = []string{"flag", "log", "log/...", "k8s.io/klog/...", "github.com/go-logr/...", "github.com/spf13/..."}

func TestPackagesNeitherLogNorReadFlags(t *testing.T) {
	for _, p := range ownPackages(t) {
		if !matches("./pkg/...", p.short()) {
			continue
		}
		for _, path := range p.Imports {
			if matchesAny(silent, path) {
				t.Errorf("%s imports %s: packages return errors and results; commands log and read flags", p.short(), path)
			}
		}
	}
}

// A moduleRule says which packages may import those of a module.
type moduleRule struct {
	path   string // of the module, or of the folder that many modules are in
	in     []string
	reason string
}

// kubernetes are the packages that know its objects. Not so pkg/vpc and below,
// which a program without Kubernetes may use, nor the plugin.
var kubernetes = []string{"./cmd/node-agent", "./cmd/route-controller", "./pkg/node", "./pkg/routes/...", "./test/..."}

// modules says who may import packages of which module, tests aside. A new
// dependency needs a row: what it is for, and where it stops.
var modules = []moduleRule{
	{
		"github.com/containernetworking/cni",
		[]string{"./cmd/cni", "./pkg/node", "./test/..."},
		"cmd/cni knows CNI's types and codes, and the agent finds out with libcni which of a node's configurations wins; below them there are addresses and errors",
	},
	{
		"github.com/vishvananda/netlink",
		[]string{"./pkg/node", "./pkg/vpc/linux", "./test/..."},
		"the kernel is met in the packages named after its parts",
	},
	{"github.com/vishvananda/netns", []string{"./pkg/node", "./pkg/vpc/linux", "./test/..."}, "entering a namespace is an edge's work"},
	{"github.com/google/nftables", []string{"./pkg/node"}, "the packet filter belongs to the agent; the plugin adds no rule per pod"},
	{"github.com/coreos/go-iptables", []string{"./pkg/node"}, "the packet filter belongs to the agent; the plugin adds no rule per pod"},
	{
		"golang.org/x/sys",
		[]string{"./cmd/...", "./pkg/bridge", "./pkg/ipam", "./pkg/node", "./pkg/routes/file", "./pkg/vpc/linux", "./test/..."},
		"system calls belong to the edges",
	},
	{"golang.org/x/time", []string{"./pkg/routes", "./pkg/vpc/..."}, "rates are kept where a cloud is asked"},
	{"github.com/aws/aws-sdk-go-v2", []string{"./pkg/vpc/aws"}, "one cloud, one package"},
	{"github.com/aws/smithy-go", []string{"./pkg/vpc/aws"}, "one cloud, one package: the SDK's errors and requests are of its types"},
	{"github.com/tencentcloud/tencentcloud-sdk-go", []string{"./pkg/vpc/tencent"}, "one cloud, one package"},
	{"google.golang.org/api", []string{"./pkg/vpc/gcp"}, "one cloud, one package"},
	{"cloud.google.com/go/auth", []string{"./pkg/vpc/gcp"}, "one cloud, one package: where its credentials are found"},
	{"github.com/Azure/azure-sdk-for-go/sdk", []string{"./pkg/vpc/azure"}, "one cloud, one package"},
	{"k8s.io/api", kubernetes, "Kubernetes is met in pkg/routes, in the agent and in their commands"},
	{"k8s.io/apimachinery", append([]string{"./api/..."}, kubernetes...), "Kubernetes is met in pkg/routes, in the agent and in their commands"},
	{"k8s.io/client-go", kubernetes, "Kubernetes is met in pkg/routes, in the agent and in their commands"},
	{"sigs.k8s.io/yaml", kubernetes, "YAML is read where Kubernetes' objects are"},
	{"sigs.k8s.io/json", kubernetes, "JSON with the case of Kubernetes' objects is read where they are"},
	{"github.com/prometheus/client_golang", []string{"./cmd/node-agent", "./cmd/route-controller"}, "commands serve metrics; packages count in types of their own"},
	{"github.com/spf13/cobra", []string{"./cmd/node-agent", "./cmd/route-controller"}, "verbs and flags are a command's; the plugin has neither"},
	{"github.com/spf13/pflag", []string{"./cmd/node-agent", "./cmd/route-controller"}, "verbs and flags are a command's; the plugin has neither"},
	{"github.com/google/go-cmp", nil, "for tests alone: it panics where a program should not"},
}

func TestModulesStayWhereTheyBelong(t *testing.T) {
	list := packages(t)
	used := map[string]bool{}
	rowOf := func(path string) int {
		p := list[path]
		if p == nil || p.Standard || p.Module == nil || p.Module.Main {
			return -1
		}
		row := slices.IndexFunc(modules, func(m moduleRule) bool { return matches(m.path+"/...", p.Module.Path) })
		if row < 0 {
			t.Errorf("module %s is imported and has no row in modules: say who may use it, and why", p.Module.Path)
			return -1
		}
		used[modules[row].path] = true
		return row
	}
	for _, p := range list {
		if !p.own() {
			continue
		}
		for _, path := range p.Imports {
			if row := rowOf(path); row >= 0 && !matchesAny(modules[row].in, p.short()) {
				t.Errorf("%s imports %s: %s", p.short(), path, modules[row].reason)
			}
		}
		for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
			rowOf(path)
		}
	}
	for _, m := range modules {
		if !used[m.path] {
			t.Errorf("modules has a row for %s, which nothing imports", m.path)
		}
	}
}
