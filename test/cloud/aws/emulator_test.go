package aws_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/test/cloud"
	"github.com/vpcroute/vpcroute/test/cloud/aws"
)

// A wire speaks to an emulator by hand.
type wire struct {
	*aws.Emulator
	options aws.Options
}

func newWire(options ...func(*aws.Options)) *wire {
	o := aws.Defaults()
	for _, f := range options {
		f(&o)
	}
	e := aws.New(o)
	e.AddVPC("vpc-1", "rtb-1", netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("fd00:a::/56"))
	e.AddSubnet("vpc-1", "subnet-1", netip.MustParsePrefix("10.0.0.0/20"), "")
	for i := 1; i <= 3; i++ {
		e.AddInterfaces(aws.Interface{ID: fmt.Sprintf("eni-%d", i), Subnet: "subnet-1", Instance: fmt.Sprintf("i-%d", i), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}})
	}
	e.AddInterfaces(aws.Interface{ID: "eni-3b", Subnet: "subnet-1", Instance: "i-3", Device: 1})
	return &wire{e, o}
}

// request signs a form, given as "Name=value Name=value".
func (w *wire) request(t *testing.T, action, form string) *http.Request {
	t.Helper()
	q := url.Values{"Action": {action}, "Version": {"2016-11-15"}}
	for _, field := range strings.Fields(form) {
		name, value, _ := strings.Cut(field, "=")
		q.Set(name, value)
	}
	body := q.Encode()
	r := httptest.NewRequest(http.MethodPost, "http://ec2.test/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w.sign(t, r, body)
	return r
}

func (w *wire) sign(t *testing.T, r *http.Request, body string) {
	t.Helper()
	sum := sha256.Sum256([]byte(body))
	keys := awssdk.Credentials{AccessKeyID: w.options.AccessKeyID, SecretAccessKey: w.options.SecretAccessKey, SessionToken: w.options.Token}
	at := time.Now().Add(w.options.Skew)
	if err := v4.NewSigner().SignHTTP(t.Context(), keys, r, hex.EncodeToString(sum[:]), "ec2", w.options.Region, at); err != nil {
		t.Fatal(err)
	}
}

func (w *wire) do(t *testing.T, r *http.Request) (text, code string, status int) {
	t.Helper()
	a := httptest.NewRecorder()
	w.ServeHTTP(a, r)
	text = a.Body.String()
	var answer struct {
		XMLName xml.Name
		Code    string `xml:"Errors>Error>Code"`
	}
	if err := xml.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if (answer.XMLName.Local == "Response") != (a.Code != http.StatusOK) {
		t.Errorf("HTTP %d with %s", a.Code, text)
	}
	return text, answer.Code, a.Code
}

func (w *wire) call(t *testing.T, action, form string) (text, code string) {
	t.Helper()
	text, code, _ = w.do(t, w.request(t, action, form))
	return text, code
}

// Signatures, tokens and times are checked.
func TestSignature(t *testing.T) {
	tests := []struct {
		name   string
		option func(*aws.Options)
		spoil  func(w *wire, r *http.Request)
		code   string
		status int
	}{
		{"good", nil, func(*wire, *http.Request) {}, "", 200},
		{"good with a token", func(o *aws.Options) { o.Token = "t" }, func(*wire, *http.Request) {}, "", 200},
		{"unsigned", nil, func(_ *wire, r *http.Request) { r.Header.Del("Authorization") }, "MissingAuthenticationToken", 400},
		{"another body", nil, func(_ *wire, r *http.Request) {
			r.Body = http.NoBody
		}, "SignatureDoesNotMatch", 400},
		{"another key id", nil, func(_ *wire, r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "AKIA", "AKIB", 1))
		}, "AuthFailure", 401},
		{"no token", func(o *aws.Options) { o.Token = "t" }, func(_ *wire, r *http.Request) { r.Header.Del("X-Amz-Security-Token") }, "AuthFailure", 401},
		{"another region", nil, func(_ *wire, r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "eu-central-1", "eu-west-1", 1))
		}, "SignatureDoesNotMatch", 400},
		{"an old time", nil, func(_ *wire, r *http.Request) { r.Header.Set("X-Amz-Date", "20200101T000000Z") }, "RequestExpired", 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var options []func(*aws.Options)
			if tt.option != nil {
				options = append(options, tt.option)
			}
			w := newWire(options...)
			r := w.request(t, "DescribeRouteTables", "")
			tt.spoil(w, r)
			if _, code, status := w.do(t, r); code != tt.code || status != tt.status {
				t.Errorf("%q with HTTP %d, want %q with %d", code, status, tt.code, tt.status)
			}
		})
	}
}

// The documented codes, in the order in which calls bring them about.
func TestCodes(t *testing.T) {
	type step struct{ action, form, code string }
	const near = "RouteTableId=rtb-1 DestinationCidrBlock="
	tests := []struct {
		name   string
		option func(*aws.Options)
		steps  []step
	}{
		{"routes", func(o *aws.Options) { o.RoutesPerTable = 3 }, []step{
			{"CreateRoute", near + "10.244.1.0/24 NetworkInterfaceId=eni-1", ""},
			{"CreateRoute", near + "10.244.1.7/24 NetworkInterfaceId=eni-2", "RouteAlreadyExists"}, // the canonical form is there
			{"CreateRoute", near + "10.244.1.0/24 NetworkInterfaceId=eni-1", "RouteAlreadyExists"},
			{"CreateRoute", near + "10.244.2.0/24 NetworkInterfaceId=eni-9", "InvalidNetworkInterfaceID.NotFound"},
			{"CreateRoute", near + "10.244.2.0/24 InstanceId=i-9", "InvalidInstanceID.NotFound"},
			{"CreateRoute", near + "10.244.2.0/24 InstanceId=i-3", "InvalidInstanceID"}, // R083: two interfaces
			{"CreateRoute", near + "10.244.2.0/24 InstanceId=i-2", ""},
			{"CreateRoute", near + "10.244.3.0/24 NetworkInterfaceId=eni-3", "RouteLimitExceeded"}, // the local one counts
			{"CreateRoute", "RouteTableId=rtb-1 DestinationIpv6CidrBlock=fd00:1::/64 NetworkInterfaceId=eni-3", ""},
			{"CreateRoute", near + "10.244.3.0/24", "InvalidParameterCombination"},
			{"CreateRoute", "RouteTableId=rtb-1 NetworkInterfaceId=eni-1", "InvalidParameterCombination"},
			{"CreateRoute", near + "fd00::/64 NetworkInterfaceId=eni-1", "InvalidParameterValue"},
			{"CreateRoute", "RouteTableId=rtb-9 DestinationCidrBlock=10.244.3.0/24 NetworkInterfaceId=eni-1", "InvalidRouteTableID.NotFound"},
			{"ReplaceRoute", near + "10.244.1.0/24 NetworkInterfaceId=eni-2", ""},
			{"ReplaceRoute", near + "10.244.9.0/24 NetworkInterfaceId=eni-2", "InvalidParameterValue"},
			{"ReplaceRoute", near + "10.0.0.0/16 NetworkInterfaceId=eni-2", "InvalidParameterValue"},
			{"DeleteRoute", near + "10.0.0.0/16", "InvalidParameterValue"},
			{"DeleteRoute", near + "10.244.1.0/24", ""},
			{"DeleteRoute", near + "10.244.1.0/24", "InvalidRoute.NotFound"},
		}},
		{"the same route again", func(o *aws.Options) { o.SameRouteSucceeds = true }, []step{
			{"CreateRoute", near + "10.244.1.0/24 NetworkInterfaceId=eni-1", ""},
			{"CreateRoute", near + "10.244.1.0/24 NetworkInterfaceId=eni-1", ""},
			{"CreateRoute", near + "10.244.1.0/24 NetworkInterfaceId=eni-2", "RouteAlreadyExists"},
		}},
		{"the rest", nil, []step{
			{"ModifyNetworkInterfaceAttribute", "NetworkInterfaceId=eni-1 SourceDestCheck.Value=false", ""},
			{"ModifyNetworkInterfaceAttribute", "NetworkInterfaceId=eni-9 SourceDestCheck.Value=false", "InvalidNetworkInterfaceID.NotFound"},
			{"ModifyNetworkInterfaceAttribute", "NetworkInterfaceId=eni-1", "MissingParameter"},
			{"DescribeRouteTables", "MaxResults=101", "InvalidParameterValue"},
			{"DescribeRouteTables", "MaxResults=4", "InvalidParameterValue"},
			{"DescribeRouteTables", "MaxResults=5 NextToken=x", "InvalidParameterValue"},
			{"DescribeRouteTables", "MaxResults=5 RouteTableId.1=rtb-1", "InvalidParameterCombination"},
			{"DescribeRouteTables", "RouteTableId.1=rtb-9", "InvalidRouteTableID.NotFound"},
			{"DescribeRouteTables", "Filter.1.Name=color Filter.1.Value.1=red", "InvalidParameterValue"},
			{"DescribeRouteTables", "Colour=red", "UnknownParameter"},
			{"DescribeNetworkInterfaces", "MaxResults=1000", ""},
			{"DescribeSubnets", "Filter.1.Name=vpc-id Filter.1.Value.1=vpc-1", ""},
			{"DescribeVpcs", "VpcId.1=vpc-9", "InvalidVpcID.NotFound"},
			{"RunInstances", "", "InvalidAction"},
			{"CreateRoute", near + "10.244.1.0/24 NetworkInterfaceId=eni-1 DryRun=true", "DryRunOperation"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.option == nil {
				tt.option = func(*aws.Options) {}
			}
			w := newWire(tt.option)
			for i, s := range tt.steps {
				if _, code := w.call(t, s.action, s.form); code != s.code {
					t.Errorf("step %d, %s %s: code %q, want %q", i, s.action, s.form, code, s.code)
				}
			}
		})
	}
}

// Codes come with the status that the API gives them: a rate limit is a 503.
func TestStatuses(t *testing.T) {
	w := newWire()
	w.Clock = cloud.NewStepClock(time.Now())
	w.DocumentedRates()
	w.Deny("DeleteRoute")
	for i := range 55 {
		_, code, status := w.do(t, w.request(t, "CreateRoute", "DryRun=true"))
		want := [2]any{"DryRunOperation", 412}
		if i >= 50 {
			want = [2]any{"RequestLimitExceeded", 503}
		}
		if got := [2]any{code, status}; got != want {
			t.Errorf("call %d: %v, want %v", i, got, want)
		}
	}
	if _, code, status := w.do(t, w.request(t, "DeleteRoute", "")); code != "UnauthorizedOperation" || status != 403 {
		t.Errorf("%q with HTTP %d, want UnauthorizedOperation with 403", code, status)
	}
	if n := w.Rejected(); n != 5 || w.Writes() != 1 {
		t.Errorf("%d calls were rejected, %d wrote: dry runs do not", n, w.Writes())
	}
}

// What packets feel: nothing of routes to interfaces whose check is on, or whose
// instance is stopped or gone; and what the API then says of such routes.
func TestEffect(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		t.Run(fmt.Sprint("forgets ", forgets), func(t *testing.T) {
			w := newWire(func(o *aws.Options) { o.BlackholeForgets = forgets })
			var shown []string
			w.Program = func(routes []cloud.Route) {
				shown = nil
				for _, r := range routes {
					shown = append(shown, fmt.Sprintf("%s %s %v", r.Table, r.Destination, r.Via))
				}
			}
			for i := 1; i <= 3; i++ {
				w.AddRoute("rtb-1", aws.Route{DestinationCidrBlock: fmt.Sprintf("10.244.%d.0/24", i), NetworkInterfaceID: fmt.Sprintf("eni-%d", i)})
			}
			w.AddRoute("rtb-1", aws.Route{DestinationCidrBlock: "0.0.0.0/0", NatGatewayID: "nat-1"})
			w.SetCheck("eni-1", true)
			w.Stop("i-2")
			w.Terminate("i-3")
			want := []string{"rtb-1 10.244.1.0/24 invalid IP", "rtb-1 10.244.2.0/24 invalid IP", "rtb-1 10.244.3.0/24 invalid IP"}
			if d := cmp.Diff(want, shown); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			last := map[bool]string{false: "eni-3", true: ""}[forgets]
			var got []string
			for _, r := range w.Routes("rtb-1")[2:5] {
				got = append(got, r.State+" "+r.NetworkInterfaceID)
			}
			if d := cmp.Diff([]string{"active eni-1", "blackhole eni-2", "blackhole " + last}, got); d != "" {
				t.Errorf("listed (-want +got):\n%s", d)
			}
			w.SetCheck("eni-1", false)
			w.Start("i-2")
			if shown[0] != "rtb-1 10.244.1.0/24 10.0.0.1" || shown[1] != "rtb-1 10.244.2.0/24 10.0.0.2" {
				t.Errorf("after both were put right: %v", shown)
			}
		})
	}
}

// A route table's answer has its routes, associations and tags inline; a subnet
// without a table of its own is in none.
func TestDescribedRouteTable(t *testing.T) {
	w := newWire()
	w.AddTable("vpc-1", "rtb-2", map[string]string{"k": "v"})
	w.AddSubnet("vpc-1", "subnet-2", netip.MustParsePrefix("10.0.16.0/20"), "rtb-2")
	w.AddRoute("rtb-2", aws.Route{DestinationCidrBlock: "10.244.1.0/24", NetworkInterfaceID: "eni-1"})
	text, _ := w.call(t, "DescribeRouteTables", "Filter.1.Name=tag:k Filter.1.Value.1=u Filter.1.Value.2=v")
	for _, part := range []string{
		"<routeTableId>rtb-2</routeTableId>", "<destinationCidrBlock>10.244.1.0/24</destinationCidrBlock>", "<networkInterfaceId>eni-1</networkInterfaceId>",
		"<instanceId>i-1</instanceId>", "<origin>CreateRoute</origin><state>active</state>", "<gatewayId>local</gatewayId><origin>CreateRouteTable</origin>",
		"<subnetId>subnet-2</subnetId><main>false</main>", "<tagSet><item><key>k</key><value>v</value></item></tagSet>",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the answer lacks %s:\n%s", part, text)
		}
	}
	text, _ = w.call(t, "DescribeRouteTables", "Filter.1.Name=association.main Filter.1.Value.1=true")
	if !strings.Contains(text, "rtb-1") || strings.Contains(text, "rtb-2") || strings.Contains(text, "subnet-1") {
		t.Errorf("the main table:\n%s", text)
	}
}

// Pages follow each other by token until there is none.
func TestPages(t *testing.T) {
	w := newWire()
	for i := range 11 {
		w.AddTable("vpc-1", fmt.Sprintf("rtb-x%02d", i), nil)
	}
	var sizes []int
	for token := ""; ; {
		form := "MaxResults=5"
		if token != "" {
			form += " NextToken=" + token
		}
		text, code := w.call(t, "DescribeRouteTables", form)
		if code != "" {
			t.Fatal(code)
		}
		sizes = append(sizes, strings.Count(text, "<vpcId>"))
		_, rest, more := strings.Cut(text, "<nextToken>")
		if !more {
			break
		}
		token, _, _ = strings.Cut(rest, "<")
	}
	if d := cmp.Diff([]int{5, 5, 2}, sizes); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// By hand: what is printed is what works.
func TestByHand(t *testing.T) {
	f := flag.NewFlagSet("aws", flag.ContinueOnError)
	start := aws.ByHand(f)
	if err := f.Parse([]string{"--instances", "3", "--rates=false"}); err != nil {
		t.Fatal(err)
	}
	stand, err := start()
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{stand.Handler.(*aws.Emulator), aws.Defaults()}
	for i, want := range map[int]string{11: "", 13: "", 14: "InvalidNetworkInterfaceID.NotFound"} {
		form := fmt.Sprintf("RouteTableId=rtb-hand0001 DestinationCidrBlock=10.200.%d.0/24 NetworkInterfaceId=eni-%017x", i, i)
		if _, code := w.call(t, "CreateRoute", form); code != want {
			t.Errorf("instance .%d: %q, want %q", i, code, want)
		}
	}
	if usage := stand.Usage("http://127.0.0.1:1"); !strings.Contains(usage, "export AWS_SECRET_ACCESS_KEY=") || !strings.Contains(usage, "--aws-endpoint http://127.0.0.1:1") {
		t.Errorf("usage:\n%s", usage)
	}
	f = flag.NewFlagSet("aws", flag.ContinueOnError)
	start = aws.ByHand(f)
	_ = f.Parse([]string{"--subnet", "x"})
	if _, err := start(); err == nil {
		t.Error("a bad --subnet passes")
	}
}
