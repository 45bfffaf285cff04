package azure_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7/fake"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/azure"
	"github.com/vpcroute/vpcroute/pkg/vpc/vpctest"
	emulated "github.com/vpcroute/vpcroute/test/cloud/azure"
)

// A vendorFake is the SDK's own fake of its servers with a table behind it: the
// vendor's encoding, polling and paging, where the emulator's are ours. The fake
// knows no etags, so those are checked in front of it.
type vendorFake struct {
	world *world
	next  *fake.ServerFactoryTransport

	mu      sync.Mutex
	table   armnetwork.RouteTable
	version int
	failing *http.Response
	lost    bool
}

func newVendorFake(w *world) *vendorFake {
	f := &vendorFake{world: w, table: armnetwork.RouteTable{
		ID: to.Ptr(w.tableID(theTable)), Name: to.Ptr(theTable), Location: to.Ptr("westeurope"), Tags: map[string]*string{"cluster": to.Ptr("prod")},
		Properties: &armnetwork.RouteTablePropertiesFormat{
			Subnets: []*armnetwork.Subnet{{ID: to.Ptr(w.near())}}, ProvisioningState: to.Ptr(armnetwork.ProvisioningStateSucceeded),
		},
	}}
	f.next = fake.NewServerFactoryTransport(&fake.ServerFactory{
		RouteTablesServer:     fake.RouteTablesServer{Get: f.get, BeginCreateOrUpdate: f.put},
		InterfacesServer:      fake.InterfacesServer{NewListPager: f.interfaces},
		VirtualNetworksServer: fake.VirtualNetworksServer{Get: f.network},
	})
	return f
}

func (f *vendorFake) etag() string { return fmt.Sprintf(`W/"%d"`, f.version) }

// RoundTrip checks the condition of a write and then has the fake answer. The
// operations that a write starts are asked about at the same path.
func (f *vendorFake) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := r.Context().Err(); err != nil {
		return nil, err // the fake would panic
	}
	if r.Method != http.MethodPut {
		return f.next.Do(r)
	}
	if failing := f.failing; failing != nil {
		f.failing = nil
		failing.Request = r
		return failing, nil
	}
	if want := r.Header.Get("If-Match"); want != f.etag() {
		return answer(r, http.StatusPreconditionFailed, "PreconditionFailed", "the table has "+f.etag()), nil
	}
	a, err := f.next.Do(r)
	if f.lost {
		f.lost = false
		return nil, io.ErrUnexpectedEOF
	}
	return a, err
}

func answer(r *http.Request, status int, code, message string) *http.Response {
	body := fmt.Sprintf(`{"error": {"code": %q, "message": %q}}`, code, message)
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}
}

func (f *vendorFake) shown() armnetwork.RouteTable {
	shown := f.table
	shown.Etag = to.Ptr(f.etag())
	return shown
}

func (f *vendorFake) get(_ context.Context, group, name string, _ *armnetwork.RouteTablesClientGetOptions) (a azfake.Responder[armnetwork.RouteTablesClientGetResponse], e azfake.ErrorResponder) {
	if !strings.EqualFold(group+"/"+name, theGroup+"/"+theTable) {
		e.SetResponseError(http.StatusNotFound, "ResourceNotFound")
		return a, e
	}
	a.SetResponse(http.StatusOK, armnetwork.RouteTablesClientGetResponse{RouteTable: f.shown()}, nil)
	return a, e
}

func (f *vendorFake) put(_ context.Context, _, _ string, table armnetwork.RouteTable, _ *armnetwork.RouteTablesClientBeginCreateOrUpdateOptions) (a azfake.PollerResponder[armnetwork.RouteTablesClientCreateOrUpdateResponse], e azfake.ErrorResponder) {
	f.version++
	f.table = table
	a.AddNonTerminalResponse(http.StatusCreated, nil)
	a.SetTerminalResponse(http.StatusOK, armnetwork.RouteTablesClientCreateOrUpdateResponse{RouteTable: f.shown()}, nil)
	return a, e
}

// interfaces lists those of the world, a few on each page.
func (f *vendorFake) interfaces(string, *armnetwork.InterfacesClientListOptions) (a azfake.PagerResponder[armnetwork.InterfacesClientListResponse]) {
	var page []*armnetwork.Interface
	for i := range 20 {
		page = append(page, &armnetwork.Interface{
			ID: to.Ptr(f.world.ID(theGroup, "Microsoft.Network/networkInterfaces", vmName(i)+"-nic")), Name: to.Ptr(vmName(i) + "-nic"),
			Properties: &armnetwork.InterfacePropertiesFormat{
				EnableIPForwarding: to.Ptr(true),
				VirtualMachine:     &armnetwork.SubResource{ID: to.Ptr(f.world.ID(theGroup, "Microsoft.Compute/virtualMachines", vmName(i)))},
				IPConfigurations:   []*armnetwork.InterfaceIPConfiguration{f.configuration(address(i)), f.configuration(address6(i))},
			},
		})
		if len(page) == 7 || i == 19 {
			a.AddPage(http.StatusOK, armnetwork.InterfacesClientListResponse{InterfaceListResult: armnetwork.InterfaceListResult{Value: page}}, nil)
			page = nil
		}
	}
	return a
}

func (f *vendorFake) configuration(a netip.Addr) *armnetwork.InterfaceIPConfiguration {
	return &armnetwork.InterfaceIPConfiguration{Properties: &armnetwork.InterfaceIPConfigurationPropertiesFormat{
		PrivateIPAddress: to.Ptr(a.String()), Subnet: &armnetwork.Subnet{ID: to.Ptr(f.world.near())},
	}}
}

func (f *vendorFake) network(context.Context, string, string, *armnetwork.VirtualNetworksClientGetOptions) (a azfake.Responder[armnetwork.VirtualNetworksClientGetResponse], e azfake.ErrorResponder) {
	a.SetResponse(http.StatusOK, armnetwork.VirtualNetworksClientGetResponse{VirtualNetwork: armnetwork.VirtualNetwork{
		Name: to.Ptr(theNetwork), Properties: &armnetwork.VirtualNetworkPropertiesFormat{AddressSpace: &armnetwork.AddressSpace{AddressPrefixes: []*string{to.Ptr("10.0.0.0/16")}}},
	}}, nil)
	return a, e
}

// add puts a stranger's route into the table.
func (f *vendorFake) add(r vpc.Route) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	properties := *f.table.Properties
	properties.Routes = append(properties.Routes[:len(properties.Routes):len(properties.Routes)], &armnetwork.Route{
		Name: to.Ptr("stranger-" + strings.ReplaceAll(r.Destination.Addr().StringExpanded(), ":", "-")),
		Properties: &armnetwork.RoutePropertiesFormat{
			AddressPrefix: to.Ptr(r.Destination.String()), NextHopType: to.Ptr(armnetwork.RouteNextHopTypeVirtualAppliance), NextHopIPAddress: to.Ptr(string(r.NextHop)),
		},
	})
	f.table.Properties = &properties
}

func TestVendorFakesKeepTheContract(t *testing.T) {
	statuses := map[vpc.Class]int{
		vpc.Transient: http.StatusInternalServerError, vpc.Throttled: http.StatusTooManyRequests, vpc.Quota: http.StatusBadRequest,
		vpc.InProgress: http.StatusTooManyRequests, vpc.Denied: http.StatusForbidden,
	}
	vpctest.Run(t, func(t *testing.T) vpctest.Harness {
		w := newWorld(func(*emulated.Options) {})
		f := newVendorFake(w)
		w.config.Endpoint = azure.Endpoint{Transport: f}
		w.config.Credential = &azfake.TokenCredential{}
		w.config.MaxRoutes = 12
		table, err := azure.New(t.Context(), w.config)
		if err != nil {
			t.Fatal(err)
		}
		h := vpctest.Harness{
			Table: table, Tables: []string{theTable}, Owner: theCluster, Ranges: []netip.Prefix{clusterCIDR, clusterCIDR6}, Max: 12,
			Dead: w.node(99),
			Put:  func(_ testing.TB, r vpc.Route) { f.add(r) },
			FailNext: func(_ testing.TB, class vpc.Class) bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.failing = answer(nil, statuses[class], codes[class], "planted")
				return true
			},
			LoseAnswer: func(testing.TB) {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.lost = true
			},
		}
		for i := range 20 {
			h.Nodes = append(h.Nodes, w.node(i))
		}
		return h
	})
}
