package tencent

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/common"
	tchttp "github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/common/http"
	"github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/common/profile"
	vpcapi "github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/vpc/v20170312"
	"golang.org/x/time/rate"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A client makes calls: one attempt each, with a deadline, fresh keys, and an
// answer of a known class.
type client struct {
	tke     *common.Client
	vpc     *vpcapi.Client
	keys    *keyring
	pace    *rate.Limiter
	timeout time.Duration
	onCall  func(Call)
}

func newClient(c Config) *client {
	keys := newKeyring(c.Credentials)
	api := &client{
		tke:     newServiceClient(c.Endpoint, c.Region),
		vpc:     &vpcapi.Client{Client: *newServiceClient(c.Endpoint, c.Region)},
		keys:    keys,
		pace:    rate.NewLimiter(rate.Limit(c.WritesPerSecond), 1),
		timeout: c.CallTimeout,
		onCall:  c.OnCall,
	}
	name := requestClient(c)
	api.tke.WithCredential(keys).WithRequestClient(name)
	api.vpc.WithCredential(keys).WithRequestClient(name)
	return api
}

// newServiceClient returns an SDK client without credentials and without any
// retry of its own.
func newServiceClient(e Endpoint, region string) *common.Client {
	scheme, host, _ := e.split() // Config.Validate has seen it
	p := profile.NewClientProfile()
	p.Language = "en-US"
	p.HttpProfile.Scheme = scheme
	p.HttpProfile.Endpoint = host
	p.HttpProfile.RootDomain = e.Domain
	p.HttpProfile.ReqTimeout = 0 // each call has a deadline in its context
	transport := e.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	c := &common.Client{}
	return c.Init(region).WithProfile(p).WithHttpTransport(guard{transport})
}

var notInRequestClient = regexp.MustCompile(`[^0-9A-Za-z_ ,;.-]`)

// requestClient names the program, spelled as the SDK lets it through.
func requestClient(c Config) string {
	s := c.Product + " " + c.Version + "; cluster " + c.Owner
	s = notInRequestClient.ReplaceAllString(s, "_")
	return s[:min(len(s), 128)]
}

// read makes a call that changes nothing.
func (c *client) read(ctx context.Context, service, action string, send func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	start := time.Now()
	err := c.keys.refresh(ctx)
	if err == nil {
		err = send(ctx)
	}
	err = classify(service, action, err)
	if vpc.ClassOf(err) == vpc.Denied {
		c.keys.expire() // they may have been replaced
	}
	if c.onCall != nil {
		c.onCall(Call{Action: action, Duration: time.Since(start), Err: err})
	}
	return err
}

// write is read for a call that changes something: it waits for its turn first.
func (c *client) write(ctx context.Context, service, action string, send func(context.Context) error) error {
	if err := c.pace.Wait(ctx); err != nil {
		return classify(service, action, err)
	}
	return c.read(ctx, service, action, send)
}

// newRequest returns the SDK's part of a request struct of ours.
func newRequest(service, version, action string) *tchttp.BaseRequest {
	return new(tchttp.BaseRequest).Init().WithApiInfo(service, version, action)
}

// maxAnswer is the most that is read of one answer, in bytes: a table of 1,000
// routes takes about 300 KiB.
const maxAnswer = 64 << 20

// A guard lets only the API's answers through to the SDK, which puts a whole
// page into its error's text and panics on the JSON text "null".
type guard struct{ next http.RoundTripper }

func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := g.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if text := bytes.TrimSpace(body); len(text) == 0 || text[0] != '{' || !json.Valid(text) {
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return nil, &pageError{response.StatusCode, time.Duration(seconds) * time.Second, string(text[:min(len(text), 80)])}
	}
	response.Header.Set("Content-Type", "application/json") // the SDK reads other types otherwise
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
