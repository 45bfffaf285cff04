package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/vpcroute/vpcroute/pkg/bridge"
	"github.com/vpcroute/vpcroute/pkg/netconf"
)

// captured runs f and returns what reached standard output and standard error.
func captured(t *testing.T, f func()) (stdout, stderr string) {
	t.Helper()
	var texts [2]string
	streams := []**os.File{&os.Stdout, &os.Stderr}
	for i, stream := range streams {
		file, err := os.Create(filepath.Join(t.TempDir(), fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		before := *stream
		*stream = file
		defer func() { *stream = before; file.Close() }()
	}
	f()
	for i, stream := range streams {
		if _, err := (*stream).Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(*stream)
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(b)
	}
	return texts[0], texts[1]
}

// R036: neither a panic nor a library that prints can reach standard output.
func TestStandardOutputUnderPanics_R036(t *testing.T) {
	conf := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "pods", "podCIDRs": ["10.244.1.0/24"], "logFile": %q}`, filepath.Join(t.TempDir(), "cni.log"))
	for name, do := range map[string]verb{
		"a panic":                 func(*call) (*types100.Result, error) { panic("boom") },
		"a nil pointer":           func(*call) (*types100.Result, error) { var r *types100.Result; return r, errors.New(r.CNIVersion) },
		"a library that warns":    func(*call) (*types100.Result, error) { fmt.Println("boom: a warning"); return nil, nil },
		"a warning, then a panic": func(*call) (*types100.Result, error) { fmt.Println("boom: a warning"); panic(errors.New("boom")) },
		"a warning and a result": func(*call) (*types100.Result, error) {
			fmt.Println("boom: a warning")
			return &types100.Result{CNIVersion: "1.1.0"}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			stdout, stderr := captured(t, func() {
				err = newCall().verb(do)(&skel.CmdArgs{ContainerID: "x", IfName: "eth0", StdinData: []byte(conf)})
			})
			if stdout != "" && !json.Valid([]byte(stdout)) || strings.Contains(stdout, "boom") {
				t.Errorf("standard output is %q", stdout)
			}
			if strings.Contains(name, "panic") || strings.Contains(name, "nil") {
				var cniErr *types.Error
				if !errors.As(err, &cniErr) || cniErr.Code != types.ErrInternal {
					t.Errorf("the answer is %v", err)
				}
				if !strings.Contains(stderr, "goroutine") {
					t.Errorf("no stack in the runtime's log: %q", stderr)
				}
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// The runtime shows cause and next step in the pod's event, in under 300 bytes.
func TestErrorsFitAnEvent(t *testing.T) {
	long := errors.New(strings.Repeat("väry lông ", 200))
	for name, err := range map[string]error{
		"plain":      long,
		"joined":     errors.Join(long, long, long),
		"attached":   fmt.Errorf("%w: %w", bridge.ErrAttached, long),
		"exists":     fmt.Errorf("%w: %w", bridge.ErrInterfaceExists, long),
		"namespace":  fmt.Errorf("%w: %w", bridge.ErrNamespace, long),
		"full":       fmt.Errorf("%w: %w", bridge.ErrFull, long),
		"not bridge": fmt.Errorf("%w: %w", bridge.ErrNotBridge, long),
		"no IPv6":    fmt.Errorf("%w: %w", bridge.ErrNoIPv6, long),
		"panic":      internalError(long),
		"later":      tryLater(long),
	} {
		e := asCNIError(err)
		text := e.Error()
		if len(text) >= 300 || strings.Contains(text, "\n") || e.Details == "" || !json.Valid(fmt.Appendf(nil, "%q", text)) {
			t.Errorf("%s: %d bytes: %s", name, len(text), text)
		}
		if strings.Contains(text, "\uFFFD") {
			t.Errorf("%s: cut within a character: %s", name, text)
		}
	}
}

func FuzzArgs(f *testing.F) {
	f.Add("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_INFRA_CONTAINER_ID=4f5d0a;K8S_POD_UID=6f1c", "4f5d0a")
	f.Add(";;==;K8S_POD_NAME;K8S_POD_UID=;\n", "x")
	f.Add(strings.Repeat("K8S_POD_NAME=ü", 99), strings.Repeat("c", 400))
	f.Fuzz(func(t *testing.T, args, container string) {
		p := parseArgs(args)
		text := alias(p, printable(container), "eth0")
		if len(text) > maxAlias || text != printable(strings.ReplaceAll(text, " ", "_")) && strings.ContainsAny(text, "\x00\n") {
			t.Errorf("alias %q of %d bytes", text, len(text))
		}
		if ids := "container=" + printable(container) + " if=eth0"; len(ids) < maxAlias && len(p.UID)+len(p.Sandbox) == 0 && !strings.HasSuffix(text, ids) {
			t.Errorf("alias %q does not end in %q", text, ids)
		}
	})
}

func FuzzPrevResult(f *testing.F) {
	for _, seed := range []string{
		`{"cniVersion": "1.1.0", "interfaces": [{"name": "cbr0"}, {"name": "eth0", "mac": "0a:58:0a:f4:01:07", "mtu": 1500, "sandbox": "/run/netns/x"}], "ips": [{"address": "10.244.1.7/24", "gateway": "10.244.1.1", "interface": 1}], "routes": [{"dst": "0.0.0.0/0", "gw": "10.244.1.1"}, {"dst": "::/0"}]}`,
		`{"cniVersion": "0.3.1", "interfaces": [{"name": "eth0", "mac": "x", "sandbox": "/x"}], "ips": [{"version": "4", "address": "10.244.1.7/24", "interface": 99}]}`,
		`{"cniVersion": "0.2.0", "ip4": {"ip": "10.244.1.7/24"}}`, `{"cniVersion": "9.9.9"}`, `{}`, `[]`, `null`, `{"ips": [{"address": "10.244.1.7"}, null, 7]}`,
		`{"cniVersion": "1.0.0", "interfaces": [null], "ips": [null], "routes": [null]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := newCall()
		c.args = &skel.CmdArgs{ContainerID: "x", IfName: "eth0"}
		c.conf = &netconf.Config{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}, PrevResult: data}
		for _, a := range c.released() {
			if !a.IsValid() {
				t.Error("an invalid address was released")
			}
		}
		e, err := expected(c)
		if err == nil && len(e.Addresses) == 0 {
			t.Error("nothing is expected of the attachment")
		}
		for _, p := range append(e.Addresses, e.Gateways...) {
			if err == nil && !p.IsValid() {
				t.Errorf("expected %v", e)
			}
		}
	})
}

// docs/cni.md has a row for every code of this plugin's own, and for those of
// the protocol that it uses.
func TestDocsDescribeEveryCode(t *testing.T) {
	docs, err := os.ReadFile("../../docs/cni.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []uint{
		types.ErrIncompatibleCNIVersion, types.ErrInvalidEnvironmentVariables, types.ErrDecodingFailure, types.ErrInvalidNetworkConfig,
		types.ErrInvalidNetNS, types.ErrTryAgainLater, types.ErrPluginNotAvailable, types.ErrLimitedConnectivity, types.ErrInternal,
		codeExhausted, codeAttached, codeInterface, codeTaken, codePorts, codeBridge, codeKernel, codeMismatch,
	} {
		if !strings.Contains(string(docs), fmt.Sprintf("\n| %d | ", code)) {
			t.Errorf("docs/cni.md has no row for code %d", code)
		}
	}
}
