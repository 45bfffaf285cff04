package azure

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A client makes calls: one attempt each, with a deadline, and an answer of a
// known class. A write includes the operation that it starts.
type client struct {
	tables       *armnetwork.RouteTablesClient
	interfaces   *armnetwork.InterfacesClient
	networks     *armnetwork.VirtualNetworksClient
	writeTimeout time.Duration
	poll         time.Duration
}

func newClient(c Config) (*client, error) {
	o := &arm.ClientOptions{
		ClientOptions: azcore.ClientOptions{
			Cloud:                           c.Endpoint.configuration(),
			InsecureAllowCredentialWithHTTP: c.Endpoint.plain(),
			Retry:                           policy.RetryOptions{MaxRetries: -1, TryTimeout: c.CallTimeout},
			Telemetry:                       policy.TelemetryOptions{ApplicationID: cutTo(c.Product+"/"+c.Version, 24)},
			PerCallPolicies:                 []policy.Policy{verbatim{}},
		},
		// Else a 409 makes the SDK register the provider and wait.
		DisableRPRegistration: true,
	}
	if c.Endpoint.Transport != nil {
		o.Transport = &http.Client{Transport: c.Endpoint.Transport}
	}
	factory, err := armnetwork.NewClientFactory(c.SubscriptionID, c.Credential, o)
	if err != nil {
		return nil, err
	}
	return &client{
		tables:       factory.NewRouteTablesClient(),
		interfaces:   factory.NewInterfacesClient(),
		networks:     factory.NewVirtualNetworksClient(),
		writeTimeout: c.WriteTimeout,
		poll:         c.PollInterval,
	}, nil
}

func cutTo(text string, n int) string { return text[:min(len(text), n)] }

// verbatim sends the body that the context carries in place of the SDK's, which
// lacks every property that the SDK does not know.
type verbatim struct{}

type bodyKey struct{}

func (verbatim) Do(r *policy.Request) (*http.Response, error) {
	if body, ok := r.Raw().Context().Value(bodyKey{}).([]byte); ok {
		if err := r.SetBody(streaming.NopCloser(bytes.NewReader(body)), "application/json"); err != nil {
			return nil, err
		}
	}
	return r.Next()
}

// guarded is a context for a write of body that is refused when the resource
// has changed since it had the etag.
func guarded(ctx context.Context, etag string, body []byte) context.Context {
	ctx = policy.WithHTTPHeader(ctx, http.Header{"If-Match": {etag}})
	return context.WithValue(ctx, bodyKey{}, body)
}

// table reads a route table.
func (c *client) table(ctx context.Context, ref tableRef) (*document, error) {
	var answer *http.Response
	_, err := c.tables.Get(policy.WithCaptureResponse(ctx, &answer), ref.group, ref.name, nil)
	if err != nil {
		return nil, classify("read "+ref.String(), err)
	}
	body, err := runtime.Payload(answer)
	if err != nil {
		return nil, classify("read "+ref.String(), err)
	}
	return parseTable(ref, body)
}

// tablesOf reads the route tables of a resource group.
func (c *client) tablesOf(ctx context.Context, config Config) (tables []*document, err error) {
	op := "list the route tables of resource group " + config.ResourceGroup
	for pager := c.tables.NewListPager(config.ResourceGroup, nil); pager.More(); {
		var answer *http.Response
		if _, err := pager.NextPage(policy.WithCaptureResponse(ctx, &answer)); err != nil {
			return nil, classify(op, err)
		}
		body, err := runtime.Payload(answer)
		if err != nil {
			return nil, classify(op, err)
		}
		var page struct{ Value []json.RawMessage }
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, classify(op, err)
		}
		for _, raw := range page.Value {
			var head struct{ Name string }
			if err := json.Unmarshal(raw, &head); err != nil {
				return nil, classify(op, err)
			}
			table, err := parseTable(config.tableRef(config.ResourceGroup, head.Name), raw)
			if err != nil {
				return nil, err
			}
			tables = append(tables, table)
		}
	}
	return tables, nil
}

// putTable writes a whole table, unless it changed since it was read, and waits
// until the cloud is done with it.
func (c *client) putTable(ctx context.Context, d *document) error {
	op := "write " + d.ref.String()
	body, err := d.encode()
	if err != nil {
		return classify(op, err)
	}
	return c.write(ctx, op, func(ctx context.Context) error {
		p, err := c.tables.BeginCreateOrUpdate(guarded(ctx, d.etag, body), d.ref.group, d.ref.name, armnetwork.RouteTable{}, nil)
		return wait(ctx, p, err, c.poll)
	})
}

// putInterface writes a network interface in the same way.
func (c *client) putInterface(ctx context.Context, group, name, etag string, body []byte) error {
	return c.write(ctx, "write network interface "+name, func(ctx context.Context) error {
		p, err := c.interfaces.BeginCreateOrUpdate(guarded(ctx, etag, body), group, name, armnetwork.Interface{}, nil)
		return wait(ctx, p, err, c.poll)
	})
}

func (c *client) write(ctx context.Context, op string, send func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.writeTimeout)
	defer cancel()
	return classify(op, send(ctx))
}

// wait polls an operation to its end; the cloud's own hint counts more than the
// interval.
func wait[T any](ctx context.Context, p *runtime.Poller[T], err error, every time.Duration) error {
	if err != nil {
		return err
	}
	_, err = p.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: every})
	return err
}

// rawInterface reads a network interface as it is.
func (c *client) rawInterface(ctx context.Context, group, name string) (etag string, body []byte, err error) {
	op := "read network interface " + name
	var answer *http.Response
	found, err := c.interfaces.Get(policy.WithCaptureResponse(ctx, &answer), group, name, nil)
	if err != nil {
		return "", nil, classify(op, err)
	}
	if body, err = runtime.Payload(answer); err != nil {
		return "", nil, classify(op, err)
	}
	if etag = value(found.Etag); etag == "" {
		return "", nil, vpc.Errorf(vpc.Transient, "%s: the answer has no etag, so a write could not be guarded", op)
	}
	return etag, body, nil
}

// interfacesOf lists the network interfaces of a resource group, or those of a
// uniform scale set in it.
func (c *client) interfacesOf(ctx context.Context, group, scaleSet string) (found []nic, err error) {
	if scaleSet == "" {
		for pager := c.interfaces.NewListPager(group, nil); pager.More(); {
			page, err := pager.NextPage(ctx)
			if err != nil {
				return nil, classify("list the network interfaces of resource group "+group, err)
			}
			found = append(found, nicsOf(page.Value, group, false)...)
		}
		return found, nil
	}
	for pager := c.interfaces.NewListVirtualMachineScaleSetNetworkInterfacesPager(group, scaleSet, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, classify("list the network interfaces of scale set "+scaleSet, err)
		}
		found = append(found, nicsOf(page.Value, group, true)...)
	}
	return found, nil
}

// network reads a virtual network by its id.
func (c *client) network(ctx context.Context, id string) (*armnetwork.VirtualNetwork, error) {
	parsed, err := arm.ParseResourceID(id)
	if err != nil {
		return nil, vpc.Errorf(vpc.Invalid, "virtual network %q: %w", id, err)
	}
	found, err := c.networks.Get(ctx, parsed.ResourceGroupName, parsed.Name, nil)
	if err != nil {
		return nil, classify("read virtual network "+parsed.Name, err)
	}
	return &found.VirtualNetwork, nil
}

// networkOf is the id of the network that a subnet is in.
func networkOf(subnet string) string {
	if i := strings.LastIndex(strings.ToLower(subnet), "/subnets/"); i > 0 {
		return subnet[:i]
	}
	return ""
}

// lastName is the last part of a resource id, for messages.
func lastName(id string) string { return id[strings.LastIndex(id, "/")+1:] }

// shortSubnet names a subnet for messages as NETWORK/SUBNET.
func shortSubnet(id string) string {
	return fmt.Sprintf("%s/%s", lastName(networkOf(id)), lastName(id))
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
