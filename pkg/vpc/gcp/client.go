package gcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/time/rate"
	compute "google.golang.org/api/compute/v1"
	"google.golang.org/api/option"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A client makes calls for one project: one attempt each, with a deadline and
// an answer of a known class.
type client struct {
	project   string
	service   *compute.Service
	tokens    *tokens
	pace      *rate.Limiter
	timeout   time.Duration
	operation time.Duration
	onCall    func(Call)
}

func newClient(ctx context.Context, c Config) (*client, error) {
	transport := c.Endpoint.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	t := &tokens{file: c.CredentialsFile, client: &http.Client{Transport: transport}}
	options := []option.ClientOption{option.WithHTTPClient(&http.Client{Transport: guard{authorizer{transport, t}}})}
	if base, _ := c.Endpoint.base(); base != "" { // Config.Validate has seen it
		options = append(options, option.WithEndpoint(base))
	}
	service, err := compute.NewService(ctx, options...)
	if err != nil {
		return nil, err
	}
	service.UserAgent = userAgent(c)
	return &client{
		project: c.Project, service: service, tokens: t,
		pace:    rate.NewLimiter(rate.Limit(c.WritesPerSecond), 1),
		timeout: c.CallTimeout, operation: c.OperationTimeout, onCall: c.OnCall,
	}, nil
}

var notInUserAgent = regexp.MustCompile(`[^0-9A-Za-z_.+-]`)

// userAgent names the program and the cluster.
func userAgent(c Config) string {
	version := notInUserAgent.ReplaceAllString(c.Version, "_")
	return fmt.Sprintf("%s/%s (cluster %s)", c.Product, version, c.Owner)
}

// call makes one call within the deadline.
func (c *client) call(ctx context.Context, timeout time.Duration, op string, send func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start := time.Now()
	err := classify(op, send(ctx))
	if c.onCall != nil {
		c.onCall(Call{Action: op, Duration: time.Since(start), Err: err})
	}
	if vpc.ClassOf(err) == vpc.Denied {
		c.tokens.forget() // they may have been replaced
	}
	return err
}

func (c *client) network(ctx context.Context, name string) (n *compute.Network, err error) {
	err = c.call(ctx, c.timeout, "networks.get", func(ctx context.Context) (err error) {
		n, err = c.service.Networks.Get(c.project, name).Context(ctx).Do()
		return err
	})
	return n, err
}

// routes returns every route of a network, page by page. The filter's regular
// expression has to match the whole URL; which host it starts with is not told,
// so the expression leaves that open.
func (c *client) routes(ctx context.Context, network string) (routes []*compute.Route, err error) {
	path := c.networkPath(network)
	filter := fmt.Sprintf("network eq %q", ".*/"+regexp.QuoteMeta(path))
	for token := ""; ; {
		var page *compute.RouteList
		err := c.call(ctx, c.timeout, "routes.list", func(ctx context.Context) (err error) {
			page, err = c.service.Routes.List(c.project).Filter(filter).MaxResults(500).PageToken(token).Context(ctx).Do()
			return err
		})
		if err != nil {
			return nil, err
		}
		if w := page.Warning; w != nil && w.Code != "NO_RESULTS_ON_PAGE" {
			return nil, vpc.Errorf(vpc.Transient, "routes.list: the list may lack routes (%s: %s)", w.Code, w.Message)
		}
		for _, r := range page.Items {
			if tail(r.Network) == path {
				routes = append(routes, r)
			}
		}
		if page.NextPageToken == "" || page.NextPageToken == token {
			return routes, nil
		}
		token = page.NextPageToken
	}
}

func (c *client) route(ctx context.Context, name string) (r *compute.Route, err error) {
	err = c.call(ctx, c.timeout, "routes.get", func(ctx context.Context) (err error) {
		r, err = c.service.Routes.Get(c.project, name).Context(ctx).Do()
		return err
	})
	return r, err
}

// insert makes a route and waits until it is there.
func (c *client) insert(ctx context.Context, r *compute.Route) (*compute.Operation, error) {
	return c.write(ctx, "routes.insert", func(ctx context.Context) (*compute.Operation, error) {
		return c.service.Routes.Insert(c.project, r).Context(ctx).Do()
	})
}

// remove deletes a route and waits until it is gone.
func (c *client) remove(ctx context.Context, name string) (*compute.Operation, error) {
	return c.write(ctx, "routes.delete", func(ctx context.Context) (*compute.Operation, error) {
		return c.service.Routes.Delete(c.project, name).Context(ctx).Do()
	})
}

func (c *client) write(ctx context.Context, op string, send func(context.Context) (*compute.Operation, error)) (o *compute.Operation, err error) {
	err = c.call(ctx, c.timeout, op, func(ctx context.Context) (err error) {
		o, err = send(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.finish(ctx, op, o)
}

// waitPause is the least time between two calls that wait for one operation:
// such a call may return at once, with nothing done.
const waitPause = time.Second

// finish waits until an operation is done, and returns its error.
func (c *client) finish(ctx context.Context, op string, o *compute.Operation) (*compute.Operation, error) {
	end := time.Now().Add(c.operation)
	for o.Status != "DONE" {
		left := time.Until(end)
		if left <= 0 {
			return nil, vpc.Errorf(vpc.Transient, "%s: operation %s is still %s after %s", op, o.Name, o.Status, c.operation)
		}
		began := time.Now()
		err := c.call(ctx, left, "globalOperations.wait", func(ctx context.Context) (err error) {
			o, err = c.service.GlobalOperations.Wait(c.project, o.Name).Context(ctx).Do()
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s was accepted, and what became of it is not known: %w", op, err)
		}
		if o.Status != "DONE" {
			if err := pause(ctx, min(waitPause-time.Since(began), time.Until(end))); err != nil {
				return nil, classify(op, err)
			}
		}
	}
	if err := operationError(o); err != nil {
		return nil, classify(op, err)
	}
	return o, nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// quota returns how many routes the project has and may have; most is 0 when
// the API does not tell.
func (c *client) quota(ctx context.Context) (used, most int, err error) {
	var p *compute.Project
	err = c.call(ctx, c.timeout, "projects.get", func(ctx context.Context) (err error) {
		p, err = c.service.Projects.Get(c.project).Fields("quotas").Context(ctx).Do()
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	for _, q := range p.Quotas {
		if q.Metric == "ROUTES" {
			return int(q.Usage), int(q.Limit), nil
		}
	}
	return 0, 0, nil
}

// maxAnswer is the most that is read of one answer, in bytes: a page of 500
// routes takes some 500 KiB.
const maxAnswer = 64 << 20

// A guard lets only the API's answers through to the SDK, which puts a whole
// page into its error's text and hands on nil for the JSON text "null".
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
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
