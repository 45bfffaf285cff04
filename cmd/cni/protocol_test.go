package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/google/go-cmp/cmp"
)

// Every version of the protocol gets its own form of the result, and its verbs.
func TestEveryVersion(t *testing.T) {
	for _, v := range []struct {
		version        string
		check, gc      bool
		ipVersion, mtu bool // fields that a version has
	}{
		{"0.3.1", false, false, true, false},
		{"0.4.0", true, false, true, false},
		{"1.0.0", true, false, false, false},
		{"1.1.0", true, true, false, true},
	} {
		t.Run(v.version, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, map[string]any{"cniVersion": v.version})
			p := n.newPod(t)
			a := p.add(t)
			r, err := create.CreateFromBytes([]byte(a.stdout))
			if err != nil || r.Version() != v.version {
				t.Fatalf("result of version %s: %v\n%s", r.Version(), err, a.stdout)
			}
			if strings.Contains(a.stdout, `"version": "6"`) != v.ipVersion || strings.Contains(a.stdout, `"mtu"`) != v.mtu {
				t.Errorf("fields of another version:\n%s", a.stdout)
			}
			prev := previous(t, a)
			for verb, has := range map[string]bool{"CHECK": v.check, "GC": v.gc, "STATUS": v.gc} {
				req := p.request(verb)
				req.conf = map[string]any{"prevResult": prev, "disableGC": true}
				a := n.call(t, req)
				switch {
				case has && a.err != nil:
					t.Errorf("%s: %s", verb, a.stdout)
				case !has && (a.cniErr == nil || a.cniErr.Code != types.ErrIncompatibleCNIVersion):
					t.Errorf("%s is not part of %s: %v %s", verb, v.version, a.err, a.stdout)
				}
			}
			p.del(t)
			if len(n.ports(t)) != 0 {
				t.Errorf("left: %v", n.ports(t))
			}
		})
	}
}

func TestOtherVersionsAreRefused(t *testing.T) {
	n := newNode(t, nil)
	for _, version := range []any{"0.1.0", "0.2.0", "0.3.0", "1.2.0", "9.9.9", "", nil, "one"} {
		r := n.newPod(t).request("ADD")
		r.conf = map[string]any{"cniVersion": version}
		if a := n.call(t, r); a.cniErr == nil || a.cniErr.Code != types.ErrIncompatibleCNIVersion && a.cniErr.Code != types.ErrDecodingFailure {
			t.Errorf("version %v: %v %s", version, a.err, a.stdout)
		}
	}
	if len(n.ports(t)) != 0 {
		t.Errorf("left: %v", n.ports(t))
	}
}

func TestBadCalls(t *testing.T) {
	n := newNode(t, nil)
	p := n.newPod(t)
	for name, tt := range map[string]struct {
		change func(*request)
		code   uint
		say    string
	}{
		"no container id":          {func(r *request) { r.container = "" }, types.ErrInvalidEnvironmentVariables, "CNI_CONTAINERID"},
		"odd container id":         {func(r *request) { r.container = "../x" }, types.ErrInvalidEnvironmentVariables, "container"},
		"no interface name":        {func(r *request) { r.ifName = "" }, types.ErrInvalidEnvironmentVariables, "CNI_IFNAME"},
		"interface name too long":  {func(r *request) { r.ifName = "a-very-long-name-x" }, types.ErrInvalidEnvironmentVariables, "interface"},
		"interface name a path":    {func(r *request) { r.ifName = ".." }, types.ErrInvalidEnvironmentVariables, "interface"},
		"no namespace":             {func(r *request) { r.netns = "" }, types.ErrInvalidEnvironmentVariables, "CNI_NETNS"},
		"unknown verb":             {func(r *request) { r.verb = "FROB" }, types.ErrInvalidEnvironmentVariables, "FROB"},
		"configuration not JSON":   {func(r *request) { r.stdin = `{"name":` }, types.ErrDecodingFailure, "config"},
		"configuration empty":      {func(r *request) { r.stdin = " " }, types.ErrDecodingFailure, "config"},
		"configuration a list":     {func(r *request) { r.stdin = "[]" }, types.ErrDecodingFailure, "config"},
		"no network name":          {func(r *request) { r.conf = map[string]any{"name": nil} }, types.ErrInvalidNetworkConfig, "name"},
		"odd network name":         {func(r *request) { r.conf = map[string]any{"name": "a/b"} }, types.ErrInvalidNetworkConfig, "name"},
		"attachments not a list":   {func(r *request) { r.verb = "GC"; r.conf = map[string]any{"cni.dev/valid-attachments": "all"} }, types.ErrInvalidNetworkConfig, "cni.dev/valid-attachments"},
		"GC without a list":        {func(r *request) { r.verb = "GC" }, types.ErrInvalidNetworkConfig, "cni.dev/valid-attachments"},
		"CHECK without a result":   {func(r *request) { r.verb = "CHECK" }, types.ErrInvalidNetworkConfig, "prevResult is missing"}, // R029
		"CHECK with an odd result": {func(r *request) { r.verb = "CHECK"; r.conf = map[string]any{"prevResult": "x"} }, types.ErrInvalidNetworkConfig, "prevResult"},
		"CHECK with a result of the future": {func(r *request) {
			r.verb = "CHECK"
			r.conf = map[string]any{"prevResult": map[string]any{"cniVersion": "9.0.0"}}
		}, types.ErrInvalidNetworkConfig, "9.0.0"},
		"CHECK with another's result": {func(r *request) {
			r.verb = "CHECK"
			r.conf = map[string]any{"prevResult": map[string]any{"cniVersion": "1.1.0", "interfaces": []any{map[string]any{"name": "net7", "sandbox": "/x"}}}}
		}, types.ErrInvalidNetworkConfig, "eth0"},
		"CHECK with an odd MAC": {func(r *request) {
			r.verb = "CHECK"
			r.conf = map[string]any{"prevResult": map[string]any{"cniVersion": "1.1.0", "interfaces": []any{map[string]any{"name": "eth0", "mac": "x", "sandbox": "/x"}}}}
		}, types.ErrInvalidNetworkConfig, "eth0"},
	} {
		t.Run(name, func(t *testing.T) {
			r := p.request("ADD")
			tt.change(&r)
			a := n.call(t, r)
			if a.cniErr == nil || a.cniErr.Code != tt.code || !strings.Contains(a.cniErr.Error(), tt.say) {
				t.Errorf("got %v %s, want code %d saying %q", a.err, a.stdout, tt.code, tt.say)
			}
			if len(n.ports(t)) != 0 {
				t.Errorf("left: %v", n.ports(t))
			}
		})
	}
}

// Somebody who runs the program by hand is told what it is.
func TestRunByHand(t *testing.T) {
	n := newNode(t, nil)
	a := n.run(t, exec.Command(n.plugin), "")
	if a.err != nil || a.stdout != "" {
		t.Errorf("%v %q", a.err, a.stdout)
	}
	for _, part := range []string{"CNI plugin vpcroute dev", "podCIDRs", "ip link show", "docs/cni.md", "0.3.1, 0.4.0, 1.0.0, 1.1.0"} {
		if !strings.Contains(a.stderr, part) {
			t.Errorf("the help does not say %q:\n%s", part, a.stderr)
		}
	}
}

// R036: at every log level, with a log that can be written or not, standard
// output is empty or one JSON object. (node.run checks that of every call.)
func TestStandardOutputIsClean_R036(t *testing.T) {
	n := newNode(t, nil)
	for _, level := range []string{"debug", "info", "warn", "error"} {
		for _, file := range []string{n.conf["logFile"].(string), "/proc/none/cni.log", ""} {
			conf := map[string]any{"logLevel": level, "logFile": file}
			p := n.newPod(t)
			r := p.request("ADD")
			r.conf = conf
			a := n.call(t, r)
			if a.err != nil {
				t.Errorf("ADD at %s into %q: %s", level, file, a.stdout)
			}
			for _, verb := range []string{"ADD", "CHECK", "STATUS", "GC", "DEL", "VERSION", "FROB"} {
				r.verb = verb
				a := n.call(t, r)
				if a.err != nil && a.cniErr == nil {
					t.Errorf("%s at %s fails without an error: %v %s", verb, level, a.err, a.stderr)
				}
			}
		}
	}
}

// writeConflist writes a conflist whose first plugin is ours.
func (n *node) conflist(t testing.TB, others ...map[string]any) *libcni.NetworkConfigList {
	t.Helper()
	ours := map[string]any{"capabilities": map[string]bool{"ips": true, "mac": true, "dns": true}}
	for _, field := range []string{"type", "podCIDRs", "stateDir", "logFile"} {
		ours[field] = n.conf[field]
	}
	b, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": "pods", "plugins": append([]map[string]any{ours}, others...)})
	if err != nil {
		t.Fatal(err)
	}
	list, err := libcni.ConfListFromBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// runtime is libcni with a directory of plugins in which ours and scripts are.
func (n *node) runtime(t testing.TB, scripts map[string]string) *libcni.CNIConfig {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(n.plugin, filepath.Join(dir, "vpcroute")); err != nil {
		t.Fatal(err)
	}
	for name, script := range scripts {
		version := `if [ "$CNI_COMMAND" = VERSION ]; then echo '{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0","1.1.0"]}'; exit; fi`
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+version+"\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return libcni.NewCNIConfigWithCacheDir([]string{dir}, t.TempDir(), nil)
}

func (p *pod) runtimeConf() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: p.id, NetNS: p.Path(), IfName: "eth0", Args: [][2]string{{"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", p.id}}}
}

// The whole protocol by way of the library that runtimes use.
func TestWithLibcni(t *testing.T) {
	n := newNode(t, nil)
	p, gone := n.newPod(t), n.newPod(t)
	list, runtime, ctx := n.conflist(t), n.runtime(t, nil), context.Background()
	if err := n.Do(func() error {
		if caps, err := runtime.ValidateNetworkList(ctx, list); err != nil || len(caps) != 3 {
			t.Errorf("ValidateNetworkList: %v, %v", caps, err)
		}
		if err := runtime.GetStatusNetworkList(ctx, list); err != nil {
			t.Errorf("STATUS: %v", err)
		}
		rc := p.runtimeConf()
		rc.CapabilityArgs = map[string]any{"ips": []string{"10.244.1.77/24"}, "mac": "02:00:00:00:00:77"}
		if _, err := runtime.AddNetworkList(ctx, list, rc); err != nil {
			return fmt.Errorf("ADD: %w", err)
		}
		if _, err := runtime.AddNetworkList(ctx, list, gone.runtimeConf()); err != nil {
			return fmt.Errorf("ADD: %w", err)
		}
		if err := runtime.CheckNetworkList(ctx, list, rc); err != nil {
			t.Errorf("CHECK: %v", err)
		}
		if err := runtime.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: p.id, IfName: "eth0"}}}); err != nil {
			t.Errorf("GC: %v", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !has(t, n.Namespace, "10.244.1.77") || len(n.ports(t)) != 1 {
		t.Errorf("after GC: %v", n.ports(t))
	}
	if err := n.Do(func() error { return runtime.DelNetworkList(ctx, list, p.runtimeConf()) }); err != nil {
		t.Errorf("DEL: %v", err)
	}
	if len(n.ports(t)) != 0 {
		t.Errorf("left: %v", n.ports(t))
	}
}

// The plugin is the first of a chain, and its result reaches the end of it.
func TestFirstInAChain(t *testing.T) {
	n := newNode(t, nil)
	p := n.newPod(t)
	list := n.conflist(t, map[string]any{"type": "passes-on"})
	runtime := n.runtime(t, map[string]string{"passes-on": `sed 's/.*"prevResult"://; s/,"type":"passes-on"}$//' | if [ "$CNI_COMMAND" = ADD ]; then cat; fi`})
	if err := n.Do(func() error {
		r, err := runtime.AddNetworkList(context.Background(), list, p.runtimeConf())
		if err != nil {
			return err
		}
		got, err := json.Marshal(r)
		if !strings.Contains(string(got), "10.244.1.2/24") {
			t.Errorf("the result of the chain is %s", got)
		}
		if err := runtime.CheckNetworkList(context.Background(), list, p.runtimeConf()); err != nil {
			t.Errorf("CHECK: %v", err)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// R028 (c): a later plugin fails, and the DEL that follows leaves nothing.
func TestLaterPluginFails_R028(t *testing.T) {
	n := newNode(t, nil)
	p := n.newPod(t)
	list := n.conflist(t, map[string]any{"type": "fails"})
	runtime := n.runtime(t, map[string]string{"fails": `cat >/dev/null; [ "$CNI_COMMAND" != ADD ] || { echo '{"cniVersion":"1.1.0","code":150,"msg":"as it must"}'; exit 1; }`})
	if err := n.Do(func() error {
		if _, err := runtime.AddNetworkList(context.Background(), list, p.runtimeConf()); err == nil || !strings.Contains(err.Error(), "as it must") {
			t.Errorf("ADD: %v", err)
		}
		return runtime.DelNetworkList(context.Background(), list, p.runtimeConf())
	}); err != nil {
		t.Errorf("DEL: %v", err)
	}
	if len(n.ports(t)) != 0 || has(t, p.Namespace, "eth0") {
		t.Errorf("left: %v", n.ports(t))
	}
}

func TestGC(t *testing.T) {
	n := newNode(t, nil)
	valid := func(pods ...*pod) []any {
		list := []any{}
		for _, p := range pods {
			list = append(list, map[string]any{"containerID": p.id, "ifname": "eth0"})
		}
		return list
	}
	keep, stale := n.newPod(t), n.newPod(t)
	keep.add(t)
	stale.add(t)
	other := n.newPod(t)
	r := other.request("ADD")
	r.conf = map[string]any{"name": "another-network"}
	if a := n.call(t, r); a.err != nil {
		t.Fatal(a.stdout)
	}
	second := keep.request("ADD")
	second.ifName = "net1"
	if a := n.call(t, second); a.err != nil {
		t.Fatal(a.stdout)
	}
	for _, tt := range []struct {
		name string
		conf map[string]any
		want []string // pods' addresses that are left
		fail bool
	}{
		{"switched off", map[string]any{"disableGC": true, "cni.dev/valid-attachments": valid()}, []string{"10.244.1.2", "10.244.1.3", "10.244.1.4", "10.244.1.5"}, false},
		{"without a list", nil, []string{"10.244.1.2", "10.244.1.3", "10.244.1.4", "10.244.1.5"}, true},
		{"broken configuration", map[string]any{"bridge": 7, "cni.dev/valid-attachments": valid()}, []string{"10.244.1.2", "10.244.1.3", "10.244.1.4", "10.244.1.5"}, true},
		{"one attachment valid", map[string]any{"cni.dev/valid-attachments": valid(keep)}, []string{"10.244.1.2", "10.244.1.4"}, false},
		{"again", map[string]any{"cni.dev/valid-attachments": valid(keep)}, []string{"10.244.1.2", "10.244.1.4"}, false},
		{"none valid, an earlier name", map[string]any{"cni.dev/attachments": valid()}, []string{"10.244.1.4"}, false},
		{"of the other network", map[string]any{"name": "another-network", "cni.dev/valid-attachments": nil}, nil, false},
	} {
		a := n.call(t, request{verb: "GC", conf: tt.conf, stdin: nullAttachments(n, t, tt.conf)})
		if (a.err != nil) != tt.fail {
			t.Errorf("%s: %v %s", tt.name, a.err, a.stdout)
		}
		var left []string
		for _, address := range []string{"10.244.1.2", "10.244.1.3", "10.244.1.4", "10.244.1.5"} {
			if has(t, n.Namespace, address) {
				left = append(left, address)
			}
		}
		if diff := cmp.Diff(tt.want, left); diff != "" {
			t.Errorf("%s, -want +got:\n%s", tt.name, diff)
		}
	}
}

// nullAttachments is the configuration with the JSON null that libcni sends when
// a runtime names no attachment; "" when conf has no such null.
func nullAttachments(n *node, t testing.TB, conf map[string]any) string {
	t.Helper()
	if v, ok := conf["cni.dev/valid-attachments"]; !ok || v != nil {
		return ""
	}
	return strings.Replace(n.stdin(t, request{conf: conf}), "{", `{"cni.dev/valid-attachments": null,`, 1)
}
