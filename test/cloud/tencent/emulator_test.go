package tencent_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/test/cloud"
	"github.com/vpcroute/vpcroute/test/cloud/tencent"
)

// The SDK is driven against the emulator in pkg/vpc/tencent. Here the wire is
// spoken by hand, so that the emulator is not only right about the SDK.

// A wire is a hand-made client.
type wire struct {
	*tencent.Emulator
	options tencent.Options
}

func newWire(change ...func(*tencent.Options)) *wire {
	o := tencent.Defaults()
	for _, f := range change {
		f(&o)
	}
	e := tencent.New(o)
	e.AddVPC("vpc-1", netip.MustParsePrefix("10.0.0.0/16"))
	e.AddTable("vpc-1", "rtb-1", map[string]string{"k": "v"})
	e.AddSubnet("vpc-1", "subnet-1", netip.MustParsePrefix("10.0.0.0/20"), "rtb-1")
	e.AddClusterTable("cls-1", "vpc-1", netip.MustParsePrefix("10.244.0.0/16"))
	for i := range 9 {
		e.AddMachines("vpc-1", netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}))
	}
	return &wire{e, o}
}

// request builds a signed call as the vendor's documentation describes it.
func (w *wire) request(service, action, body string) *http.Request {
	versions := map[string]string{"tke": "2018-05-25", "vpc": "2017-03-12", "sts": "2018-08-13"}
	r := httptest.NewRequest(http.MethodPost, "http://api.test/", strings.NewReader(body))
	now := time.Now().UTC()
	scope := now.Format("2006-01-02") + "/" + service + "/tc3_request"
	hash := func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) }
	mac := func(key, s string) string {
		h := hmac.New(sha256.New, []byte(key))
		h.Write([]byte(s))
		return string(h.Sum(nil))
	}
	canonical := "POST\n/\n\ncontent-type:application/json\nhost:api.test\n\ncontent-type;host\n" + hash(body)
	text := fmt.Sprintf("TC3-HMAC-SHA256\n%d\n%s\n%s", now.Unix(), scope, hash(canonical))
	key := mac(mac(mac("TC3"+w.options.SecretKey, now.Format("2006-01-02")), service), "tc3_request")
	for name, value := range map[string]string{
		"Content-Type": "application/json", "X-TC-Action": action, "X-TC-Version": versions[service], "X-TC-Region": w.options.Region,
		"X-TC-Timestamp": fmt.Sprint(now.Unix()),
		"Authorization": fmt.Sprintf("TC3-HMAC-SHA256 Credential=%s/%s, SignedHeaders=content-type;host, Signature=%s",
			w.options.SecretID, scope, hex.EncodeToString([]byte(mac(key, text)))),
	} {
		r.Header.Set(name, value)
	}
	return r
}

// do sends a request and returns the answer's content and error code.
func (w *wire) do(t *testing.T, r *http.Request) (content map[string]any, code string) {
	t.Helper()
	a := httptest.NewRecorder()
	w.ServeHTTP(a, r)
	var body struct {
		Response map[string]any
	}
	if err := json.Unmarshal(a.Body.Bytes(), &body); err != nil || a.Code != http.StatusOK || body.Response["RequestId"] == "" {
		t.Fatalf("HTTP %d: %s (%v)", a.Code, a.Body, err)
	}
	if e, ok := body.Response["Error"].(map[string]any); ok {
		return nil, fmt.Sprint(e["Code"])
	}
	return body.Response, ""
}

func (w *wire) call(t *testing.T, service, action, body string) (map[string]any, string) {
	t.Helper()
	return w.do(t, w.request(service, action, body))
}

func TestRequestsThatTheGatewayRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change func(w *wire, r *http.Request)
		want   string
	}{
		{"none", func(*wire, *http.Request) {}, ""},
		{"no authorization", func(_ *wire, r *http.Request) { r.Header.Del("Authorization") }, "AuthFailure.InvalidAuthorization"},
		{"another body than was signed", func(_ *wire, r *http.Request) {
			r.Body = http.NoBody
		}, "AuthFailure.SignatureFailure"},
		{"another host than was signed", func(_ *wire, r *http.Request) { r.Host = "other.test" }, "AuthFailure.SignatureFailure"},
		{"another service's scope", func(_ *wire, r *http.Request) {
			r.Header.Set("X-TC-Action", "DescribeVpcs")
			r.Header.Set("X-TC-Version", "2017-03-12")
		}, "AuthFailure.SignatureFailure"},
		{"a stranger", func(w *wire, r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), w.options.SecretID, "AKIDother", 1))
		}, "AuthFailure.SecretIdNotFound"},
		{"an old request", func(_ *wire, r *http.Request) {
			r.Header.Set("X-TC-Timestamp", fmt.Sprint(time.Now().Add(-6*time.Minute).Unix()))
		}, "AuthFailure.SignatureExpire"},
		{"a token nobody gave out", func(_ *wire, r *http.Request) { r.Header.Set("X-TC-Token", "x") }, "AuthFailure.TokenFailure"},
		{"unknown action", func(_ *wire, r *http.Request) { r.Header.Set("X-TC-Action", "DoIt") }, "InvalidAction"},
		{"unknown version", func(_ *wire, r *http.Request) { r.Header.Set("X-TC-Version", "2020-01-01") }, "NoSuchVersion"},
		{"another region", func(_ *wire, r *http.Request) { r.Header.Set("X-TC-Region", "ap-nowhere") }, "UnsupportedRegion"},
		{"no permission", func(w *wire, _ *http.Request) { w.Deny("DescribeClusterRouteTables") }, "UnauthorizedOperation.CamNoAuth"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWire()
			r := w.request("tke", "DescribeClusterRouteTables", "{}")
			tt.change(w, r)
			if _, code := w.do(t, r); code != tt.want {
				t.Errorf("code %q, want %q", code, tt.want)
			}
		})
	}
}

// Each row is a series of calls on a fresh account: "service action body code".
func TestActions(t *testing.T) {
	type step struct{ service, action, body, code string }
	create := func(cidr, gateway, code string) step {
		return step{"tke", "CreateClusterRoute", fmt.Sprintf(`{"RouteTableName":"cls-1","DestinationCidrBlock":%q,"GatewayIp":%q}`, cidr, gateway), code}
	}
	remove := func(cidr, gateway, code string) step {
		s := create(cidr, gateway, code)
		s.action = "DeleteClusterRoute"
		return s
	}
	route := func(cidr, gateway string) string {
		return fmt.Sprintf(`{"DestinationCidrBlock":%q,"GatewayType":"NORMAL_CVM","GatewayId":%q,"RouteDescription":"d"}`, cidr, gateway)
	}
	routes := func(action, code string, entries ...string) step {
		return step{"vpc", action, fmt.Sprintf(`{"RouteTableId":"rtb-1","Routes":[%s]}`, strings.Join(entries, ",")), code}
	}
	tests := []struct {
		name   string
		option func(*tencent.Options)
		steps  []step
	}{
		{"cluster routes", nil, []step{
			create("10.244.1.0/24", "10.0.0.1", ""),
			create("10.244.1.0/24", "10.0.0.2", "InternalError.CidrConflictWithOtherRoute"),
			create("10.244.0.0/22", "10.0.0.2", "InternalError.CidrConflictWithOtherRoute"),
			create("10.244.2.0/24", "10.0.0.1", "InternalError.GatewayAlreadyAssociatedCidr"),
			create("10.245.2.0/24", "10.0.0.2", "InternalError.CidrOutOfRouteTable"),
			create("10.244.2.0/24", "10.0.0.99", "InternalError.CvmNotFound"),
			create("10.244.2.1/24", "10.0.0.2", "InternalError.Param"),
			{"tke", "CreateClusterRoute", `{"RouteTableName":"x","DestinationCidrBlock":"10.244.2.0/24","GatewayIp":"10.0.0.2"}`, "InternalError.RouteTableNotFound"},
			{"tke", "CreateClusterRoute", `{"RouteTable":"x"}`, "UnknownParameter"},
			{"tke", "DeleteClusterRouteTable", `{"RouteTableName":"cls-1"}`, "InternalError.RouteTableNotEmpty"},
			remove("10.244.1.0/24", "10.0.0.1", ""),
			remove("10.244.1.0/24", "10.0.0.1", ""),
			{"tke", "DeleteClusterRouteTable", `{"RouteTableName":"cls-1"}`, ""},
		}},
		{"the second family of codes", func(o *tencent.Options) { o.TwinCodes, o.MissingRoute = true, tencent.MissingIsParam }, []step{
			create("10.244.1.0/24", "10.0.0.1", ""),
			create("10.244.1.0/24", "10.0.0.2", "InvalidParameter.CidrConflictWithOtherRoute"),
			create("10.244.2.0/24", "10.0.0.1", "InvalidParameter.GatewayAlreadyAssociatedCidr"),
			create("10.244.2.0/24", "10.0.0.99", "InternalError.CvmNotFound"),
			remove("10.244.7.0/24", "10.0.0.1", "FailedOperation.Param"),
			{"tke", "CreateClusterRoute", `{"RouteTableName":"x","DestinationCidrBlock":"10.244.2.0/24","GatewayIp":"10.0.0.2"}`, "ResourceNotFound.RouteTableNotFound"},
			{"tke", "DeleteClusterRoute", `{"RouteTableName":"x","DestinationCidrBlock":"10.244.2.0/24","GatewayIp":"10.0.0.2"}`, "InternalError.RouteTableNotFound"},
		}},
		{"cluster tables", func(o *tencent.Options) { o.ClusterTables = 2 }, []step{
			{"tke", "CreateClusterRouteTable", `{"RouteTableName":"cls-1","RouteTableCidrBlock":"10.96.0.0/14","VpcId":"vpc-1"}`, "InternalError.ResourceExistAlready"},
			{"tke", "CreateClusterRouteTable", `{"RouteTableName":"cls-2","RouteTableCidrBlock":"10.244.128.0/17","VpcId":"vpc-1"}`, "InternalError.CidrConflictWithOtherCluster"},
			{"tke", "CreateClusterRouteTable", `{"RouteTableName":"cls-2","RouteTableCidrBlock":"10.0.128.0/17","VpcId":"vpc-1"}`, "InternalError.CidrConflictWithVpcCidr"},
			{"tke", "CreateClusterRouteTable", `{"RouteTableName":"cls-2","RouteTableCidrBlock":"10.96.0.0/25","VpcId":"vpc-1"}`, "InternalError.Param"},
			{"tke", "CreateClusterRouteTable", `{"RouteTableName":"cls-2","RouteTableCidrBlock":"10.96.0.0/14","VpcId":"vpc-1","IgnoreClusterCidrConflict":0}`, ""},
			{"tke", "CreateClusterRouteTable", `{"RouteTableName":"cls-3","RouteTableCidrBlock":"10.64.0.0/14","VpcId":"vpc-1"}`, "InternalError.QuotaMaxRtLimit"},
		}},
		{"VPC routes", func(o *tencent.Options) { o.RoutesPerTable, o.Batch = 3, 4 }, []step{
			routes("CreateRoutes", "", route("10.200.1.0/24", "10.0.0.1")),
			routes("CreateRoutes", "InvalidParameterValue.Duplicate", route("10.200.1.0/24", "10.0.0.1")),
			routes("CreateRoutes", "UnsupportedOperation.EcmpWithUserRoute", route("10.200.1.0/24", "10.0.0.2")),
			routes("CreateRoutes", "InvalidParameterValue.Duplicate", route("10.200.2.0/24", "10.0.0.2"), route("10.200.2.0/24", "10.0.0.2")),
			routes("CreateRoutes", "InvalidParameterValue.VpcCidrConflict", route("10.0.9.0/24", "10.0.0.2")),
			routes("CreateRoutes", "UnsupportedOperation.ConflictWithDockerRoute", route("10.244.9.0/24", "10.0.0.2")),
			routes("CreateRoutes", "ResourceNotFound", route("10.200.2.0/24", "10.0.0.99")),
			routes("CreateRoutes", "InvalidParameterValue.Malformed", route("10.200.2.1/24", "10.0.0.2")),
			routes("CreateRoutes", "LimitExceeded", route("10.200.2.0/24", "10.0.0.2"), route("10.200.3.0/24", "10.0.0.3"), route("10.200.4.0/24", "10.0.0.4")),
			routes("CreateRoutes", "InvalidParameterValue.LimitExceeded", slices.Repeat([]string{route("10.200.2.0/24", "10.0.0.2")}, 5)...),
			routes("CreateRoutes", "", route("10.200.2.0/24", "10.0.0.2"), route("10.200.3.0/24", "10.0.0.3")), // the batch before left nothing
			routes("DeleteRoutes", "ResourceNotFound", `{"RouteItemId":"rti-1"}`),
			routes("ReplaceRoutes", "UnsupportedOperation.RecordNotExists", `{"RouteItemId":"rti-1","DestinationCidrBlock":"10.200.2.0/24","GatewayType":"NORMAL_CVM","GatewayId":"10.0.0.3"}`),
			{"vpc", "CreateRoutes", `{"RouteTableId":"rtb-9","Routes":[]}`, "ResourceNotFound"},
			{"vpc", "CreateRoutes", `{"RouteTableId":"rtb-1","Routes":[]}`, "MissingParameter"},
		}},
		{"VPC routes with ECMP and partial batches", func(o *tencent.Options) { o.ECMP, o.PartialBatches = true, true }, []step{
			routes("CreateRoutes", "", route("10.200.1.0/24", "10.0.0.1"), route("10.200.1.0/24", "10.0.0.2")),
			routes("CreateRoutes", "ResourceNotFound", route("10.200.2.0/24", "10.0.0.2"), route("10.200.3.0/24", "10.0.0.99")),
			routes("CreateRoutes", "InvalidParameterValue.Duplicate", route("10.200.2.0/24", "10.0.0.2")), // kept
		}},
		{"lists", nil, []step{
			{"vpc", "DescribeRouteTables", `{"Limit":"101"}`, "InvalidParameterValue.Range"},
			{"vpc", "DescribeRouteTables", `{"Limit":100}`, "InvalidParameter"}, // a number: offsets and limits are strings
			{"vpc", "DescribeRouteTables", `{"RouteTableIds":["rtb-9"]}`, "ResourceNotFound"},
			{"vpc", "DescribeRouteTables", `{"RouteTableIds":["rtb-1"],"Filters":[{"Name":"vpc-id","Values":["vpc-1"]}]}`, "InvalidParameter.Coexist"},
			{"vpc", "DescribeRouteTables", `{"Filters":[{"Name":"color","Values":["red"]}]}`, "InvalidParameter.FilterInvalidKey"},
			{"vpc", "DescribeRouteTables", `{"Filters":[{"Name":"tag:k","Values":["v"]},{"Name":"association.main","Values":["TRUE"]}]}`, ""},
			{"vpc", "EnableRoutes", `{"RouteTableId":"rtb-1","RouteIds":[1],"RouteItemIds":["a"]}`, "InvalidParameter.Coexist"},
			{"vpc", "DescribeVpcs", `{"VpcIds":["vpc-9"]}`, "ResourceNotFound"},
			{"tke", "DescribeClusterRoutes", `{"RouteTableName":"cls-1","Filters":[{"Name":"Dest","Values":["x"]}]}`, "InvalidParameter"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.option == nil {
				tt.option = func(*tencent.Options) {}
			}
			w := newWire(tt.option)
			for i, s := range tt.steps {
				if _, code := w.call(t, s.service, s.action, s.body); code != s.code {
					t.Errorf("step %d, %s %s: code %q, want %q", i, s.action, s.body, code, s.code)
				}
			}
		})
	}
}

// What packets feel: cluster routes before VPC routes, nothing of disabled ones,
// and dropped packets where the machine is gone.
func TestEffect(t *testing.T) {
	w := newWire()
	var shown []string
	w.Program = func(routes []cloud.Route) {
		shown = nil
		for _, r := range routes {
			shown = append(shown, fmt.Sprintf("%s %s %v", r.Table, r.Destination, r.Via))
		}
	}
	off := false
	w.AddClusterRoute("cls-1", netip.MustParsePrefix("10.244.1.0/24"), netip.MustParseAddr("10.0.0.1"))
	for _, r := range []tencent.Route{
		{DestinationCidrBlock: "10.244.1.0/24", GatewayType: "NORMAL_CVM", GatewayId: "10.0.0.2"},
		{DestinationCidrBlock: "10.200.1.0/24", GatewayType: "NORMAL_CVM", GatewayId: "10.0.0.3"},
		{DestinationCidrBlock: "10.200.2.0/24", GatewayType: "NORMAL_CVM", GatewayId: "10.0.0.4", Enabled: &off},
		{DestinationCidrBlock: "0.0.0.0/0", GatewayType: "NAT", GatewayId: "nat-1"},
	} {
		w.AddRoute("rtb-1", r)
	}
	w.RemoveMachines("vpc-1", netip.MustParseAddr("10.0.0.3"))
	if d := cmp.Diff([]string{" 10.244.1.0/24 10.0.0.1", "rtb-1 10.200.1.0/24 invalid IP"}, shown); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := w.Routes("rtb-1")[1]; got.GatewayId != "10.0.0.3" {
		t.Errorf("the route to a machine that is gone is listed as %+v", got)
	}
}

// The metadata service gives a role's temporary keys, and the token goes along.
func TestRole(t *testing.T) {
	w := newWire()
	get := func(path string) (string, int) {
		a := httptest.NewRecorder()
		w.ServeHTTP(a, httptest.NewRequest(http.MethodGet, "http://metadata.test/latest/meta-data/cam/security-credentials/"+path, nil))
		return strings.TrimSpace(a.Body.String()), a.Code
	}
	if _, code := get(""); code != http.StatusNotFound {
		t.Errorf("HTTP %d without a role", code)
	}
	w.SetRole("r")
	if name, _ := get(""); name != "r" {
		t.Errorf("the role is %q", name)
	}
	text, _ := get("r")
	var keys struct {
		TmpSecretID  string `json:"TmpSecretId"`
		TmpSecretKey string
		Token        string
	}
	if err := json.Unmarshal([]byte(text), &keys); err != nil {
		t.Fatal(err)
	}
	w.options.SecretID, w.options.SecretKey = keys.TmpSecretID, keys.TmpSecretKey
	r := w.request("tke", "DescribeClusterRouteTables", "{}")
	if _, code := w.do(t, r); code != "AuthFailure.TokenFailure" {
		t.Errorf("without the token: %q", code)
	}
	r = w.request("tke", "DescribeClusterRouteTables", "{}")
	r.Header.Set("X-TC-Token", keys.Token)
	if _, code := w.do(t, r); code != "" {
		t.Errorf("with the token: %q", code)
	}
}

// A route table's answer has its routes, subnets and tags inline, and a null
// where the API has one.
func TestDescribedRouteTable(t *testing.T) {
	w := newWire()
	w.AddRoute("rtb-1", tencent.Route{DestinationCidrBlock: "10.200.1.0/24", GatewayType: "NORMAL_CVM", GatewayId: "10.0.0.3"})
	content, code := w.call(t, "vpc", "DescribeRouteTables", `{"Filters":[{"Name":"vpc-id","Values":["vpc-1"]}],"Offset":"0","Limit":"1"}`)
	if code != "" {
		t.Fatal(code)
	}
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(content); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"TotalCount":1`, `"DestinationCidrBlock":"10.200.1.0/24"`, `"DestinationIpv6CidrBlock":null`, `"RouteType":"USER"`, `"Enabled":true`,
		`"SubnetId":"subnet-1"`, `"Key":"k"`, `"Main":true`,
	} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("the answer lacks %s:\n%s", part, text.String())
		}
	}
}

// The rates of the documentation: 20 writes a second.
func TestDocumentedRates(t *testing.T) {
	w := newWire()
	w.Clock = cloud.NewStepClock(time.Now())
	w.DocumentedRates()
	for i := range 25 {
		_, code := w.call(t, "tke", "DeleteClusterRoute", `{"RouteTableName":"cls-1","DestinationCidrBlock":"10.244.1.0/24","GatewayIp":"10.0.0.1"}`)
		if want := map[bool]string{true: "RequestLimitExceeded"}[i >= 20]; code != want {
			t.Errorf("call %d: %q, want %q", i, code, want)
		}
	}
	if n := w.Rejected(); n != 5 {
		t.Errorf("%d calls were rejected", n)
	}
}

// By hand: what is printed is what works.
func TestByHand(t *testing.T) {
	f := flag.NewFlagSet("tencent", flag.ContinueOnError)
	start := tencent.ByHand(f)
	if err := f.Parse([]string{"--machines", "3", "--rates=false"}); err != nil {
		t.Fatal(err)
	}
	stand, err := start()
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{stand.Handler.(*tencent.Emulator), tencent.Defaults()}
	for i, want := range map[int]string{11: "", 13: "", 14: "ResourceNotFound"} {
		body := fmt.Sprintf(`{"RouteTableId":"rtb-hand0001","Routes":[{"DestinationCidrBlock":"10.200.%d.0/24","GatewayType":"NORMAL_CVM","GatewayId":"172.31.0.%d"}]}`, i, i)
		if _, code := w.call(t, "vpc", "CreateRoutes", body); code != want {
			t.Errorf("machine .%d: %q, want %q", i, code, want)
		}
	}
	if usage := stand.Usage("http://127.0.0.1:1"); !strings.Contains(usage, "export TENCENTCLOUD_SECRET_KEY=") || !strings.Contains(usage, "--tencent-endpoint http://127.0.0.1:1") {
		t.Errorf("usage:\n%s", usage)
	}
	f = flag.NewFlagSet("tencent", flag.ContinueOnError)
	start = tencent.ByHand(f)
	_ = f.Parse([]string{"--subnet", "x"})
	if _, err := start(); err == nil {
		t.Error("a bad --subnet passes")
	}
}
