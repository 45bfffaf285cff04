package gcp_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/test/cloud"
	"github.com/vpcroute/vpcroute/test/cloud/gcp"
)

// The SDK is driven against the emulator in pkg/vpc/gcp. Here the wire is spoken
// by hand, so that the emulator is not only right about the SDK.

// A wire is a hand-made client.
type wire struct {
	*gcp.Emulator
	token string
}

const network = "projects/p1/global/networks/n1"

func newWire(t *testing.T, change ...func(*gcp.Options)) *wire {
	o := gcp.Defaults()
	for _, f := range change {
		f(&o)
	}
	w := &wire{Emulator: gcp.New(o)}
	w.AddNetwork("p1", "n1", netip.MustParsePrefix("10.0.0.0/20"))
	w.AddMachines(machine("vm-1", "10.0.0.11"), machine("vm-2", "10.0.0.12"))
	w.token = w.login(t, time.Now())
	return w
}

func machine(name, address string) gcp.Machine {
	return gcp.Machine{Project: "p1", Zone: "z1", Name: name, Network: network, Addresses: addresses(address), CanIPForward: true}
}

func addresses(text string) []netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return nil
	}
	return []netip.Addr{a}
}

// login signs an assertion as RFC 7523 says, at a time, and returns the token
// for it, or "".
func (w *wire) login(t *testing.T, at time.Time) string {
	t.Helper()
	var key struct {
		Email string `json:"client_email"`
		Key   string `json:"private_key"`
		URI   string `json:"token_uri"`
	}
	if err := json.Unmarshal(gcp.Key("http://api.test"), &key); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(key.Key))
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	part := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	signed := part(map[string]string{"alg": "RS256", "typ": "JWT"}) + "." +
		part(map[string]any{"iss": key.Email, "aud": key.URI, "scope": "s", "iat": at.Unix(), "exp": at.Unix() + 3600})
	digest := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, private.(*rsa.PrivateKey), crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {signed + "." + base64.RawURLEncoding.EncodeToString(signature)}}
	r := httptest.NewRequest(http.MethodPost, "http://api.test/token", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	_, body := w.send(r)
	token, _ := body["access_token"].(string)
	return token
}

func (w *wire) send(r *http.Request) (int, map[string]any) {
	answer := httptest.NewRecorder()
	w.ServeHTTP(answer, r)
	var body map[string]any
	_ = json.Unmarshal(answer.Body.Bytes(), &body)
	return answer.Code, body
}

// call makes a call below the project's path, and returns the answer as "STATUS
// REASON", or "200" and its body.
func (w *wire) call(method, path, body string) (string, map[string]any) {
	r := httptest.NewRequest(method, "http://api.test/compute/v1/projects/p1"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+w.token)
	status, content := w.send(r)
	text := fmt.Sprint(status)
	if failure, ok := content["error"].(map[string]any); ok && status != http.StatusOK {
		text += " " + failure["errors"].([]any)[0].(map[string]any)["reason"].(string)
	}
	return text, content
}

// route is the body of an insert by vm-1; more replaces or adds fields.
func route(name, destination string, more ...string) string {
	fields := map[string]any{"name": name, "network": network, "destRange": destination, "nextHopInstance": "projects/p1/zones/z1/instances/vm-1"}
	for i := 0; i < len(more); i += 2 {
		fields[more[i]] = more[i+1]
		if more[i+1] == "" {
			delete(fields, more[i])
		}
	}
	text, _ := json.Marshal(fields)
	return string(text)
}

func names(body map[string]any) (found []string) {
	items, _ := body["items"].([]any)
	for _, i := range items {
		found = append(found, i.(map[string]any)["name"].(string))
	}
	return found
}

func TestInsert(t *testing.T) {
	for name, tt := range map[string]struct{ body, want string }{
		"instance":                    {route("r-2", "10.244.2.0/24"), "200"},
		"IPv6":                        {route("r-2", "fd00::/64"), "200"},
		"address":                     {route("r-2", "10.244.2.0/24", "nextHopInstance", "", "nextHopIp", "10.0.0.99"), "200"},
		"a second one for the range":  {route("r-2", "10.244.1.0/24"), "200"},
		"a name that is taken":        {route("r-1", "10.244.9.0/24"), "409 alreadyExists"},
		"a range of a subnet":         {route("r-2", "10.0.3.0/24"), "400 invalid"},
		"a range around the subnet":   {route("r-2", "10.0.0.0/16"), "200"},
		"host bits":                   {route("r-2", "10.244.2.1/24"), "400 invalid"},
		"a name that is none":         {route("R_2", "10.244.2.0/24"), "400 invalid"},
		"an unknown field":            {route("r-2", "10.244.2.0/24", "nextHop", "x"), "400 badRequest"},
		"no next hop":                 {route("r-2", "10.244.2.0/24", "nextHopInstance", ""), "400 invalidResourceUsage"},
		"two next hops":               {route("r-2", "10.244.2.0/24", "nextHopIp", "10.0.0.11"), "400 invalidResourceUsage"},
		"an instance not there":       {route("r-2", "10.244.2.0/24", "nextHopInstance", "projects/p1/zones/z1/instances/vm-9"), "404 notFound"},
		"another project's instance":  {route("r-2", "10.244.2.0/24", "nextHopInstance", "projects/p2/zones/z1/instances/vm-1"), "400 invalid"},
		"a network not there":         {route("r-2", "10.244.2.0/24", "network", "projects/p1/global/networks/n2"), "404 notFound"},
		"another family's address":    {route("r-2", "fd00::/64", "nextHopInstance", "", "nextHopIp", "10.0.0.11"), "400 invalid"},
		"a network by its whole name": {route("r-2", "10.244.2.0/24", "network", "https://www.googleapis.com/compute/v1/"+network), "200"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			if got, _ := w.call("POST", "/global/routes", route("r-1", "10.244.1.0/24")); got != "200" {
				t.Fatal(got)
			}
			if got, body := w.call("POST", "/global/routes", tt.body); got != tt.want {
				t.Errorf("%s %v, want %s", got, body, tt.want)
			}
		})
	}
}

func TestTokens(t *testing.T) {
	w := newWire(t, func(o *gcp.Options) { o.TokenLifetime = time.Hour })
	if w.login(t, time.Now().Add(-2*time.Hour)) != "" {
		t.Error("an old assertion gives a token")
	}
	if got, _ := w.call("GET", "/global/routes", ""); got != "200" {
		t.Error(got)
	}
	good := w.token
	for _, token := range []string{"", good + "x"} {
		w.token = token
		if got, _ := w.call("GET", "/global/routes", ""); got != "401 authError" {
			t.Errorf("token %q: %s", token, got)
		}
	}
	w.token = good
	w.Revoke()
	if got, _ := w.call("GET", "/global/routes", ""); got != "401 authError" {
		t.Errorf("revoked: %s", got)
	}
}

func TestListPagesAndFilters(t *testing.T) {
	w := newWire(t, func(o *gcp.Options) { o.PageSize = 2 })
	w.AddNetwork("p1", "n1-eu")
	for i := range 4 {
		w.AddRoute("p1", gcp.Route{Name: fmt.Sprintf("r-%d", i), Network: network, DestRange: fmt.Sprintf("10.244.%d.0/24", i), NextHopIP: "10.0.0.11"})
	}
	w.AddRoute("p1", gcp.Route{Name: "s-1", Network: network + "-eu", DestRange: "10.244.9.0/24", NextHopIP: "10.0.0.11"})
	list := func(filter string) (found []string, pages int) {
		for token := ""; ; pages++ {
			got, body := w.call("GET", "/global/routes?maxResults=500&filter="+url.QueryEscape(filter)+"&pageToken="+token, "")
			if got != "200" {
				return []string{got}, pages
			}
			found = append(found, names(body)...)
			if token, _ = body["nextPageToken"].(string); token == "" {
				return found, pages + 1
			}
		}
	}
	ours := []string{"default-route-10-0-0-0-20", "r-0", "r-1", "r-2", "r-3"}
	for filter, want := range map[string][]string{
		"": append(ours, "s-1"),
		`network eq ".*/projects/p1/global/networks/n1"`: ours,
		`network eq "n1"`: nil, // the whole field
		`network = "https://www.googleapis.com/compute/v1/projects/p1/global/networks/n1"`: ours,
		`name eq r-[12]`: {"r-1", "r-2"},
		`priority > 1`:   {"400 invalid"},
	} {
		found, pages := list(filter)
		if d := cmp.Diff(want, found); d != "" {
			t.Errorf("%q (-want +got):\n%s", filter, d)
		}
		if len(want) > 2 && pages < 3 {
			t.Errorf("%q: %d pages", filter, pages)
		}
	}
	if got, _ := w.call("GET", "/global/routes?maxResults=501", ""); got != "400 invalid" {
		t.Errorf("501 results: %s", got)
	}
}

func TestOperations(t *testing.T) {
	w := newWire(t, func(o *gcp.Options) {
		o.OperationTime, o.Routes, o.MissingInOperation, o.Concurrent = time.Minute, 1, true, 2
	})
	clock := cloud.NewStepClock(time.Now())
	w.Clock = clock
	start := func(body string) string {
		got, o := w.call("POST", "/global/routes", body)
		if got != "200" || o["status"] != "RUNNING" {
			t.Fatalf("%s %v", got, o)
		}
		return "/global/operations/" + o["name"].(string)
	}
	code := func(path string) string {
		_, o := w.call("GET", path, "")
		failure, ok := o["error"].(map[string]any)
		if !ok {
			return fmt.Sprint(o["status"])
		}
		return failure["errors"].([]any)[0].(map[string]any)["code"].(string)
	}
	first := start(route("r-1", "10.244.1.0/24"))
	second := start(route("r-2", "10.244.2.0/24", "nextHopInstance", "projects/p1/zones/z1/instances/vm-9"))
	if got, body := w.call("POST", "/global/routes", route("r-3", "10.244.3.0/24")); got != "403 rateLimitExceeded" || !strings.Contains(fmt.Sprint(body), "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED") {
		t.Errorf("a third at once: %s %v", got, body)
	}
	if got, _ := w.call("POST", "/global/routes", route("r-1", "10.244.1.0/24")); got != "409 alreadyExists" {
		t.Errorf("while it is made: %s", got)
	}
	if got, _ := w.call("DELETE", "/global/routes/r-1", ""); got != "400 resourceNotReady" {
		t.Errorf("deleted while it is made: %s", got)
	}
	if lines := w.Routes("p1", "n1"); len(lines) != 0 {
		t.Errorf("already there: %v", lines)
	}
	clock.Step(time.Minute)
	if d := cmp.Diff([]string{"DONE", "QUOTA_EXCEEDED"}, []string{code(first), code(second)}); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got, o := w.call("DELETE", "/global/routes/r-1", ""); got != "200" || o["operationType"] != "delete" {
		t.Errorf("%s %v", got, o)
	}
	clock.Step(time.Minute)
	third := start(route("r-2", "10.244.2.0/24", "nextHopInstance", "projects/p1/zones/z1/instances/vm-9"))
	clock.Step(time.Minute)
	if got := code(third); got != "RESOURCE_NOT_FOUND" {
		t.Errorf("a missing instance: %s", got)
	}
	if got, _ := w.call("GET", "/global/operations/operation-1", ""); got != "404 notFound" {
		t.Errorf("no such operation: %s", got)
	}
}

func TestWaitBlocksForItsTimeOnly(t *testing.T) {
	w := newWire(t, func(o *gcp.Options) { o.OperationTime, o.WaitLimit = time.Hour, 10*time.Millisecond })
	_, o := w.call("POST", "/global/routes", route("r-1", "10.244.1.0/24"))
	if got, o := w.call("POST", "/global/operations/"+o["name"].(string)+"/wait", ""); got != "200" || o["status"] != "RUNNING" {
		t.Errorf("%s %v", got, o)
	}
}

// The quota is filled in at the full minute, and each group has its own.
func TestRatesAtTheMinute(t *testing.T) {
	w := newWire(t)
	clock := cloud.NewStepClock(time.Date(2026, 1, 1, 10, 0, 15, 0, time.UTC))
	w.Clock = clock
	w.DocumentedRates()
	read := func() string { got, _ := w.call("GET", "/global/routes/none", ""); return got }
	for i := range 1500 {
		if got := read(); got != "404 notFound" {
			t.Fatalf("call %d: %s", i, got)
		}
	}
	if got := read(); got != "403 rateLimitExceeded" {
		t.Errorf("the next: %s", got)
	}
	if got, _ := w.call("GET", "/global/routes", ""); got != "200" {
		t.Errorf("a list: %s", got)
	}
	clock.Step(44 * time.Second)
	if got := read(); got != "403 rateLimitExceeded" {
		t.Errorf("at 59 s: %s", got)
	}
	clock.Step(time.Second)
	if got := read(); got != "404 notFound" {
		t.Errorf("at the minute: %s", got)
	}
}

// What packets feel, and what the API warns of.
func TestWarningsAndEffect(t *testing.T) {
	w := newWire(t)
	var felt []cloud.Route
	w.Program = func(routes []cloud.Route) { felt = routes }
	for name, hop := range map[string]string{"r-1": "vm-1", "r-2": "vm-2"} {
		if got, _ := w.call("POST", "/global/routes", route(name, "10.244.1.0/24", "nextHopInstance", "projects/p1/zones/z1/instances/"+hop)); got != "200" {
			t.Fatal(got)
		}
	}
	w.AddRoute("p1", gcp.Route{Name: "r-0", Network: network, DestRange: "10.244.1.0/24", NextHopIP: "10.0.0.12", Priority: new(int64)})
	if felt[0].Via != netip.MustParseAddr("10.0.0.12") || len(felt) != 3 {
		t.Errorf("the route with priority 0 does not win: %v", felt)
	}
	stopped, stuck := machine("vm-1", "10.0.0.11"), machine("vm-1", "10.0.0.11")
	stopped.Stopped, stuck.CanIPForward = true, false
	elsewhere := machine("vm-1", "10.0.0.11")
	elsewhere.Network = "projects/p1/global/networks/n2"
	for code, change := range map[string]func(){
		"NEXT_HOP_NOT_RUNNING":             func() { w.AddMachines(stopped) },
		"NEXT_HOP_CANNOT_IP_FORWARD":       func() { w.AddMachines(stuck) },
		"NEXT_HOP_INSTANCE_NOT_ON_NETWORK": func() { w.AddMachines(elsewhere) },
		"NEXT_HOP_INSTANCE_NOT_FOUND":      func() { w.RemoveMachines(stopped.Path()) },
	} {
		change()
		_, r := w.call("GET", "/global/routes/r-1", "")
		if warnings, _ := r["warnings"].([]any); len(warnings) != 1 || warnings[0].(map[string]any)["code"] != code {
			t.Errorf("%s: %v", code, r["warnings"])
		}
		if felt[1].Via.IsValid() {
			t.Errorf("%s: packets pass: %v", code, felt)
		}
	}
	w.RemoveMachines(machine("vm-2", "").Path())
	if _, r := w.call("GET", "/global/routes/r-0", ""); !strings.Contains(fmt.Sprint(r["warnings"]), "NEXT_HOP_ADDRESS_NOT_ASSIGNED") {
		t.Errorf("an address that nobody has: %v", r["warnings"])
	}
}

func TestListsLag(t *testing.T) {
	w := newWire(t, func(o *gcp.Options) { o.SeeAfter = time.Minute })
	clock := cloud.NewStepClock(time.Now())
	w.Clock = clock
	w.AddMachines(machine("vm-3", "10.0.0.13"))
	clock.Step(2 * time.Minute)
	w.call("POST", "/global/routes", route("r-1", "10.244.1.0/24"))
	for _, want := range []int{1, 2} {
		if _, body := w.call("GET", "/global/routes", ""); len(names(body)) != want {
			t.Errorf("%v, want %d", names(body), want)
		}
		clock.Step(time.Minute)
	}
}

func TestByHand(t *testing.T) {
	f := flag.NewFlagSet("gcp", flag.ContinueOnError)
	start := gcp.ByHand(f)
	if err := f.Parse([]string{"--subnet", "nonsense"}); err != nil {
		t.Fatal(err)
	}
	if _, err := start(); err == nil {
		t.Error("a subnet that is none is taken")
	}
	t.Setenv("TMPDIR", t.TempDir())
	if err := f.Parse([]string{"--subnet", "10.0.0.0/24"}); err != nil {
		t.Fatal(err)
	}
	stand, err := start()
	if err != nil {
		t.Fatal(err)
	}
	if usage := stand.Usage("http://127.0.0.1:1"); !strings.Contains(usage, "GOOGLE_APPLICATION_CREDENTIALS=") || !strings.Contains(usage, "--gcp-endpoint http://127.0.0.1:1") {
		t.Error(usage)
	}
}
