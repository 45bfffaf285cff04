package azure_test

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/test/cloud"
	"github.com/vpcroute/vpcroute/test/cloud/azure"
)

// The SDK is driven against the emulator in pkg/vpc/azure. Here the wire is
// spoken by hand, so that the emulator is not only right about the SDK.

// A wire is a hand-made client.
type wire struct {
	*azure.Emulator
	token string
}

func newWire(change ...func(*azure.Options)) *wire {
	o := azure.Defaults()
	for _, f := range change {
		f(&o)
	}
	e := azure.New(o)
	subnet := netip.MustParsePrefix("10.0.0.0/20")
	e.AddTable("net", "routes", map[string]string{"k": "v"})
	e.AddNetwork("net", "vnet", subnet)
	e.AddSubnet("net", "vnet", "nodes", e.ID("net", "Microsoft.Network/routeTables", "routes"), subnet)
	for i := range 5 {
		e.AddMachine("net", "vm-"+string(rune('0'+i)), e.SubnetID("net", "vnet", "nodes"), netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}))
	}
	return &wire{e, e.Token()}
}

// do sends a request and returns its answer; path is behind the subscription.
func (w *wire) do(t *testing.T, method, path, body string, header ...string) (status int, content map[string]any, h http.Header) {
	t.Helper()
	if !strings.HasPrefix(path, "https://") {
		path = "https://azure.test/subscriptions/11111111-2222-3333-4444-555555555555" + path + "?api-version=2025-01-01"
	}
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+w.token)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	a := httptest.NewRecorder()
	w.ServeHTTP(a, r)
	if err := json.Unmarshal(a.Body.Bytes(), &content); err != nil {
		t.Fatalf("%s: %v", a.Body, err)
	}
	return a.Code, content, a.Header()
}

func code(content map[string]any) string {
	e, _ := content["error"].(map[string]any)
	text, _ := e["code"].(string)
	return text
}

const (
	tablePath = "/resourceGroups/NET/providers/microsoft.network/ROUTETABLES/routes"
	empty     = `{"location": "westeurope", "properties": {}}`
)

func tableWith(routes string) string {
	return `{"location": "westeurope", "properties": {"routes": [` + routes + `]}}`
}

const oneRoute = `{"name": "a", "properties": {"addressPrefix": "10.244.1.0/24", "nextHopType": "VirtualAppliance", "nextHopIpAddress": "10.0.0.1"}}`

func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		setUp        func(w *wire)
		method, path string
		body         string
		header       []string
		status       int
		code         string
	}{
		"no token":              {method: "GET", path: tablePath, header: []string{"Authorization", ""}, status: 401, code: "InvalidAuthenticationToken"},
		"a revoked token":       {setUp: func(w *wire) { w.Revoke() }, method: "GET", path: tablePath, status: 401, code: "InvalidAuthenticationToken"},
		"no api-version":        {method: "GET", path: "https://azure.test/subscriptions/x/resourceGroups/net/providers/Microsoft.Network/routeTables/routes", status: 400, code: "MissingApiVersionParameter"},
		"another subscription":  {method: "GET", path: "https://azure.test/subscriptions/x/resourceGroups/net/providers/Microsoft.Network/routeTables/routes?api-version=1", status: 404, code: "SubscriptionNotFound"},
		"no such group":         {method: "GET", path: "/resourceGroups/x/providers/Microsoft.Network/routeTables/routes", status: 404, code: "ResourceGroupNotFound"},
		"no such table":         {method: "GET", path: "/resourceGroups/net/providers/Microsoft.Network/routeTables/x", status: 404, code: "ResourceNotFound"},
		"unknown kind":          {method: "GET", path: "/resourceGroups/net/providers/Microsoft.Network/loadBalancers", status: 400, code: "InvalidResourceType"},
		"denied":                {setUp: func(w *wire) { w.Deny("Microsoft.Network/routeTables/write") }, method: "PUT", path: tablePath, body: empty, status: 403, code: "AuthorizationFailed"},
		"no JSON":               {method: "PUT", path: tablePath, body: "<", status: 400, code: "InvalidRequestContent"},
		"no location":           {method: "PUT", path: tablePath, body: `{"properties": {}}`, status: 400, code: "LocationRequired"},
		"stale":                 {method: "PUT", path: tablePath, body: empty, header: []string{"If-Match", `W/"x"`}, status: 412, code: "PreconditionFailed"},
		"busy":                  {setUp: func(w *wire) { w.SetState("routes", "Updating") }, method: "PUT", path: tablePath, body: empty, status: 429, code: "RetryableError"},
		"two for one range":     {method: "PUT", path: tablePath, body: tableWith(oneRoute + "," + strings.Replace(oneRoute, `"a"`, `"b"`, 1)), status: 400, code: "RouteWithSameAddressPrefixExists"},
		"two of one name":       {method: "PUT", path: tablePath, body: tableWith(oneRoute + "," + strings.Replace(strings.Replace(oneRoute, `"a"`, `"A"`, 1), "1.0", "2.0", 1)), status: 400, code: "DuplicateResourceName"},
		"host bits":             {method: "PUT", path: tablePath, body: tableWith(strings.Replace(oneRoute, "1.0/24", "1.7/24", 1)), status: 400, code: "InvalidCIDRNotation"},
		"no hop":                {method: "PUT", path: tablePath, body: tableWith(strings.Replace(oneRoute, "10.0.0.1", "", 1)), status: 400, code: "InvalidNextHopIpAddress"},
		"hop of another family": {method: "PUT", path: tablePath, body: tableWith(strings.Replace(oneRoute, "10.0.0.1", "fd00::1", 1)), status: 400, code: "NextHopIpAddressFamilyMismatch"},
		"full": {
			setUp: func(w *wire) {
				w.AddRoute("routes", azure.Route{Name: "x", AddressPrefix: "0.0.0.0/0", NextHopType: "None"})
			},
			method: "PUT", path: tablePath, body: tableWith(oneRoute + "," + strings.ReplaceAll(strings.Replace(oneRoute, `"a"`, `"b"`, 1), "1.0/24", "2.0/24")), status: 400, code: "RouteTableRoutesLimitExceeded",
		},
		"over its rate": {setUp: func(w *wire) {
			w.Limit(&cloud.Bucket{PerSecond: 0.1, Burst: 1}, "*")
			w.Clock = cloud.NewStepClock(time.Now())
		}, method: "GET", path: tablePath, status: 200},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(func(o *azure.Options) { o.RoutesPerTable = 1 })
			if name != "full" {
				w = newWire()
			}
			if tt.setUp != nil {
				tt.setUp(w)
			}
			status, content, _ := w.do(t, tt.method, tt.path, tt.body, tt.header...)
			if status != tt.status || code(content) != tt.code {
				t.Errorf("%d %v, want %d %s", status, content, tt.status, tt.code)
			}
			if name == "over its rate" {
				status, content, h := w.do(t, tt.method, tt.path, "")
				if status != 429 || code(content) != "TooManyRequests" || h.Get("Retry-After") != "10" {
					t.Errorf("%d %v, wait %q", status, content, h.Get("Retry-After"))
				}
			}
		})
	}
}

// A write starts an operation: the table is Updating, further writes are
// refused, the operation's URL tells of its end, and the etag is new each time.
func TestOperation(t *testing.T) {
	for _, fails := range []bool{false, true} {
		w := newWire(func(o *azure.Options) { o.OperationTime, o.RetryAfter = time.Minute, 7*time.Second })
		clock := cloud.NewStepClock(time.Now())
		w.Clock = clock
		if fails {
			w.FailOperation("InternalServerError", "planted")
		}
		_, before, _ := w.do(t, "GET", tablePath, "")
		status, written, h := w.do(t, "PUT", tablePath, tableWith(oneRoute), "If-Match", before["etag"].(string))
		url := h.Get("Azure-AsyncOperation")
		if status != 200 || url == "" || h.Get("Retry-After") != "7" || written["etag"] == before["etag"] || state(written) != "Updating" {
			t.Errorf("%d %v %v", status, written, h)
		}
		if status, content, _ := w.do(t, "PUT", tablePath, empty); status != 429 {
			t.Errorf("a second write: %d %v", status, content)
		}
		if _, content, _ := w.do(t, "GET", url, ""); content["status"] != "InProgress" {
			t.Errorf("the operation: %v", content)
		}
		clock.Step(time.Minute)
		_, content, _ := w.do(t, "GET", url, "")
		_, after, _ := w.do(t, "GET", tablePath, "")
		want := map[bool][2]string{false: {"Succeeded", "Succeeded"}, true: {"Failed", "Failed"}}[fails]
		if content["status"] != want[0] || state(after) != want[1] || after["etag"] == written["etag"] {
			t.Errorf("in the end: %v, %v", content, after)
		}
	}
}

func state(table map[string]any) string {
	text, _ := table["properties"].(map[string]any)["provisioningState"].(string)
	return text
}

// A write that leaves something out takes it away; what is read only is ignored.
func TestWriteReplacesTheTable(t *testing.T) {
	w := newWire()
	w.AddRoute("routes", azure.Route{Name: "old", AddressPrefix: "0.0.0.0/0", NextHopType: "Internet"})
	status, content, _ := w.do(t, "PUT", tablePath, `{"location": "westeurope", "etag": "x", "properties": {"subnets": [], "provisioningState": "Failed", "new": 1}}`)
	p := content["properties"].(map[string]any)
	if status != 200 || content["tags"] != nil || len(p["routes"].([]any)) != 0 || len(p["subnets"].([]any)) != 1 || state(content) != "Succeeded" || p["new"] != 1.0 {
		t.Errorf("%d %v", status, content)
	}
}

func TestPages(t *testing.T) {
	w := newWire(func(o *azure.Options) { o.PageSize = 2 })
	path, seen := "/resourceGroups/net/providers/Microsoft.Network/networkInterfaces", 0
	for range 10 {
		_, content, _ := w.do(t, "GET", path, "")
		seen += len(content["value"].([]any))
		next, more := content["nextLink"].(string)
		if !more {
			break
		}
		if _, err := url.Parse(next); err != nil {
			t.Fatal(err)
		}
		path = next
	}
	if seen != 5 {
		t.Errorf("%d interfaces on all pages, want 5", seen)
	}
}

// Packets feel a route only if a subnet uses its table, something has the next
// hop's address, and that forwards.
func TestEffect(t *testing.T) {
	w := newWire()
	var now []cloud.Route
	w.Program = func(routes []cloud.Route) { now = routes }
	via := func() (address netip.Addr) {
		for _, r := range now {
			address = r.Via
		}
		return address
	}
	if status, content, _ := w.do(t, "PUT", tablePath, tableWith(oneRoute)); status != 200 {
		t.Fatal(content)
	}
	alive := netip.MustParseAddr("10.0.0.1")
	for _, step := range []struct {
		name string
		do   func()
		want netip.Addr
	}{
		{"as it is", func() {}, alive},
		{"forwarding off", func() { w.SetForwarding("vm-0-nic", false) }, netip.Addr{}},
		{"forwarding on", func() { w.SetForwarding("vm-0-nic", true) }, alive},
		{"subnet of no table", func() { w.Attach(w.SubnetID("net", "vnet", "nodes"), "") }, netip.Addr{}},
		{"attached again", func() {
			w.Attach(w.SubnetID("net", "vnet", "nodes"), w.ID("net", "Microsoft.Network/routeTables", "routes"))
		}, alive},
		{"machine gone", func() { w.RemoveMachine("azure://" + w.ID("net", "Microsoft.Compute/virtualMachines", "vm-0")) }, netip.Addr{}},
	} {
		if step.do(); via() != step.want {
			t.Errorf("%s: via %v, want %v", step.name, via(), step.want)
		}
	}
}

func TestByHand(t *testing.T) {
	f := flag.NewFlagSet("azure", flag.ContinueOnError)
	newStand := azure.ByHand(f)
	if err := f.Parse([]string{"--machines", "3", "--subnet", "172.31.0.0/24", "--forwarding=false"}); err != nil {
		t.Fatal(err)
	}
	stand, err := newStand()
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/msi/token?resource=https://management.azure.com", nil)
	r.Header.Set("X-Identity-Header", azure.Defaults().IdentityHeader)
	a := httptest.NewRecorder()
	stand.Handler.ServeHTTP(a, r)
	if usage := stand.Usage("http://here"); a.Code != http.StatusOK || !strings.Contains(usage, "IDENTITY_ENDPOINT=http://here/msi/token") {
		t.Errorf("%d %s\n%s", a.Code, a.Body, usage)
	}
	if err := f.Parse([]string{"--subnet", "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := newStand(); err == nil || !strings.Contains(err.Error(), "--subnet") {
		t.Errorf("a bad range: %v", err)
	}
}
